// SPDX-License-Identifier: Apache-2.0

// Package contracttest has what the tests of all modules share: values of the contract, system calls that fail, and the
// times of a benchmark's operations.
package contracttest

import contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"

// CPUs returns the set with the list. It panics on an invalid list.
func CPUs(list string) contract.CPUSet { return must(contract.ParseCPUs(list)) }

// NUMANodes returns the set with the list. It panics on an invalid list.
func NUMANodes(list string) contract.NUMANodeSet { return must(contract.ParseNUMANodes(list)) }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
