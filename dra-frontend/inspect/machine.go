// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// Machine writes what the frontend would publish on this machine with the
// configuration.
func Machine(w io.Writer, c config.Config, pageSize int64) error {
	m, err := topology.Discover(topology.Roots{Sys: os.DirFS(c.SysfsRoot), Proc: os.DirFS(c.ProcRoot)}, pageSize)
	if err != nil {
		return err
	}
	cut, err := c.Zones()
	if err != nil {
		return err
	}
	zs, pool, err := zones.Compute(m, cut)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "ZONE\tCPU\tCPUS\tCORES\tL3S\tMEMORY\tHUGEPAGES\tMEMS")
	for _, z := range zs {
		var pages []string
		for _, size := range slices.Sorted(maps.Keys(z.Hugepages)) {
			pages = append(pages, fmt.Sprintf("%s=%d", contract.FormatPageSize(size), z.Hugepages[size]))
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%d\t%d\t%s\t%s\n", z.Name, z.CPUCapacity, or(z.CPUs.String(), "-"), z.NumCores, z.L3Caches,
			z.Memory, or(strings.Join(pages, ","), "-"), or(contract.FormatList(z.Mems), "-"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\nshared pool with no claim: cpus %s\n", pool.CPUs)
	return err
}
