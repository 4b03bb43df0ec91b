// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/nri"
)

// A pod decides how large its containers are. Of the runtime's list only what the actuator reads is kept, and a container
// with too many of the contract's variables is refused as before.
func TestReduce(t *testing.T) {
	large := strings.Repeat("x", 100<<10)
	many := make([]string, 10_000)
	for i := range many {
		many[i] = fmt.Sprintf("V%d=", i)
	}
	for name, change := range map[string]func(*api.Container){
		"a large environment": func(c *api.Container) { c.Env = append(c.Env, "LARGE="+large) },
		"many variables":      func(c *api.Container) { c.Env = append(c.Env, many...) },
		"large arguments":     func(c *api.Container) { c.Args = []string{large} },
		"large labels":        func(c *api.Container) { c.Labels = map[string]string{"l": large} },
		"large annotations":   func(c *api.Container) { c.Annotations = map[string]string{"a": large} },
		"many mounts":         func(c *api.Container) { c.Mounts = []*api.Mount{{Source: large}} },
		"forged variables":    func(c *api.Container) { c.Env = append(c.Env, contract.EnvPrefix+"X="+large) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			ctr := r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
			change(ctr.api)
			pod := proto.CloneOf(ctr.pod)
			pod.Annotations, pod.Labels = map[string]string{"a": large}, map[string]string{"l": large}
			list := &api.SynchronizeRequest{Pods: []*api.PodSandbox{pod}, Containers: []*api.Container{proto.CloneOf(ctr.api)}}
			nri.Reduce(list)
			require.Less(t, proto.Size(list), 1<<10)
			require.Less(t, cap(list.Containers[0].Env), 10)
			r.connect()
			require.NoError(t, r.plugin.Apply(t.Context()))
			if name == "forged variables" {
				require.EqualValues(t, 1, r.metric("cpumem_actuator_refused_total", "malformed"))
				require.NotEqual(t, "4-7", r.cpus(ctr))
				return
			}
			require.Equal(t, "4-7", r.cpus(ctr))
			require.Zero(t, r.metric("cpumem_actuator_refused_total"))
		})
	}
}
