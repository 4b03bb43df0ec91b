// SPDX-License-Identifier: Apache-2.0

// Package config reads the frontend's configuration file. It is the start of
// the flow: all other packages get values, not text. The file is strict,
// because a misspelt key that is ignored changes which CPUs a node hands out.
package config

import (
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/fields"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// Config is the configuration file. [Default] has the defaults. The chart's schema
// and the table in docs/reference/configuration.md are generated from the type and from the
// comments of its fields; the tag see is a link for the table.
type Config struct {
	// GroupBy is the part of the machine that a device stands for: numanode,
	// socket or machine.
	GroupBy string `json:"groupBy"`
	// ReservedCPUs are never claimed, e.g. "0,64"; they stay in the shared pool. A dynamic pool has only CPUs of managedCPUs:
	// other reservedCPUs are refused then.
	ReservedCPUs string `json:"reservedCPUs"`
	// ManagedCPUs are the only CPUs that claims may hold; empty: all CPUs. All
	// other CPUs are unmanaged and stay untouched, or are the shared pool
	// (sharedPool.mode).
	ManagedCPUs string `json:"managedCPUs"`
	// ReservedMemory is withheld from the capacity, by NUMA node: {"0": 512Mi}. Empty: claims can take all memory of the
	// node, also what the system needs.
	ReservedMemory map[string]resource.Quantity `json:"reservedMemory"`
	// ReservedHugepages are withheld from the capacity, in pages by NUMA node and
	// size: {"0": {"2Mi": 8}}.
	ReservedHugepages map[string]map[string]int64 `json:"reservedHugepages"`
	// MemoryTypes are the offered kinds of memory: dram, hbm, cxl and unknown,
	// which is memory of a kind that the kernel does not show. A zone whose memory
	// is not offered keeps its CPUs.
	MemoryTypes []string `json:"memoryTypes" see:"machines.md#memory-types"`
	// OfferIsolcpus offers the CPUs of the kernel's parameter isolcpus like all
	// other CPUs. It needs exclusivity pool.
	OfferIsolcpus bool `json:"offerIsolcpus" see:"#cpus-that-are-left-out"`
	// Exclusivity keeps other containers and processes off a claim's CPUs: auto (a
	// cpuset partition where possible, else the shared pool leaves the CPUs out),
	// pool or partition (a claim that cannot have a partition is refused).
	Exclusivity string     `json:"exclusivity" see:"#exclusivity"`
	SharedPool  SharedPool `json:"sharedPool"`
	MemoryQoS   MemoryQoS  `json:"memoryQoS"`
	Hugepages   Hugepages  `json:"hugepages"`
	CPU         CPU        `json:"cpu"`
	// NodeAllocatable has the scheduler count claims against the node's
	// allocatable amounts, like the requests of pods (KEP-5517).
	NodeAllocatable bool `json:"nodeAllocatable" see:"#nodeallocatable"`
	// NUMANodeForm is the form of the attribute resource.kubernetes.io/numaNode:
	// scalar (one node; zones of several nodes lack the attribute) or list (all
	// nodes of the zone; KEP-5491).
	NUMANodeForm string `json:"numaNodeForm" see:"#numanodeform-and-publishpcieroots"`
	// PublishPCIeRoots publishes the PCIe roots that are local to the zone, as a
	// list (KEP-5491).
	PublishPCIeRoots bool `json:"publishPCIeRoots" see:"#numanodeform-and-publishpcieroots"`
	// DeviceMetadata gives containers a file with the values of their claims
	// (KEP-5304).
	DeviceMetadata bool `json:"deviceMetadata" see:"#devicemetadata"`
	// Guard writes the guard hook into claim files if the actuator offers it.
	Guard bool `json:"guard"`
	// GuardWait is how long the guard waits for an actuator that is away before
	// it refuses a container: whole seconds, 0s to 1m30s, because kubelet gives a
	// start two minutes. A change holds for claims that are prepared afterwards.
	GuardWait metav1.Duration `json:"guardWait" see:"../explanation/architecture.md#the-guard"`
	// RefreshInterval is the longest time between two looks at the machine and
	// the CDI directory, and between two looks of the actuator at all cgroups: 1s
	// or more.
	RefreshInterval metav1.Duration `json:"refreshInterval"`
	// CDIDir is the CDI directory, which both daemons and the runtime use. Delete
	// the pods with claims before you change it: a frontend does not start while
	// the claims of its node are in another directory, and an actuator is not ready
	// while containers have claims and the directory has no node file.
	CDIDir string `json:"cdiDir"`
	// KubeletRootDir is kubelet's --root-dir, in the chart at most 42 characters.
	KubeletRootDir string `json:"kubeletRootDir"`
	// KubeletConfigFile is kubelet's configuration file, from which the frontend
	// learns of a second owner of memory protection. Without a path the frontend
	// does not look.
	KubeletConfigFile string `json:"kubeletConfigFile" see:"#kubeletconfigfile"`
	// SysfsRoot is the directory from which sysfs and the cgroups below it are
	// read; nothing is written there. The chart's default is /host/sys.
	SysfsRoot string `json:"sysfsRoot"`
	// ProcRoot is the directory from which procfs is read.
	ProcRoot string `json:"procRoot"`
}

// Values of exclusivity.
const (
	ExclusivityAuto      = "auto"
	ExclusivityPool      = "pool"
	ExclusivityPartition = "partition"
)

// Forms of the attribute numaNode.
const (
	NUMANodeScalar = "scalar"
	NUMANodeList   = "list"
)

// SharedPool configures the shared pool.
type SharedPool struct {
	// Mode is dynamic (the pool is all managed CPUs that no claim holds) or fixed
	// (the pool is always the online CPUs outside managedCPUs, without the left-out
	// CPUs; reservedCPUs inside managedCPUs are refused).
	Mode string `json:"mode"`
	// MinCPUs is the number of CPUs that always stay in the pool, 1 or more.
	MinCPUs int `json:"minCPUs"`
}

// Owners of memory protection.
const (
	OwnerDriver  = "driver"
	OwnerKubelet = "kubelet"
	OwnerNone    = "none"
)

// MemoryQoS configures the values of the memory controller.
type MemoryQoS struct {
	// Owner is driver (the driver writes the values of the container, the pod
	// and its ancestors), kubelet (the driver writes only the container's
	// values) or none (the driver writes only cpuset, mems and limits; a throttlingFactor and the protection min or low are
	// refused).
	Owner string `json:"owner" see:"../concepts/memory-qos.md#one-owner"`
	// ThrottlingFactor is KEP-2570's factor, 0 < f <= 1, by which the driver writes
	// memory.high; it needs Linux 5.9. Without a factor there is no memory.high.
	ThrottlingFactor *float64 `json:"throttlingFactor"`
	// Protection is auto (min if the limit is the claimed amount, else low), min,
	// low or none.
	Protection string `json:"protection"`
	// OOMScore is claims (a container is killed as late as if the claimed
	// amounts were its requests and limits) or keep (kubelet's value from the
	// spec).
	OOMScore string `json:"oomScore" see:"../concepts/memory-qos.md#oom-score"`
}

// Values of memoryQoS.oomScore.
const (
	OOMScoreClaims = "claims"
	OOMScoreKeep   = "keep"
)

// Values of hugepages.limits: the claimed amount, no limit, or kubelet's value.
const (
	HugepagesClaim     = "claim"
	HugepagesUnlimited = "unlimited"
	HugepagesUnchanged = "unchanged"
)

// Hugepages configures hugetlb limits.
type Hugepages struct {
	// Limits is claim (a container's limit is the claimed amount), unlimited (a
	// container may take pages of other claims) or unchanged (kubelet's value). A
	// claim may ask for claim and unchanged only.
	Limits string `json:"limits"`
}

// CPU configures the choice of CPUs.
type CPU struct {
	// WholeCores makes the scheduler round claims up to whole cores, so that no two
	// claims share a core.
	WholeCores bool `json:"wholeCores"`
	// Placement is packed (whole cores, whole L3 caches, near) or spread (one thread
	// per core, over L3 caches).
	Placement string `json:"placement"`
	// Interrupts is the default of a claim's cpu.interrupts: any (interrupts come to
	// claimed CPUs like to all CPUs) or none (they are kept off).
	Interrupts string `json:"interrupts" see:"../concepts/quiet-cpus.md#interrupts"`
	// Housekeeping is the default of a claim's cpu.housekeeping: any or none (the kernel's
	// unbound work queues are kept off claimed CPUs).
	Housekeeping string `json:"housekeeping" see:"../concepts/quiet-cpus.md#work-queues"`
	// Quota is the default of a claim's cpu.quota: keep (a CPU limit of the pod's spec
	// throttles the container) or none (it does not).
	Quota string `json:"quota" see:"../concepts/quiet-cpus.md#cpu-limits"`
}

// Values of cpu.interrupts and cpu.housekeeping, and of cpu.quota.
const (
	Any       = "any"
	None      = "none"
	QuotaKeep = "keep"
)

// maxGuardWait with the contract's margin is below the two minutes that kubelet
// gives the runtime for a container's start (runtimeRequestTimeout).
const maxGuardWait = 90 * time.Second

// Default returns the configuration of an empty file.
func Default() Config {
	return Config{
		GroupBy:         "numanode",
		MemoryTypes:     []string{string(topology.MemoryDRAM), string(topology.MemoryHBM), string(topology.MemoryCXL)},
		Exclusivity:     ExclusivityAuto,
		SharedPool:      SharedPool{Mode: string(zones.PoolDynamic), MinCPUs: 1},
		MemoryQoS:       MemoryQoS{Owner: OwnerDriver, Protection: "auto", OOMScore: OOMScoreClaims},
		Hugepages:       Hugepages{Limits: "claim"},
		CPU:             CPU{Placement: "packed", Interrupts: Any, Housekeeping: Any, Quota: QuotaKeep},
		NUMANodeForm:    NUMANodeScalar,
		Guard:           true,
		GuardWait:       metav1.Duration{Duration: 20 * time.Second},
		RefreshInterval: metav1.Duration{Duration: 30 * time.Second},
		CDIDir:          "/var/run/cdi",
		KubeletRootDir:  "/var/lib/kubelet",
		SysfsRoot:       "/sys",
		ProcRoot:        "/proc",
	}
}

// Parse reads the file's content over the defaults. Unknown, duplicate and
// miscased keys are errors, as are values of a wrong type or out of range; all are
// reported.
func Parse(data []byte) (Config, error) {
	c := Default()
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return Config{}, err
	}
	wrong := fields.Decode(asJSON, &c)
	return c, errors.Join(append(wrong, c.validate())...)
}

// Read reads the file at path; an empty path stands for an empty file.
func Read(path string) (Config, error) {
	if path == "" {
		return Default(), nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, err
	}
	c, err := Parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}
