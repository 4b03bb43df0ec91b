// SPDX-License-Identifier: Apache-2.0

// Package contracttest makes values of the contract for the tests of all
// modules.
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
