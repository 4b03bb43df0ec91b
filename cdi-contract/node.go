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

// NodeState is the frontend's word about the whole node.
type NodeState struct {
	V string `json:"v"`
	// Generation grows with every change.
	Generation uint64 `json:"generation"`
	BootID     string `json:"bootID"`
	Shared     Shared `json:"shared"`
	// Pods holds exactly the pods a claim of this driver is reserved and
	// prepared for, by pod UID: it is what ties a claim to a pod.
	Pods map[string]PodState `json:"pods"`
	// Ancestors are the values of kubepods ("") and of the QoS levels below it.
	Ancestors map[string]Files `json:"ancestors"`
	// Exclusive are the CPUs of all partitions below kubepods ("") and below the
	// QoS levels, in list format: what their cpuset.cpus.exclusive must have for
	// the kernel to give them to a partition.
	Exclusive map[string]string `json:"exclusive,omitempty"`
}

// Shared is the shared pool, in list format.
type Shared struct {
	// CPUs are all but those of claims without a partition: what partitions hold
	// the kernel takes out of it, and gives back. Never empty (I7).
	CPUs string `json:"cpus"`
	Mems string `json:"mems"`
	// Others are CPUs that belong to someone else, who may pin containers to
	// them: one without a claim whose own spec pins it to some of them stays.
	Others string `json:"others,omitempty"`
}

// SharedOf is the shared pool as containers of the pod get it: without the CPUs
// of the pod's own partitions. The kernel takes these from everybody, but it
// ends a partition when a cgroup beside it names one of its CPUs in cpuset.cpus
// (seen on Linux 6.12, which then loses the CPUs).
func (s NodeState) SharedOf(podUID string) Shared {
	shared := s.Shared
	shared.CPUs = subtractList(shared.CPUs, s.Pods[podUID].Exclusive)
	return shared
}

// PodState is the frontend's word about one pod.
type PodState struct {
	// Claims are the UIDs of the pod's prepared claims, sorted.
	Claims []string `json:"claims"`
	// Cgroup are values for the pod's own cgroup.
	Cgroup Files `json:"cgroup,omitempty"`
	// Exclusive are the CPUs of all partitions in the pod, in list format.
	Exclusive string `json:"exclusive,omitempty"`
}

// Files are values ready to be written: cgroup file name to content. A file of
// a pod or an ancestor that is not named any more gets back what it had before
// this driver wrote it.
type Files map[string]string

var (
	podFilePattern      = regexp.MustCompile(`^(memory\.(min|low)|hugetlb\.[1-9][0-9]{0,8}[KMG]B\.(rsvd\.)?max)$`)
	ancestorFilePattern = regexp.MustCompile(`^memory\.(min|low)$`)
	writtenFilePattern  = regexp.MustCompile(podFilePattern.String() + `|^` + regexp.QuoteMeta(FileExclusive) + `$`)
)

// Validate checks that the files are among those that are written to pods or
// QoS levels, with contents as the kernel shows them.
func (f Files) Validate() error { return f.check("cgroup", writtenFilePattern) }

func (f Files) check(what string, allowed *regexp.Regexp) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !allowed.MatchString(name) {
			return fmt.Errorf("%s: cgroup file %q is not on the contract's list", what, name)
		}
		v := f[name]
		if name == FileExclusive {
			if v != "" {
				if err := checkList(what+": "+name, v); err != nil {
					return err
				}
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

// Validate checks the state.
func (s NodeState) Validate() error {
	if err := checkVersion("node state", s.V); err != nil {
		return err
	}
	if s.BootID == "" {
		return fmt.Errorf("node state: bootID is required")
	}
	// I7: an empty cpuset means "no change" to NRI and "inherit" to the
	// kernel; either way pool containers would run on exclusive CPUs.
	if err := checkList("node state: shared cpus", s.Shared.CPUs); err != nil {
		return err
	}
	if err := checkList("node state: shared mems", s.Shared.Mems); err != nil {
		return err
	}
	if s.Shared.Others != "" {
		if err := checkList("node state: others", s.Shared.Others); err != nil {
			return err
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(s.Pods)) {
		p := s.Pods[uid]
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
		if err := p.Cgroup.check("node state: pod "+uid, podFilePattern); err != nil {
			return err
		}
		if p.Exclusive != "" {
			if err := checkList("node state: pod "+uid+": exclusive", p.Exclusive); err != nil {
				return err
			}
			if s.SharedOf(uid).CPUs == "" {
				return fmt.Errorf("node state: pod %s: nothing is left of the shared pool %s without its exclusive %s", uid, s.Shared.CPUs, p.Exclusive)
			}
		}
	}
	for _, level := range slices.Sorted(maps.Keys(s.Exclusive)) {
		if !validLevel(level) {
			return fmt.Errorf("node state: exclusive: %q is no QoS level", level)
		}
		if err := checkList("node state: exclusive of "+strconv.Quote(level), s.Exclusive[level]); err != nil {
			return err
		}
	}
	for _, level := range slices.Sorted(maps.Keys(s.Ancestors)) {
		if !validLevel(level) {
			return fmt.Errorf("node state: ancestor %q is no QoS level", level)
		}
		if err := s.Ancestors[level].check("node state: ancestor "+strconv.Quote(level), ancestorFilePattern); err != nil {
			return err
		}
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

// NodeRoom returns the bytes that the state takes of the node file's record, and
// how many the record may have.
func NodeRoom(s NodeState) (used, limit int, err error) {
	record, err := json.Marshal(s)
	if err != nil {
		return 0, 0, fmt.Errorf("node state: %w", err)
	}
	return len(escapeJSON(record)), maxRecord, nil
}

// DecodeNode reads the node file.
func DecodeNode(data []byte) (NodeState, error) {
	var s NodeState
	if _, err := decodeRecord(NodeKind, data, &s); err != nil {
		return NodeState{}, err
	}
	if err := s.Validate(); err != nil {
		return NodeState{}, err
	}
	return s, nil
}
