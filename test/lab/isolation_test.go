// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"strings"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

// This file is a second implementation of the choice between partition and shared
// pool, from the claims' requests. A history compares the driver with it.

// isolation returns the claim parameter cpu.isolation.
func isolation(kind string) string { return `"cpu":{"isolation":"` + kind + `"}` }

// claim has the requests of a history's claim.
type claim struct {
	// own reports whether the claim is from a template, for one pod only.
	own      bool
	requests []lab.Request
}

// claim creates a claim for the pod of that name.
func (h *history) claim(pod, name string, requests ...lab.Request) string {
	c := claim{own: rapid.Bool().Draw(h.t, "template"), requests: requests}
	h.claims[name] = c
	if c.own {
		return h.n.TemplateClaim(pod, name, requests...)
	}
	return h.n.Claim(name, requests...)
}

// use is a request of CPUs.
type use struct {
	claim, request string
	containers     map[string]bool
	// kind is the expected kind of partition, empty for none.
	kind string
	// demanded reports whether the claim requires a partition, known whether the
	// claim is prepared.
	demanded, known bool
}

func (u use) meets(other use) bool {
	for c := range u.containers {
		if other.containers[c] {
			return true
		}
	}
	return false
}

// outcome returns the expected kinds of the pod's requests of CPUs. A container is a
// partition with all its CPUs or with none.
func (h *history) outcome(p *pod) []use {
	var uses []use
	for _, name := range p.Claims() {
		record, known := h.record(name)
		shareable := !h.claims[name].own
		for _, r := range h.claims[name].requests {
			shareable = shareable && len(r.Capacity) == 1 && r.Capacity["cpu"] != "" && !h.demands(r)
		}
		for _, r := range h.claims[name].requests {
			if r.Capacity["cpu"] == "" {
				continue
			}
			u := use{
				claim: name, request: r.Name, containers: users(p, name, r.Name), demanded: h.demands(r), known: known,
				kind: contract.PartitionRoot,
			}
			switch {
			case known:
				u.kind = kindOf(record, r.Name)
			case isolationOf(r, "none"), h.exclusivity == config.ExclusivityPool, len(u.containers) > 1, shareable, !h.partitions,
				isolationOf(r, "isolated") && !h.isolates:
				u.kind = ""
			case isolationOf(r, "isolated"):
				u.kind = contract.PartitionIsolated
			}
			uses = append(uses, u)
		}
	}
	for range uses {
		for i, u := range uses {
			for _, other := range uses {
				if !u.known && u.meets(other) && other.kind == "" {
					uses[i].kind = ""
				}
			}
		}
	}
	return uses
}

func (h *history) demands(r lab.Request) bool {
	return r.Capacity["cpu"] != "" &&
		(isolationOf(r, "partition") || isolationOf(r, "isolated") || h.exclusivity == config.ExclusivityPartition)
}

func isolationOf(r lab.Request, kind string) bool {
	return strings.Contains(r.Parameters, `"isolation":"`+kind+`"`)
}

// users returns the containers that use a request of a claim.
func users(p *pod, claim, request string) map[string]bool {
	out := make(map[string]bool)
	for _, c := range p.Containers {
		for _, ref := range c.Claims {
			if ref == claim || ref == claim+"/"+request {
				out[c.Name] = true
			}
		}
	}
	return out
}

func kindOf(record contract.ClaimRecord, request string) string {
	for _, r := range record.Results {
		if r.Request == request {
			return r.Decision.Partition
		}
	}
	return ""
}

func (h *history) record(claim string) (contract.ClaimRecord, bool) {
	for _, r := range h.n.Records() {
		if r.Name == claim {
			return r, true
		}
	}
	return contract.ClaimRecord{}, false
}

// prepared checks that prepared requests have the expected kinds.
func (h *history) prepared(want []use) {
	for _, u := range want {
		if record, known := h.record(u.claim); known {
			require.Equal(h.t, u.kind, kindOf(record, u.request), "claim %s, request %s", u.claim, u.request)
		}
	}
}

// refused checks I2: the error is exactly about the claims for which a partition is
// required and impossible, or a partition is in the way.
func (h *history) refused(want []use, err error) {
	reasons := make(map[string]string)
	for _, u := range want {
		if u.known || u.kind != "" || reasons[u.claim] != "" {
			continue
		}
		if u.demanded {
			reasons[u.claim] = "but it cannot be a cpuset partition"
			continue
		}
		for _, other := range want {
			if u.meets(other) && other.kind != "" {
				reasons[u.claim] = "which is a cpuset partition already"
			}
		}
	}
	if len(reasons) == 0 {
		require.NoError(h.t, err, "I2: the scheduler accepted it")
		return
	}
	require.Error(h.t, err, "wanted %q", reasons)
	for line := range strings.Lines(err.Error()) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "claim "), ":")
		require.NotEmpty(h.t, reasons[name], "I2: the scheduler accepted it: %s", line)
		require.Contains(h.t, line, reasons[name])
		delete(reasons, name)
	}
	require.Empty(h.t, reasons, "refused: %s", err)
}
