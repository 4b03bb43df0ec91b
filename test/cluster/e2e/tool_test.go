// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tool is the operator's program on the machine that the tests run on.
type tool struct {
	path, kubeconfig string
}

func (s suite) tool(t *testing.T) tool {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cpumem")
	build := exec.Command("go", "build", "-o", path, "./cmd/cpumem")
	build.Dir, build.Env = filepath.Join("..", "..", ".."), append(build.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return tool{path: path, kubeconfig: s.Kubeconfig()}
}

func (c tool) run(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, c.path, append(args, "--kubeconfig", c.kubeconfig)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cpumem %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// A59: the tool counts as the scheduler does: a claim of all that it shows as free is
// allocated. A claim of one CPU more is pending, and the tool says which zone lacks
// what. For a running pod it says what its requests do not repeat.
func TestTool(t *testing.T) {
	s := theSuite.on(wide)
	cpumem := s.tool(t)
	free := func() (cpus int64) {
		out, err := cpumem.run(t.Context(), "nodes", s.node, "-o", "json")
		require.NoError(t, err)
		var nodes []struct {
			Zones []struct {
				Name       string
				Capacities []struct {
					Name        string
					Total, Used int64
				}
			}
		}
		require.NoError(t, json.Unmarshal([]byte(out), &nodes), out)
		for _, z := range nodes[0].Zones {
			for _, c := range z.Capacities {
				if z.Name == "numa-1" && c.Name == "cpu" {
					cpus = c.Total - c.Used
				}
			}
		}
		return cpus
	}
	all := free()
	require.Positive(t, all)
	s.claim(t, "tool-all", "numa-1", capacity{"cpu": fmt.Sprint(all)})
	s.create(t, pod("tool-all", []string{"sleep"}, "tool-all"))
	s.running(t, "tool-all")
	require.Zero(t, free())
	out, err := cpumem.run(t.Context(), "why", "tool-all")
	require.NoError(t, err)
	require.Contains(t, out, "claim default/tool-all, request zone: zone numa-1 of node "+s.node)
	require.Contains(t, out, fmt.Sprintf("note: the pod's claims have %d cpu, its spec requests 0: ", all))

	s.claim(t, "tool-more", "numa-1", capacity{"cpu": "1"})
	s.create(t, pod("tool-more", []string{"sleep"}, "tool-more"))
	s.claim(t, "tool-misspelt", "", capacity{"hugepages-2Mi": "2Mi"})
	s.create(t, pod("tool-misspelt", []string{"sleep"}, "tool-misspelt"))
	for name, want := range map[string]string{
		"tool-more":     fmt.Sprintf("numa-1   cpu: 1 wanted, 0 of %d free", all),
		"tool-misspelt": "no zone has a capacity hugepages-2Mi: did you mean hugepages_2Mi?",
	} {
		eventually(t, "reason of "+name, func(ctx context.Context) error {
			out, err := cpumem.run(ctx, "why", "pod/"+name)
			if err == nil && !(strings.Contains(out, want) && strings.Contains(out, "the scheduler says: ")) {
				err = fmt.Errorf("it says %s", out)
			}
			return err
		})
	}
	out, err = cpumem.run(t.Context(), "doctor", "cluster")
	require.NoError(t, err, "a fault of a healthy cluster")
	require.Contains(t, out, "feature gate DRAConsumableCapacity of the API server")
	out, err = cpumem.run(t.Context(), "report", "-n", namespace, "-o", filepath.Join(t.TempDir(), "report.tar.gz"))
	require.NoError(t, err)
	require.Contains(t, out, "_frontend.log, ")
	// What the forecast says is free is free: numa-1 of this node is not.
	example := filepath.Join("..", "..", "..", "examples", "latency-critical.yaml")
	out, err = cpumem.run(t.Context(), "simulate", "--live", "--exit-code", example)
	require.NoError(t, err, "the example does not fit")
	require.Contains(t, out, "default/latency-critical")
	require.NotRegexp(t, s.node+" +numa-1", out)
	out, err = cpumem.run(t.Context(), "claims")
	require.NoError(t, err)
	require.Contains(t, out, "default/tool-all ")
	require.NotContains(t, out, "tool-more")
	out, err = s.Kubectl(t.Context(), "-n", namespace, "exec", s.daemon(t, "frontend").Name, "--",
		"/cpumem", "explain", "--cgroup-root", "/host/sys/fs/cgroup")
	require.NoError(t, err, "the tool of the frontend's image")
	require.Contains(t, out, "tool-all")
}
