// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
)

// NodeState is the frontend's record about the whole node.
type NodeState struct {
	V string `json:"v"`
	// Generation grows with each state that differs. It begins at 1 again after the node file was lost.
	Generation uint64 `json:"generation"`
	BootID     string `json:"bootID"`
	Shared     Shared `json:"shared"`
	// Pods has, by pod UID, each pod for which a claim was reserved when the claim was prepared, and each
	// pod that joined a prepared claim. A pod that has ended stays until its claims are released or decided
	// anew. From here the actuator knows which claims a pod has.
	Pods map[string]PodState `json:"pods"`
	// Ancestors are the values of kubepods ("") and of the QoS levels below it.
	Ancestors map[string]Files `json:"ancestors"`
	// PartitionCPUs are the partition CPUs below each level. The kernel gives
	// CPUs to a partition only if the level's cpuset.cpus.exclusive has them.
	PartitionCPUs map[string]CPUSet `json:"exclusive,omitempty"`
	// Machine has the values that no cgroup has.
	Machine Machine `json:"machine,omitzero"`
}

// PoolCPUs returns the CPUs on which pool containers run. The kernel takes partition
// CPUs out of the listed ones.
func (s NodeState) PoolCPUs() CPUSet { return s.Shared.CPUs.Difference(s.PartitionCPUs[LevelKubepods]) }

// Shared is the shared pool.
type Shared struct {
	// CPUs leaves out the claimed CPUs that are no partition CPUs. The kernel
	// itself takes partition CPUs out of the pool and gives them back. Never
	// empty (I7).
	CPUs CPUSet      `json:"cpus"`
	Mems NUMANodeSet `json:"mems"`
	// UnmanagedCPUs are the online CPUs that the driver neither offers nor puts into
	// the shared pool. A container without a claim stays on them if its own spec pins
	// it to such CPUs only.
	UnmanagedCPUs CPUSet `json:"others,omitzero"`
}

// SharedOf returns the shared pool for containers of the pod: without the pod's
// own partition CPUs. The kernel takes partition CPUs from all other cgroups,
// but it ends a partition if cpuset.cpus of a sibling cgroup has a CPU of the
// partition (seen on Linux 6.12, which then loses the CPUs).
func (s NodeState) SharedOf(podUID string) Shared {
	shared := s.Shared
	shared.CPUs = shared.CPUs.Difference(s.Pods[podUID].PartitionCPUs)
	return shared
}

// PodState is the part of the node state about one pod.
type PodState struct {
	// Claims are the UIDs of the pod's prepared claims, sorted.
	Claims []string `json:"claims"`
	// Cgroup are values for the pod's own cgroup.
	Cgroup Files `json:"cgroup,omitempty"`
	// PartitionCPUs are the CPUs of the pod's partitions.
	PartitionCPUs CPUSet `json:"exclusive,omitzero"`
	// Quota is the content of the pod's cpu.max. Absent: kubelet's.
	Quota string `json:"quota,omitempty"`
	// Requires names the features that an actuator must know to create a container of
	// the pod with the pod's claims. An actuator that lacks a feature refuses these
	// containers, and applies the rest of the node state.
	Requires []string `json:"requires,omitempty"`
}

// Files returns what the pod's cgroup shall have.
func (p PodState) Files() Files {
	files := maps.Clone(p.Cgroup)
	if p.Quota == "" {
		return files
	}
	if files == nil {
		files = make(Files)
	}
	files[FileQuota] = p.Quota
	return files
}

// CheckRequired returns [ErrUnknownFeature] if known lacks a feature that the pod
// requires.
func (p PodState) CheckRequired(known []string) error {
	return bounded(checkRequired("node state of the pod", p.Requires, known))
}

// Files are values for a cgroup: file name to content. A file of a pod or a
// level gets its former value back if the node state does not name the file.
type Files map[string]string

var (
	podFile      = formOf(podFileExpression)
	ancestorFile = formOf(`^memory\.(min|low)$`)
	writtenFile  = formOf(podFileExpression + `|^(` + regexp.QuoteMeta(FileExclusive) + `|` + regexp.QuoteMeta(FileQuota) + `)$`)
)

const podFileExpression = `^(memory\.(min|low)|hugetlb\.[1-9][0-9]{0,8}[KMG]B\.(rsvd\.)?max)$`

// Validate checks that the actuator may write such files to pods or levels, and
// that each content has the kernel's form.
func (f Files) Validate() error { return f.check("cgroup", writtenFile) }

// IsWritten reports whether the contract lets the actuator write the cgroup file of a pod or a level. A later version may have more
// files.
func IsWritten(file string) bool { return writtenFile.matches(file) }

func (f Files) check(what string, allowed form) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !allowed.matches(name) {
			return fmt.Errorf("%s: cgroup file %q is not on the contract's list", what, name)
		}
		v := f[name]
		if name == FileExclusive {
			if v != "" {
				var set CPUSet
				if err := set.UnmarshalText([]byte(v)); err != nil {
					return fmt.Errorf("%s: %s: %w", what, name, err)
				}
			}
			continue
		}
		if name == FileQuota {
			if !quotaForm.matches(v) {
				return fmt.Errorf("%s: %s: %q is not a quota and a period", what, name, v)
			}
			continue
		}
		if v != "max" {
			if n, err := strconv.ParseInt(v, 10, 64); err != nil || n < 0 || strconv.FormatInt(n, 10) != v {
				return fmt.Errorf("%s: %s: %q is neither bytes nor \"max\"", what, name, v)
			}
		}
	}
	return nil
}

// check checks the pod's part of the state.
func (p PodState) check(uid string) error {
	if !ValidUID(uid) {
		return fmt.Errorf("node state: pod %q is not an object UID", uid)
	}
	if len(p.Claims) == 0 {
		return fmt.Errorf("node state: pod %s has no claim", uid)
	}
	for _, c := range p.Claims {
		if !ValidUID(c) {
			return fmt.Errorf("node state: pod %s: claim %q is not an object UID", uid, c)
		}
	}
	if slices.Contains(p.Requires, "") {
		return fmt.Errorf("node state: pod %s: %w", uid, errEmptyFeature)
	}
	if err := p.Cgroup.check("node state: pod "+uid, podFile); err != nil {
		return err
	}
	return p.checkQuota(uid)
}

// Validate checks the state.
func (s NodeState) Validate() error {
	if err := checkVersion("node state", s.V); err != nil {
		return err
	}
	if s.BootID == "" {
		return fmt.Errorf("node state: bootID is required")
	}
	// I7: an empty cpuset means "no change" to NRI and "inherit" to the kernel.
	// Either way pool containers would run on claimed CPUs.
	if s.Shared.CPUs.IsEmpty() || s.Shared.Mems.IsEmpty() {
		return fmt.Errorf("node state: shared cpus %q, shared mems %q: both must have an id",
			s.Shared.CPUs.String(), s.Shared.Mems.String())
	}
	for _, uid := range slices.Sorted(maps.Keys(s.Pods)) {
		p := s.Pods[uid]
		if err := p.check(uid); err != nil {
			return err
		}
		if s.SharedOf(uid).CPUs.IsEmpty() {
			return fmt.Errorf("node state: pod %s: nothing is left of the shared pool %s without its partition CPUs %s",
				uid, s.Shared.CPUs, p.PartitionCPUs)
		}
	}
	for _, level := range slices.Sorted(maps.Keys(s.PartitionCPUs)) {
		if !validLevel(level) {
			return fmt.Errorf("node state: partition CPUs: %q is no QoS level", level)
		}
		if s.PartitionCPUs[level].IsEmpty() {
			return fmt.Errorf("node state: level %q has an empty set of partition CPUs", level)
		}
	}
	for _, level := range slices.Sorted(maps.Keys(s.Ancestors)) {
		if !validLevel(level) {
			return fmt.Errorf("node state: ancestor %q is no QoS level", level)
		}
		if err := s.Ancestors[level].check("node state: ancestor "+strconv.Quote(level), ancestorFile); err != nil {
			return err
		}
	}
	if err := s.Machine.Validate(); err != nil {
		return fmt.Errorf("node state: %w", err)
	}
	return nil
}

// EncodeNode returns the content of the node file.
func EncodeNode(s NodeState) ([]byte, error) {
	if s.Pods == nil {
		s.Pods = map[string]PodState{}
	}
	if s.Ancestors == nil {
		s.Ancestors = map[string]Files{}
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return encodeSpec(NodeKind, s, inertDevice("state"))
}

// NodeRoom returns the size of the state's record in the node file, and the
// limit of a record, in bytes.
func NodeRoom(s NodeState) (used, limit int, err error) {
	record, err := json.Marshal(s)
	if err != nil {
		return 0, 0, fmt.Errorf("node state: %w", err)
	}
	return len(escapeJSON(record)), maxRecord, nil
}

// DecodeNode decodes the content of the node file.
func DecodeNode(data []byte) (NodeState, error) {
	var s NodeState
	if _, err := decodeRecord(NodeKind, data, &s); err != nil {
		return NodeState{}, bounded(err)
	}
	if err := s.Validate(); err != nil {
		return NodeState{}, bounded(err)
	}
	return s, nil
}
