// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/durable"
)

// Announcement is the actuator's word about itself. That it is alive is not
// said in the content: the kernel says it, by the lock on the file.
type Announcement struct {
	V string `json:"v"`
	// Versions are the contract versions the actuator reads.
	Versions []string `json:"versions"`
	// Features are the "requires" features that it knows and that its runtime
	// and kernel have; none before it was connected.
	Features       []string `json:"features"`
	Runtime        string   `json:"runtime,omitempty"`
	RuntimeVersion string   `json:"runtimeVersion,omitempty"`
	NRIVersion     string   `json:"nriVersion,omitempty"`
	// Connected tells whether the runtime has synchronised with the actuator.
	Connected bool `json:"connected"`
	// Disconnected is why Connected is false, for people.
	Disconnected string `json:"disconnected,omitempty"`
	// Guard is the host path of the installed guard, empty for no guard.
	Guard string `json:"guard,omitempty"`
	// Generation is the last node state that was applied.
	Generation uint64 `json:"generation"`
	// Kubepods is the cgroup of all pods below the cgroup mount, "kubepods" or
	// "kubepods.slice" or deeper; empty until a pod was seen.
	Kubepods string `json:"kubepods,omitempty"`
	// Overwritten are values that someone else wrote over those of the node
	// state, and that were put right, by QoS level or pod UID. An entry goes
	// when that has not happened again for a while. It is for people: a newer
	// actuator may name files that are unknown here, so nothing is checked.
	Overwritten map[string]Files `json:"overwritten,omitempty"`
	// InvalidPartitions are claims whose container is a partition that the
	// kernel does not grant any more, with its reason, by claim UID. It is for
	// people: nothing is checked.
	InvalidPartitions map[string]string `json:"invalidPartitions,omitempty"`
	// PID and Started are for people.
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// Validate checks the announcement.
func (a Announcement) Validate() error {
	if err := checkVersion("announcement", a.V); err != nil {
		return err
	}
	if a.Guard != "" && (!filepath.IsAbs(a.Guard) || filepath.Clean(a.Guard) != a.Guard) {
		return fmt.Errorf("announcement: guard path %q is not a clean absolute path", a.Guard)
	}
	if a.Kubepods != "" && (a.Kubepods == "." || !filepath.IsLocal(a.Kubepods) || filepath.Clean(a.Kubepods) != a.Kubepods) {
		return fmt.Errorf("announcement: kubepods %q is not a clean path below the cgroup mount", a.Kubepods)
	}
	return nil
}

// CommonVersion returns the highest contract version that the actuator and
// this program both know, or an error that names both sides.
func (a Announcement) CommonVersion() (string, error) {
	if slices.Contains(a.Versions, Version) {
		return Version, nil
	}
	return "", fmt.Errorf("nri-actuator reads contract versions %q, this frontend writes %q: upgrade the older of the two", a.Versions, Version)
}

// EncodeAnnouncement returns the content of the actuator file.
func EncodeAnnouncement(a Announcement) ([]byte, error) {
	if a.Versions == nil {
		a.Versions = []string{}
	}
	if a.Features == nil {
		a.Features = []string{}
	}
	if err := a.Validate(); err != nil {
		return nil, err
	}
	return encodeSpec(ActuatorKind, a, inertDevice("announcement"))
}

// DecodeAnnouncement reads the actuator file.
func DecodeAnnouncement(data []byte) (Announcement, error) {
	var a Announcement
	if _, err := decodeRecord(ActuatorKind, data, &a); err != nil {
		return Announcement{}, err
	}
	if err := a.Validate(); err != nil {
		return Announcement{}, err
	}
	return a, nil
}

// ErrActuatorDead is returned for an announcement whose writer is gone.
var ErrActuatorDead = errors.New("nri-actuator is not running on this node")

// Open file description locks, fcntl_linux.h; package syscall lacks the names.
const (
	ofdGetLock = 36
	ofdSetLock = 37
)

// LockAnnouncement takes the lock that says the writer of f is alive. The
// kernel drops it when the last descriptor of f is closed, at the latest when
// the process ends (fcntl(2), "Open file description locks").
func LockAnnouncement(f *os.File) error {
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(f.Fd(), ofdSetLock, &lock); err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}

// maxReplaced bounds how often a read starts again because the file was
// replaced meanwhile; the actuator replaces it only when its content changes.
const maxReplaced = 100

// ReadAnnouncement reads the actuator file in dir. An absent file, one that
// nobody holds the lock of and what is no regular file are [ErrActuatorDead].
func ReadAnnouncement(dir string) (Announcement, error) {
	path := filepath.Join(dir, ActuatorFile)
	for range maxReplaced {
		a, err := readAnnouncement(path)
		if !errors.Is(err, errReplaced) {
			return a, err
		}
	}
	return Announcement{}, fmt.Errorf("%s was replaced during each of %d reads", path, maxReplaced)
}

// errReplaced says that the file that was opened is no longer the one of that
// name: nobody need hold its lock any more although the actuator is alive.
var errReplaced = errors.New("announcement replaced")

func readAnnouncement(path string) (Announcement, error) {
	f, _, err := durable.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Announcement{}, fmt.Errorf("%w: no %s", ErrActuatorDead, path)
	}
	if errors.Is(err, durable.ErrNotRegular) {
		return Announcement{}, fmt.Errorf("%w: %w", ErrActuatorDead, err)
	}
	if err != nil {
		return Announcement{}, err
	}
	defer f.Close()
	return readHeld(f, path)
}

// readHeld reads the announcement in f, which was opened as path.
func readHeld(f *os.File, path string) (Announcement, error) {
	lock := syscall.Flock_t{Type: syscall.F_RDLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(f.Fd(), ofdGetLock, &lock); err != nil {
		return Announcement{}, fmt.Errorf("query lock of %s: %w", path, err)
	}
	if lock.Type == syscall.F_UNLCK {
		if replaced(f, path) {
			return Announcement{}, errReplaced
		}
		return Announcement{}, fmt.Errorf("%w: nobody holds the lock of %s", ErrActuatorDead, path)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFileSize))
	if err != nil {
		return Announcement{}, err
	}
	a, err := DecodeAnnouncement(data)
	if err != nil {
		return Announcement{}, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// replaced reports whether path names another file than f by now.
func replaced(f *os.File, path string) bool {
	was, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && !os.SameFile(was, now)
}
