// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
)

// Announcement is the actuator's record about itself. The content does not say
// that the actuator is alive: the lock on the file does.
type Announcement struct {
	V string `json:"v"`
	// Versions are the contract versions the actuator reads.
	Versions []string `json:"versions"`
	// Features are the features that the actuator and its [Platform] have. Before a runtime was connected, features that need
	// one are left out.
	Features       []string `json:"features"`
	Runtime        string   `json:"runtime,omitempty"`
	RuntimeVersion string   `json:"runtimeVersion,omitempty"`
	NRIVersion     string   `json:"nriVersion,omitempty"`
	// Kernel is the kernel's release.
	Kernel string `json:"kernel,omitempty"`
	// Connected reports whether the runtime has synchronised with the actuator.
	Connected bool `json:"connected"`
	// Disconnected is the reason if Connected is false, for people.
	Disconnected string `json:"disconnected,omitempty"`
	// Guard is the host path of the installed guard, empty for no guard.
	Guard string `json:"guard,omitempty"`
	// Generation is the generation of the node state that was applied last.
	Generation uint64 `json:"generation"`
	// Kubepods is the path of the cgroup of all pods below the cgroup mount:
	// "kubepods", "kubepods.slice" or deeper. Empty until a pod was seen.
	Kubepods string `json:"kubepods,omitempty"`
	// Overwritten is drift that was repaired: the values that another program
	// wrote, by level or pod UID. An entry is removed after a while without
	// drift. It is for people and unchecked: a newer actuator may name files
	// that this program does not know.
	Overwritten map[string]Files `json:"overwritten,omitempty"`
	// InvalidPartitions are claims with an invalid partition: claim UID to the
	// kernel's reason. It is for people and unchecked.
	InvalidPartitions map[string]string `json:"invalidPartitions,omitempty"`
	// FixedInterrupts are interrupts that the kernel keeps on CPUs outside of the node
	// state's InterruptCPUs: number and name to these CPUs. It is for people and
	// unchecked.
	FixedInterrupts map[string]string `json:"fixedInterrupts,omitempty"`
	// MachineFaults are values of the machine that could not be written: feature to the
	// kernel's words. It is for people and unchecked.
	MachineFaults map[string]string `json:"machineFaults,omitempty"`
	// PID and Started are for people.
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// maxAnnounced bounds the versions, features and names of an announcement together, in bytes. Errors quote these texts.
const maxAnnounced = 4 << 10

// Validate checks the announcement.
func (a Announcement) Validate() error {
	if err := checkVersion("announcement", a.V); err != nil {
		return err
	}
	texts := slices.Concat(a.Versions, a.Features, []string{a.Runtime, a.RuntimeVersion, a.NRIVersion, a.Kernel})
	if size := len(strings.Join(texts, " ")); size > maxAnnounced {
		return fmt.Errorf("announcement: versions, features, runtime and kernel of %d bytes, want at most %d", size, maxAnnounced)
	}
	if a.Guard != "" && (!filepath.IsAbs(a.Guard) || filepath.Clean(a.Guard) != a.Guard) {
		return fmt.Errorf("announcement: guard path %q is not a clean absolute path", a.Guard)
	}
	if a.Kubepods != "" && (a.Kubepods == "." || !filepath.IsLocal(a.Kubepods) || filepath.Clean(a.Kubepods) != a.Kubepods) {
		return fmt.Errorf("announcement: kubepods %q is not a clean path below the cgroup mount", a.Kubepods)
	}
	return nil
}

// CommonVersion returns [Version] if the actuator reads it. Otherwise the error has the
// versions of both sides.
func (a Announcement) CommonVersion() (string, error) {
	if slices.Contains(a.Versions, Version) {
		return Version, nil
	}
	return "", fmt.Errorf("nri-actuator reads contract versions %q, this frontend writes %q: upgrade the older of the two",
		a.Versions, Version)
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

// DecodeAnnouncement decodes the content of the actuator file.
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

// ErrActuatorDead means that no running actuator holds the announcement.
var ErrActuatorDead = errors.New("nri-actuator is not running on this node")

// Open file description locks (asm-generic/fcntl.h). Package syscall lacks the
// names.
const (
	ofdGetLock = 36
	ofdSetLock = 37
)

// LockAnnouncement takes the lock on f. The lock shows that the writer is
// alive: the kernel drops it with the last descriptor of f, at the latest when
// the process ends (fcntl(2), "Open file description locks").
func LockAnnouncement(f *os.File) error {
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(f.Fd(), ofdSetLock, &lock); err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}

// maxReplaced bounds how often a read starts again because the file was
// replaced meanwhile. The actuator replaces the file only to change its content.
const maxReplaced = 100

// ReadAnnouncement reads the actuator file in dir. A file that is absent,
// without a lock or not regular is [ErrActuatorDead].
func ReadAnnouncement(dir string) (Announcement, error) { return NewAnnouncementReader(dir).Read() }

// AnnouncementReader reads the actuator file of a directory again and again. It
// asks for the lock at each read, and decodes the content only if the content
// has changed. It is safe for concurrent use.
type AnnouncementReader struct {
	path string

	mu      sync.Mutex
	content []byte
	decoded Announcement
}

// NewAnnouncementReader returns a reader of the actuator file in dir.
func NewAnnouncementReader(dir string) *AnnouncementReader {
	return &AnnouncementReader{path: filepath.Join(dir, ActuatorFile)}
}

// Read is [ReadAnnouncement]. The caller must not change what the result refers to:
// the next result refers to the same.
func (r *AnnouncementReader) Read() (Announcement, error) {
	for range maxReplaced {
		content, err := readAnnouncement(r.path)
		switch {
		case errors.Is(err, errReplaced):
			continue
		case err != nil:
			return Announcement{}, err
		}
		return r.decode(content)
	}
	return Announcement{}, fmt.Errorf("%s was replaced during each of %d reads", r.path, maxReplaced)
}

func (r *AnnouncementReader) decode(content []byte) (Announcement, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.content != nil && bytes.Equal(content, r.content) {
		return r.decoded, nil
	}
	a, err := DecodeAnnouncement(content)
	if err != nil {
		return Announcement{}, fmt.Errorf("%s: %w", r.path, bounded(err))
	}
	r.content, r.decoded = content, a
	return a, nil
}

// errReplaced means that the path names another file than the opened file. The
// opened file can be without a lock although the actuator is alive.
var errReplaced = errors.New("announcement replaced")

func readAnnouncement(path string) ([]byte, error) {
	f, _, err := atomicfile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: no %s", ErrActuatorDead, path)
	}
	if errors.Is(err, atomicfile.ErrNotRegular) {
		return nil, fmt.Errorf("%w: %w", ErrActuatorDead, err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readHeld(f, path)
}

// readHeld reads f, which was opened at path, if a process holds the lock of f.
func readHeld(f *os.File, path string) ([]byte, error) {
	lock := syscall.Flock_t{Type: syscall.F_RDLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(f.Fd(), ofdGetLock, &lock); err != nil {
		return nil, fmt.Errorf("query lock of %s: %w", path, err)
	}
	if lock.Type == syscall.F_UNLCK {
		if replaced(f, path) {
			return nil, errReplaced
		}
		return nil, fmt.Errorf("%w: no process holds the lock of %s", ErrActuatorDead, path)
	}
	return atomicfile.ReadAll(f, MaxFileSize)
}

// replaced reports whether path names another file than f.
func replaced(f *os.File, path string) bool {
	was, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && !os.SameFile(was, now)
}
