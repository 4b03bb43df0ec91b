// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster/clustertest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/cpulayout"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
)

func TestUsage(t *testing.T) {
	o := cluster.Objects{
		Slices: []*resourceapi.ResourceSlice{
			clustertest.Slice("b", clustertest.Zone("numa-10", "cpu", "8", "memory", "1Gi"), clustertest.Zone("numa-2", "cpu", "8")),
			clustertest.Slice("a", clustertest.Zone("numa-0", "memory", "8Gi", "hugepages_1Gi", "2Gi", "hugepages_2Mi", "64Mi", "cpu", "4")),
			clustertest.OtherDriver(clustertest.Slice("gpus", clustertest.Zone("gpu-0", "cpu", "1"))),
		},
		Claims: []*resourceapi.ResourceClaim{
			clustertest.Allocated("one", "a", "numa-0", `{"request":"zone","cpus":"0-1"}`, "cpu", "2", "memory", "1Gi"),
			clustertest.Allocated("two", "a", "numa-0", "", "cpu", "1", "hugepages_2Mi", "4Mi"),
			clustertest.Allocated("hostile", "b", "numa-2", `{"cpus":{}`, "cpu", "3"),
			clustertest.Claim("pending", "cpu", "5"),
		},
	}
	admin := clustertest.Allocated("admin", "b", "numa-2", "", "cpu", "2")
	admin.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
	o.Claims = append(o.Claims, admin)
	nodes := cluster.Usage(o)
	require.Len(t, nodes, 2)
	require.Equal(t, "a", nodes[0].Name)
	zone := nodes[0].Zones[0]
	require.Equal(t, []cluster.Capacity{
		{Name: "cpu", Total: 4, Used: 3}, {Name: "memory", Total: 8 << 30, Used: 1 << 30},
		{Name: "hugepages_1Gi", Total: 2 << 30}, {Name: "hugepages_2Mi", Total: 64 << 20, Used: 4 << 20},
	}, zone.Capacities)
	require.Equal(t, []any{2, "0-1"}, []any{zone.Claims, zone.ClaimedCPUs.String()})
	require.Equal(t, []string{"numa-2", "numa-10"}, []string{nodes[1].Zones[0].Name, nodes[1].Zones[1].Name})
	require.EqualValues(t, 5, nodes[1].Zones[0].Capacities[0].Free())
}

// The scheduler counts the slices of the highest generation, and none of a pool that is
// not complete.
func TestUsageOfGenerations(t *testing.T) {
	before := clustertest.Slice("a", clustertest.Zone("numa-0", "cpu", "4"))
	after := clustertest.Slice("a", clustertest.Zone("numa-1", "cpu", "4"))
	after.Spec.Pool.Generation = 2
	after.Name = "a-2"
	nodes := cluster.Usage(cluster.Objects{Slices: []*resourceapi.ResourceSlice{before, after}})
	require.Len(t, nodes[0].Zones, 1)
	require.Equal(t, "numa-1", nodes[0].Zones[0].Name)
	require.Empty(t, nodes[0].Problem)

	after.Spec.Pool.ResourceSliceCount = 3
	nodes = cluster.Usage(cluster.Objects{Slices: []*resourceapi.ResourceSlice{before, after}})
	require.Equal(t, "1 of 3 ResourceSlices are there", nodes[0].Problem)

	nodes = cluster.Usage(cluster.Objects{Slices: []*resourceapi.ResourceSlice{clustertest.Slice("a")}})
	require.Contains(t, nodes[0].Problem, "it publishes no zone")
}

func TestTable(t *testing.T) {
	tainted := clustertest.Zone("numa-1", "memory", "1536Mi")
	tainted.Taints = []resourceapi.DeviceTaint{{Key: "dra.cpumem/actuator", Value: "absent", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	incomplete := clustertest.Slice("b", clustertest.Zone("numa-0", "cpu", "2"))
	incomplete.Spec.Pool.ResourceSliceCount = 2
	whole := clustertest.Zone("numa-0", "cpu", "4", "memory", "8Gi")
	whole.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		resourceslices.AttributeCPULayout:      {StringValue: new("0-3 core=cpu l3=core/2")},
		resourceslices.AttributeThreadsPerCore: {IntValue: new(int64(1))},
	}
	complete := clustertest.Slice("a", whole, tainted)
	nodes := cluster.Usage(cluster.Objects{
		Slices: []*resourceapi.ResourceSlice{complete, incomplete},
		Claims: []*resourceapi.ResourceClaim{clustertest.Allocated("one", "a", "numa-0", `{"cpus":"0-2"}`, "cpu", "3")},
	})
	var out strings.Builder
	require.NoError(t, cluster.Table(&out, nodes))
	require.Equal(t, `NODE   ZONE     FREE CPU   FREE MEMORY   CORES   L3S   CLAIMS   TAINTS
a      numa-0   1/4        8Gi/8Gi       1       0/2   1        -
a      numa-1   -          1.5Gi/1.5Gi   -       -     0        dra.cpumem/actuator=absent:NoSchedule
b      numa-0   2/2        -             -       -     0        -
b: no claim can go there: 1 of 2 ResourceSlices are there
`, out.String())

	out.Reset()
	require.NoError(t, cluster.Picture(&out, nodes, 8))
	require.Equal(t, `a
  numa-0  cpu     ######..  1 of 4 free
          memory  ........  8Gi of 8Gi free
          whole             1 cores free, 1 in one L3; 0 of 2 L3s free
  numa-1  memory  ........  1.5Gi of 1.5Gi free
          taint   dra.cpumem/actuator=absent:NoSchedule

b
  numa-0  cpu  ........  2 of 2 free
b: no claim can go there: 1 of 2 ResourceSlices are there
`, out.String())
}

// The free cores are not known while the CPUs of a claim are not, or where the zone
// publishes a layout of another form.
func TestBlocksAreNotGuessed(t *testing.T) {
	zone := clustertest.Zone("numa-0", "cpu", "4")
	for name, c := range map[string]struct{ layout, status string }{
		"a claim without decision": {"0-3 core=cpu l3=0", ""},
		"a part of the decisions":  {"0-3 core=cpu l3=0", `{"cpus":"0"}`},
		"a layout of another form": {"v2:0-3", `{"cpus":"0-1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			zone.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				resourceslices.AttributeCPULayout:      {StringValue: &c.layout},
				resourceslices.AttributeThreadsPerCore: {IntValue: new(int64(1))},
			}
			nodes := cluster.Usage(cluster.Objects{
				Slices: []*resourceapi.ResourceSlice{clustertest.Slice("a", zone)},
				Claims: []*resourceapi.ResourceClaim{clustertest.Allocated("one", "a", "numa-0", c.status, "cpu", "2")},
			})
			require.Nil(t, nodes[0].Zones[0].Blocks)
		})
	}
}

// The shared pool keeps CPUs of a zone: claims cannot get all of its free cores.
func TestBlocksThatClaimsCanGet(t *testing.T) {
	zone := clustertest.Zone("numa-0", "cpu", "3")
	zone.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		resourceslices.AttributeCPULayout:      {StringValue: new("0-3 core=cpu/2 l3=0")},
		resourceslices.AttributeThreadsPerCore: {IntValue: new(int64(2))},
	}
	nodes := cluster.Usage(cluster.Objects{Slices: []*resourceapi.ResourceSlice{clustertest.Slice("a", zone)}})
	require.Equal(t, &cpulayout.Blocks{Cores: 1, L3s: 1, L3sTotal: 1, CoresOfL3: 1}, nodes[0].Zones[0].Blocks)
}

func TestClaims(t *testing.T) {
	broken := clustertest.Allocated("broken", "a", "numa-0", `{"cpus":"4"}`, "cpu", "1")
	broken.Status.Devices[0].Conditions = []metav1.Condition{
		{Type: "Ready", Status: metav1.ConditionFalse, Reason: "CPUsOffline", Message: "CPU 4 is offline"},
	}
	claims := cluster.AllocatedRequests(cluster.Objects{}, []*resourceapi.ResourceClaim{
		clustertest.Allocated("one", "a", "numa-0",
			`{"cpus":"0-1","partition":"root","mems":"0","memory":{"min":1073741824,"low":0,"high":"max","max":1073741824},`+
				`"hugepages":{"2Mi":4194304,"64Ki":"max"}}`,
			"cpu", "2", "memory", "1Gi", "hugepages_2Mi", "4Mi"),
		broken, clustertest.Claim("pending", "cpu", "5"), clustertest.Allocated("early", "b", "numa-1", "", "cpu", "1"),
	})
	var out strings.Builder
	require.NoError(t, cluster.RequestTable(&out, claims))
	require.Equal(t, `CLAIM            REQUEST   NODE   ZONE     CPU   CPUS   ISOLATION          MEMORY   HUGEPAGES   PODS
default/broken   zone      a      numa-0   1     4      shared pool only   -        -           pod-of-broken
default/early    zone      b      numa-1   1     -      -                  -        -           pod-of-early
default/one      zone      a      numa-0   2     0-1    partition          1Gi      2Mi=4Mi     pod-of-one
default/broken zone: CPUsOffline: CPU 4 is offline
`, out.String())
	require.False(t, claims[1].Prepared)

	out.Reset()
	require.NoError(t, claims[2].Details(&out))
	require.Equal(t, `claim default/one, request zone: zone numa-0 of node a
  cpu                2
  memory             1Gi
  hugepages_2Mi      4Mi
  cpuset.cpus        0-1
  isolation          partition
  cpuset.mems        0
  memory.min         1Gi
  memory.low         0
  memory.high        max
  memory.max         1Gi
  hugetlb.2MB.max    4Mi
  hugetlb.64KB.max   max
  pods               pod-of-one
`, out.String())

	out.Reset()
	hostile := clustertest.Allocated("h", "a", "numa-0",
		`{"hugepages":{"\u001b[31m":1},"parameters":{"\u001b[2J":"\u001b]0;t\u0007\nx"}}`, "cpu", "2")
	hostile.Status.Devices[0].Conditions = []metav1.Condition{{Reason: "\x1b", Message: "\x1b", Status: metav1.ConditionFalse}}
	require.NoError(t, cluster.AllocatedRequests(cluster.Objects{}, []*resourceapi.ResourceClaim{hostile})[0].Details(&out))
	require.NotContains(t, out.String(), "\x1b")
	require.NotContains(t, out.String(), "\nx")

	out.Reset()
	require.NoError(t, claims[1].Details(&out))
	require.Contains(t, out.String(), "no status   not prepared: see the pod's events, or the frontend's log on that node; before")
}
