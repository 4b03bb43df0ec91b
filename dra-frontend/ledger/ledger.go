// SPDX-License-Identifier: Apache-2.0

// Package ledger reads and writes the claims that are prepared on this node.
// The CDI directory is the state (I4): every call reads the directory again,
// and memory holds only the decoded content of files that have not changed. So
// a restart, a second instance during a rolling update and a file removed by
// hand are the same case.
package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
)

// Directory is the CDI directory. Writes are durable and atomic.
type Directory interface {
	List() ([]fs.FileInfo, error)
	Stat(name string) (fs.FileInfo, error)
	Read(name string) ([]byte, error)
	Write(name string, data []byte) error
	Remove(name string) error
	Path(name string) string
}

// Ledger reads and writes the claims of the node. It is not safe for concurrent
// use: its caller holds a lock from reading the claims to writing a choice of
// CPUs.
type Ledger struct {
	dir    Directory
	bootID string
	files  map[string]cached
	node   writtenNode
	// generation is the highest generation written or read, in case the node file is lost.
	generation uint64
}

type cached struct {
	id     cdidir.Identity
	record contract.ClaimRecord
	err    error
}

// New returns a ledger of the directory for the running boot.
func New(dir Directory, bootID string) *Ledger {
	return &Ledger{dir: dir, bootID: bootID, files: make(map[string]cached)}
}

// Claims are the claim files of the directory at one moment.
type Claims struct {
	// Prepared are the readable claims, sorted by UID.
	Prepared []contract.ClaimRecord
	// Unreadable are the paths of claim files that cannot be read, with the
	// reason.
	Unreadable map[string]error
}

// Find returns the record of a readable claim.
func (c Claims) Find(uid string) (contract.ClaimRecord, bool) {
	i, found := slices.BinarySearchFunc(c.Prepared, uid, func(r contract.ClaimRecord, uid string) int {
		return strings.Compare(r.UID, uid)
	})
	if !found {
		return contract.ClaimRecord{}, false
	}
	return c.Prepared[i], true
}

// Without returns the readable claims except the named one.
func (c Claims) Without(uid string) []contract.ClaimRecord {
	return slices.DeleteFunc(slices.Clone(c.Prepared), func(r contract.ClaimRecord) bool { return r.UID == uid })
}

// With returns the claims with the record, in place of its former record if
// there is one.
func (c Claims) With(r contract.ClaimRecord) Claims {
	c.Prepared = append(c.Without(r.UID), r)
	slices.SortFunc(c.Prepared, func(a, b contract.ClaimRecord) int { return strings.Compare(a.UID, b.UID) })
	return c
}

// Blocked returns an error that names the unreadable files, or nil if there are
// none. The CPUs in unreadable files are unknown, so no claim may get new CPUs
// (I4).
func (c Claims) Blocked() error {
	if len(c.Unreadable) == 0 {
		return nil
	}
	var errs []error
	for i, path := range slices.Sorted(maps.Keys(c.Unreadable)) {
		if i == maxNamed {
			errs = append(errs, fmt.Errorf("and %d more", len(c.Unreadable)-maxNamed))
			break
		}
		errs = append(errs, fmt.Errorf("%s: %w", path, c.Unreadable[path]))
	}
	return fmt.Errorf("no new claim is prepared on this node while %d claim file(s) cannot be read, "+
		"because the CPUs they hold are unknown; drain the pods of these claims and remove the files: %w",
		len(c.Unreadable), errors.Join(errs...))
}

// maxNamed bounds the files in an error, which each refused claim repeats in kubelet's answer and in the log.
const maxNamed = 8

// Load reads all claim files.
func (l *Ledger) Load() (Claims, error) {
	infos, err := l.dir.List()
	if err != nil {
		return Claims{}, fmt.Errorf("read CDI directory: %w", err)
	}
	claims := Claims{Prepared: []contract.ClaimRecord{}, Unreadable: make(map[string]error)}
	present := make(map[string]cached, len(infos))
	for _, info := range infos {
		uid, ours := contract.ClaimUIDOfFile(info.Name())
		if !ours {
			continue
		}
		entry := l.current(uid, info)
		if errors.Is(entry.err, fs.ErrNotExist) {
			continue
		}
		present[info.Name()] = entry
		if entry.err != nil {
			claims.Unreadable[l.dir.Path(info.Name())] = entry.err
			continue
		}
		claims.Prepared = append(claims.Prepared, entry.record)
	}
	l.files = present
	slices.SortFunc(claims.Prepared, func(a, b contract.ClaimRecord) int { return strings.Compare(a.UID, b.UID) })
	return claims, nil
}

// Record returns the record of a readable claim. It looks at no other claim's file: on a node with many claims that pods may
// join, Load for each of them would take a time that grows with the square of their number.
func (l *Ledger) Record(uid string) (contract.ClaimRecord, bool, error) {
	name := contract.ClaimFile(uid)
	info, err := l.dir.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return contract.ClaimRecord{}, false, nil
	}
	if err != nil {
		return contract.ClaimRecord{}, false, fmt.Errorf("read CDI directory: %w", err)
	}
	entry := l.current(uid, info)
	l.files[name] = entry
	return entry.record, entry.err == nil, nil
}

// current returns the content of a claim file, decoded again if the file has changed.
func (l *Ledger) current(uid string, info fs.FileInfo) cached {
	entry, known := l.files[info.Name()]
	if !known || entry.err != nil || entry.id != cdidir.Identify(info) {
		entry = l.read(uid, info)
	}
	return entry
}

func (l *Ledger) read(uid string, info fs.FileInfo) cached {
	entry := cached{id: cdidir.Identify(info)}
	if uid == "" {
		entry.err = errors.New("the name is not that of a claim file")
		return entry
	}
	data, err := l.dir.Read(info.Name())
	if err != nil {
		entry.err = err
		return entry
	}
	entry.record, entry.err = contract.DecodeClaim(info.Name(), data)
	if entry.err == nil && entry.record.BootID != l.bootID {
		// Without the ids: the error is logged, and bug reports have the log and no boot id.
		entry.err = errors.New("it was written during another boot")
	}
	return entry
}

// Add writes the node state and then the claim file, so that the shared pool
// never has a CPU that a claim file takes out of it (I1). state must already contain the
// claim. After an error the caller brings the node state in line with the claim files, so that the error leaves nothing
// behind (I3).
func (l *Ledger) Add(r contract.ClaimRecord, state contract.NodeState) error {
	data, err := contract.EncodeClaim(r)
	if err != nil {
		return err
	}
	if err := l.room(state); err != nil {
		return err
	}
	state.Generation, _ = l.written()
	if err := l.writeNext(state); err != nil {
		return err
	}
	name := contract.ClaimFile(r.UID)
	if err := l.dir.Write(name, data); err != nil {
		// The rename may have happened before the error.
		return errors.Join(fmt.Errorf("write claim file: %w", err), l.dir.Remove(name))
	}
	return nil
}

// Update replaces the pods that may use the decisions of a claim. state must
// already contain the change. Both files are checked before one is written.
func (l *Ledger) Update(r contract.ClaimRecord, state contract.NodeState) error {
	name := contract.ClaimFile(r.UID)
	data, err := l.dir.Read(name)
	if err != nil {
		return err
	}
	if data, err = contract.WithPods(name, data, r.Pods); err != nil {
		return fmt.Errorf("claim file %s: %w", l.dir.Path(name), err)
	}
	if err := l.room(state); err != nil {
		return err
	}
	if _, err := contract.EncodeNode(state); err != nil {
		return err
	}
	if err := l.dir.Write(name, data); err != nil {
		return fmt.Errorf("write claim file: %w", err)
	}
	return l.WriteNode(state)
}

// Replace writes a new decision for a claim. The state between must suit the
// former claim file and the new one: it is the node state while the file is
// replaced, and stays the node state if that fails. All three are checked before one is written: a
// claim file whose node state cannot be written would block the node.
func (l *Ledger) Replace(r contract.ClaimRecord, between, after contract.NodeState) error {
	data, err := contract.EncodeClaim(r)
	if err != nil {
		return err
	}
	if err := l.room(after); err != nil {
		return err
	}
	if _, err := contract.EncodeNode(after); err != nil {
		return err
	}
	if err := l.WriteNode(between); err != nil {
		return err
	}
	if err := l.dir.Write(contract.ClaimFile(r.UID), data); err != nil {
		return fmt.Errorf("write claim file: %w", err)
	}
	return l.WriteNode(after)
}

// room refuses a state that is larger than the written one and takes more than
// three quarters of the node file's limit. The last quarter is for what a
// changed configuration or machine adds to the prepared claims (I4).
func (l *Ledger) room(state contract.NodeState) error {
	used, limit, err := contract.NodeRoom(state)
	if err != nil {
		return err
	}
	most := limit / 4 * 3
	if used <= most {
		return nil
	}
	if old, ok := l.Node(); ok {
		if was, _, err := contract.NodeRoom(old); err == nil && used <= was {
			return nil
		}
	}
	claims := make(map[string]bool)
	for _, pod := range state.Pods {
		for _, uid := range pod.Claims {
			claims[uid] = true
		}
	}
	return fmt.Errorf("the node file would have %d bytes for %d claims in %d pods, and may have %d: "+
		"ask for larger claims instead of many small ones, or delete pods with claims on this node",
		used, len(claims), len(state.Pods), most)
}

// Forget removes a claim file. The caller writes the node state without the
// claim afterwards: the reverse order of Add, for the same reason (I1). An
// unknown claim is no error.
func (l *Ledger) Forget(uid string) error {
	if err := l.dir.Remove(contract.ClaimFile(uid)); err != nil {
		return fmt.Errorf("remove claim file, its CPUs stay taken until it can be removed: %w", err)
	}
	return nil
}

// Node returns the node state as written. ok is false if no node state can be
// read; the caller computes it from the claims then.
func (l *Ledger) Node() (state contract.NodeState, ok bool) {
	data, err := l.dir.Read(contract.NodeFile)
	if err != nil {
		return contract.NodeState{}, false
	}
	state, err = contract.DecodeNode(data)
	return state, err == nil
}

// Generation returns the generation of the node state as written, 0 if no node state can be read.
func (l *Ledger) Generation() uint64 {
	if !l.readNode() {
		return 0
	}
	return l.node.generation
}

// WriteNode writes the state with the next generation if it differs from the
// written state.
func (l *Ledger) WriteNode(state contract.NodeState) error {
	last, written := l.written()
	state.Generation = last
	if written {
		unchanged, err := contract.EncodeNode(state)
		if err != nil || bytes.Equal(unchanged, l.node.encoded) {
			return err
		}
	}
	return l.writeNext(state)
}

// written returns the generation of the last node state. is reports whether the node file has it.
func (l *Ledger) written() (generation uint64, is bool) {
	if l.readNode() {
		return l.node.generation, true
	}
	return l.generation, false
}

// writeNext writes the state with the generation after its own.
func (l *Ledger) writeNext(state contract.NodeState) error {
	state.Generation++
	data, err := contract.EncodeNode(state)
	if err != nil {
		return err
	}
	if err := l.dir.Write(contract.NodeFile, data); err != nil {
		return fmt.Errorf("write node file: %w", err)
	}
	l.generation = state.Generation
	l.node = writtenNode{content: data, encoded: data, generation: state.Generation}
	return nil
}

// writtenNode is the node file as last read or written.
type writtenNode struct {
	content []byte
	// encoded is the state in content as this version encodes it: another version may have
	// written content.
	encoded    []byte
	generation uint64
}

// readNode reads the node file into l.node, and decodes it unless its content is there
// already. readNode reports whether the node file has a state.
func (l *Ledger) readNode() bool {
	content, err := l.dir.Read(contract.NodeFile)
	if err != nil {
		return false
	}
	if bytes.Equal(content, l.node.content) {
		return true
	}
	state, err := contract.DecodeNode(content)
	if err != nil {
		return false
	}
	encoded, err := contract.EncodeNode(state)
	if err != nil {
		return false
	}
	l.node = writtenNode{content: content, encoded: encoded, generation: state.Generation}
	l.generation = max(l.generation, state.Generation)
	return true
}
