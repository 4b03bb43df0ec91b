// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

func text(files fstest.MapFS) map[string]string {
	out := make(map[string]string, len(files))
	for name, file := range files {
		out[name] = string(file.Data)
	}
	return out
}

func merge(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// pageSizes returns the machine's hugepage sizes in the kernel's form.
func (n *Node) pageSizes() []string {
	sizes := make(map[string]bool)
	for _, node := range n.machine.NUMANodes {
		for size := range node.Hugepages {
			sizes[contract.CgroupPageSize(contract.FormatPageSize(size))] = true
		}
	}
	return sorted(sizes)
}

// State reads the node file.
func (n *Node) State() contract.NodeState {
	state, err := n.state()
	require.NoError(n.t, err)
	return state
}

func (n *Node) state() (contract.NodeState, error) {
	data, err := os.ReadFile(filepath.Join(n.CDI, contract.NodeFile))
	if err != nil {
		return contract.NodeState{}, err
	}
	return decodeOnce(n.decoded, contract.NodeFile, data, func() (contract.NodeState, error) { return contract.DecodeNode(data) })
}

// decoded is a file's content and its decoded value.
type decoded struct {
	data  string
	value any
}

// decodeOnce decodes a file unless known has its content.
func decodeOnce[V any](known map[string]decoded, name string, data []byte, decode func() (V, error)) (V, error) {
	if d, ok := known[name]; ok && d.data == string(data) {
		return d.value.(V), nil
	}
	v, err := decode()
	if err == nil {
		known[name] = decoded{data: string(data), value: v}
	}
	return v, err
}

// Pool returns the shared pool's CPUs.
func (n *Node) Pool() string { return n.State().Shared.CPUs.String() }

// HasState waits until there is a node file.
func (n *Node) HasState() {
	n.t.Helper()
	n.eventually("a node file", func() error {
		_, err := n.state()
		return err
	})
}

// Joined waits until the pod has claims in the node state.
func (n *Node) Joined(p *Pod) {
	n.t.Helper()
	n.eventually("the pod to be tied to its claims", func() error {
		state, err := n.state()
		if err == nil && len(state.Pods[p.UID].Claims) == 0 {
			err = fmt.Errorf("the node state has pods %v", sorted(state.Pods))
		}
		return err
	})
}

// WaitPool waits until the shared pool has exactly the CPUs of the list want.
func (n *Node) WaitPool(want string) {
	n.t.Helper()
	n.eventually("the shared pool "+want, func() error {
		state, err := n.state()
		if err == nil && state.Shared.CPUs.String() != want {
			err = fmt.Errorf("it is %s", state.Shared.CPUs)
		}
		return err
	})
}

// Records reads all claim files.
func (n *Node) Records() map[string]contract.ClaimRecord {
	records := make(map[string]contract.ClaimRecord)
	for name, data := range n.Files() {
		if uid, ours := contract.ClaimUIDOfFile(name); ours {
			record, err := decodeOnce(n.decoded, name, data, func() (contract.ClaimRecord, error) {
				return contract.DecodeClaim(name, data)
			})
			require.NoError(n.t, err, name)
			records[uid] = record
		}
	}
	return records
}

// Files reads the contract's files in the CDI directory, without unfinished files.
func (n *Node) Files() map[string][]byte {
	entries, err := os.ReadDir(n.CDI)
	require.NoError(n.t, err)
	files := make(map[string][]byte)
	for _, e := range entries {
		// A library writes device metadata; see [Node.MetadataFiles].
		if strings.HasPrefix(e.Name(), ".") || strings.HasPrefix(e.Name(), metadataPrefix) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(n.CDI, e.Name()))
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(n.t, err)
		files[e.Name()] = data
	}
	return files
}

// metadataPrefix is the prefix of CDI files for device metadata.
const metadataPrefix = kubelet.DriverName + "_metadata_"

// MetadataFiles returns the CDI files for device metadata.
func (n *Node) MetadataFiles() []string {
	names, err := filepath.Glob(filepath.Join(n.CDI, metadataPrefix+"*.json"))
	require.NoError(n.t, err)
	return names
}

// pool returns the CPUs of the shared pool without claims.
func (n *Node) pool() contract.CPUSet { return n.offered().Pool.CPUs }

// CPUs returns the machine's online CPUs.
func (n *Node) CPUs() []int { return n.machine.Online().List() }

// offered returns the inventory with the present configuration.
func (n *Node) offered() zones.Division {
	if n.inventory == nil {
		offered, err := n.config.Divide(n.machine)
		require.NoError(n.t, err)
		n.inventory = &offered
	}
	return *n.inventory
}

// devices returns the devices that the frontend publishes for zones.
func (n *Node) devices(zs []zones.Zone) []resourceapi.Device {
	return resourceslices.Devices(zs, resourceslices.OptionsOf(n.config, n.spec.PageSize, nil))
}

// Reconfigure restarts the frontend with another configuration. It reports whether
// it did: the configuration must fit the machine, and the claims must leave CPUs to
// the shared pool.
func (n *Node) Reconfigure(change func(*config.Config)) bool {
	n.t.Helper()
	next := n.config
	change(&next)
	offered, err := next.Divide(n.machine)
	if err != nil {
		return false
	}
	var held contract.CPUSet
	for _, r := range n.Records() {
		held = held.Union(r.CPUs())
	}
	if offered.Pool.CPUs.Difference(held).IsEmpty() {
		return false
	}
	n.config, n.inventory = next, &offered
	n.RestartFrontend()
	if n.published != "" {
		n.published = asText(byName(n.devices(offered.Zones)))
	}
	return true
}

// Applied waits until the actuator has applied the node state.
func (n *Node) Applied() {
	n.t.Helper()
	n.eventually("the node state to be applied", func() error {
		a, err := n.Announcement()
		if err == nil && a.Generation != n.State().Generation {
			err = fmt.Errorf("the actuator has applied generation %d, the node state is %d", a.Generation, n.State().Generation)
		}
		return err
	})
}
