// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

// podWith makes a pod with one container and one named claim.
func podWith(n *lab.Node, name string, r lab.Request) *lab.Pod {
	r.Name = "r"
	return n.Pod(name, lab.Burstable, lab.ContainerSpec{Name: "main", Claims: []string{n.Claim(name, r)}})
}

// A10: the CPUs of a claim, in its container's cgroup.
func TestPlacement(t *testing.T) {
	t.Parallel()
	type ask struct {
		zone, cpus, want string
	}
	for name, c := range map[string]struct {
		spec     topologytest.Spec
		reserved string
		asks     []ask
		refused  *lab.Request
	}{
		"T1, one core, then the other":  {topologytest.T1(), "", []ask{{"numa-0", "2", "0,2"}}, nil},
		"T1, {0,2} taken":               {topologytest.T1(), "", []ask{{"numa-0", "2", "0,2"}, {"numa-0", "1", "1"}}, nil},
		"T2, all of zone 1":             {topologytest.T2(), "", []ask{{"numa-1", "4", "2-3,6-7"}}, nil},
		"T2, a whole core beside {0,4}": {topologytest.T2(), "0,4", []ask{{"numa-0", "2", "1,5"}}, nil},
		"T2, repeated core ids, 4 of 3": {
			spec:     topologytest.T2(),
			reserved: "",
			asks:     []ask{{"numa-1", "1", "2"}},
			refused:  &lab.Request{Zone: "numa-1", Capacity: cpu("4")},
		},
		"T2, repeated core ids, 3 of 3": {topologytest.T2(), "", []ask{{"numa-1", "1", "2"}, {"numa-1", "3", "3,6-7"}}, nil},
		"A12 T4, 16 CPUs are one L3":    {topologytest.T4(), "", []ask{{"numa-3", "16", "96-103,352-359"}}, nil},
		"A12 T4, one L3 and a free core": {
			spec:     topologytest.T4(),
			reserved: "",
			asks:     []ask{{"numa-3", "2", "96,352"}, {"numa-3", "16", "104-111,360-367"}},
			refused:  nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := lab.NewNode(t, c.spec, lab.Options{
				Programs: programs, Configure: func(cfg *config.Config) { cfg.ReservedCPUs = c.reserved },
			})
			for i, a := range c.asks {
				p := podWith(n, fmt.Sprintf("p%d", i), lab.Request{Zone: a.zone, Capacity: cpu(a.cpus)})
				require.Equal(t, a.want, start(t, n, p)[0].CPUs(), "claim %d", i)
			}
			if c.refused != nil {
				require.False(t, n.Allocate(podWith(n, "refused", *c.refused)))
			}
		})
	}
}

// A13: allocations that the API server accepts and the driver cannot give are refused
// with a message for each fault, and leave nothing behind.
func TestRefusedClaims(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	result := func(c *resourceapi.ResourceClaim) *resourceapi.DeviceRequestAllocationResult {
		return &c.Status.Allocation.Devices.Results[0]
	}
	amount := func(q string) func(*resourceapi.ResourceClaim) {
		return func(c *resourceapi.ResourceClaim) { result(c).ConsumedCapacity["cpu"] = resource.MustParse(q) }
	}
	nothing := resource.MustParse("0")
	for name, c := range map[string]struct {
		change func(*resourceapi.ResourceClaim)
		err    string
	}{
		"half a CPU":    {amount("500m"), "not a whole number"},
		"minus one":     {amount("-1"), "-1 is negative"},
		"more than all": {amount("5"), "5 CPUs granted, the zone has 4"},
		"zero": {func(c *resourceapi.ResourceClaim) {
			maps.DeleteFunc(result(c).ConsumedCapacity, func(resourceapi.QualifiedName, resource.Quantity) bool { return true })
			result(c).ConsumedCapacity["cpu"] = nothing
		}, "asks for nothing"},
		"no amounts":     {func(c *resourceapi.ResourceClaim) { result(c).ConsumedCapacity = nil }, "it has no consumed capacity"},
		"unknown device": {func(c *resourceapi.ResourceClaim) { result(c).Device = "numa-7" }, "no such zone"},
		"no allocation":  {func(c *resourceapi.ResourceClaim) { c.Status.Allocation = nil }, "not allocated"},
		"no pod":         {func(c *resourceapi.ResourceClaim) { c.Status.ReservedFor = nil }, "not reserved for any pod"},
	} {
		t.Run(name, func(t *testing.T) {
			p := podWith(n, "p", lab.Request{Capacity: cpu("2")})
			require.True(t, n.Allocate(p))
			n.API.UpdateClaim("p", c.change)
			require.ErrorContains(t, n.Prepare(p), c.err)
			n.Check()
			require.Empty(t, n.Records())
			require.Empty(t, n.Temporaries())
			n.Withdraw(p)
		})
	}
	t.Run("another driver's only", func(t *testing.T) {
		p := podWith(n, "p", lab.Request{Capacity: cpu("2")})
		require.True(t, n.Allocate(p))
		n.API.UpdateClaim("p", func(c *resourceapi.ResourceClaim) { result(c).Driver = "gpu.example.com" })
		require.NoError(t, n.Prepare(p))
		require.Empty(t, p.CDIDevices("p"))
		require.Empty(t, n.Records())
		require.NoError(t, n.Remove(p))
	})
	t.Run("another driver's too", func(t *testing.T) {
		p := podWith(n, "p", lab.Request{Capacity: cpu("2")})
		require.True(t, n.Allocate(p))
		n.API.UpdateClaim("p", func(c *resourceapi.ResourceClaim) {
			other := *result(c)
			other.Driver, other.Request = "gpu.example.com", "gpu"
			c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, other)
		})
		require.NoError(t, n.Prepare(p))
		require.Len(t, p.CDIDevices("p"), 1)
		n.Check()
		require.NoError(t, n.Remove(p))
		n.Check()
	})
}

// A14: a repeated call of kubelet, also after restarts, has the same answer and
// changes no byte of the files.
func TestPrepareAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	p := podWith(n, "p", lab.Request{Capacity: map[string]string{"cpu": "3", "memory": "1Gi"}})
	require.True(t, n.Allocate(p))
	require.NoError(t, n.Prepare(p))
	files, devices := n.Files(), p.CDIDevices("p")
	delete(files, contract.ActuatorFile)
	for _, step := range []struct {
		name    string
		between func()
	}{
		{"at once", func() {}},
		{"frontend restarts", func() { n.RestartFrontend(); n.Ready() }},
		{"actuator is away", func() { n.StopActuator(true) }},
		{"actuator is back", n.StartActuator},
	} {
		name := step.name
		step.between()
		n.RestartKubelet()
		require.NoError(t, n.Prepare(p), name)
		require.Equal(t, devices, p.CDIDevices("p"), name)
		now := n.Files()
		delete(now, contract.ActuatorFile)
		require.Equal(t, files, now, name)
	}
}

// A15: 64 calls at once get disjoint CPUs. The shared pool keeps a CPU.
func TestPrepareInParallel(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T4())
	const claims = 64
	pods := make([]*lab.Pod, claims)
	for i := range pods {
		pods[i] = podWith(n, fmt.Sprintf("p%02d", i), lab.Request{Capacity: cpu(fmt.Sprint(1 + i%7))})
		require.True(t, n.Allocate(pods[i]))
	}
	require.NoError(t, n.PrepareAll(pods))
	n.Check()
	require.Len(t, n.Records(), claims)
	for i, p := range pods {
		c, err := n.CreateContainer(p, "main")
		require.NoError(t, err)
		require.Equal(t, 1+i%7, contracttest.CPUs(c.CPUs()).Size())
	}
	n.Check()
	for _, p := range pods {
		require.NoError(t, n.Remove(p))
	}
	n.Check()
}

// A18: an unreadable claim file blocks new claims and does not touch running
// containers. A readable file in its place ends that.
func TestUnreadableClaimFile(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(n *lab.Node, data string) string{
		"truncated":         func(_ *lab.Node, data string) string { return data[:len(data)/2] },
		"of another boot":   func(n *lab.Node, data string) string { return strings.ReplaceAll(data, n.BootID(), "another-boot") },
		"of a new contract": func(_ *lab.Node, data string) string { return strings.ReplaceAll(data, `"v1"`, `"v9"`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, topologytest.T2())
			held := podWith(n, "held", lab.Request{Zone: "numa-0", Capacity: cpu("2")})
			c := start(t, n, held)[0]
			other := podWith(n, "other", lab.Request{Capacity: cpu("1")})
			require.True(t, n.Allocate(other))
			path := filepath.Join(n.CDI, contract.ClaimFile(string(n.API.ReadClaim("held").UID)))
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			// The damaged file replaces the old file, as with an editor.
			require.NoError(t, os.WriteFile(path+".new", []byte(damage(n, string(data))), 0o600))
			require.NoError(t, os.Rename(path+".new", path))

			n.RestartFrontend()
			n.Taints("dra.cpumem/node")
			late := podWith(n, "late", lab.Request{Capacity: cpu("1")})
			require.False(t, n.Allocate(late), "the taint keeps it away")
			n.Withdraw(late)
			require.ErrorContains(t, n.Prepare(other), path)
			require.Equal(t, "0,4", c.CPUs())
			require.Equal(t, "1-3,5-7", n.Pool())

			require.NoError(t, os.WriteFile(path+".new", data, 0o600))
			require.NoError(t, os.Rename(path+".new", path))
			n.Ready()
			require.NoError(t, n.Prepare(other))
			n.Check()
			require.NoError(t, n.Remove(held))
			require.NoError(t, n.Remove(other))
			n.Check()
		})
	}
}

// A20: two pods and two containers share a claim of CPUs. Containers that run at the
// same time cannot share memory.
func TestSharedClaims(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	claim := n.Claim("shared", lab.Request{Name: "r", Capacity: cpu("2")})
	one := n.Pod("one", lab.Burstable,
		lab.ContainerSpec{Name: "a", Claims: []string{claim}}, lab.ContainerSpec{Name: "b", Claims: []string{claim}})
	two := n.Pod("two", lab.BestEffort, lab.ContainerSpec{Name: "main", Claims: []string{claim}})
	require.True(t, n.Allocate(one))
	require.True(t, n.Allocate(two))
	for _, p := range []*lab.Pod{one, two} {
		for _, c := range startAllocated(t, n, p) {
			require.Equal(t, "0,4", c.CPUs())
		}
	}
	require.NoError(t, n.Remove(one))
	n.Check()
	require.Len(t, n.Records(), 1, "another pod uses it")
	require.NoError(t, n.Remove(two))
	n.Check()

	memory := n.Claim("memory", lab.Request{Name: "r", Capacity: map[string]string{"memory": "1Gi"}})
	both := n.Pod("both", lab.Burstable,
		lab.ContainerSpec{Name: "a", Claims: []string{memory}}, lab.ContainerSpec{Name: "b", Claims: []string{memory}})
	require.True(t, n.Allocate(both))
	require.ErrorContains(t, n.Prepare(both), "both/a, both/b")
	n.Withdraw(both)

	memory = n.Claim("memory", lab.Request{Name: "r", Capacity: map[string]string{"memory": "1Gi"}})
	turns := n.Pod("turns", lab.Burstable,
		lab.ContainerSpec{Name: "a", Init: true, Claims: []string{memory}}, lab.ContainerSpec{Name: "b", Claims: []string{memory}})
	for _, c := range start(t, n, turns) {
		require.Equal(t, "1073741824", c.ReadCgroup("memory.min"))
	}
}

// A22: claims are released, also twice and without a Prepare.
func TestUnprepare(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	p := podWith(n, "p", lab.Request{Capacity: cpu("2")})
	require.NoError(t, n.Unprepare(p), "never prepared")
	require.True(t, n.Allocate(p))
	require.NoError(t, n.Prepare(p))
	require.NoError(t, n.Unprepare(p))
	n.Check()
	require.NoError(t, n.Unprepare(p), "twice")
	require.Equal(t, "0-7", n.Pool())
	require.NoError(t, n.Prepare(p), "its pod was not gone after all")
	n.Check()

	// A directory cannot be removed as a file: until it is gone, the CPUs stay taken.
	path := filepath.Join(n.CDI, contract.ClaimFile(string(n.API.ReadClaim("p").UID)))
	require.NoError(t, os.Rename(path, path+".aside"))
	require.NoError(t, os.MkdirAll(filepath.Join(path, "in use"), 0o755))
	require.ErrorContains(t, n.Unprepare(p), "stay taken")
	require.Equal(t, "1-3,5-7", n.Pool())
	require.NoError(t, os.RemoveAll(path))
	require.NoError(t, os.Rename(path+".aside", path))
	require.NoError(t, n.Unprepare(p))
	n.Check()
}
