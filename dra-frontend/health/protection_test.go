// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
)

const page = 4096

func uid(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }

// claim returns a claim with a result for each pair of min and low, in bytes.
func protectedClaim(i int, pods []contract.PodRecord, memory ...[2]int64) contract.ClaimRecord {
	c := contract.ClaimRecord{Namespace: "ns", Name: "c", UID: uid(i), Pods: pods}
	for _, m := range memory {
		c.Results = append(c.Results, contract.ResultRecord{Decision: contract.Decision{V: contract.Version,
			Memory: &contract.Memory{Min: contract.Limit(m[0]), Low: contract.Limit(m[1]), High: contract.Max, Max: contract.Max}}})
	}
	return c
}

func pod(i int, qos string) contract.PodRecord { return contract.PodRecord{UID: uid(i), QOS: qos} }

// mount makes a cgroup mount of the files, as a directory like the daemon's.
func mount(t *testing.T, files map[string]string) fs.FS {
	t.Helper()
	dir := t.TempDir()
	for name, value := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(value+"\n"), 0o600))
	}
	return os.DirFS(dir)
}

func TestDirectories(t *testing.T) {
	u := uid(7)
	escaped := strings.ReplaceAll(u, "-", "_")
	for kubepods, want := range map[string]map[string]string{
		"kubepods": {
			contract.LevelKubepods: "kubepods/pod" + u, contract.LevelBurstable: "kubepods/burstable/pod" + u,
			contract.LevelBestEffort: "kubepods/besteffort/pod" + u,
		},
		"a/b/kubepods": {contract.LevelBurstable: "a/b/kubepods/burstable/pod" + u},
		"kubepods.slice": {
			contract.LevelKubepods:   "kubepods.slice/kubepods-pod" + escaped + ".slice",
			contract.LevelBurstable:  "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + escaped + ".slice",
			contract.LevelBestEffort: "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + escaped + ".slice",
		},
		"foo.slice/foo-kubepods.slice": {
			contract.LevelKubepods: "foo.slice/foo-kubepods.slice/foo-kubepods-pod" + escaped + ".slice",
			contract.LevelBurstable: "foo.slice/foo-kubepods.slice/foo-kubepods-burstable.slice/" +
				"foo-kubepods-burstable-pod" + escaped + ".slice",
		},
	} {
		for level, dir := range want {
			require.Equal(t, dir, health.PodDir(kubepods, level, u))
		}
	}
}

// A45: the finding for a claim of 8 MiB with a burstable pod, beside a claim of
// 4 MiB of another pod, on both cgroup drivers.
func TestCheckProtection(t *testing.T) {
	for _, layout := range []struct{ kubepods, level, pod string }{
		{"kubepods", "kubepods/burstable", "kubepods/burstable/pod" + uid(101)},
		{"kubepods.slice", "kubepods.slice/kubepods-burstable.slice",
			"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(uid(101), "-", "_") + ".slice"},
	} {
		well := map[string]string{
			layout.kubepods + "/memory.min": "0", layout.kubepods + "/memory.low": "12582912",
			layout.level + "/memory.min": "0", layout.level + "/memory.low": "12582912",
			layout.pod + "/memory.min": "0", layout.pod + "/memory.low": "8388608",
		}
		low := func(dir string) string { return dir + "/memory.low" }
		for name, tc := range map[string]struct {
			owner       string
			change      map[string]string
			gone        []string
			overwritten map[string]contract.Files
			pending     bool
			unknown     bool
			status      metav1.ConditionStatus
			reason      string
			where       string
			words       []string
			ends        string
		}{
			"protected":            {owner: "driver", status: "True", reason: "Protected"},
			"protected by kubelet": {owner: "kubelet", status: "True", reason: "Protected"},
			"more than needed": {
				owner:  "kubelet",
				change: map[string]string{low(layout.level): "max"},
				status: "True",
				reason: "Protected",
			},
			"the other kind is no help": {
				owner:  "kubelet",
				change: map[string]string{low(layout.kubepods): "0", layout.kubepods + "/memory.min": "max"},
				status: "False",
				reason: "AncestorUnprotected",
				where:  low(layout.kubepods),
			},
			"level one page short": {
				owner:  "driver",
				change: map[string]string{low(layout.level): "12578816"},
				status: "False",
				reason: "AncestorUnprotected",
				where:  low(layout.level),
				words:  []string{"12578816", "12582912", layout.level, "nri-actuator"},
			},
			"kubepods zeroed": {
				owner:  "driver",
				change: map[string]string{low(layout.kubepods): "0"},
				status: "False",
				reason: "AncestorUnprotected",
				where:  low(layout.kubepods),
				words:  []string{"is 0,", "12582912"},
			},
			"not applied yet": {
				owner:   "driver",
				change:  map[string]string{low(layout.kubepods): "0"},
				pending: true,
				status:  "Unknown",
				reason:  "NotStarted",
			},
			"pod not started": {
				owner:  "driver",
				change: map[string]string{low(layout.pod): "0"},
				status: "Unknown",
				reason: "NotStarted",
			},
			"pod not there": {
				owner:  "driver",
				gone:   []string{layout.pod},
				status: "Unknown",
				reason: "NotStarted",
			},
			"pod not there, kubelet's": {
				owner:  "kubelet",
				gone:   []string{layout.pod},
				status: "Unknown",
				reason: "NotStarted",
			},
			"pod short, kubelet's": {
				owner:   "kubelet",
				change:  map[string]string{low(layout.pod): "0"},
				pending: true,
				status:  "False",
				reason:  "AncestorUnprotected",
				where:   low(layout.pod),
				words:   []string{"TieredReservation", "8388608"},
			},
			"owner not known": {
				change: map[string]string{low(layout.kubepods): "0"},
				status: "False",
				reason: "AncestorUnprotected",
				where:  low(layout.kubepods),
				ends:   "need 12582912",
			},
			"nobody's": {
				owner:  "none",
				change: map[string]string{low(layout.pod): "0"},
				status: "False",
				reason: "AncestorUnprotected",
				where:  low(layout.pod),
				words:  []string{`owner "none"`},
			},
			"overwritten level": {
				owner:       "driver",
				overwritten: map[string]contract.Files{"burstable": {"memory.low": "0"}},
				status:      "False",
				reason:      "Overwritten",
				where:       low(layout.level),
				words:       []string{`"0"`, "MemoryQoS"},
			},
			"overwritten kubepods": {
				owner:       "driver",
				overwritten: map[string]contract.Files{"": {"memory.low": "77"}},
				status:      "False",
				reason:      "Overwritten",
				where:       low(layout.kubepods),
				words:       []string{`"77"`},
			},
			"overwritten pod": {
				owner:       "driver",
				overwritten: map[string]contract.Files{uid(101): {"memory.low": "0"}},
				status:      "False",
				reason:      "Overwritten",
				where:       low(layout.pod),
			},
			"overwritten elsewhere": {
				owner: "driver",
				overwritten: map[string]contract.Files{
					"besteffort": {"memory.low": "0"}, uid(102): {"memory.low": "0"}, "": {"memory.min": "0"},
				},
				status: "True",
				reason: "Protected",
			},
			"kubepods not known": {owner: "driver", unknown: true, status: "Unknown", reason: "CgroupsUnknown"},
			"cgroups not shown": {
				owner:  "driver",
				gone:   []string{layout.kubepods},
				status: "Unknown",
				reason: "CgroupsUnknown",
				where:  low(layout.kubepods),
				words:  []string{"sysfsRoot"},
			},
			"not a number": {
				owner:  "driver",
				change: map[string]string{low(layout.level): "many"},
				status: "Unknown",
				reason: "CgroupsUnknown",
				where:  low(layout.level),
				words:  []string{`"many"`},
			},
			"an old file with no number": {
				owner:  "driver",
				change: map[string]string{low(layout.pod): ""},
				status: "Unknown",
				reason: "CgroupsUnknown",
				where:  low(layout.pod),
			},
		} {
			t.Run(layout.kubepods+"/"+name, func(t *testing.T) {
				files := maps.Clone(well)
				maps.Copy(files, tc.change)
				for _, dir := range tc.gone {
					maps.DeleteFunc(files, func(name, _ string) bool { return strings.HasPrefix(name, dir+"/") })
				}
				n := health.Cgroups{Root: mount(t, files), Kubepods: layout.kubepods, Owner: tc.owner, Overwritten: tc.overwritten,
					Pending: tc.pending, PageSize: page}
				if tc.unknown {
					n.Kubepods = ""
				}
				got, err := health.CheckProtection(n, []contract.ClaimRecord{
					protectedClaim(1, []contract.PodRecord{pod(101, contract.LevelBurstable)}, [2]int64{0, 8 << 20}),
					protectedClaim(2, []contract.PodRecord{pod(102, contract.LevelBurstable)}, [2]int64{0, 4 << 20}),
					protectedClaim(3, []contract.PodRecord{pod(101, contract.LevelBurstable)}, [2]int64{0, 0}),
				})
				require.NoError(t, err)
				require.NotContains(t, got, contract.Key{ClaimUID: uid(3)}, "a claim without protection")
				f := got[contract.Key{ClaimUID: uid(1)}]
				require.Equal(t, []string{string(tc.status), tc.reason, tc.where}, []string{string(f.Status), f.Reason, f.Where}, f.Message)
				require.NotEmpty(t, f.Message)
				require.True(t, strings.HasSuffix(f.Message, tc.ends), f.Message)
				for _, words := range tc.words {
					require.Contains(t, f.Message, words)
				}
			})
		}
	}
}

// A45: below a cgroupRoot each directory up to the mount limits protection. The
// driver writes no directory above kubepods, so no value is pending there.
func TestAboveKubepods(t *testing.T) {
	for kubepods, above := range map[string][]string{
		"foo/bar/kubepods": {"foo/bar", "foo"},
		"foo.slice/foo-bar.slice/foo-bar-kubepods.slice": {"foo.slice/foo-bar.slice", "foo.slice"},
	} {
		for _, owner := range []string{config.OwnerDriver, config.OwnerKubelet} {
			files := map[string]string{kubepods + "/memory.min": "4096", health.PodDir(kubepods, "", uid(101)) + "/memory.min": "4096"}
			for _, dir := range above {
				files[dir+"/memory.min"] = "max"
			}
			check := func() health.Protection {
				n := health.Cgroups{
					Root: mount(t, files), Kubepods: kubepods, Owner: owner, PageSize: page, Pending: true,
					// The name "" is kubepods', not an ancestor's.
					Overwritten: map[string]contract.Files{"": {"memory.low": "0"}}}
				got, err := health.CheckProtection(n, []contract.ClaimRecord{
					protectedClaim(1, []contract.PodRecord{pod(101, contract.LevelKubepods)}, [2]int64{page, 0}),
				})
				require.NoError(t, err)
				return got[contract.Key{ClaimUID: uid(1)}]
			}
			require.Equal(t, health.ReasonProtected, check().Reason)
			for _, dir := range above {
				files[dir+"/memory.min"] = "0"
				f := check()
				require.Equal(t, []string{"False", health.ReasonUnprotected, dir + "/memory.min"},
					[]string{string(f.Status), f.Reason, f.Where})
				require.Contains(t, f.Message, "need 4096: neither nri-actuator nor kubelet writes there")
				files[dir+"/memory.min"] = "4096"
			}
		}
	}
}

// While values are pending, claims keep their findings: new claims have raised
// the values that ancestors need.
func TestBehind(t *testing.T) {
	files := map[string]string{"kubepods/memory.min": "8192"}
	var claims []contract.ClaimRecord
	for i := range 4 {
		files["kubepods/pod"+uid(100+i)+"/memory.min"] = "4096"
		claims = append(claims, protectedClaim(i, []contract.PodRecord{pod(100+i, "")}, [2]int64{page, 0}))
	}
	n := health.Cgroups{Root: mount(t, files), Kubepods: "kubepods", Owner: config.OwnerDriver, PageSize: page,
		Pending: true}
	key := func(i int) contract.Key { return contract.Key{ClaimUID: uid(i)} }
	check := func(claims []contract.ClaimRecord) {
		t.Helper()
		got, err := health.CheckProtection(n, claims)
		require.NoError(t, err)
		n.Before = got
	}
	check(claims[:2])
	protected := n.Before[key(0)]
	require.Equal(t, health.ReasonProtected, protected.Reason)
	check(claims)
	require.Equal(t, protected, n.Before[key(0)])
	require.Equal(t, protected, n.Before[key(1)])
	require.Equal(t, health.ReasonNotStarted, n.Before[key(2)].Reason)
	require.Equal(t, health.ReasonNotStarted, n.Before[key(3)].Reason)
	// Another reason counts at once, missing values after the pending time.
	n.Overwritten = map[string]contract.Files{uid(100): {"memory.min": "0"}}
	check(claims)
	require.Equal(t, health.ReasonOverwritten, n.Before[key(0)].Reason)
	n.Overwritten, n.Pending = nil, false
	check(claims)
	for i := range claims {
		require.Equal(t, health.ReasonUnprotected, n.Before[key(i)].Reason)
	}
	// A pod's cgroup that loses its value changes the finding at once if nothing is pending.
	files["kubepods/memory.min"], files["kubepods/pod"+uid(100)+"/memory.min"] = "16384", "0"
	n.Root = mount(t, files)
	check(claims)
	require.Equal(t, health.ReasonNotStarted, n.Before[key(0)].Reason)
	require.Equal(t, health.ReasonProtected, n.Before[key(1)].Reason)
}

// The finding of a result is the worst of all pods.
func TestSharedClaim(t *testing.T) {
	files := map[string]string{
		"kubepods/memory.min": "1048576", "kubepods/memory.low": "max",
		"kubepods/burstable/memory.low": "max", "kubepods/burstable/memory.min": "max",
		"kubepods/pod" + uid(101) + "/memory.min": "max", "kubepods/pod" + uid(101) + "/memory.low": "max",
	}
	n := health.Cgroups{Root: mount(t, files), Kubepods: "kubepods", Owner: config.OwnerDriver, PageSize: page}
	got, err := health.CheckProtection(n, []contract.ClaimRecord{protectedClaim(1,
		[]contract.PodRecord{pod(101, contract.LevelKubepods), pod(102, contract.LevelBurstable)},
		[2]int64{2 << 20, 0}, [2]int64{0, 4 << 20})})
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, health.ReasonUnprotected, got[contract.Key{ClaimUID: uid(1), Index: 0}].Reason)
	require.Equal(t, health.ReasonNotStarted, got[contract.Key{ClaimUID: uid(1), Index: 1}].Reason)
	require.Contains(t, got[contract.Key{ClaimUID: uid(1)}].Message, "need 4194304", "two pods use it")
}

func TestNothingToSay(t *testing.T) {
	got, err := health.CheckProtection(health.Cgroups{}, []contract.ClaimRecord{
		protectedClaim(1, []contract.PodRecord{pod(101, "")}, [2]int64{0, 0}),
		{UID: uid(2), Results: []contract.ResultRecord{{Decision: contract.Decision{CPUs: contracttest.CPUs("1")}}}},
	})
	require.NoError(t, err)
	require.Empty(t, got)
}

// The values of package nodestate protect each claim. One page less in any
// cgroup above or at a claim's pod does not.
func TestSumsProtect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		levels := []string{contract.LevelKubepods, contract.LevelBurstable, contract.LevelBestEffort}
		var claims []contract.ClaimRecord
		files := map[string]int64{}
		add := func(dir string, m [2]int64) {
			files[dir+"/memory.min"] += m[0]
			files[dir+"/memory.low"] += m[1]
		}
		for i := range rapid.IntRange(1, 5).Draw(t, "claims") {
			level := rapid.SampledFrom(levels).Draw(t, "level")
			amount := rapid.Int64Range(1, 1<<30).Draw(t, "pages") * page
			m := [2]int64{amount, 0}
			if rapid.Bool().Draw(t, "low") {
				m = [2]int64{0, amount}
			}
			p := pod(100+i, level)
			claims = append(claims, protectedClaim(i, []contract.PodRecord{p}, m))
			add(health.PodDir("kubepods", level, p.UID), m)
			add("kubepods", m)
			if level != contract.LevelKubepods {
				add(health.LevelDir("kubepods", level), m)
			}
		}
		n := health.Cgroups{Kubepods: "kubepods", Owner: config.OwnerKubelet, PageSize: page}
		check := func() map[contract.Key]health.Protection {
			n.Root = values(files)
			got, err := health.CheckProtection(n, claims)
			require.NoError(t, err)
			return got
		}
		for _, f := range check() {
			require.Equal(t, metav1.ConditionTrue, f.Status, f.Message)
		}
		one := claims[rapid.IntRange(0, len(claims)-1).Draw(t, "one")]
		kind := "/memory.min"
		if one.Results[0].Decision.Memory.Min == 0 {
			kind = "/memory.low"
		}
		level := one.Pods[0].QOS
		cut := rapid.SampledFrom([]string{
			"kubepods", health.LevelDir("kubepods", level), health.PodDir("kubepods", level, one.Pods[0].UID),
		}).Draw(t, "cut")
		files[cut+kind] -= page
		require.Equal(t, health.ReasonUnprotected, check()[contract.Key{ClaimUID: one.UID}].Reason)
	})
}

// FuzzValue: each content of a cgroup file gives a finding, and no panic.
func FuzzValue(f *testing.F) {
	f.Add("max")
	f.Add("4096\n")
	f.Add("-1")
	f.Fuzz(func(t *testing.T, content string) {
		n := health.Cgroups{Root: texts{"kubepods/memory.min": content, "kubepods/pod" + uid(101) + "/memory.min": content},
			Kubepods: "kubepods", Owner: config.OwnerDriver, PageSize: page}
		got, err := health.CheckProtection(n, []contract.ClaimRecord{protectedClaim(1, []contract.PodRecord{pod(101, "")}, [2]int64{page, 0})})
		require.NoError(t, err)
		require.NotEmpty(t, got[contract.Key{ClaimUID: uid(1)}].Reason)
	})
}
