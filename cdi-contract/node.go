// SPDX-License-Identifier: Apache-2.0

package contract

import (
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
}

// Shared is the shared pool, in list format. CPUs is never empty (I7).
type Shared struct {
	CPUs string `json:"cpus"`
	Mems string `json:"mems"`
	// Others are CPUs that belong to someone else, who may pin containers to
	// them: one without a claim whose own spec pins it to some of them stays.
	Others string `json:"others,omitempty"`
}

// PodState is the frontend's word about one pod.
type PodState struct {
	// Claims are the UIDs of the pod's prepared claims, sorted.
	Claims []string `json:"claims"`
	// Cgroup are values for the pod's own cgroup.
	Cgroup Files `json:"cgroup,omitempty"`
}

// Files are values ready to be written: cgroup file name to content. A file of
// a pod or an ancestor that is not named any more gets back what it had before
// this driver wrote it.
type Files map[string]string

var (
	podFilePattern      = regexp.MustCompile(`^(memory\.(min|low)|hugetlb\.[1-9][0-9]{0,8}[KMG]B\.(rsvd\.)?max)$`)
	ancestorFilePattern = regexp.MustCompile(`^memory\.(min|low)$`)
)

// Validate checks that the files are on the contract's list for pods, which holds
// that for QoS levels, with contents as the kernel shows them.
func (f Files) Validate() error { return f.check("cgroup", podFilePattern) }

func (f Files) check(what string, allowed *regexp.Regexp) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !allowed.MatchString(name) {
			return fmt.Errorf("%s: cgroup file %q is not on the contract's list", what, name)
		}
		if v := f[name]; v != "max" {
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
