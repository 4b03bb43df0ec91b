// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"io"
	"io/fs"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
)

// ExplainProtection writes what the memory protection of claims is worth in the
// cgroups of this node, as the claims' status has it. claim selects a claim as
// in [Directory.Explain].
func (d Directory) ExplainProtection(w io.Writer, claim string, cgroups fs.FS, pageSize int64) error {
	// Only a driver that owns protection names ancestors. Another owner is not
	// in the files: then nothing is advised.
	n := health.Cgroups{Root: cgroups, PageSize: pageSize, Pending: d.pending()}
	if d.Node != nil && len(d.Node.Ancestors) > 0 {
		n.Owner = config.OwnerDriver
	}
	if d.Actuator != nil {
		n.Kubepods, n.Overwritten = d.Actuator.Kubepods, d.Actuator.Overwritten
	}
	findings, err := health.CheckProtection(n, d.Claims)
	if err != nil {
		return err
	}
	for _, c := range d.Claims {
		if !selects(claim, c) {
			continue
		}
		for i, r := range c.Results {
			if f, found := findings[contract.Key{ClaimUID: c.UID, Index: i}]; found {
				fmt.Fprintf(w, "memory protection of %s/%s, %s: %s, %s: %s\n",
					c.Namespace, c.Name, r.Request, f.Status, f.Reason, f.Message)
			}
		}
	}
	return nil
}

// pending reports whether the actuator has not yet applied the node state.
func (d Directory) pending() bool {
	return d.Node != nil && d.Actuator != nil && d.Node.Generation > d.Actuator.Generation
}
