// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
)

// directory writes files as the daemons do, and returns the directory and the CDI
// library's cache of it.
func directory(t *testing.T, contents map[string][]byte) (string, *cdi.Cache) {
	dir := t.TempDir()
	for name, data := range contents {
		require.NoError(t, atomicfile.Write(dir, name, data, 0o600))
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	require.NoError(t, err)
	return dir, cache
}

func TestCDILibraryTakesGoldenFiles(t *testing.T) {
	for _, kind := range []string{"claim", "node", "announcement"} {
		for name, data := range files(t, goldenDir, kind) {
			t.Run(name, func(t *testing.T) {
				dir, cache := directory(t, map[string][]byte{fileName(name): data})
				require.Empty(t, cache.GetErrors())
				spec, err := cdi.ReadSpec(filepath.Join(dir, fileName(name)), 0)
				require.NoError(t, err)
				require.Equal(t, contract.Vendor, spec.GetVendor())
				require.NotEmpty(t, cache.ListDevices())
				for _, device := range cache.ListDevices() {
					require.True(t, parser.IsQualifiedName(device), device)
				}
				// The library can write the spec again.
				require.NoError(t, cache.WriteSpec(spec.Spec, "again"))
			})
		}
	}
}

func TestCDINames(t *testing.T) {
	_, cache := directory(t, map[string][]byte{
		contract.ClaimFile(claimUID): files(t, goldenDir, "claim-several")["claim-several.json"],
	})
	var want []string
	for i := range 3 {
		want = append(want, contract.Key{ClaimUID: claimUID, Index: i}.CDIDevice())
	}
	require.Equal(t, want, cache.ListDevices())
}

func TestTemporaryAndForeignFilesDoNotMatter(t *testing.T) {
	data := files(t, goldenDir, "claim-cpu")["claim-cpu.json"]
	device := contract.Key{ClaimUID: claimUID}.CDIDevice()
	dir, cache := directory(t, map[string][]byte{contract.ClaimFile(claimUID): data})
	for _, content := range [][]byte{data, data[:40]} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "."+contract.ClaimFile(claimUID)+".tmp-1"), content, 0o600))
		require.NoError(t, cache.Refresh(), "a temporary does not define the device a second time")
		require.Equal(t, []string{device}, cache.ListDevices())
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken.json"), []byte("{"), 0o600))
	_, err := cache.InjectDevices(&oci.Spec{}, device)
	require.NoError(t, err, "a broken foreign file does not matter")
}

// variables returns the environment of an OCI spec: values by name.
func variables(spec *oci.Spec) map[string][]string {
	vars := map[string][]string{}
	for _, env := range spec.Process.Env {
		name, value, _ := strings.Cut(env, "=")
		vars[name] = append(vars[name], value)
	}
	return vars
}

func TestInjection(t *testing.T) {
	several := files(t, goldenDir, "claim-several")["claim-several.json"]
	guarded, err := contract.DecodeClaim(contract.ClaimFile(claimUID), files(t, goldenDir, "claim-guard")["claim-guard.json"])
	require.NoError(t, err)
	guarded.UID = otherUID
	other, err := contract.EncodeClaim(guarded)
	require.NoError(t, err)
	_, cache := directory(t, map[string][]byte{
		contract.ClaimFile(claimUID): several, contract.ClaimFile(otherUID): other,
		contract.NodeFile: files(t, goldenDir, "node")["node.json"],
	})
	require.Empty(t, cache.GetErrors())
	entries, err := contract.DecodeClaimEntries(claimUID, several)
	require.NoError(t, err)
	key := func(i int) contract.Key { return contract.Key{ClaimUID: claimUID, Index: i} }
	guard := contract.Key{ClaimUID: otherUID}

	for name, tc := range map[string]struct {
		devices []string
		keys    []contract.Key
		hooks   int
	}{
		"one device":             {[]string{key(0).CDIDevice()}, []contract.Key{key(0)}, 0},
		"two devices of a claim": {[]string{key(2).CDIDevice(), key(0).CDIDevice()}, []contract.Key{key(0), key(2)}, 0},
		"two claims and a guard": {[]string{key(1).CDIDevice(), guard.CDIDevice()}, []contract.Key{key(1), guard}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &oci.Spec{Process: &oci.Process{Env: []string{"PATH=/bin"}}}
			_, err := cache.InjectDevices(spec, tc.devices...)
			require.NoError(t, err)
			require.Contains(t, spec.Process.Env, "PATH=/bin")

			// The actuator reads the container's environment like this.
			decisions := map[contract.Key]contract.Decision{}
			for _, env := range spec.Process.Env {
				k, d, ours, err := contract.ParseEnv(env, nil)
				require.NoError(t, err)
				if ours {
					decisions[k] = d
					if k.ClaimUID == claimUID {
						require.Equal(t, entries[k], env, "byte for byte what the file has")
					}
				}
			}
			require.Equal(t, tc.keys, contract.KeysOf(decisions))
			require.NoError(t, contract.Merge(decisions).Validate())
			for name, values := range variables(spec) {
				require.Len(t, slices.Compact(values), 1, "%s has one value", name)
			}

			if tc.hooks == 0 {
				require.Nil(t, spec.Hooks)
				return
			}
			require.Len(t, spec.Hooks.CreateRuntime, tc.hooks)
			hook := spec.Hooks.CreateRuntime[0]
			require.Equal(t, "/opt/dra.cpumem/bin/nri-actuator", hook.Path)
			require.Equal(t, []string{"nri-actuator", "guard"}, hook.Args)
			require.NotNil(t, hook.Timeout)
		})
	}
	t.Run("cpuset of the workload", func(t *testing.T) {
		spec := &oci.Spec{Process: &oci.Process{}}
		_, err := cache.InjectDevices(spec, key(0).CDIDevice(), key(2).CDIDevice())
		require.NoError(t, err)
		values := slices.Compact(variables(spec)[contract.CPUSetEnvPrefix+claimUID])
		require.Equal(t, []string{"4-7,12-13,15"}, values, "the union, the same from each device")
	})
	t.Run("removed claim", func(t *testing.T) {
		unresolved, err := cache.InjectDevices(&oci.Spec{}, contract.Key{ClaimUID: claimUID, Index: 9}.CDIDevice())
		require.Error(t, err, "a container without its claim does not start")
		require.Len(t, unresolved, 1)
	})
}

// A container with two claims has each file system once, and keeps its own volumes.
func TestMountInjection(t *testing.T) {
	mounted := files(t, goldenDir, "claim-hugetlbfs")["claim-hugetlbfs.json"]
	again, err := contract.DecodeClaim(contract.ClaimFile(claimUID), mounted)
	require.NoError(t, err)
	again.UID = otherUID
	other, err := contract.EncodeClaim(again)
	require.NoError(t, err)
	_, cache := directory(t, map[string][]byte{contract.ClaimFile(claimUID): mounted, contract.ClaimFile(otherUID): other})
	require.Empty(t, cache.GetErrors())
	spec := &oci.Spec{
		Process: &oci.Process{},
		Mounts:  []oci.Mount{{Destination: "/dev", Type: "tmpfs"}, {Destination: "/volume", Type: "bind"}},
	}
	_, err = cache.InjectDevices(spec, contract.Key{ClaimUID: claimUID}.CDIDevice(), contract.Key{ClaimUID: otherUID}.CDIDevice())
	require.NoError(t, err)
	var got []string
	for _, m := range spec.Mounts {
		got = append(got, m.Type+" "+m.Destination+" "+strings.Join(m.Options, ","))
	}
	require.Equal(t, []string{"tmpfs /dev ", "bind /volume ",
		"hugetlbfs /dev/hugepages-1Gi pagesize=1G,mode=1777,nosuid,nodev",
		"hugetlbfs /dev/hugepages-2Mi pagesize=2M,mode=1777,nosuid,nodev"}, got)
}

// Runtimes read the files as YAML, which accepts fewer texts than JSON.
func TestCDILibraryTakesAnyText(t *testing.T) {
	for name, text := range map[string]string{
		"markup":        "<a href=\"x\">&amp;</a>",
		"yaml":          "- a: !!b &c *c # d\n---\n%e",
		"escapes":       "\\u0041\t\b\x00\x1f",
		"delete":        "\x7f",
		"C1":            "\u0085\u009f",
		"separators":    "\u2028\u2029",
		"byte order":    "\ufeff",
		"non-character": "\uffff",
		"astral":        "\U0001f600",
	} {
		t.Run(name, func(t *testing.T) {
			r, err := contract.DecodeClaim(contract.ClaimFile(claimUID), files(t, goldenDir, "claim-cpu")["claim-cpu.json"])
			require.NoError(t, err)
			r.Results[0].Parameters = map[string]string{"text": text}
			data, err := contract.EncodeClaim(r)
			require.NoError(t, err)
			_, cache := directory(t, map[string][]byte{contract.ClaimFile(claimUID): data})
			require.Empty(t, cache.GetErrors())
			spec := cache.GetVendorSpecs(contract.Vendor)[0]
			require.Equal(t, record(t, data), spec.Annotations[recordAnnotation])
			got, err := contract.DecodeClaim(contract.ClaimFile(claimUID), data)
			require.NoError(t, err)
			require.Equal(t, r, got)
		})
	}
}

// The library takes a large node file.
func TestCDILibraryTakesALargeNodeFile(t *testing.T) {
	s, err := contract.DecodeNode(files(t, goldenDir, "node")["node.json"])
	require.NoError(t, err)
	pod := slices.Collect(maps.Values(s.Pods))[0]
	for i := range 500 {
		s.Pods[fmt.Sprintf("%08x-1111-4222-8333-444455556666", i)] = pod
	}
	data, err := contract.EncodeNode(s)
	require.NoError(t, err)
	_, cache := directory(t, map[string][]byte{contract.NodeFile: data})
	require.Empty(t, cache.GetErrors())
	require.NoError(t, validator(t).File(data))
}
