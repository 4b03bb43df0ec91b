// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/protocol"
)

// TestProtocolAllowsHistories: what both daemons do in random lives of a node is what the
// protocol's model allows, so that model and code do not drift apart (I1, I5).
func TestProtocolAllowsHistories(t *testing.T) {
	t.Parallel()
	if err := protocol.Installed(); err != nil {
		require.Empty(t, os.Getenv("CI"), err)
		t.Skip(err)
	}
	var histories []*protocol.History
	check(t, 1, func(rt *rapid.T) {
		o := lab.Options{Embedded: true, Programs: programs, History: &protocol.History{}}
		o.Configure = func(c *config.Config) { c.Exclusivity = config.ExclusivityPool }
		h := &history{t: rt, actuator: true, claims: map[string]claim{}, exclusivity: config.ExclusivityPool, whole: true}
		h.n = lab.NewNode(rt, machine(rt), o)
		h.run(rapid.IntRange(10, 20).Draw(rt, "steps"),
			"add pod", "add pod", "start or stop", "start or stop", "start or stop", "update", "prepare",
			"remove pod", "restart frontend", "kill frontend", "restart kubelet", "restart actuator", "restart runtime")
		histories = append(histories, o.History)
	})
	found, err := protocol.Check(t.TempDir(), protocol.Model(), histories)
	require.NoError(t, err)
	steps := 0
	for _, h := range histories {
		steps += h.Len()
	}
	require.Greater(t, steps, len(histories), "the recorder keeps steps")
	t.Logf("%d steps of %d histories, %d states", steps, len(histories), found.States)
}
