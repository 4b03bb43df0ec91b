// SPDX-License-Identifier: Apache-2.0

// Command cpumem-guard is the guard, the OCI hook of containers with claims: it keeps a container from starting before
// it has its claim's decision. nri-actuator installs the program on the node, and dra-frontend writes a hook into the
// claims' CDI devices that runs the installed copy with the argument "guard". The guard is a program of its own, because the start
// of each container with a claim waits for it: the program is a quarter of nri-actuator in size and needs half the CPU time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/guard"
)

// maxConfig bounds the container's config.json, in bytes.
const maxConfig = 64 << 20

func main() {
	if err := run(os.Args[1:], os.Stdin); err != nil {
		// The pod's event shows this line. Users know the actuator's name and find its pods by it.
		fmt.Fprintln(os.Stderr, "nri-actuator: guard:", err)
		os.Exit(1)
	}
}

// run checks the container whose state the OCI runtime writes to state. The first of args is "guard", as in the claim files
// of all versions.
func run(args []string, state io.Reader) error {
	hook := guard.Hook{
		Config: func(bundle string) ([]byte, error) {
			if !filepath.IsAbs(bundle) {
				return nil, errors.New("the bundle is not an absolute path")
			}
			return atomicfile.Read(bundle, "config.json", maxConfig)
		},
		PolicyModes: guard.PolicyModes, OpenMount: cgroups.Open, Features: contract.Features(),
	}
	f := flag.NewFlagSet("guard", flag.ContinueOnError)
	f.SetOutput(io.Discard) // the returned error says what is wrong
	f.StringVar(&hook.CgroupRoot, "cgroup-root", "/sys/fs/cgroup", "mount point of cgroup v2")
	f.StringVar(&hook.ProcRoot, "proc-root", "/proc", "mount point of proc")
	if len(args) == 0 || args[0] != "guard" {
		return fmt.Errorf("arguments %.100q: the first must be guard", args)
	}
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unknown argument %.100q", f.Arg(0))
	}
	return hook.Check(context.Background(), state)
}
