// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"k8s.io/apimachinery/pkg/util/version"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/inspect"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubeletconfig"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/preflight"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/quiet"
)

// Machine is what the checks of a node look at.
type Machine struct {
	// Root is the node's file system.
	Root fs.FS
	// Kubelet is kubelet's root directory, NRISocket the runtime's NRI socket and
	// KubeletConfig kubelet's configuration file: paths below Root. KubeletConfig is empty if
	// the user named none.
	Kubelet, NRISocket, KubeletConfig string
	// CDIDir is the CDI directory as a path without symbolic links, below Root.
	CDIDir string
	// Directory is the content of the CDI directory, and Err the error of reading it.
	Directory inspect.Directory
	Err       error
}

// Node checks a node.
func Node(m Machine) []Check {
	// The user may name a file from the working directory.
	for _, name := range []*string{&m.Kubelet, &m.NRISocket, &m.KubeletConfig, &m.CDIDir} {
		if abs, err := filepath.Abs(*name); err == nil && *name != "" {
			*name = abs
		}
	}
	checks := []Check{m.kernel(), m.cgroup(), m.controllers()}
	checks = append(checks, m.policies()...)
	checks = append(checks, m.gate(), m.nri(), m.cdi())
	checks = append(checks, m.irqbalance()...)
	return append(checks, m.daemons()...)
}

func (m Machine) below(name string) fs.FS {
	sub, err := fs.Sub(m.Root, strings.Trim(name, "/"))
	if err != nil {
		return m.Root
	}
	return sub
}

// asRoot mends a check that lacks the right to read.
const asRoot = "run as root"

// unread returns the check of a file that could not be read.
func unread(name string, err error) Check {
	c := Check{Name: name, State: Unknown, Found: err.Error()}
	if errors.Is(err, fs.ErrPermission) {
		c.Mend = asRoot
	}
	return c
}

// partitions is the first release with remote cpuset partitions.
var partitions = version.MustParseGeneric("6.7")

func (m Machine) kernel() Check {
	c := Check{Name: "kernel"}
	data, err := fs.ReadFile(m.below("proc"), "sys/kernel/osrelease")
	if err != nil {
		c.State, c.Found = Unknown, err.Error()
		return c
	}
	c.Found = strings.TrimSpace(string(data))
	v, err := version.ParseGeneric(c.Found)
	switch {
	case err != nil:
		c.State = Unknown
	case preflight.MemoryHigh(m.below("proc")) != nil:
		c.State, c.Mend = Warning, "Linux 5.9 or later if memory.high is used, 6.7 or later for cpuset partitions"
	case v.LessThan(partitions):
		c.State, c.Mend = Warning, "Linux 6.7 or later makes cpuset partitions, which keep host processes off claimed CPUs"
	default:
		c.State = OK
	}
	return c
}

// cgroup and policies find what preflight finds. Its errors say what to do.
func (m Machine) cgroup() Check {
	if err := preflight.CheckCgroup(m.below("proc")); err != nil {
		return Check{Name: "cgroup v2", State: Fault, Found: err.Error()}
	}
	return Check{Name: "cgroup v2", State: OK, Found: "/sys/fs/cgroup"}
}

func (m Machine) controllers() Check {
	c := Check{Name: "cgroup controllers"}
	data, err := fs.ReadFile(m.below("sys/fs/cgroup"), "cgroup.controllers")
	if err != nil {
		c.State, c.Found = Unknown, err.Error()
		return c
	}
	has := strings.Fields(string(data))
	var missing []string
	for _, name := range []string{"cpuset", "memory", "hugetlb"} {
		if !slices.Contains(has, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		c.State, c.Found = Fault, "missing: "+strings.Join(missing, ", ")
		c.Mend = "boot without cgroup_disable, with a kernel that has these controllers"
		return c
	}
	c.State, c.Found = OK, "cpuset, memory, hugetlb"
	return c
}

func (m Machine) policies() (checks []Check) {
	warnings, err := preflight.CheckPolicies(m.below(m.Kubelet))
	for _, w := range warnings {
		checks = append(checks, Check{Name: "kubelet's managers", State: Unknown, Found: w})
	}
	var faults []error
	if err != nil {
		faults = []error{err}
	}
	if joined, is := err.(interface{ Unwrap() []error }); is {
		faults = joined.Unwrap()
	}
	for _, err := range faults {
		c := unread("kubelet's managers", err)
		if c.Mend != asRoot {
			c.State = Fault // the error says what to do
		}
		checks = append(checks, c)
	}
	if len(checks) == 0 {
		checks = append(checks, Check{Name: "kubelet's managers", State: OK, Found: "cpuManagerPolicy is none and memoryManagerPolicy None"})
	}
	return checks
}

// gate checks the feature gate without which allocated claims have no amounts. Flags of kubelet are not seen.
func (m Machine) gate() Check {
	const name = "DRAConsumableCapacity"
	c := Check{Name: "feature gate " + name + " of kubelet"}
	if m.KubeletConfig == "" {
		c.State, c.Found = Unknown, "no configuration file of kubelet was named (--kubelet-config)"
		return c
	}
	var kubelet kubeletconfig.Kubelet
	data, err := fs.ReadFile(m.Root, strings.Trim(m.KubeletConfig, "/"))
	if err == nil {
		kubelet, err = kubeletconfig.Parse(data)
	}
	on, set := kubelet.FeatureGates[name]
	switch {
	case errors.Is(err, fs.ErrPermission):
		return unread(c.Name, err)
	case err != nil:
		c.State, c.Found, c.Mend = Fault, m.KubeletConfig+": "+err.Error(), "name kubelet's configuration file with --kubelet-config"
	case !set:
		c.State, c.Found = Unknown, "not set: on by default from Kubernetes 1.36, off before"
	case on:
		c.State, c.Found = OK, "on"
	default:
		c.State, c.Found, c.Mend = Fault, "off", "set featureGates: {"+name+": true} in "+m.KubeletConfig+" and restart kubelet"
	}
	return c
}

func (m Machine) nri() Check {
	c := Check{Name: "NRI socket"}
	info, err := fs.Stat(m.Root, strings.Trim(m.NRISocket, "/"))
	switch {
	case errors.Is(err, fs.ErrNotExist) && m.inContainer():
		c.State, c.Found = Unknown, m.NRISocket+" is missing in this container, which need not have the node's sockets"
		c.Mend = "run it on the node; where the node is a container, as with kind, switch NRI on in its runtime"
	case errors.Is(err, fs.ErrNotExist):
		c.State, c.Found = Fault, m.NRISocket+" is missing"
		c.Mend = "switch NRI on in the runtime (containerd: plugins.'io.containerd.nri.v1.nri'.disable = false) and restart it"
	case err != nil:
		return unread(c.Name, err)
	case info.Mode()&fs.ModeSocket == 0:
		c.State, c.Found, c.Mend = Fault, m.NRISocket+" is no socket", "remove it and restart the runtime"
	default:
		c.State, c.Found = OK, m.NRISocket
	}
	return c
}

// inContainer reports whether the command runs in a container: only a cgroup below the root of all
// cgroups has a type. An absent directory of the socket is no sign of a container, because containerd
// makes the directory with the socket.
func (m Machine) inContainer() bool {
	_, err := fs.Stat(m.below("sys/fs/cgroup"), "cgroup.type")
	return err == nil
}

func (m Machine) cdi() Check {
	c := Check{Name: "CDI directory"}
	kind, err := m.fileSystem()
	switch {
	case errors.Is(m.Err, fs.ErrNotExist):
		c.State, c.Found = Unknown, m.CDIDir+" is missing: the chart makes it"
	case errors.Is(m.Err, fs.ErrPermission):
		return unread(c.Name, m.Err)
	case m.Err != nil:
		c.State, c.Found, c.Mend = Fault, m.Err.Error(), "make it a readable directory: the runtime and both daemons need it"
	case err != nil:
		c.State, c.Found = Unknown, err.Error()
	case kind != "tmpfs":
		c.State, c.Found = Warning, fmt.Sprintf("%s is on %s, which a reboot does not empty", m.CDIDir, kind)
		c.Mend = "mount a tmpfs there; otherwise old claim files stay after a reboot, and the node takes no new claims until they are removed"
	default:
		c.State, c.Found = OK, m.CDIDir+" on tmpfs"
	}
	return c
}

// irqbalance returns a warning if irqbalance is running. Nodes without it need no check.
func (m Machine) irqbalance() []Check {
	if !quiet.Irqbalance(m.below("sys/fs/cgroup")) {
		return nil
	}
	return []Check{{
		Name: "irqbalance", State: Warning, Found: "running: it brings interrupts back to CPUs of claims with interrupts: none",
		Mend: "give it the claimable CPUs as IRQBALANCE_BANNED_CPULIST, or stop it",
	}}
}

// fileSystem returns the kind of the file system that has the CDI directory.
func (m Machine) fileSystem() (string, error) {
	data, err := fs.ReadFile(m.below("proc"), "self/mountinfo")
	if err != nil {
		return "", err
	}
	mounts, err := mountinfo.GetMountsFromReader(bytes.NewReader(data), mountinfo.ParentsFilter(m.CDIDir))
	if err != nil || len(mounts) == 0 {
		return "", errors.Join(errors.New("no mount has "+m.CDIDir), err)
	}
	// The last of the longest: a later mount hides an earlier one.
	nearest := mounts[0]
	for _, mount := range mounts {
		if len(path.Clean(mount.Mountpoint)) >= len(path.Clean(nearest.Mountpoint)) {
			nearest = mount
		}
	}
	return nearest.FSType, nil
}

// daemons checks what the daemons wrote into the CDI directory.
func (m Machine) daemons() (checks []Check) {
	if m.Err != nil {
		return nil // the check of the CDI directory says so
	}
	if m.nothingWritten() {
		return []Check{{
			Name: "daemons", State: Unknown,
			Found: "nothing is written into the CDI directory: the driver is not installed, or its daemons do not start",
		}}
	}
	claims := m.claimFiles()
	checks = append(m.actuator(), claims)
	for _, p := range m.Directory.Problems {
		switch {
		case errors.Is(p, inspect.ErrNotConnected), errors.Is(p, contract.ErrActuatorDead):
			// The check of the actuator has it.
		case errors.Is(p, fs.ErrPermission), errors.Is(p, inspect.ErrOtherBoot) && claims.State == Fault:
			// The check of the claim files has it.
		default:
			checks = append(checks, Check{
				Name: "CDI files", State: Fault, Found: p.Error(), Mend: "run cpumem explain; docs/how-to/troubleshooting.md has the messages",
			})
		}
	}
	return checks
}

// nothingWritten reports whether the directory has no file of the daemons.
func (m Machine) nothingWritten() bool {
	d := m.Directory
	written := slices.ContainsFunc(d.Problems, func(err error) bool {
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, contract.ErrActuatorDead)
	})
	return d.Node == nil && d.Actuator == nil && len(d.Claims) == 0 && !written && !m.actuatorWrote()
}

// actuatorWrote reports whether the actuator's file exists. An actuator that is asked to end removes
// its file.
func (m Machine) actuatorWrote() bool {
	_, err := fs.Stat(m.below(m.CDIDir), contract.ActuatorFile)
	return err == nil
}

func (m Machine) claimFiles() Check {
	d := m.Directory
	stale, hidden := 0, 0
	boot, err := preflight.BootID(m.below("proc"))
	for _, c := range d.Claims {
		if err == nil && c.BootID != boot {
			stale++
		}
	}
	for _, p := range d.Problems {
		if errors.Is(p, fs.ErrPermission) {
			hidden++
		}
	}
	c := Check{Name: "claim files", State: OK, Found: fmt.Sprintf("%d claims", len(d.Claims))}
	switch {
	case stale > 0:
		c.State, c.Found = Fault, fmt.Sprintf("%d of %d claims were prepared before the last boot", stale, len(d.Claims))
		c.Mend = "delete their pods: the frontend removes the files and then takes claims again"
	case hidden > 0:
		c.State, c.Found, c.Mend = Unknown, fmt.Sprintf("%d files of the CDI directory cannot be read: permission denied", hidden), asRoot
	}
	return c
}

func (m Machine) actuator() []Check {
	a := m.Directory.Actuator
	if a == nil {
		return m.noActuator()
	}
	runtime := Check{Name: "actuator", State: OK, Found: fmt.Sprintf("connected to %s %s",
		contract.Excerpt(a.Runtime, maxFound), contract.Excerpt(a.RuntimeVersion, maxFound))}
	if !a.Connected {
		runtime.State, runtime.Found = Fault, "not connected to the runtime: "+contract.Excerpt(a.Disconnected, maxFound)
		runtime.Mend = "look at the actuator's log, and check that NRI is on in the runtime"
	}
	version := Check{Name: "contract version", State: OK, Found: contract.Version}
	if _, err := a.CommonVersion(); err != nil {
		version.State, version.Found, version.Mend = Fault, err.Error(), "upgrade the older daemon"
	}
	guard := Check{Name: "guard", State: OK, Found: contract.Excerpt(a.Guard, maxFound)}
	if a.Guard == "" {
		guard.State, guard.Found = Warning, "off: a container that the actuator has not seen starts with the runtime's CPUs"
		guard.Mend = "actuator.guard.enabled: true in the chart's values"
	}
	partition := Check{Name: "cpuset partitions", State: OK, Found: "the kernel makes them"}
	if !slices.Contains(a.Features, contract.FeaturePartition) {
		partition.State, partition.Found = Warning, "the actuator has not announced them: host processes may run on claimed CPUs"
		partition.Mend = "Linux 6.7 or later; actuator's log has the kernel's answer"
	}
	applied := Check{Name: "node state", State: OK, Found: fmt.Sprintf("generation %d is applied", a.Generation)}
	if n := m.Directory.Node; n != nil && n.Generation != a.Generation {
		applied.State = Warning
		applied.Found = fmt.Sprintf("generation %d is written, %d is applied", n.Generation, a.Generation)
		applied.Mend = "look again in a few seconds; if the numbers stay, look at the actuator's log"
	}
	return []Check{runtime, version, guard, partition, applied}
}

// noActuator returns the check of an actuator that is away, none if its file cannot be read: then a
// check of the files says so.
func (m Machine) noActuator() []Check {
	if !slices.ContainsFunc(m.Directory.Problems, func(err error) bool { return errors.Is(err, contract.ErrActuatorDead) }) {
		return nil
	}
	c := Check{
		Name: "actuator", State: Fault, Found: "it is not running, and has no file in the CDI directory",
		Mend: "look at the actuator's pod on this node, and at its log",
	}
	if m.actuatorWrote() {
		c.Found = "it has ended: its file is in the CDI directory, and no process holds the file's lock"
	}
	return []Check{c}
}

// maxFound bounds a text of another program, in bytes.
const maxFound = 300
