// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A61: a runtime that requires the actuator creates only the actuator's own
// containers while it is away, and goes on when it is back.
func TestA61_RequiredPlugin(t *testing.T) {
	longOnly(t)
	const annotation = "tolerate-missing-plugins.noderesource.dev"
	s := theSuite
	s.configure(t, "actuator.missingPluginAnnotation="+annotation)
	// Also of a cleanup, which has no context of the test.
	containerd := func(change string) {
		_, err := s.NodeExec(context.Background(), s.node, change+"; service kill containerd; service start containerd")
		require.NoError(t, err)
		eventually(t, "connected again", func(ctx context.Context) error {
			says, err := s.NodeExec(ctx, s.node, "cat /var/run/cdi/dra.cpumem-actuator.json")
			if err == nil && strings.Contains(says, "disconnected") {
				err = errors.New(says)
			}
			return err
		})
	}
	const file = "/etc/containerd/conf.d/required.toml"
	containerd("printf \"[plugins.'io.containerd.nri.v1.nri'.default_validator]\\nenable = true\\n" +
		"required_plugins = ['cpumem']\\ntolerate_missing_plugins_annotation = '" + annotation + "'\\n\" >" + file)
	t.Cleanup(func() { containerd("rm " + file) })

	s.claim(t, "a61-required", "", capacity{"cpu": "2"})
	s.run(t, pod("a61-required", []string{"mask", "sleep"}, "a61-required"))
	held := cpus(t, s.lines(t, "a61-required", "mask")["mask"].CPUs)
	start := s.stopActuator(t)
	plain := pod("a61-plain", []string{"mask", "sleep"})
	s.create(t, plain)
	eventually(t, "container refused by the runtime", func(ctx context.Context) error {
		p, err := s.client.CoreV1().Pods("default").Get(ctx, plain.Name, getOptions)
		if err != nil {
			return err
		}
		if events := s.events(ctx, p.UID); !strings.Contains(events, `required plugin "cpumem" not present`) {
			return errors.New("events: " + events)
		}
		return nil
	})
	start()
	p := s.running(t, plain.Name)
	require.True(t, cpus(t, s.cgroup(t, p, "main", "cpuset.cpus.effective")).Intersection(held).IsEmpty())
}
