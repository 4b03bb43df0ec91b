// SPDX-License-Identifier: Apache-2.0

// Package contracttest makes values of the contract for the tests of all
// modules.
package contracttest

import contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"

// CPUs returns the set with the list. It panics on an invalid list.
func CPUs(list string) contract.CPUSet { return must(contract.ParseCPUs(list)) }

// Nodes returns the set with the list. It panics on an invalid list.
func Nodes(list string) contract.NodeSet { return must(contract.ParseNodes(list)) }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
