// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// ClaimRecord is the frontend's checkpoint of a prepared claim. From the record
// the frontend answers kubelet again, releases the claim, recovers and
// explains. It is an annotation of the claim file, for the frontend only.
type ClaimRecord struct {
	V         string `json:"v"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// BootID is /proc/sys/kernel/random/boot_id when the claim was prepared.
	BootID string `json:"bootID"`
	// Guard is the host path of the guard program, empty for no guard.
	Guard string `json:"guard,omitempty"`
	// GuardTimeout is the timeout of the guard's hook in seconds; absent: 30.
	// The guard waits [GuardMargin] less for the container's values.
	GuardTimeout int `json:"guardTimeout,omitempty"`
	// Pods are the pods that the claim was prepared for, in the order of their
	// arrival.
	Pods []PodRecord `json:"pods,omitempty"`
	// Joinable reports whether more pods may use the claim after it was
	// prepared.
	Joinable bool `json:"joinable,omitempty"`
	// OwnedByPod reports whether Kubernetes made the claim for one pod, from a
	// template or for an extended resource. A named claim can stay prepared for its next pods when all its
	// pods are gone.
	OwnedByPod bool `json:"ownedByPod,omitempty"`
	// Results are this driver's allocation results, in the claim's order.
	Results []ResultRecord `json:"results"`
}

// PodRecord has the facts about a pod that determine its cgroup values.
type PodRecord struct {
	UID string `json:"uid"`
	// QOS is the level of the pod: "" (guaranteed pods are directly below
	// kubepods), "burstable" or "besteffort".
	QOS string `json:"qos"`
	// Hugepages are the amounts in the pod's own spec, by page size ("2Mi").
	Hugepages map[string]Limit `json:"hugepages,omitempty"`
	// CPULimit is the limit of the pod's spec, nil for none. It is also nil if the claim leaves no container of the pod without
	// a quota.
	CPULimit *CPULimit `json:"cpuLimit,omitempty"`
}

// ResultRecord is a result of the claim with its decision.
type ResultRecord struct {
	Request string `json:"request"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	ShareID string `json:"shareID,omitempty"`
	// Consumed is the result's consumed capacity, name to quantity.
	Consumed map[string]string `json:"consumed,omitempty"`
	// Parameters are the resolved parameters, name to value.
	Parameters map[string]string `json:"parameters,omitempty"`
	// Hugetlbfs are page sizes ("2Mi"). For each page size the device mounts a
	// hugetlbfs into the container, at [HugetlbfsPath].
	Hugetlbfs []string `json:"hugetlbfs,omitempty"`
	// Quiet is what the result asks of the machine.
	Quiet    Quiet    `json:"quiet,omitzero"`
	Decision Decision `json:"decision"`
}

// The levels, as keys.
const (
	LevelKubepods   = ""
	LevelBurstable  = "burstable"
	LevelBestEffort = "besteffort"
)

// Validate checks the record.
func (r ClaimRecord) Validate() error {
	if err := checkVersion("claim record", r.V); err != nil {
		return err
	}
	switch {
	case !ValidUID(r.UID):
		return fmt.Errorf("claim record: uid %q is not an object UID", r.UID)
	case r.Name == "" || r.Namespace == "":
		return fmt.Errorf("claim record %s: name and namespace are required", r.UID)
	case r.BootID == "":
		return fmt.Errorf("claim record %s: bootID is required", r.UID)
	case len(r.Results) == 0 || len(r.Results) > maxIndex:
		return fmt.Errorf("claim record %s: %d results, want 1 to %d", r.UID, len(r.Results), maxIndex)
	case r.Guard != "" && (!filepath.IsAbs(r.Guard) || filepath.Clean(r.Guard) != r.Guard):
		return fmt.Errorf("claim record %s: guard path %q is not a clean absolute path", r.UID, r.Guard)
	case r.GuardTimeout < 0:
		return fmt.Errorf("claim record %s: guard timeout %d s, want 1 or more", r.UID, r.GuardTimeout)
	}
	for _, p := range r.Pods {
		if !ValidUID(p.UID) {
			return fmt.Errorf("claim record %s: pod UID %q is not an object UID", r.UID, p.UID)
		}
		if !validLevel(p.QOS) {
			return fmt.Errorf("claim record %s: pod %s has QoS level %q", r.UID, p.UID, p.QOS)
		}
		if err := (Decision{V: Version, Hugepages: p.Hugepages}).Validate(); err != nil {
			return fmt.Errorf("claim record %s: pod %s: %w", r.UID, p.UID, err)
		}
		if l := p.CPULimit; l != nil && l.Milli <= 0 {
			return fmt.Errorf("claim record %s: pod %s: CPU limit of %dm, want more than 0", r.UID, p.UID, l.Milli)
		}
	}
	for i, res := range r.Results {
		if res.Request == "" || res.Pool == "" || res.Device == "" {
			return fmt.Errorf("claim record %s: result %d lacks request, pool or device", r.UID, i)
		}
		if err := res.Decision.Validate(); err != nil {
			return fmt.Errorf("claim record %s: result %d: %w", r.UID, i, err)
		}
		if err := checkHugetlbfs(res.Hugetlbfs); err != nil {
			return fmt.Errorf("claim record %s: result %d: %w", r.UID, i, err)
		}
		if err := res.Quiet.check(res.Decision); err != nil {
			return fmt.Errorf("claim record %s: result %d: %w", r.UID, i, err)
		}
	}
	return nil
}

func validLevel(qos string) bool {
	return slices.Contains([]string{LevelKubepods, LevelBurstable, LevelBestEffort}, qos)
}

// CPUs returns the claim's CPUs, the union of all its decisions.
func (r ClaimRecord) CPUs() CPUSet {
	var all CPUSet
	for _, res := range r.Results {
		all = all.Union(res.Decision.CPUs)
	}
	return all
}

const (
	// GuardMargin is how much longer the hook's timeout is than the guard's
	// wait. In this time the guard starts on a busy machine and reports why the
	// container must not run. After the timeout the OCI runtime kills the guard
	// and reports only that the guard was slow.
	GuardMargin = 10 * time.Second
	// guardTimeout is the hook's timeout in seconds if the record has none.
	guardTimeout = 30
)

// EncodeClaim returns the content of the claim file. For each result it has one
// CDI device with the decision, the list of the claim's CPUs and the guard's
// hook.
func EncodeClaim(r ClaimRecord) ([]byte, error) {
	r.Results = slices.Clone(r.Results) // do not change the caller's results
	for i := range r.Results {
		if r.Results[i].Decision.Requires == nil {
			r.Results[i].Decision.Requires = []string{}
		}
	}
	if err := r.Validate(); err != nil {
		return nil, err
	}
	cpus := r.CPUs()
	devices := make([]specs.Device, len(r.Results))
	for i, res := range r.Results {
		key := Key{ClaimUID: r.UID, Index: i}
		env, err := res.Decision.Env(key)
		if err != nil {
			return nil, err
		}
		edits := specs.ContainerEdits{Env: []string{env}, Mounts: hugetlbfsMounts(res.Hugetlbfs)}
		if !cpus.IsEmpty() {
			edits.Env = append(edits.Env, CPUSetEnvPrefix+r.UID+"="+cpus.String())
		}
		if r.Guard != "" {
			timeout := cmp.Or(r.GuardTimeout, guardTimeout)
			edits.Hooks = []*specs.Hook{{
				HookName: "createRuntime",
				Path:     r.Guard,
				Args:     guardArgs(r.Guard),
				Timeout:  &timeout,
			}}
		}
		devices[i] = specs.Device{Name: key.DeviceName(), ContainerEdits: edits}
	}
	return encodeSpec(ClaimKind, r, devices)
}

// guardNamePrefix begins the name of the installed guard. It is not the name of the guard's program in the image: the guards
// that claim files of earlier versions name are recognised by this prefix, too.
const guardNamePrefix = "nri-actuator"

func guardArgs(path string) []string { return []string{filepath.Base(path), "guard"} }

// IsGuard reports whether a createRuntime hook with this path and these arguments is the
// guard, as a claim file injects it. Path and arguments must both match: the actuator does not
// check again what the guard checks, so no hook of another CDI device may look like the guard's.
func IsGuard(path string, args []string) bool {
	return strings.HasPrefix(filepath.Base(path), guardNamePrefix) && slices.Equal(args, guardArgs(path))
}

// DecodeClaim decodes the record of a claim file. The record must be of the
// claim in the file's name.
func DecodeClaim(name string, data []byte) (ClaimRecord, error) {
	r, err := decodeClaim(name, data)
	return r, bounded(err)
}

func decodeClaim(name string, data []byte) (ClaimRecord, error) {
	var r ClaimRecord
	spec, err := decodeRecord(ClaimKind, data, &r)
	if err != nil {
		return ClaimRecord{}, err
	}
	if err := r.Validate(); err != nil {
		return ClaimRecord{}, err
	}
	if ClaimFile(r.UID) != name {
		return ClaimRecord{}, fmt.Errorf("the record is of claim %s, the file is named %q", r.UID, name)
	}
	// The record and the injected decisions must agree: otherwise the CPUs of a
	// running container could be given to another claim. The comparison is by
	// meaning, because a newer frontend may have written unknown members.
	entries, err := claimEntries(r.UID, spec)
	if err != nil {
		return ClaimRecord{}, err
	}
	if len(entries) != len(r.Results) {
		return ClaimRecord{}, fmt.Errorf("claim %s: the devices inject %d decisions, the record has %d",
			r.UID, len(entries), len(r.Results))
	}
	for i, res := range r.Results {
		key := Key{ClaimUID: r.UID, Index: i}
		if err := sameDecision(key, entries[key], res.Decision); err != nil {
			return ClaimRecord{}, fmt.Errorf("device %s: %w", key.DeviceName(), err)
		}
	}
	return r, nil
}

// WithPods returns the content of a claim file with other pods. All other
// members of the record and the variables of the devices stay as they are, also unknown members of a newer frontend:
// containers run with them.
func WithPods(name string, data []byte, pods []PodRecord) ([]byte, error) {
	if _, err := DecodeClaim(name, data); err != nil {
		return nil, err
	}
	var record map[string]json.RawMessage
	spec, err := decodeRecord(ClaimKind, data, &record)
	if err != nil {
		return nil, err
	}
	if record["pods"], err = withPods(record["pods"], pods); err != nil {
		return nil, err
	}
	if data, err = encodeSpec(ClaimKind, record, spec.Devices); err != nil {
		return nil, err
	}
	_, err = DecodeClaim(name, data)
	return data, err
}

// withPods returns pods in JSON. A pod that was there before and has not changed stays as it is, with its unknown members.
func withPods(before json.RawMessage, pods []PodRecord) (json.RawMessage, error) {
	var raws []json.RawMessage
	if len(before) > 0 {
		if err := json.Unmarshal(before, &raws); err != nil {
			return nil, err
		}
	}
	all := make([]json.RawMessage, len(pods))
	for i, pod := range pods {
		for _, raw := range raws {
			var was PodRecord
			if err := json.Unmarshal(raw, &was); err != nil {
				return nil, err
			}
			if reflect.DeepEqual(was, pod) {
				all[i] = raw
			}
		}
		if all[i] != nil {
			continue
		}
		raw, err := json.Marshal(pod)
		if err != nil {
			return nil, err
		}
		all[i] = raw
	}
	return json.Marshal(all)
}

// sameDecision returns an error unless the variable env carries the decision d.
// It accepts unknown features: the frontend accounts for their claims, too.
func sameDecision(k Key, env string, d Decision) error {
	_, value, _ := strings.Cut(env, "=")
	injected, err := decodeDecision(value)
	if err != nil {
		return err
	}
	got, err := injected.Env(k)
	if err != nil {
		return err
	}
	want, err := d.Env(k)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("the injected decision differs from the record's: %s, want %s", got, want)
	}
	return nil
}

// DecodeClaimEntries returns the variables that the devices of a claim file
// inject: for each key "NAME=value". It reads nothing else of the file, so that
// the actuator does not depend on the version of the record.
func DecodeClaimEntries(claimUID string, data []byte) (map[Key]string, error) {
	spec, err := decodeSpec(ClaimKind, data)
	if err != nil {
		return nil, err
	}
	return claimEntries(claimUID, spec)
}

func claimEntries(claimUID string, spec *specs.Spec) (map[Key]string, error) {
	entries := make(map[Key]string, len(spec.Devices))
	for _, dev := range spec.Devices {
		for _, env := range dev.ContainerEdits.Env {
			if !strings.HasPrefix(env, EnvPrefix) {
				continue
			}
			name, _, _ := strings.Cut(env, "=")
			key, err := ParseEnvName(name)
			if err != nil {
				return nil, fmt.Errorf("device %q: %w", dev.Name, err)
			}
			if key.ClaimUID != claimUID || key.DeviceName() != dev.Name {
				return nil, fmt.Errorf("device %q of claim %s carries the decision of %s", dev.Name, claimUID, key.DeviceName())
			}
			if _, twice := entries[key]; twice {
				return nil, fmt.Errorf("device %q carries two decisions", dev.Name)
			}
			entries[key] = env
		}
	}
	return entries, nil
}
