// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/protocol"
)

// exhaustive is set by "make verify-protocol".
var exhaustive = flag.Bool("exhaustive", false, "search all states of the protocol, and of its faults: minutes")

func requireSpin(t *testing.T) {
	t.Helper()
	if !*exhaustive {
		t.Skip("make verify-protocol runs it")
	}
	require.NoError(t, protocol.Installed())
}

// bounds have a search each: one search of all of them has too many states.
var bounds = map[string]protocol.Bounds{
	"one pod with a claim, any fault":             {Pods: 2, Frontends: 1, Faults: 1},
	"two pods with claims, the frontend dies":     {Pods: 3, Frontends: 1, Faults: 1},
	"two pods with claims, two frontends at once": {Pods: 3, Frontends: 2, Faults: 0},
}

// TestProtocol: no state violates a property of properties.pml (I1 to I3, I5, I8).
func TestProtocol(t *testing.T) {
	requireSpin(t)
	for name, b := range bounds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := protocol.Search(t.TempDir(), protocol.Model(), b)
			require.NoError(t, err)
			t.Logf("%d states, %d MB", found.States, found.Megabytes)
			require.Empty(t, found.Violated, found.Output)
		})
	}
}

// TestFaults breaks one step of a program, and finds the property that this violates.
func TestFaults(t *testing.T) {
	one, two, both := protocol.Bounds{Pods: 2, Frontends: 1, Faults: 1}, protocol.Bounds{Pods: 3, Frontends: 1, Faults: 1},
		protocol.Bounds{Pods: 3, Frontends: 2, Faults: 0}
	for name, f := range map[string]struct {
		right, wrong string
		bounds       protocol.Bounds
		violated     string
	}{
		"Prepare writes the claim file before the node file": {
			right:  ":: else -> write_node(with, own) fi",
			wrong:  ":: else -> write_claim(own); write_node(with, own) fi",
			bounds: one, violated: "ORDER",
		},
		"Unprepare writes the node file before it removes the claim file": {
			right:  "call[c] == op -> remove_claim(c); own = 0; goto more",
			wrong:  "call[c] == op -> own = 0; write_node(0, 0); remove_claim(c); goto more",
			bounds: one, violated: "ORDER",
		},
		"a claim is decided anew without the node file before": {
			right: "write_node(with | left, 0) :: else", wrong: "skip :: else", bounds: two, violated: "ORDER",
		},
		"the frontend writes without the lock": {
			right: "lock == NOBODY && READY -> lock = f; d_step", wrong: "true -> d_step", bounds: both, violated: "LOCK",
		},
		"the frontend reads the claim files before it has the lock": {
			right:  "lock == NOBODY && READY -> lock = f; d_step { load() };",
			wrong:  "d_step { load() } }; atomic { lock == NOBODY -> lock = f;",
			bounds: both, violated: "ORDER",
		},
		"the frontend reads no claim file at its start": {
			right: "(i != c -> record_cpus[i] : 0)", wrong: "(i != c && op != reconcile -> record_cpus[i] : 0)", bounds: one, violated: "ORDER",
		},
		"the frontend decides a claim anew before its pods have ended": {
			right: "#define ENDED(c, pods) (", wrong: "#define ENDED(c, pods) (true || ", bounds: two, violated: "I8",
		},
		"the frontend does not look whether kubelet has given Prepare up": {
			right: "(op == prepare && call[c] == op || op == join", wrong: "(op == prepare || op == join",
			bounds: protocol.Bounds{Pods: 2, Frontends: 2, Faults: 1}, violated: "I3",
		},
		"the frontend prepares with claim files of an earlier boot": {
			right: "#define DECIDABLE(c, pods) (!unreadable && ", wrong: "#define DECIDABLE(c, pods) (", bounds: one, violated: "I8",
		},
		"the actuator announces before it applies": {
			right:  "inline look() { d_step { ",
			wrong:  "inline look() { d_step { connected = linked; if :: what == apply -> applied = node :: else fi; ",
			bounds: one, violated: "ANNOUNCED",
		},
		"the actuator gives a claim's CPUs before the pool gives them up": {
			right: "(what == apply || want) && has && POOLED(q)", wrong: "what == apply && has && POOLED(q)", bounds: one, violated: "I1",
		},
		"StartContainer does not look at the pool again": {
			right:  "(answer[p] == asked || phase[p] == made) ->",
			wrong:  "(answer[p] == asked || phase[p] == made) && what != start ->",
			bounds: one, violated: "ANNOUNCED",
		},
		"the guard waits for nothing": {
			right: "#define GUARDED(p) (", wrong: "#define GUARDED(p) (false && ", bounds: one, violated: "I5",
		},
		"an actuator that starts does not apply": {
			right: "reply(none); goto begin", wrong: "reply(none); what = start; goto begin", bounds: one, violated: "STARTS",
		},
	} {
		t.Run(name, func(t *testing.T) {
			model := strings.ReplaceAll(protocol.Model(), f.right, f.wrong)
			require.False(t, model == protocol.Model(), "protocol.pml lacks the text that this fault changes")
			requireSpin(t)
			found, err := protocol.Search(t.TempDir(), model, f.bounds)
			require.NoError(t, err)
			require.Equal(t, f.violated, found.Violated, found.Output)
			t.Logf("%s, after %d states", found.Violated, found.States)
		})
	}
}

// TestHistories: a history that the protocol does not allow is found, with the step.
func TestHistories(t *testing.T) {
	if err := protocol.Installed(); err != nil {
		require.Empty(t, os.Getenv("CI"), err)
		t.Skip(err)
	}
	event := func(action protocol.Action, subject, cpus string, claims ...string) protocol.Event {
		return protocol.Event{Action: action, Subject: subject, CPUs: contracttest.CPUs(cpus), Claims: claims}
	}
	begin := []protocol.Event{
		event(protocol.ActuatorStarted, "", ""), event(protocol.NodeWritten, "", "0-3"),
		event(protocol.Scheduled, "container", "", "claim"), event(protocol.PrepareCalled, "claim", ""),
	}
	node, claim := event(protocol.NodeWritten, "", "1-3"), event(protocol.ClaimWritten, "claim", "0")
	answered, created := event(protocol.Answered, "claim", ""), event(protocol.ContainerCreated, "container", "0")
	died := event(protocol.FrontendDied, "", "")
	two := []protocol.Event{
		node, claim, answered, event(protocol.Scheduled, "second", "", "other"), event(protocol.PrepareCalled, "other", ""),
		event(protocol.NodeWritten, "", "2-3"), event(protocol.ClaimWritten, "other", "1"), event(protocol.Answered, "other", ""),
		event(protocol.Removed, "container", ""), event(protocol.Removed, "second", ""), event(protocol.ClaimRemoved, "claim", ""),
	}
	released, all := event(protocol.ClaimRemoved, "other", ""), event(protocol.NodeWritten, "", "0-3")
	for name, h := range map[string]struct {
		rest   []protocol.Event
		denied string
	}{
		"prepared and created":                {rest: []protocol.Event{node, claim, answered, created}},
		"the frontend dies between the files": {rest: []protocol.Event{node, died, event(protocol.NodeWritten, "", "0-3")}},
		"two claims are released together":    {rest: append(two[:len(two):len(two)], released, all)},
		"a pool with a CPU that a claim has":  {rest: append(two[:len(two):len(two)], all), denied: "EVENT(nodeWritten"},
		"the claim file is written first":     {rest: []protocol.Event{claim, node}, denied: "EVENT(claimWritten"},
		"a container before its claim file":   {rest: []protocol.Event{node, created, claim}, denied: "EVENT(containerCreated"},
		"a container without its claim file":  {rest: []protocol.Event{node, died, answered, created}, denied: "EVENT(containerCreated"},
		"a container with the CPU of the pool": {
			rest:   []protocol.Event{node, claim, answered, event(protocol.ContainerCreated, "container", "1")},
			denied: "EVENT(containerCreated",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var history protocol.History
			for _, e := range append(begin[:len(begin):len(begin)], h.rest...) {
				history.Add(e)
			}
			_, err := protocol.Check(t.TempDir(), protocol.Model(), []*protocol.History{&history})
			if h.denied == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "does not allow")
			lines := strings.Split(err.Error(), "\n")
			require.Contains(t, lines[len(lines)-1], h.denied)
		})
	}
}
