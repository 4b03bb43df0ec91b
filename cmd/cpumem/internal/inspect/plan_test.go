// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/inspect"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
)

// cgroup makes a cgroup of plain files below root.
func cgroup(t *testing.T, root, dir string, files map[string]string) {
	require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(root, dir, name), []byte(content+"\n"), 0o600))
	}
}

func TestPlan(t *testing.T) {
	const pod = "kubepods/pod" + podUID
	claimed := claim(claimA, "2")
	cdi := t.TempDir()
	writeFiles(t, cdi, contract.NodeState{
		V: contract.Version, Generation: 7, BootID: "boot",
		Shared:    contract.Shared{CPUs: contracttest.CPUs("0-1"), Mems: contracttest.NUMANodes("0")},
		Pods:      map[string]contract.PodState{podUID: {Claims: []string{claimA}, Cgroup: contract.Files{"memory.min": "4096"}}},
		Ancestors: map[string]contract.Files{"": {"memory.min": "4096"}},
	}, nil, claimed)
	entry, err := claimed.Results[0].Decision.Env(contract.Key{ClaimUID: claimA})
	require.NoError(t, err)

	root := t.TempDir()
	cpuset := map[string]string{"cpuset.cpus.exclusive": "", "cpuset.cpus.partition": "member"}
	cgroup(t, root, "kubepods", cpuset)
	cgroup(t, root, "kubepods", map[string]string{"memory.min": "0"})
	cgroup(t, root, pod, map[string]string{"memory.min": "4096", "cpuset.cpus.exclusive": "", "cpuset.cpus.partition": "member"})
	container := func(name, pid string, files map[string]string) {
		cgroup(t, root, pod+"/"+name, cpuset)
		cgroup(t, root, pod+"/"+name, map[string]string{"cgroup.procs": pid})
		cgroup(t, root, pod+"/"+name, files)
	}
	container("claimed", "12\n13", map[string]string{
		"cpuset.cpus": "0-2", "cpuset.mems": "0", "memory.min": "4096", "memory.low": "0", "memory.high": "max", "memory.max": "4096",
		"hugetlb.2MB.max": "2097152", "hugetlb.2MB.rsvd.max": "2097152",
	})
	container("sandbox", "14", map[string]string{"cpuset.cpus": ""})
	container("ended", "", nil)
	proc := fstest.MapFS{
		"sys/kernel/random/boot_id": {Data: []byte("boot\n")},
		"12/environ":                {Data: []byte("A=1\x00" + entry + "\x00")},
		"14/environ":                {Data: []byte("A=1\x00")},
	}
	text := func() string {
		plan, err := inspect.ReadPlan(cdi, root, proc)
		require.NoError(t, err)
		var out bytes.Buffer
		plan.Write(&out)
		return out.String()
	}
	require.Equal(t, strings.Join([]string{
		`plan: kubepods/memory.min: "0" becomes "4096" (its former value is saved)`,
		`plan: ` + pod + `/claimed/cpuset.cpus: "0-2" becomes "2"`,
		`plan: containers that are left out: 2`,
		`  ` + pod + `/ended: no process`,
		`  ` + pod + `/sandbox: no claim, and the actuator has written nothing: a sandbox, a container that another program pinned, ` +
			`or one that was created while no actuator was there`,
		``,
	}, "\n"), text())

	// The plan's own steps bring the cgroups there.
	plan, err := inspect.ReadPlan(cdi, root, proc)
	require.NoError(t, err)
	mount, err := cgroups.Open(root)
	require.NoError(t, err)
	defer mount.Close()
	for _, step := range plan.Steps {
		require.NoError(t, mount.WriteStep(step))
	}
	require.Contains(t, text(), "plan: the cgroups have what the node state demands, except containers that are left out\n")

	// A container gets the pool while none of its CPUs can be used, as by the actuator.
	cgroup(t, root, "kubepods", map[string]string{"cpuset.cpus.effective": "0-1,3"})
	for own, want := range map[string]string{"0-1,3": "2\" becomes \"0-1\"", "2": "the cgroups have", "": "the cgroups have"} {
		cgroup(t, root, pod+"/claimed", map[string]string{"cpuset.cpus.effective": own})
		require.Contains(t, text(), want)
	}

	// A container whose variable no claim file backs gets the pool, as by the actuator.
	proc["12/environ"].Data = []byte(strings.Replace(entry, `"2"`, `"1"`, 1))
	require.Contains(t, text(), `plan: `+pod+`/claimed/cpuset.cpus: "2" becomes "0-1"`)
	require.Contains(t, text(), "plan: containers that have a refused claim: 1\n  "+pod+"/claimed: pod "+podUID+": variable")
	// If the claim file cannot be read, the container stays as it is.
	proc["12/environ"].Data = []byte(entry)
	require.NoError(t, os.WriteFile(filepath.Join(cdi, contract.ClaimFile(claimA)), []byte("{"), 0o600))
	require.NotContains(t, text(), "becomes")
	require.Contains(t, text(), "  "+pod+"/claimed: pod "+podUID+": variable")

	// In the frontend's pod no container can be judged: that is no plan.
	container("claimed", "0\n0", nil)
	_, err = inspect.ReadPlan(cdi, root, proc)
	require.EqualError(t, err, "run --plan on the node: this PID namespace does not show the containers' processes")

	require.NoError(t, os.RemoveAll(filepath.Join(root, "kubepods")))
	_, err = inspect.ReadPlan(cdi, root, proc)
	require.ErrorContains(t, err, "no cgroup kubepods")
}
