// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/inspect"
)

const (
	claimA = "aaaaaaaa-0000-0000-0000-000000000001"
	claimB = "bbbbbbbb-0000-0000-0000-000000000002"
	podUID = "cccccccc-0000-0000-0000-000000000003"
)

func write(t *testing.T, dir, name string, data []byte, err error) {
	t.Helper()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
}

func claim(uid, cpus string) contract.ClaimRecord {
	return contract.ClaimRecord{
		V: contract.Version, Namespace: "default", Name: "claim-" + uid[:1], UID: uid, BootID: "boot",
		Pods: []contract.PodRecord{{UID: podUID}},
		Results: []contract.ResultRecord{{Request: "zone", Pool: "node", Device: "numa-0", Decision: contract.Decision{
			V: contract.Version, CPUs: contracttest.CPUs(cpus), Mems: contracttest.NUMANodes("0"),
			Memory:    &contract.Memory{Min: 4096, High: contract.Max, Max: 4096},
			Hugepages: map[string]contract.Limit{"2Mi": 2 << 20},
		}}},
	}
}

// directory writes a directory with two claims, consistent unless a CPU is
// given twice.
func directory(t *testing.T, cpusA, cpusB, shared string) string {
	dir := t.TempDir()
	writeFiles(t, dir, nodeState(shared, claimA, claimB), nil, claim(claimA, cpusA), claim(claimB, cpusB))
	return dir
}

func nodeState(shared string, claims ...string) contract.NodeState {
	return contract.NodeState{
		V: contract.Version, Generation: 7, BootID: "boot", Shared: contract.Shared{CPUs: contracttest.CPUs(shared),
			Mems: contracttest.NUMANodes("0")},
		Pods: map[string]contract.PodState{podUID: {Claims: claims}},
	}
}

func writeFiles(t *testing.T, dir string, node contract.NodeState, invalid map[string]string, claims ...contract.ClaimRecord) {
	t.Helper()
	for _, c := range claims {
		data, err := contract.EncodeClaim(c)
		write(t, dir, contract.ClaimFile(c.UID), data, err)
	}
	data, err := contract.EncodeNode(node)
	write(t, dir, contract.NodeFile, data, err)

	data, err = contract.EncodeAnnouncement(contract.Announcement{
		V: contract.Version, Versions: []string{contract.Version}, Connected: true, Runtime: "containerd",
		Kubepods: "kubepods", InvalidPartitions: invalid,
	})
	write(t, dir, contract.ActuatorFile, data, err)
	f, err := os.OpenFile(filepath.Join(dir, contract.ActuatorFile), os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, contract.LockAnnouncement(f))
	t.Cleanup(func() { f.Close() })
}

func TestExplain(t *testing.T) {
	d, err := inspect.Read(directory(t, "2", "3", "0-1"))
	require.NoError(t, err)
	require.NoError(t, d.Valid())
	var out bytes.Buffer
	require.NoError(t, d.Explain(&out, ""))
	require.Contains(t, out.String(), "HUGEPAGES  POD UIDS\n")
	require.Contains(t, out.String(), "default/claim-a  zone     numa-0  2     0     4Ki/0/max/4Ki            2Mi=2Mi    "+podUID)
	require.Contains(t, out.String(), "shared pool: cpus 0-1, mems 0 (generation 7)")
	require.Contains(t, out.String(), "actuator: containerd")

	out.Reset()
	require.NoError(t, d.Explain(&out, "default/claim-b"))
	require.NotContains(t, out.String(), "claim-a")
}

// The actuator's texts come bounded and printable to the terminal.
func TestExplainTextsOfTheActuator(t *testing.T) {
	const hostile, shown = "\x1b[31m", "?[31m"
	long := strings.Repeat("x", 400)
	for name, tc := range map[string]struct {
		actuator contract.Announcement
		want     string
	}{
		"as usual": {contract.Announcement{Runtime: "containerd", RuntimeVersion: "v2.3", Guard: "/g"}, "actuator: containerd v2.3, "},
		"no guard": {contract.Announcement{}, "guard off\n"},
		"runtime":  {contract.Announcement{Runtime: hostile + long}, "actuator: " + shown + long[:295] + "... (105 bytes more) , "},
		"version":  {contract.Announcement{RuntimeVersion: hostile + long}, " " + shown + long[:295] + "... (105 bytes more), "},
		"guard":    {contract.Announcement{Guard: "/" + hostile}, "guard /" + shown + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, inspect.Directory{Actuator: &tc.actuator}.Explain(&out, ""))
			require.Contains(t, out.String(), tc.want)
		})
	}
}

// The text is the same as in the claims' status.
func TestExplainProtection(t *testing.T) {
	d, err := inspect.Read(directory(t, "2", "3", "0-1"))
	require.NoError(t, err)
	file := func(value string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(value)} }
	cgroups := fstest.MapFS{"kubepods/memory.min": file("8192"), "kubepods/pod" + podUID + "/memory.min": file("8192")}
	explain := func(claim string) string {
		var out bytes.Buffer
		require.NoError(t, d.ExplainProtection(&out, claim, cgroups, 4096))
		return out.String()
	}
	require.Contains(t, explain(""), "memory protection of default/claim-a, zone: True, Protected: ")
	require.NotContains(t, explain("default/claim-b"), "claim-a")
	cgroups["kubepods/memory.min"] = file("4096")
	require.Contains(t, explain(""),
		"memory protection of default/claim-b, zone: False, AncestorUnprotected: memory.min of the cgroup kubepods is 4096")
	require.NotContains(t, explain(""), "kubelet", "the files do not say who owns it")
}

func TestProblems(t *testing.T) {
	for name, tc := range map[string]struct {
		dir  func(t *testing.T) string
		is   error // nil if no program looks for it
		want string
	}{
		"a CPU in two claims": {
			dir:  func(t *testing.T) string { return directory(t, "2", "2-3", "0-1") },
			want: "CPU 2 is held by two claims, default/claim-a (" + claimA + ") and default/claim-b (" + claimB + ")",
		},
		"a CPU in the pool too": {
			dir:  func(t *testing.T) string { return directory(t, "2", "3", "0-2") },
			want: "CPU 2 is held by claim default/claim-a (" + claimA + ") and in the shared pool",
		},
		"a truncated file": {
			dir: func(t *testing.T) string {
				dir := directory(t, "2", "3", "0-1")
				require.NoError(t, os.Truncate(filepath.Join(dir, contract.ClaimFile(claimA)), 10))
				return dir
			},
			want: contract.ClaimFile(claimA),
		},
		"a claim of another boot": {
			dir: func(t *testing.T) string {
				dir, old := directory(t, "2", "3", "0-1"), claim(claimA, "2")
				old.BootID = "before"
				data, err := contract.EncodeClaim(old)
				write(t, dir, contract.ClaimFile(claimA), data, err)
				return dir
			},
			is:   inspect.ErrOtherBoot,
			want: "claim of another boot: default/claim-a (" + claimA + ") was prepared during boot before, the node state is of boot boot",
		},
		"a claim without its file": {
			dir: func(t *testing.T) string {
				dir := directory(t, "2", "3", "0-1")
				require.NoError(t, os.Remove(filepath.Join(dir, contract.ClaimFile(claimA))))
				return dir
			},
			want: "the node state lists the claim with UID " + claimA + " for the pod with UID " + podUID + ": the claim has no readable file",
		},
		"an empty directory": {dir: func(t *testing.T) string { return t.TempDir() }, is: os.ErrNotExist, want: contract.NodeFile},
		"no actuator":        {dir: func(t *testing.T) string { return t.TempDir() }, is: contract.ErrActuatorDead, want: "no "},
		"an actuator that is not connected": {
			dir: func(t *testing.T) string {
				dir := directory(t, "2", "3", "0-1")
				data, err := contract.EncodeAnnouncement(contract.Announcement{V: contract.Version})
				require.NoError(t, err)
				// The lock is of the file.
				f, err := os.OpenFile(filepath.Join(dir, contract.ActuatorFile), os.O_WRONLY|os.O_TRUNC, 0)
				require.NoError(t, err)
				defer f.Close()
				_, err = f.Write(data)
				require.NoError(t, err)
				return dir
			},
			is:   inspect.ErrNotConnected,
			want: "actuator: not connected to the container runtime",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tc.dir(t)
			synctest.Test(t, func(t *testing.T) {
				d, err := inspect.Read(dir)
				require.NoError(t, err)
				require.ErrorContains(t, d.Valid(), tc.want)
				if tc.is != nil {
					require.ErrorIs(t, d.Valid(), tc.is)
				}
			})
		})
	}
	_, err := inspect.Read(filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// The daemons write one file after the other. What is between two writes is no problem.
func TestReadWhileFilesAreWritten(t *testing.T) {
	encoded := func(n contract.NodeState) []byte {
		data, err := contract.EncodeNode(n)
		require.NoError(t, err)
		return data
	}
	fileB, err := contract.EncodeClaim(claim(claimB, "3"))
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		first map[string][]byte // of the directory while it is read first; nil for no file
		then  []byte            // of the file that is written later
		file  string
		want  string
	}{
		"a claim is added: its file comes after the node state": {
			first: map[string][]byte{contract.ClaimFile(claimB): nil},
			file:  contract.ClaimFile(claimB),
			then:  fileB,
		},
		"a claim is removed: the node state comes after its file": {
			first: map[string][]byte{contract.ClaimFile(claimB): nil},
			file:  contract.NodeFile,
			then:  encoded(nodeState("0-1,3", claimA)),
		},
		"a node state of before is replaced": {
			first: map[string][]byte{contract.NodeFile: encoded(nodeState("0-1,3", claimA))},
			file:  contract.NodeFile,
			then:  encoded(nodeState("0-1", claimA, claimB)),
		},
		"the problem that stays is kept": {
			first: map[string][]byte{contract.NodeFile: encoded(nodeState("0-3", claimA, claimB))},
			file:  contract.NodeFile,
			then:  encoded(nodeState("0-2", claimA, claimB)),
			want:  "CPU 2 is held by claim default/claim-a (" + claimA + ") and in the shared pool",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := directory(t, "2", "3", "0-1")
			for file, content := range tc.first {
				require.NoError(t, os.Remove(filepath.Join(dir, file)))
				if content != nil {
					write(t, dir, file, content, nil)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				time.AfterFunc(300*time.Millisecond, func() {
					assert.NoError(t, os.WriteFile(filepath.Join(dir, tc.file), tc.then, 0o600))
				})
				d, err := inspect.Read(dir)
				require.NoError(t, err)
				if tc.want == "" {
					require.NoError(t, d.Valid())
				} else {
					require.EqualError(t, d.Valid(), tc.want)
				}
			})
		})
	}
}

// A problem of the last reading alone is between two writes as well.
func TestReadWhileFilesAreWrittenAgainAndAgain(t *testing.T) {
	dir := directory(t, "2", "3", "0-1")
	synctest.Test(t, func(t *testing.T) {
		for i := range 6 {
			cpus := []string{"0-2", "0-1,3"}[i%2]
			data, err := contract.EncodeNode(nodeState(cpus, claimA, claimB))
			require.NoError(t, err)
			time.AfterFunc(time.Duration(i)*250*time.Millisecond-100*time.Millisecond, func() {
				assert.NoError(t, os.WriteFile(filepath.Join(dir, contract.NodeFile), data, 0o600))
			})
		}
		synctest.Wait()
		d, err := inspect.Read(dir)
		require.NoError(t, err)
		require.NoError(t, d.Valid())
	})
}
