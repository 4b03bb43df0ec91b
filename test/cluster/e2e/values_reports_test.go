// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
)

// shows waits until the claim's one device is Ready in the claim's status and has
// the data want, JSON.
func (s suite) shows(t *testing.T, claim, want string) {
	t.Helper()
	var wanted any
	require.NoError(t, json.Unmarshal([]byte(want), &wanted))
	eventually(t, "status of claim "+claim, func(ctx context.Context) error {
		c, err := s.client.ResourceV1().ResourceClaims("default").Get(ctx, claim, getOptions)
		if err != nil {
			return err
		}
		if len(c.Status.Devices) != 1 || c.Status.Devices[0].Data == nil {
			return fmt.Errorf("devices %+v", c.Status.Devices)
		}
		d := c.Status.Devices[0]
		var got any
		if err := json.Unmarshal(d.Data.Raw, &got); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(d.Conditions, "Ready") || !reflect.DeepEqual(wanted, got) {
			return fmt.Errorf("conditions %+v, data %s", d.Conditions, d.Data.Raw)
		}
		return nil
	})
}

// A claim's memory policy reaches the kernel, by way of NRI and the OCI runtime: a
// program's pages are spread over the zone's NUMA nodes.
func TestMemoryPolicy(t *testing.T) {
	longOnly(t)
	s := theSuite.on(wide)
	s.sockets(t)
	s.claim(t, "policy", "socket-1", capacity{"memory": "64Mi"}, parameters(`"memory":{"policy":"interleave"}`))
	s.run(t, pod("policy", []string{"touch", "32Mi", "sleep"}, "policy"))
	const all = 32 << 20 / 4096
	pages := s.lines(t, "policy", "touch")["touch"].PagesPerNode
	require.InDelta(t, all/2, pages["2"], all/64, "pages by node: %v", pages)
	require.InDelta(t, all/2, pages["3"], all/64, "pages by node: %v", pages)
}

// A container can read the CPUs and NUMA nodes of its claim (KEP-5304). An API
// server without the gate of KEP-5517 changes nothing but what is reported.
func TestMetadataAndNodeAllocatable(t *testing.T) {
	longOnly(t)
	s := theSuite
	s.sockets(t)
	s.claim(t, "metadata", "socket-1", capacity{"cpu": "2", "memory": "32Mi"})
	p := s.run(t, pod("metadata", []string{"mask", "sleep"}, "metadata"))
	var file struct {
		Requests []struct {
			Devices []struct {
				Name       string
				Attributes map[string]struct {
					String *string
					Int    *int64
				}
			}
		}
	}
	pid := s.file(t, s.cgroupDir(t, p, "main")+"/cgroup.procs")
	text := s.file(t, "/proc/"+pid+
		"/root/var/run/kubernetes.io/dra-device-attributes/resourceclaims/metadata/zone/dra.cpumem-metadata.json")
	// The file has one document for each version of the format, the newest first.
	require.NoError(t, json.NewDecoder(strings.NewReader(text)).Decode(&file), text)
	device := file.Requests[0].Devices[0]
	require.Equal(t, "socket-1", device.Name)
	require.NotNil(t, device.Attributes["cpuset"].String, text)
	require.Equal(t, s.lines(t, "metadata", "mask")["mask"].CPUs, *device.Attributes["cpuset"].String)
	require.Equal(t, "1", *device.Attributes["mems"].String)

	eventually(t, "the mapping reported as dropped", func(context.Context) error {
		if got := s.metric(t, "frontend", `cpumem_frontend_node_allocatable{state="dropped"}`); got != "1" {
			return fmt.Errorf("state dropped is %s", got)
		}
		return nil
	})
}
