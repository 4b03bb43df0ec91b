// SPDX-License-Identifier: Apache-2.0

// Package contract implements the files through which dra-frontend and
// nri-actuator communicate: the records, their encoding into CDI spec files,
// their strict decoding, and the rule that merges several decisions for one
// container.
//
// The frontend writes claim files and the node file. The actuator writes its
// announcement. Each program reads the other's files; nothing else connects the
// programs. They are upgraded one after the other, so a record names its
// version. An optional addition is a new member that old readers ignore. A
// mandatory addition is a new member and the name of its feature in "requires".
package contract

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Version is the version of every record this package writes.
const Version = "v1"

const (
	// Vendor is the vendor part of every CDI kind of the contract.
	Vendor = "dra.cpumem"
	// ClaimKind is the CDI kind of claim files. Containers get their devices.
	ClaimKind = Vendor + "/claim"
	// NodeKind is the CDI kind of the node file. No container gets its device.
	NodeKind = Vendor + "/node"
	// ActuatorKind is the CDI kind of the actuator's announcement.
	ActuatorKind = Vendor + "/actuator"

	// NodeFile is the name of the node file in the CDI directory.
	NodeFile = Vendor + "-node.json"
	// ActuatorFile is the name of the announcement in the CDI directory.
	ActuatorFile = Vendor + "-actuator.json"

	// EnvPrefix begins the name of a variable that carries a decision. A pod's
	// author can set such a variable too: see the actuator's provenance rules.
	EnvPrefix = "DRA_CPUMEM_"
	// CPUSetEnvPrefix begins the name of the variable that lists the claim's
	// CPUs for the workload. Virtual machine managers parse the variable; the
	// actuator never reads it.
	CPUSetEnvPrefix = "DRA_CPUSET_"

	claimFilePrefix = Vendor + "-claim_"
	fileSuffix      = ".json"

	// MaxFileSize is how many bytes of a file a reader takes into memory. CDI
	// allows 256 KiB of annotations; devices come on top.
	MaxFileSize = 4 << 20
)

// ValidUID reports whether uid has the form of a Kubernetes object UID (RFC
// 4122 text form, lower case). A UID is checked before it becomes part of a
// file name.
func ValidUID(uid string) bool {
	const form = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
	if len(uid) != len(form) {
		return false
	}
	for i := range len(uid) {
		c := uid[i]
		digit := c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
		if form[i] == '-' && c != '-' || form[i] == 'x' && !digit {
			return false
		}
	}
	return true
}

// ClaimFile returns the name of a claim's file.
func ClaimFile(claimUID string) string { return claimFilePrefix + claimUID + fileSuffix }

// ClaimUIDOfFile returns the claim UID in a file name. ours is true for every
// name that begins like a claim file's. uid is empty if the rest is not a UID
// and the suffix: such a file must block the node, not be passed over.
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

// Key identifies a decision on the node: the decision for result number Index of
// the claim.
type Key struct {
	ClaimUID string
	Index    int
}

// DeviceName returns the name of the key's CDI device.
func (k Key) DeviceName() string { return k.ClaimUID + "-" + strconv.Itoa(k.Index) }

// CDIDevice returns the qualified CDI name, which kubelet passes to the runtime.
func (k Key) CDIDevice() string { return ClaimKind + "=" + k.DeviceName() }

// EnvName returns the name of the variable that carries the key's decision.
func (k Key) EnvName() string {
	return EnvPrefix + strings.ReplaceAll(k.ClaimUID, "-", "") + "_" + strconv.Itoa(k.Index)
}

// maxIndex bounds the index of a result: the API allows 32 results in a claim.
const maxIndex = 1023

// ParseEnvName is the inverse of [Key.EnvName]. name must begin with
// [EnvPrefix]. Every form but the canonical form is an error.
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

// checkVersion refuses a record of another version: a change of meaning is a
// new version, so each member may have another meaning there.
func checkVersion(what, v string) error {
	if v != Version {
		return fmt.Errorf("%s has contract version %q, this program reads %q: upgrade the older of frontend and actuator", what, v, Version)
	}
	return nil
}
