// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestNodeKinds installs the recipe's two releases, each for a node. A claim on each node
// shows whose configuration the node has. When the second release is uninstalled, the node
// of the first still takes claims.
func TestNodeKinds(t *testing.T) {
	longOnly(t)
	s := theSuite
	file := func(kind string) string {
		path, err := filepath.Abs(filepath.Join("..", "..", "..", "examples", "node-kinds", "values-"+kind+".yaml"))
		require.NoError(t, err)
		return path
	}
	for name, kind := range map[string]string{node: "general", wide: "latency-critical"} {
		label := fmt.Appendf(nil, `{"metadata":{"labels":{"example.com/node-kind":%q}}}`, kind)
		_, err := s.client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, label, metav1.PatchOptions{})
		require.NoError(t, err)
	}
	uninstall := func(ctx context.Context) error {
		_, err := s.Helm(ctx, "uninstall", "latency", "--namespace", namespace, "--ignore-not-found", "--wait")
		return err
	}
	*s.values = "of two releases"
	t.Cleanup(func() { require.NoError(t, uninstall(context.Background())) })
	require.NoError(t, s.helmRelease(t.Context(), "upgrade", release, file("general")))
	require.NoError(t, s.helmRelease(t.Context(), "install", "latency", file("latency-critical")))
	eventually(t, "both nodes take claims", s.ready)

	// size returns how many CPUs a claim for one CPU gets.
	size := func(s suite, name string) int {
		s.claim(t, name, "", capacity{"cpu": "1"})
		p := s.run(t, pod(name, []string{"sleep"}, name))
		return cpus(t, s.cgroup(t, p, "main", "cpuset.cpus")).Size()
	}
	require.Equal(t, 1, size(s, "kinds-general"))
	require.Equal(t, 2, size(s.on(wide), "kinds-latency"), "a whole core")
	s.remove(t, "kinds-latency")

	require.NoError(t, uninstall(t.Context()))
	require.Equal(t, 1, size(s, "kinds-after"))
	require.NoError(t, s.client.ResourceV1().ResourceSlices().DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{FieldSelector: "spec.driver=dra.cpumem"}), "as the cleanup of a release does")
	eventually(t, "slices of the node that a release serves", func(ctx context.Context) error {
		slices, err := s.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.driver=dra.cpumem"})
		if err != nil {
			return err
		}
		if len(slices.Items) == 0 {
			return errors.New("no slice")
		}
		for _, slice := range slices.Items {
			require.Equal(t, node, *slice.Spec.NodeName)
		}
		return nil
	})
}
