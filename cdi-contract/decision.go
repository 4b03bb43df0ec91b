// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Decision is the frontend's decision for the containers that use one result:
// complete cgroup values. An absent member means "not decided", never "clear".
type Decision struct {
	// V is the contract version, [Version].
	V string `json:"v"`
	// CPUs are the claimed CPUs.
	CPUs CPUSet `json:"cpus,omitzero"`
	// Partition is the kind of partition that the container becomes with its
	// CPUs, one of [PartitionKinds]. Absent: no partition; the shared pool leaves
	// the CPUs out.
	Partition string `json:"partition,omitempty"`
	// Mems are the NUMA nodes that memory may come from.
	Mems NUMANodeSet `json:"mems,omitzero"`
	// Memory holds the values of the memory controller.
	Memory *Memory `json:"memory,omitempty"`
	// Hugepages is the limit for each page size ("2Mi", "1Gi").
	Hugepages map[string]Limit `json:"hugepages,omitempty"`
	// MemoryPolicy is the NUMA policy within Mems.
	MemoryPolicy *MemoryPolicy `json:"memoryPolicy,omitempty"`
	// OOMScoreAdj is the oom_score_adj with which the container's first process
	// starts, unless the container came with a lower value.
	OOMScoreAdj *int `json:"oomScoreAdj,omitempty"`
	// Quota is [QuotaNone] for a container that the kernel never throttles, whatever its
	// own spec says. Absent: the quota of the container's own spec.
	Quota string `json:"quota,omitempty"`
	// Requires names the features without which the decision must not be
	// applied. A reader that lacks a feature refuses the decision.
	Requires []string `json:"requires,omitzero"`
}

// Memory has a decision's values for the memory controller, in bytes. Max ==
// [Max] leaves memory.max as the container's own spec has it.
type Memory struct {
	Min  Limit `json:"min"`
	Low  Limit `json:"low"`
	High Limit `json:"high"`
	Max  Limit `json:"max"`
}

// pageUnit divides the base page sizes of all machines (4, 16, 64 KiB).
const pageUnit = 4096

// Validate checks the rules of the contract that types cannot express.
func (d Decision) Validate() error {
	if err := checkVersion("decision", d.V); err != nil {
		return err
	}
	if m := d.Memory; m != nil {
		for _, v := range m.values() {
			if v.limit < 0 || v.limit != Max && v.limit%pageUnit != 0 {
				return fmt.Errorf("memory.%s: %s bytes is not a multiple of %d", v.name, v.limit, pageUnit)
			}
		}
	}
	for _, size := range slices.Sorted(maps.Keys(d.Hugepages)) {
		bytes, err := ParsePageSize(size)
		if err != nil {
			return fmt.Errorf("hugepages: %w", err)
		}
		if l := d.Hugepages[size]; l < 0 || l != Max && int64(l)%bytes != 0 {
			return fmt.Errorf("hugepages: %s bytes is not a multiple of the page size %s", l, size)
		}
	}
	if slices.Contains(d.Requires, "") {
		return errEmptyFeature
	}
	if err := d.checkPartition(); err != nil {
		return err
	}
	if err := d.checkOOMScore(); err != nil {
		return err
	}
	if err := d.checkQuota(); err != nil {
		return err
	}
	return d.checkPolicy()
}

type memoryValue struct {
	name  string
	limit Limit
}

func (m Memory) values() []memoryValue {
	return []memoryValue{{"min", m.Min}, {"low", m.Low}, {"high", m.High}, {"max", m.Max}}
}

// Files returns the memory controller's files with their content. memory.max
// is absent if the decision leaves it to the container's own spec.
func (m Memory) Files() map[string]string {
	files := make(map[string]string, 4)
	for _, v := range m.values() {
		if v.name == "max" && v.limit == Max {
			continue
		}
		files["memory."+v.name] = v.limit.String()
	}
	return files
}

// Files returns the cgroup files that the decision sets, with their content,
// except cpuset.cpus and cpuset.mems. A hugepage limit holds for used pages and
// for reserved pages (cgroup-v2.rst, "HugeTLB").
func (d Decision) Files() map[string]string {
	files := make(map[string]string)
	if d.Partition != "" {
		files[FileExclusive], files[FilePartition] = d.CPUs.String(), d.Partition
	}
	if d.Quota == QuotaNone {
		files[FileQuota] = NoQuota
	}
	if d.Memory != nil {
		maps.Copy(files, d.Memory.Files())
	}
	for size, limit := range d.Hugepages {
		name := "hugetlb." + CgroupPageSize(size)
		files[name+".max"], files[name+".rsvd.max"] = limit.String(), limit.String()
	}
	return files
}

// Unknown returns the first required feature that known lacks, or "".
func (d Decision) Unknown(known []string) string { return unknown(d.Requires, known) }

// Env returns the variable that carries the decision, "NAME=value". The value
// is compact JSON. Equal decisions give equal bytes (I8). An invalid decision
// is an error.
func (d Decision) Env(k Key) (string, error) {
	if d.Requires == nil {
		d.Requires = []string{}
	}
	if err := d.Validate(); err != nil {
		return "", fmt.Errorf("decision %s: %w", k.DeviceName(), err)
	}
	value, err := json.Marshal(d)
	if err != nil {
		return "", fmt.Errorf("decision %s: %w", k.DeviceName(), err)
	}
	return k.EnvName() + "=" + string(value), nil
}

// DecodeDecision decodes the value of a variable that carries a decision. A
// required feature that known lacks is [ErrUnknownFeature]; the decision is then
// returned as well.
func DecodeDecision(value string, known []string) (Decision, error) {
	d, err := decodeDecision(value)
	if err != nil {
		return Decision{}, err
	}
	return d, checkRequired("decision", d.Requires, known)
}

// decodeDecision decodes a decision without a check of the required features.
func decodeDecision(value string) (Decision, error) {
	// The version comes first: another version may give a member another type,
	// and the error must then name the version.
	var version struct {
		V string `json:"v"`
	}
	if err := decodeStrict([]byte(value), &version); err != nil {
		return Decision{}, fmt.Errorf("decision: %w", err)
	}
	if err := checkVersion("decision", version.V); err != nil {
		return Decision{}, err
	}
	var d Decision
	if err := decodeStrict([]byte(value), &d); err != nil {
		return Decision{}, fmt.Errorf("decision: %w", err)
	}
	return d, d.Validate()
}

// ParseEnv parses an entry of a container's environment. ours is false for a
// name without [EnvPrefix]. An entry with the prefix is an error if it has not
// exactly the contract's form or is longer than [MaxEnv]. The error's text is
// short and printable for every entry. Key and decision are returned with the
// error [ErrUnknownFeature], too.
func ParseEnv(entry string, known []string) (k Key, d Decision, ours bool, err error) {
	if !strings.HasPrefix(entry, EnvPrefix) {
		return Key{}, Decision{}, false, nil
	}
	name, value, _ := strings.Cut(entry, "=")
	if len(entry) > MaxEnv {
		return Key{}, Decision{}, true, fmt.Errorf("variable %s has %d bytes, a decision has at most %d",
			Excerpt(name, len(EnvPrefix)+37), len(entry), MaxEnv)
	}
	if k, err = ParseEnvName(name); err != nil {
		return Key{}, Decision{}, true, bounded(err)
	}
	switch d, err = DecodeDecision(value, known); {
	case errors.Is(err, ErrUnknownFeature):
		return k, d, true, bounded(fmt.Errorf("variable %s: %w", name, err))
	case err != nil:
		return Key{}, Decision{}, true, bounded(fmt.Errorf("variable %s: %w", name, err))
	}
	return k, d, true, nil
}
