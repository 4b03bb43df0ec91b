// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"io/fs"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/podclaims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// bootID is the simulated node's boot id.
const bootID = "simulated"

// actuator is a working actuator with every feature.
type actuator struct{}

// Announcement implements kubelet.Actuator.
func (actuator) Announcement() (contract.Announcement, error) {
	return contract.Announcement{
		V: contract.Version, Versions: []string{contract.Version}, Connected: true, Features: contract.Features(),
	}, nil
}

// podLister has the pods in place of the API server.
type podLister []*corev1.Pod

// Pod implements kubelet.Pods.
func (l podLister) Pod(_ context.Context, namespace, name string) (decision.Pod, error) {
	for _, p := range l {
		if p.Namespace == namespace && p.Name == name {
			return podclaims.Convert(p)
		}
	}
	return decision.Pod{}, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

// Claim implements kubelet.Claims.
func (o Objects) Claim(_ context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	if claim, known := o.claims[key{namespace, name}]; known {
		return claim, nil
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), name)
}

// cgroups has a cgroup for every pod: simulated pods do not end.
type cgroups struct{}

// Has implements kubelet.Cgroups.
func (cgroups) Has(contract.PodRecord) (bool, error) { return true, nil }

// node is the simulated node.
type node struct{ machine topology.Machine }

// AllocatableMemory implements kubelet.Node. Nothing is reserved for kubelet,
// because the input has no such amount.
func (n node) AllocatableMemory(context.Context) (int64, error) {
	bytes := int64(0)
	for _, numa := range n.machine.NUMANodes {
		bytes += numa.MemTotal
		for size, pages := range numa.Hugepages {
			bytes -= size * pages
		}
	}
	return bytes, nil
}

// lock is the lock of a ledger with one writer.
type lock struct{}

// Acquire implements kubelet.Lock.
func (lock) Acquire() (release func() error, err error) { return func() error { return nil }, nil }

type discard struct{}

func (discard) Prepared(error, time.Duration) {}
func (discard) Unprepared(error)              {}
func (discard) Claims(int, int, int)          {}

// directory is a CDI directory in memory. Its clock counts writes.
type directory struct {
	files  map[string]file
	writes int64
}

type file struct {
	name    string
	data    []byte
	modTime time.Time
}

func newDirectory() *directory { return &directory{files: make(map[string]file)} }

// List implements ledger.Directory.
func (d *directory) List() ([]fs.FileInfo, error) {
	infos := make([]fs.FileInfo, 0, len(d.files))
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		infos = append(infos, d.files[name])
	}
	return infos, nil
}

// Stat implements ledger.Directory.
func (d *directory) Stat(name string) (fs.FileInfo, error) {
	f, found := d.files[name]
	if !found {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return f, nil
}

// Read implements ledger.Directory.
func (d *directory) Read(name string) ([]byte, error) {
	f, found := d.files[name]
	if !found {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return f.data, nil
}

// Write implements ledger.Directory.
func (d *directory) Write(name string, data []byte) error {
	d.writes++
	d.files[name] = file{name: name, data: slices.Clone(data), modTime: time.Unix(d.writes, 0)}
	return nil
}

// Remove implements ledger.Directory.
func (d *directory) Remove(name string) error {
	delete(d.files, name)
	return nil
}

// Path implements ledger.Directory.
func (d *directory) Path(name string) string { return name }

func (f file) Name() string       { return f.name }
func (f file) Size() int64        { return int64(len(f.data)) }
func (f file) Mode() fs.FileMode  { return 0o600 }
func (f file) ModTime() time.Time { return f.modTime }
func (f file) IsDir() bool        { return false }
func (f file) Sys() any           { return nil }
