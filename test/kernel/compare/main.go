// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command compare takes random operations on the cgroups of the machine that it runs
// on, and on the model of package kerneltest, and reports the first difference. It is the
// first process of a virtual machine that is there for nothing else: it takes CPUs
// offline and may leave CPUs that the kernel has lost.
//
// Its options come from the kernel's command line: seed=N, operations=N, model=NAME.
// Its last line is "done N operations", "different: ..." or "failed: ...", or "again N operations"
// if the kernel has lost CPUs and the machine must be started again for the rest.
package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/kernel/boot"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "pause" {
		for {
			_ = syscall.Pause() // returns at each signal, the Go runtime's own too
		}
	}
	if len(os.Args) > 3 && os.Args[1] == "write" {
		os.Exit(writeInNamespace(os.Args[2], os.Args[3]))
	}
	fmt.Println(run())
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
}

func run() string {
	o, err := start()
	if err != nil {
		return fmt.Sprintf("failed: %v", err)
	}
	real, err := openMachine()
	if err != nil {
		return fmt.Sprintf("failed: %v", err)
	}
	model := kerneltest.New(o.release, kerneltest.Regular(real.cpus, real.nodes))
	if err := step(model, real, enable("")); err != nil {
		return fmt.Sprintf("different: %v", err)
	}
	r := rand.New(rand.NewPCG(o.seed, 0))
	taken := 0
	for taken < o.operations {
		history, err := episode(model, real, r)
		taken += len(history)
		if errors.Is(err, errLost) {
			return fmt.Sprintf("again %d operations", taken)
		}
		if err != nil {
			fmt.Printf("difference after %d operations: %v\n", taken, err)
			return "different:\n" + shrink(o.release, real, history)
		}
	}
	return fmt.Sprintf("done %d operations", taken)
}

// options are the words of the kernel's command line for this program.
type options struct {
	release    kerneltest.Release
	seed       uint64
	operations int
}

// start mounts what the program needs and returns its options.
func start() (o options, err error) {
	words, err := boot.Start()
	if err != nil {
		return o, err
	}
	for name, value := range words {
		switch name {
		case "seed":
			o.seed, err = strconv.ParseUint(value, 10, 64)
		case "operations":
			o.operations, err = strconv.Atoi(value)
		case "model":
			err = fmt.Errorf("no model %q", value)
			for _, r := range kerneltest.Releases() {
				if r.Name == value {
					o.release, err = r, nil
				}
			}
		}
		if err != nil {
			return o, fmt.Errorf("%s=%s: %w", name, value, err)
		}
	}
	return o, nil
}
