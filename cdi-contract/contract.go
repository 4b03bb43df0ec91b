// SPDX-License-Identifier: Apache-2.0

// Package contract is the one implementation of the file format through which
// dra-frontend and nri-actuator talk: the records, their encoding into CDI
// spec files, their strict decoding, and the rule that merges several
// decisions on one container.
//
// The frontend writes claim files and the node file, the actuator writes its
// announcement; each reads what the other wrote and nothing else connects
// them. Both are upgraded on their own, so a record names its version, an
// optional addition is a new member that old readers ignore, and a mandatory
// addition is a new member whose name also stands in "requires".
package contract

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Version is the version of every record this package writes.
const Version = "v1"

const (
	// Vendor is the vendor part of every CDI kind of the contract.
	Vendor = "dra.cpumem"
	// ClaimKind is the CDI kind of claim files; their devices are injected.
	ClaimKind = Vendor + "/claim"
	// NodeKind is the CDI kind of the node file; nobody injects its device.
	NodeKind = Vendor + "/node"
	// ActuatorKind is the CDI kind of the actuator's announcement.
	ActuatorKind = Vendor + "/actuator"

	// NodeFile is the name of the node file in the CDI directory.
	NodeFile = Vendor + "-node.json"
	// ActuatorFile is the name of the announcement in the CDI directory.
	ActuatorFile = Vendor + "-actuator.json"

	// EnvPrefix starts the name of the variable that carries a decision. A pod
	// author can set such a variable too: see the actuator's provenance rules.
	EnvPrefix = "DRA_CPUMEM_"
	// CPUSetEnvPrefix starts the name of the variable that tells the workload
	// (virtual machine managers parse it) its exclusive CPUs. It is never read
	// by the actuator.
	CPUSetEnvPrefix = "DRA_CPUSET_"

	claimFilePrefix = Vendor + "-claim_"
	fileSuffix      = ".json"

	// MaxFileSize bounds what a reader takes into memory. CDI limits the
	// annotations of a spec to 256 KiB; devices come on top.
	MaxFileSize = 4 << 20
)

var uidPattern = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// ValidUID reports whether uid has the form of a Kubernetes object UID (RFC
// 4122 text form, lower case). Everything that becomes part of a file name is
// checked with it first.
func ValidUID(uid string) bool { return uidPattern.MatchString(uid) }

// ClaimFile returns the name of a claim's file.
func ClaimFile(claimUID string) string { return claimFilePrefix + claimUID + fileSuffix }

// ClaimUIDOfFile returns the claim UID that a file name stands for. ours is
// true for every name that looks like a claim file, uid is empty where it does
// and is none: such a file must block the node, not be passed over.
func ClaimUIDOfFile(name string) (uid string, ours bool) {
	rest, ok := strings.CutPrefix(name, claimFilePrefix)
	if !ok {
		return "", false
	}
	rest, ok = strings.CutSuffix(rest, fileSuffix)
	if !ok || !ValidUID(rest) {
		return "", true
	}
	return rest, true
}

// Key identifies one decision on the node: the allocation result number Index
// of the claim.
type Key struct {
	ClaimUID string
	Index    int
}

// DeviceName is the name of the CDI device of the key.
func (k Key) DeviceName() string { return k.ClaimUID + "-" + strconv.Itoa(k.Index) }

// CDIDevice is the qualified CDI name, as kubelet hands it to the runtime.
func (k Key) CDIDevice() string { return ClaimKind + "=" + k.DeviceName() }

// EnvName is the name of the variable that carries the decision of the key.
func (k Key) EnvName() string {
	return EnvPrefix + strings.ReplaceAll(k.ClaimUID, "-", "") + "_" + strconv.Itoa(k.Index)
}

// maxIndex bounds the index of a result: the API allows 32 results in a claim.
const maxIndex = 1023

// ParseEnvName is the inverse of [Key.EnvName]. name must start with
// [EnvPrefix]; anything but the exact canonical form is refused.
func ParseEnvName(name string) (Key, error) {
	hex, index, ok := strings.Cut(strings.TrimPrefix(name, EnvPrefix), "_")
	if !ok || len(hex) != 32 {
		return Key{}, fmt.Errorf("variable %q: want %s<claim UID without dashes>_<index>", name, EnvPrefix)
	}
	n, err := strconv.Atoi(index)
	if err != nil || n < 0 || n > maxIndex {
		return Key{}, fmt.Errorf("variable %q: %q is not an index between 0 and %d", name, index, maxIndex)
	}
	k := Key{ClaimUID: strings.Join([]string{hex[:8], hex[8:12], hex[12:16], hex[16:20], hex[20:]}, "-"), Index: n}
	if !ValidUID(k.ClaimUID) || k.EnvName() != name {
		return Key{}, fmt.Errorf("variable %q: not the canonical name of a claim's decision", name)
	}
	return k, nil
}

// KeysOf returns the sorted keys of m: claim UID first, then index.
func KeysOf[V any](m map[Key]V) []Key {
	keys := make([]Key, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b Key) int {
		if c := strings.Compare(a.ClaimUID, b.ClaimUID); c != 0 {
			return c
		}
		return a.Index - b.Index
	})
	return keys
}

// checkVersion refuses records of another version: a change of meaning is a
// new version, so nothing in them can be trusted to mean what it seems.
func checkVersion(what, v string) error {
	if v != Version {
		return fmt.Errorf("%s has contract version %q, this program reads %q: upgrade the older of frontend and actuator", what, v, Version)
	}
	return nil
}
