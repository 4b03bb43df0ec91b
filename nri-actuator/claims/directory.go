// SPDX-License-Identifier: Apache-2.0

// Package claims reads the CDI directory and returns the frontend's decisions
// for a container. Only this package decides which variables count: a variable
// is obeyed if a file of the frontend backs it, and refused otherwise.
package claims

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
)

// Directory is the CDI directory as the frontend left it. The content of a file
// is kept in memory while the file is the same, which is checked in each call.
// So no answer is older than the call.
type Directory struct {
	path     string
	features []string

	mu     sync.Mutex
	node   contract.NodeState
	nodeID identity
	claims map[string]claim
}

type claim struct {
	id      identity
	entries map[contract.Key]string
}

// identity distinguishes two contents of one name: files are replaced by rename
// and never written in place.
type identity struct {
	dev, ino     uint64
	size         int64
	mtime, ctime syscall.Timespec
}

// New returns the directory at path. features are the features that this program
// implements.
func New(path string, features []string) *Directory {
	return &Directory{path: path, features: features, claims: make(map[string]claim)}
}

// Node returns the node state. An absent file is [fs.ErrNotExist].
func (d *Directory) Node() (contract.NodeState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	data, id, err := d.load(contract.NodeFile, d.nodeID)
	if err != nil {
		return contract.NodeState{}, fmt.Errorf("node state: %w", err)
	}
	if id == d.nodeID {
		return d.node, nil
	}
	node, err := contract.DecodeNode(data)
	if err != nil {
		return contract.NodeState{}, fmt.Errorf("node state: %s: %w", filepath.Join(d.path, contract.NodeFile), err)
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

// entries returns the variables that the claim's file injects, "NAME=value".
func (d *Directory) entries(uid string) (map[contract.Key]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.claims[uid]
	name := contract.ClaimFile(uid)
	data, id, err := d.load(name, known.id)
	if err != nil {
		delete(d.claims, uid)
		return nil, err
	}
	if id == known.id {
		return known.entries, nil
	}
	entries, err := contract.DecodeClaimEntries(uid, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(d.path, name), err)
	}
	d.claims[uid] = claim{id: id, entries: entries}
	return entries, nil
}

// load returns the content of a file and its identity. It returns no content if
// the identity is the known one.
func (d *Directory) load(name string, known identity) ([]byte, identity, error) {
	path := filepath.Join(d.path, name)
	info, err := os.Stat(path)
	if err != nil {
		return nil, identity{}, err
	}
	if id := identify(info); id == known {
		return nil, id, nil
	}
	// The file may have been replaced since.
	f, info, err := atomicfile.Open(path)
	if err != nil {
		return nil, identity{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, contract.MaxFileSize+1))
	if err != nil {
		return nil, identity{}, err
	}
	if len(data) > contract.MaxFileSize {
		return nil, identity{}, fmt.Errorf("%s is larger than %d bytes", path, contract.MaxFileSize)
	}
	return data, identify(info), nil
}

func identify(info fs.FileInfo) identity {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{dev: st.Dev, ino: st.Ino, size: st.Size, mtime: st.Mtim, ctime: st.Ctim}
}

func isListed(node contract.NodeState, podUID, claimUID string) bool {
	return slices.Contains(node.Pods[podUID].Claims, claimUID)
}
