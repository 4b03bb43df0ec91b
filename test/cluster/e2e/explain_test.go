// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// shareTool builds the operator's tool and gives it to the node as /share/cpumem.
func (s suite) shareTool(t *testing.T) {
	t.Helper()
	build := exec.Command("go", "build", "-o", filepath.Join(s.ShareDir(s.node), "cpumem"), "./cmd/cpumem")
	build.Dir, build.Env = filepath.Join("..", "..", ".."), append(build.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// The operator's tool plans with the actuator's functions: on a node where all is well
// it plans nothing, and after another program's write it plans the repair. The
// containers beside the claim have no claim, and the sandboxes are left out.
func TestExplainPlan(t *testing.T) {
	longOnly(t)
	drivers(t, "explain", func(t *testing.T, s suite, name string) {
		s.shareTool(t)
		s.claim(t, name, "numa-0", capacity{"cpu": "2", "memory": "64Mi"})
		p := s.run(t, pod(name, []string{"sleep"}, name))
		plan := func() string {
			out, err := s.NodeExec(t.Context(), s.node, "/share/cpumem explain --plan")
			require.NoError(t, err, out)
			return out
		}
		eventually(t, "an empty plan", func(context.Context) error {
			if out := plan(); !strings.Contains(out, "plan: the cgroups have what the node state demands") ||
				strings.Contains(out, "refused claim") {
				return fmt.Errorf("%s", out)
			}
			return nil
		})
		require.NotContains(t, plan(), s.cgroupDir(t, p, "main")[len("/sys/fs/cgroup/"):], "the claim's container is not left out")

		checks, err := s.NodeExec(t.Context(), s.node, "/share/cpumem doctor node")
		require.NoError(t, err, "a fault of a healthy node: %s", checks)
		require.Contains(t, checks, "connected to containerd")

		dir := s.cgroupDir(t, p, "main")
		// A stopped actuator repairs nothing before the tool has looked.
		planned, err := s.NodeExec(t.Context(), s.node, "kill -STOP $(pidof nri-actuator); echo 1 >"+dir+"/memory.min; "+
			"/share/cpumem explain --plan; kill -CONT $(pidof nri-actuator)")
		require.NoError(t, err, planned)
		require.Contains(t, planned, dir[len("/sys/fs/cgroup/"):]+`/memory.min: "0" becomes "67108864"`)
		s.becomes(t, "67108864", dir, "memory.min")
	})
}
