// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

// victim is a container with claimed CPUs, with its variable and CDI device.
type victim struct {
	*lab.Container
	entry  string
	device string
}

func newVictim(t *testing.T, n *lab.Node) victim {
	t.Helper()
	p := podWith(n, "victim", lab.Request{Zone: "numa-1", Capacity: map[string]string{"cpu": "2", "memory": "1Gi"}})
	v := victim{Container: start(t, n, p)[0], device: p.CDIDevices("victim")[0]}
	for _, env := range v.Spec.Process.Env {
		if strings.HasPrefix(env, contract.EnvPrefix) {
			v.entry = env
		}
	}
	require.NotEmpty(t, v.entry)
	return v
}

// A33, I6: a pod's author cannot change a cgroup with forged variables or
// annotations. Each forgery is tried on a runtime with and on a runtime without names
// of CDI devices.
func TestForged(t *testing.T) {
	t.Parallel()
	const madeUp = contract.EnvPrefix + "00000000000040008000999999999999_0"
	value := func(v victim) string { return v.entry[strings.IndexByte(v.entry, '=')+1:] }
	forgeries := map[string]struct {
		// forge returns the attacker's container. claim is the attacker's own
		// claim, own its variable with value.
		forge func(v victim, claim, own string) lab.ContainerSpec
		// err is empty if the forgery is ignored.
		err string
	}{
		"made up": {func(v victim, _, _ string) lab.ContainerSpec {
			return lab.ContainerSpec{Env: []string{madeUp + "=" + value(v)}}
		}, "names a claim without a file"},
		"made up, not even JSON": {func(victim, string, string) lab.ContainerSpec {
			return lab.ContainerSpec{Env: []string{madeUp + "=all of them"}}
		}, "names a claim without a file"},
		"made up name": {func(v victim, _, _ string) lab.ContainerSpec {
			return lab.ContainerSpec{Env: []string{contract.EnvPrefix + "X=" + value(v)}}
		}, contract.EnvPrefix + "X"},
		"no value": {func(victim, string, string) lab.ContainerSpec {
			return lab.ContainerSpec{Env: []string{madeUp}}
		}, "names a claim without a file"},
		"copied from another pod": {func(v victim, _, _ string) lab.ContainerSpec {
			return lab.ContainerSpec{Env: []string{v.entry}}
		}, "is not prepared for this pod"},
		"copied, beside a claim of its own": {func(v victim, claim, _ string) lab.ContainerSpec {
			return lab.ContainerSpec{Claims: []string{claim}, Env: []string{v.entry}}
		}, "is not prepared for this pod"},
		"right key, other value": {func(v victim, claim, own string) lab.ContainerSpec {
			name, _, _ := strings.Cut(own, "=")
			return lab.ContainerSpec{Claims: []string{claim}, Env: []string{name + "=" + value(v)}}
		}, ""}, // the CDI library replaces the value by the right value
		"right key, other value, with an old CDI library": {func(v victim, claim, own string) lab.ContainerSpec {
			name, _, _ := strings.Cut(own, "=")
			return lab.ContainerSpec{Claims: []string{claim}, Env: []string{name + "=" + value(v)}, OldCDI: true}
		}, "has another value than device"},
		"right key of the victim, other value": {func(v victim, _, own string) lab.ContainerSpec {
			name, _, _ := strings.Cut(v.entry, "=")
			return lab.ContainerSpec{Env: []string{name + own[strings.IndexByte(own, '='):]}}
		}, "is not prepared for this pod"},
		"twice": {func(_ victim, claim, own string) lab.ContainerSpec {
			return lab.ContainerSpec{Claims: []string{claim}, Env: []string{own, strings.Replace(own, `"v1"`, ` "v1"`, 1)}, OldCDI: true}
		}, "occurs with different values"},
		"its own, once more": {func(_ victim, claim, own string) lab.ContainerSpec {
			return lab.ContainerSpec{Claims: []string{claim}, Env: []string{own}, OldCDI: true}
		}, ""},
		"the other driver's variable": {func(v victim, _, _ string) lab.ContainerSpec {
			return lab.ContainerSpec{Env: []string{contract.CPUSetEnvPrefix + "x=2,6"}}
		}, ""},
		"the other driver's variable, beside a claim": {func(_ victim, claim, _ string) lab.ContainerSpec {
			return lab.ContainerSpec{Claims: []string{claim}, Env: []string{contract.CPUSetEnvPrefix + "x=2,6"}}
		}, ""},
		"annotations that name the victim's device": {func(v victim, _, _ string) lab.ContainerSpec {
			return lab.ContainerSpec{Annotated: []string{v.device}}
		}, "is not prepared for this pod"},
		"annotations, beside a claim": {func(v victim, claim, _ string) lab.ContainerSpec {
			return lab.ContainerSpec{Claims: []string{claim}, Annotated: []string{v.device}}
		}, "is not prepared for this pod"},
		"annotations that name the node file's device": {func(victim, string, string) lab.ContainerSpec {
			return lab.ContainerSpec{Annotated: []string{contract.NodeKind + "=state"}}
		}, ""},
	}
	for _, version := range []string{"v2.3.7", "v2.2.1"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, Embedded: true, RuntimeVersion: version})
			v := newVictim(t, n)
			for name, c := range forgeries {
				t.Run(name, func(t *testing.T) {
					own := n.Claim("own", lab.Request{Name: "r", Zone: "numa-0", Capacity: cpu("1")})
					p := n.Pod("attacker", lab.Burstable, lab.ContainerSpec{Name: "honest", Claims: []string{own}})
					honest := start(t, n, p)[0]
					entry := ""
					for _, env := range honest.Spec.Process.Env {
						if strings.HasPrefix(env, contract.EnvPrefix) {
							entry = env
						}
					}
					spec := c.forge(v, own, entry)
					spec.Name = "forged"
					p.Containers = append(p.Containers, spec)

					forged, err := n.CreateContainer(p, "forged")
					n.Check()
					if c.err != "" {
						require.ErrorContains(t, err, c.err)
					} else {
						require.NoError(t, err)
						require.NoError(t, forged.Start())
						n.Check()
						want := n.Pool()
						if len(spec.Claims) > 0 {
							want = honest.CPUs()
						}
						require.Equal(t, want, forged.CPUs())
						require.Equal(t, "0", forged.ReadCgroup("memory.min"))
					}
					require.Equal(t, "2,6", v.CPUs())
					require.Equal(t, "1073741824", v.ReadCgroup("memory.min"))
					require.NoError(t, n.Remove(p))
				})
			}
		})
	}
}

// A33: a container has the variable of its own pod's claim without the device. It is
// refused if the runtime gives the names of devices, and accepted otherwise: its pod
// may use the claim.
func TestForgedWithinThePod(t *testing.T) {
	t.Parallel()
	for version, refused := range map[string]bool{"v2.3.7": true, "v2.2.1": false} {
		t.Run(version, func(t *testing.T) {
			n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, Embedded: true, RuntimeVersion: version})
			v := newVictim(t, n)
			v.Pod.Containers = append(v.Pod.Containers, lab.ContainerSpec{Name: "sibling", Env: []string{v.entry}})
			_, err := n.CreateContainer(v.Pod, "sibling")
			if refused {
				require.ErrorContains(t, err, "did not ask for the CDI device")
				return
			}
			require.NoError(t, err)
		})
	}
}
