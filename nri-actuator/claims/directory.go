// SPDX-License-Identifier: Apache-2.0

// Package claims reads the CDI directory and returns the frontend's decisions
// for a container. Only this package decides which variables count: a variable
// is obeyed if a file of the frontend backs it, and refused otherwise.
package claims

import (
	"fmt"
	"io/fs"
	"slices"
	"sync"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
)

// Directory is the CDI directory as the frontend left it. The content of a file
// is kept in memory while the file is the same, which is checked in each call.
// So no answer is older than the call.
type Directory struct {
	dir      cdidir.Dir
	features []string
	bootID   string

	mu     sync.Mutex
	node   contract.NodeState
	nodeID cdidir.Identity
	claims map[string]claim
}

type claim struct {
	id        cdidir.Identity
	variables map[contract.Key]variable
}

// variable is a variable with the contract's prefix.
type variable struct {
	// entry is "NAME=value".
	entry    string
	key      contract.Key
	decision contract.Decision
	// err is the error of [contract.ParseEnv].
	err error
}

func (d *Directory) parse(entry string) variable {
	v := variable{entry: entry}
	v.key, v.decision, _, v.err = contract.ParseEnv(entry, d.features)
	return v
}

// New returns the directory dir. features are the features that this program
// implements. bootID is the id of the machine's boot.
func New(dir cdidir.Dir, features []string, bootID string) *Directory {
	return &Directory{dir: dir, features: features, bootID: bootID, claims: make(map[string]claim)}
}

// Node returns the node state. An absent file is [fs.ErrNotExist], and so is a file of
// another boot: the machine may have other CPUs since.
func (d *Directory) Node() (contract.NodeState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	data, id, err := d.dir.ReadNew(contract.NodeFile, d.nodeID)
	if err != nil {
		return contract.NodeState{}, fmt.Errorf("node state: %w", err)
	}
	if id == d.nodeID {
		return d.node, nil
	}
	node, err := contract.DecodeNode(data)
	if err != nil {
		return contract.NodeState{}, fmt.Errorf("node state: %s: %w", d.dir.Path(contract.NodeFile), err)
	}
	if node.BootID != d.bootID {
		return contract.NodeState{}, fmt.Errorf("node state: %s was written during boot %s, this is boot %s: %w",
			d.dir.Path(contract.NodeFile), node.BootID, d.bootID, fs.ErrNotExist)
	}
	d.node, d.nodeID = node, id
	d.forgetReleased()
	return node, nil
}

// forgetReleased drops the contents of claims that no pod has.
func (d *Directory) forgetReleased() {
	live := make(map[string]bool)
	for _, pod := range d.node.Pods {
		for _, uid := range pod.Claims {
			live[uid] = true
		}
	}
	for uid := range d.claims {
		if !live[uid] {
			delete(d.claims, uid)
		}
	}
}

// variables returns the variables that the claim's file injects. They are parsed once
// for each content of the file, not for each container.
func (d *Directory) variables(uid string) (map[contract.Key]variable, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.claims[uid]
	name := contract.ClaimFile(uid)
	data, id, err := d.dir.ReadNew(name, known.id)
	if err != nil {
		return nil, err
	}
	if id == known.id {
		return known.variables, nil
	}
	entries, err := contract.DecodeClaimEntries(uid, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.dir.Path(name), err)
	}
	variables := make(map[contract.Key]variable, len(entries))
	for key, entry := range entries {
		variables[key] = d.parse(entry)
	}
	d.claims[uid] = claim{id: id, variables: variables}
	return variables, nil
}

func isListed(node contract.NodeState, podUID, claimUID string) bool {
	return slices.Contains(node.Pods[podUID].Claims, claimUID)
}
