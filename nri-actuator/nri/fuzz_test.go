// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

// FuzzCreateContainer: a pod's author and a runtime choose every text of a call. A
// container without the contract's names gets the pool (I7), a container with them gets
// what its pod's claim file says or nothing (I6), and an error is short and printable.
func FuzzCreateContainer(f *testing.F) {
	r := newRuntime(f, f.TempDir())
	backed := r.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-7")})[0]
	device := contract.Key{ClaimUID: claimA}.CDIDevice()
	parent := "/kubepods/burstable/pod" + podA
	f.Add("ns", "pod", "c", podA, parent, parent+"/c", backed, device, "")
	f.Add("ns", "pod", "c", podB, "/kubepods/pod"+podB, "kubepods-podx.slice:cri:c", backed, device, "0-3")
	f.Add("\x1b", "é", "../c", podA, "kubepods.slice", "../../etc", contract.EnvPrefix+"\x00=", "dra.cpumem/claim=", "9-")
	f.Add("", "", "", "", "", "", "", "", "")
	f.Fuzz(func(t *testing.T, namespace, name, container, uid, parent, path, entry, device, cpus string) {
		pod := &api.PodSandbox{Id: "s", Namespace: namespace, Name: name, Uid: uid, Linux: &api.LinuxPodSandbox{CgroupParent: parent}}
		ctr := &api.Container{
			Id: "c", PodSandboxId: "s", Name: container, Env: []string{"PATH=/bin", entry},
			Linux: &api.LinuxContainer{CgroupsPath: path, Resources: &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: cpus}}},
		}
		if device != "" {
			ctr.CDIDevices = []*api.CDIDevice{{Name: device}}
		}
		adjustment, updates, err := r.session.CreateContainer(t.Context(), pod, ctr)
		require.Empty(t, updates)
		named := strings.HasPrefix(entry, contract.EnvPrefix) || strings.HasPrefix(device, contract.ClaimKind+"=")
		got := adjustment.GetLinux().GetResources().GetCpu().GetCpus()
		switch {
		case err != nil:
			require.True(t, named, "I7: %v", err)
			require.LessOrEqual(t, len(err.Error()), 1100)
			require.NotRegexp(t, `[^ -~]`, err.Error())
		case named:
			require.Equal(t, backed, entry, "I6")
			require.Equal(t, podA, uid, "I6")
			require.Equal(t, "4-7", got)
		default:
			require.True(t, slices.Contains([]string{"", "0-3,8-15"}, got), "I1: it gets %s", got)
		}
		require.NoError(t, r.session.RemoveContainer(t.Context(), pod, ctr))
	})
}
