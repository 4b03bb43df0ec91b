// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Container is the part of the runtime's description of a container that can
// name decisions.
type Container struct {
	PodUID string
	// Env are the variables of the container that have the contract's prefix,
	// "NAME=value".
	Env []string
	// Oversize is the size of the variables in bytes if they have more than
	// [contract.MaxEnv]. Env is then empty.
	Oversize int
	// Devices are the CDI devices requested for the container. They are valid
	// only if DevicesKnown: not every runtime reports them.
	Devices      []string
	DevicesKnown bool
}

// WithEnv returns c with the contract's variables among env.
func (c Container) WithEnv(env []string) Container {
	size := 0
	for _, entry := range env {
		if !strings.HasPrefix(entry, contract.EnvPrefix) {
			continue
		}
		if size += len(entry); size <= contract.MaxEnv {
			c.Env = append(c.Env, entry)
		}
	}
	if size > contract.MaxEnv {
		c.Env, c.Oversize = nil, size
	}
	return c
}

// WithDevice returns c with a CDI device, if the contract defines the device.
func (c Container) WithDevice(name string) Container {
	if isOurs(name) {
		c.Devices = append(c.Devices, name)
	}
	return c
}

// NamesClaim reports whether a variable or a device of the container is the
// contract's.
func (c Container) NamesClaim() bool { return len(c.Env) > 0 || len(c.Devices) > 0 || c.Oversize > 0 }

func isOurs(device string) bool { return strings.HasPrefix(device, contract.ClaimKind+"=") }

// Reasons of a refusal, a closed list.
const (
	ReasonMalformed = "malformed" // the name is not in the contract's form, or the claim file's value is invalid or of another version
	ReasonUnbacked  = "unbacked"  // no claim file has the variable
	ReasonDiffers   = "differs"   // the claim file has another value
	ReasonNotListed = "notlisted" // the claim is not prepared for this pod
	ReasonAmbiguous = "ambiguous" // two values for one variable
	ReasonDevices   = "devices"   // environment and CDI devices disagree
)

// Reasons returns all reasons of a refusal.
func Reasons() []string {
	return []string{ReasonMalformed, ReasonUnbacked, ReasonDiffers, ReasonNotListed, ReasonAmbiguous, ReasonDevices}
}

// Refusal is the error for a container with a variable or a device that the
// frontend does not back.
type Refusal struct {
	Reason string
	text   string
}

// Error implements error.
func (r *Refusal) Error() string { return r.text }

// maxText bounds a refusal's text, in bytes: a pod's author can choose names in
// the text.
const maxText = 600

func refuse(reason, format string, args ...any) error {
	return &Refusal{Reason: reason, text: contract.Excerpt(fmt.Sprintf(format, args...), maxText)}
}

// ForContainer returns the decisions for the container, none if it refers to no
// claim. The error is a [*Refusal] if the frontend does not back the container's
// variables or devices (I6). It is [contract.ErrUnknownFeature] if the frontend backs
// them and a decision or the pod requires a feature that this program does not know. Any
// other error means that a file cannot be read.
func (d *Directory) ForContainer(node contract.NodeState, c Container) (map[contract.Key]contract.Decision, error) {
	if c.Oversize > 0 {
		return nil, refuse(ReasonMalformed,
			"pod %s: its variables %s... have %d bytes, a container has at most %d: "+
				"only dra-frontend sets such variables, remove them from the pod's containers and images",
			c.PodUID, contract.EnvPrefix, c.Oversize, contract.MaxEnv)
	}
	decisions := make(map[contract.Key]contract.Decision)
	seen := make(map[contract.Key]string)
	var unknown error
	for _, entry := range c.Env {
		if !strings.HasPrefix(entry, contract.EnvPrefix) {
			continue
		}
		o := d.originOf(entry)
		v, err := o.variable, o.variable.err
		if errors.Is(err, contract.ErrUnknownFeature) {
			unknown, err = err, nil
		}
		switch {
		case err != nil:
			return nil, refuse(ReasonMalformed, "pod %s: %v", c.PodUID, err)
		case seen[v.key] == entry:
			continue
		case seen[v.key] != "":
			return nil, refuse(ReasonAmbiguous,
				"pod %s: variable %s occurs with different values: "+
					"only dra-frontend sets such variables, remove this one from the pod's containers and images",
				c.PodUID, v.key.EnvName())
		}
		if err := o.check(node, c); err != nil {
			return nil, err
		}
		seen[v.key] = entry
		decisions[v.key] = v.decision
	}
	if err := checkDevices(c, decisions); err != nil {
		return nil, err
	}
	if len(decisions) > 0 && unknown == nil {
		unknown = node.Pods[c.PodUID].CheckRequired(d.features)
	}
	if unknown != nil {
		return nil, fmt.Errorf("pod %s: %w", c.PodUID, unknown)
	}
	return decisions, nil
}

// origin is a variable of a container, with the variables in the file of the claim that
// it names.
type origin struct {
	variable variable
	// file are the variables of the claim's file. err is why it cannot be read.
	file map[contract.Key]variable
	err  error
}

func (d *Directory) originOf(entry string) origin {
	name, _, _ := strings.Cut(entry, "=")
	key, err := contract.ParseEnvName(name)
	if err != nil {
		return origin{variable: d.parse(entry)}
	}
	var o origin
	o.file, o.err = d.variables(key.ClaimUID)
	if o.variable = o.file[key]; o.variable.entry != entry {
		// check refuses it: a value that no file has is not decoded, because it may be large.
		o.variable = variable{entry: entry, key: key}
	}
	return o
}

// check returns an error unless the frontend gave the variable to the container's pod.
func (o origin) check(node contract.NodeState, c Container) error {
	key := o.variable.key
	if errors.Is(o.err, fs.ErrNotExist) {
		return refuse(ReasonUnbacked,
			"pod %s: variable %s names a claim without a file %s: only dra-frontend sets such variables, remove this one from the pod; "+
				"if the pod has this claim, wait until it is prepared again",
			c.PodUID, key.EnvName(), contract.ClaimFile(key.ClaimUID))
	}
	// This comes before all that the file says, so that no pod learns of another claim's values.
	if !isListed(node, c.PodUID, key.ClaimUID) {
		// The text has no generation, so that the same refusal is logged once and not at each node state.
		return refuse(ReasonNotListed, "pod %s: variable %s: claim %s is not prepared for this pod (%s does not list it)",
			c.PodUID, key.EnvName(), key.ClaimUID, contract.NodeFile)
	}
	if o.err != nil {
		return fmt.Errorf("pod %s: variable %s: claim file: %w", c.PodUID, key.EnvName(), o.err)
	}
	switch backed, ok := o.file[key]; {
	case !ok:
		return refuse(ReasonUnbacked, "pod %s: variable %s: %s has no device %s",
			c.PodUID, key.EnvName(), contract.ClaimFile(key.ClaimUID), key.DeviceName())
	case backed.entry != o.variable.entry:
		return refuse(ReasonDiffers,
			"pod %s: variable %s has another value than device %s in %s: only dra-frontend sets such variables, remove this one from the pod",
			c.PodUID, key.EnvName(), key.DeviceName(), contract.ClaimFile(key.ClaimUID))
	}
	return nil
}

// checkDevices compares the variables with the CDI devices if the runtime
// reports devices. Devices come from kubelet: a pod's author cannot set them.
func checkDevices(c Container, decisions map[contract.Key]contract.Decision) error {
	if !c.DevicesKnown {
		return nil
	}
	devices := make(map[string]bool)
	for _, device := range c.Devices {
		if isOurs(device) {
			devices[device] = true
		}
	}
	for _, key := range contract.KeysOf(decisions) {
		if !devices[key.CDIDevice()] {
			return refuse(ReasonDevices,
				"pod %s: variable %s is set, but kubelet did not ask for the CDI device %s: "+
					"only dra-frontend sets such variables, remove this one from the pod",
				c.PodUID, key.EnvName(), key.CDIDevice())
		}
		delete(devices, key.CDIDevice())
	}
	for _, device := range slices.Sorted(maps.Keys(devices)) {
		return refuse(ReasonDevices, "pod %s: CDI device %s is asked for but its variable is missing: the runtime did not inject it",
			c.PodUID, device)
	}
	return nil
}

// CPUsOf returns the pod's claimed CPUs, from the files of its claims. A feature that this
// program does not know does not change which CPUs a claim has. A file that cannot be
// read is an error.
func (d *Directory) CPUsOf(node contract.NodeState, podUID string) (contract.CPUSet, error) {
	var all, none contract.CPUSet
	for _, uid := range node.Pods[podUID].Claims {
		variables, err := d.variables(uid)
		if err != nil {
			return none, fmt.Errorf("claim %s: %w", uid, err)
		}
		for _, key := range contract.KeysOf(variables) {
			v := variables[key]
			if v.err != nil && !errors.Is(v.err, contract.ErrUnknownFeature) {
				return none, fmt.Errorf("claim %s: %w", uid, v.err)
			}
			all = all.Union(v.decision.CPUs)
		}
	}
	return all, nil
}

// Effective returns the values for a container with these decisions: the
// contract's merge, completed from the shared pool (I9).
func Effective(decisions map[contract.Key]contract.Decision, shared contract.Shared) contract.Decision {
	return contract.Merge(decisions).WithShared(shared)
}
