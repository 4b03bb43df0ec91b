// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/memoryqos"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// Choice is a key that takes one of several names.
type Choice struct {
	// Key is the path of the key, with dots.
	Key    string
	Values []string
	of     func(Config) []string
}

// Choices returns the keys that take one of several names. The names of a list
// hold for each of its items.
func Choices() []Choice {
	one := func(of func(Config) string) func(Config) []string {
		return func(c Config) []string { return []string{of(c)} }
	}
	return []Choice{
		{"groupBy", []string{string(zones.NUMANode), string(zones.Socket), string(zones.Machine)},
			one(func(c Config) string { return c.GroupBy })},
		{"memoryTypes", memoryTypes(), func(c Config) []string { return c.MemoryTypes }},
		{"exclusivity", []string{ExclusivityAuto, ExclusivityPool, ExclusivityPartition},
			one(func(c Config) string { return c.Exclusivity })},
		{"numaNodeForm", []string{NUMANodeScalar, NUMANodeList},
			one(func(c Config) string { return c.NUMANodeForm })},
		{"sharedPool.mode", []string{string(zones.PoolDynamic), string(zones.PoolFixed)},
			one(func(c Config) string { return c.SharedPool.Mode })},
		{"memoryQoS.owner", []string{OwnerDriver, OwnerKubelet, OwnerNone},
			one(func(c Config) string { return c.MemoryQoS.Owner })},
		{"memoryQoS.protection", []string{string(memoryqos.Auto), string(memoryqos.Min), string(memoryqos.Low), string(memoryqos.None)},
			one(func(c Config) string { return c.MemoryQoS.Protection })},
		{"memoryQoS.oomScore", []string{OOMScoreClaims, OOMScoreKeep},
			one(func(c Config) string { return c.MemoryQoS.OOMScore })},
		{"hugepages.limits", []string{HugepagesClaim, HugepagesUnlimited, HugepagesUnchanged},
			one(func(c Config) string { return c.Hugepages.Limits })},
		{"cpu.placement", []string{placement.Packed, placement.Spread},
			one(func(c Config) string { return c.CPU.Placement })},
		{"cpu.interrupts", []string{Any, None}, one(func(c Config) string { return c.CPU.Interrupts })},
		{"cpu.housekeeping", []string{Any, None}, one(func(c Config) string { return c.CPU.Housekeeping })},
		{"cpu.quota", []string{QuotaKeep, None}, one(func(c Config) string { return c.CPU.Quota })},
	}
}

func memoryTypes() []string {
	return []string{string(topology.MemoryDRAM), string(topology.MemoryHBM), string(topology.MemoryCXL), string(topology.MemoryUnknown)}
}

func (c Config) validate() error {
	var errs []error
	for _, choice := range Choices() {
		for _, value := range choice.of(c) {
			if !slices.Contains(choice.Values, value) {
				errs = append(errs, fmt.Errorf("%s: %q, want one of %q", choice.Key, value, choice.Values))
			}
		}
	}
	for i, kind := range c.MemoryTypes {
		if slices.Contains(c.MemoryTypes[:i], kind) {
			errs = append(errs, fmt.Errorf("memoryTypes: %q is there twice", kind))
		}
	}
	if len(c.MemoryTypes) == 0 {
		errs = append(errs, fmt.Errorf("memoryTypes: empty, want some of %q", memoryTypes()))
	}
	if c.SharedPool.MinCPUs < 1 {
		errs = append(errs, fmt.Errorf("sharedPool.minCPUs: %d, want 1 or more", c.SharedPool.MinCPUs))
	}
	if c.SharedPool.Mode == string(zones.PoolFixed) && c.ManagedCPUs == "" {
		errs = append(errs, errors.New("sharedPool.mode: fixed needs managedCPUs: the shared pool is what they leave"))
	}
	if c.OfferIsolcpus && c.Exclusivity != ExclusivityPool {
		errs = append(errs, fmt.Errorf("offerIsolcpus: true with exclusivity %q, "+
			"but the kernel makes no root partition of CPUs of isolcpus: set exclusivity to %q",
			c.Exclusivity, ExclusivityPool))
	}
	if err := c.lostCPUs(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, c.MemoryQoS.validate())
	if c.RefreshInterval.Duration < time.Second {
		errs = append(errs, fmt.Errorf("refreshInterval: %s, want 1s or more", c.RefreshInterval.Duration))
	}
	if w := c.GuardWait.Duration; w < 0 || w > maxGuardWait || w%time.Second != 0 {
		errs = append(errs, fmt.Errorf("guardWait: %s, want whole seconds from 0s to %s: kubelet gives a start two minutes",
			w, maxGuardWait))
	}
	for _, cpus := range []struct{ key, value string }{{"reservedCPUs", c.ReservedCPUs}, {"managedCPUs", c.ManagedCPUs}} {
		if _, err := contract.ParseCPUs(cpus.value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", cpus.key, err))
		}
	}
	for _, dir := range []struct{ key, value string }{
		{"cdiDir", c.CDIDir}, {"kubeletRootDir", c.KubeletRootDir}, {"kubeletConfigFile", cmp.Or(c.KubeletConfigFile, "/")},
		{"sysfsRoot", c.SysfsRoot}, {"procRoot", c.ProcRoot},
	} {
		if !filepath.IsAbs(dir.value) || filepath.Clean(dir.value) != dir.value {
			errs = append(errs, fmt.Errorf("%s: %q is not a clean absolute path", dir.key, dir.value))
		}
	}
	if _, err := c.ReservedMemoryBytes(); err != nil {
		errs = append(errs, err)
	}
	if _, err := c.ReservedHugepageCounts(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// validate checks the numbers, and that nothing is asked for that the owner does not write.
func (m MemoryQoS) validate() error {
	if f := m.ThrottlingFactor; f != nil && !(*f > 0 && *f <= 1) {
		return fmt.Errorf("memoryQoS.throttlingFactor: %v, want 0 < f <= 1", *f)
	}
	protects := slices.Contains([]string{string(memoryqos.Min), string(memoryqos.Low)}, m.Protection)
	if m.Owner == OwnerNone && (m.ThrottlingFactor != nil || protects) {
		return errors.New("memoryQoS.owner none: the driver writes no memory.high and no protection, " +
			"leave throttlingFactor and protection out")
	}
	return nil
}

// lostCPUs refuses reserved CPUs that would not be in the shared pool. They are in no claim. A fixed pool is the CPUs outside
// managedCPUs, and a dynamic pool has only managed CPUs.
func (c Config) lostCPUs() error {
	reserved, err := contract.ParseCPUs(c.ReservedCPUs)
	if err != nil {
		return nil // validate refuses a list that cannot be read
	}
	managed, err := contract.ParseCPUs(c.ManagedCPUs)
	if err != nil {
		return nil
	}
	if c.SharedPool.Mode != string(zones.PoolFixed) {
		if lost := reserved.Difference(managed); !managed.IsEmpty() && !lost.IsEmpty() {
			return fmt.Errorf("reservedCPUs: CPUs %s are not in managedCPUs %s, and with sharedPool.mode dynamic they would not be in "+
				"the shared pool: add them to managedCPUs, or take them out of reservedCPUs if no container shall have them", lost, managed)
		}
		return nil
	}
	if lost := reserved.Intersection(managed); !lost.IsEmpty() {
		return fmt.Errorf("reservedCPUs: CPUs %s are also in managedCPUs %s, and with sharedPool.mode fixed neither a claim "+
			"nor the shared pool could have them: take them out of managedCPUs, which puts them into the pool", lost, managed)
	}
	return nil
}
