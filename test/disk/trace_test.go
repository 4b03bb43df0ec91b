// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// trace returns the operations that call does to the files below root. The kernel stops
// call before each of its system calls that are operations, and at each stop the files are
// compared with those of the last stop. call must do its work in its own goroutine.
func trace(t *testing.T, root string, call func() error) []Operation {
	t.Helper()
	listener, result, stopped := make(chan int), make(chan error, 1), make(chan struct{})
	go func() {
		// The filter is of this thread only, which ends with the goroutine.
		runtime.LockOSThread()
		fd, err := listen()
		listener <- fd
		if err == nil {
			err = call()
		}
		result <- err
		close(stopped)
	}()
	fd := <-listener
	if fd < 0 {
		require.Empty(t, os.Getenv("CI"), "the kernel sets no system call filter")
		t.Skip("the kernel sets no system call filter:", <-result)
	}
	defer unix.Close(fd)
	r := &recorder{t: t, root: root, files: read(t, root)}
	for {
		n, received := receive(fd, stopped)
		if !received {
			break
		}
		r.stop(n)
		proceed(t, fd, n)
	}
	r.written()
	require.NoError(t, <-result)
	return r.operations
}

// random matches the end of a temporary file's name.
var random = regexp.MustCompile(`\.tmp-\d+$`)

// recorder makes operations of stops.
type recorder struct {
	t          *testing.T
	root       string
	files      Files
	operations []Operation
}

// stop records what the files show, and the system call that comes.
func (r *recorder) stop(n notification) {
	r.written()
	switch int(n.data.nr) {
	case unix.SYS_OPENAT:
		if n.data.args[2]&unix.O_CREAT == 0 || strings.HasSuffix(r.text(n.data.args[1]), "lock") {
			return
		}
		r.add(Operation{Kind: Create, Path: r.text(n.data.args[1])})
	case unix.SYS_FSYNC:
		name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", n.data.args[0]))
		require.NoError(r.t, err)
		info, err := os.Stat(name)
		require.NoError(r.t, err)
		kind := Sync
		if info.IsDir() {
			kind = SyncDirectory
		}
		r.add(Operation{Kind: kind, Path: name})
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		r.add(Operation{Kind: Rename, Path: r.text(n.data.args[1]), To: r.text(n.data.args[3])})
	case unix.SYS_UNLINKAT:
		r.add(Operation{Kind: Unlink, Path: r.text(n.data.args[1])})
	}
}

func (r *recorder) add(o Operation) {
	inside := func(name string) string {
		if name == "" {
			return ""
		}
		relative, err := filepath.Rel(r.root, name)
		require.NoError(r.t, err)
		require.True(r.t, filepath.IsLocal(relative), "%s is not below %s", name, r.root)
		return random.ReplaceAllString(relative, Temporary)
	}
	o.Path, o.To = inside(o.Path), inside(o.To)
	r.operations = append(r.operations, o)
}

// written records what was appended to files since the last stop.
func (r *recorder) written() {
	before := r.files
	r.files = read(r.t, r.root)
	for name, content := range r.files {
		if n := len(r.operations); n > 0 && r.operations[n-1].Kind == Rename && r.operations[n-1].To == name || content == before[name] {
			continue
		}
		require.True(r.t, strings.HasPrefix(content, before[name]), "%s is not appended to", name)
		r.operations = append(r.operations, Operation{Kind: Write, Path: name, Data: content[len(before[name]):]})
	}
}

// text returns the string at an address of this process.
func (r *recorder) text(address uint64) string {
	memory, err := os.Open("/proc/self/mem")
	require.NoError(r.t, err)
	defer memory.Close()
	text := make([]byte, unix.PathMax)
	n, err := memory.ReadAt(text, int64(address))
	if n == 0 {
		require.NoError(r.t, err)
	}
	name, _, _ := strings.Cut(string(text[:n]), "\x00")
	return name
}

// read returns the files below a directory.
func read(t *testing.T, root string) Files {
	files := make(Files)
	require.NoError(t, filepath.WalkDir(root, func(name string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(name)
		relative, _ := filepath.Rel(root, name)
		files[random.ReplaceAllString(relative, Temporary)] = string(data)
		return err
	}))
	return files
}

// Structures of linux/seccomp.h.
type (
	notification struct {
		id    uint64
		pid   uint32
		flags uint32
		data  struct {
			nr   int32
			arch uint32
			ip   uint64
			args [6]uint64
		}
	}
	response struct {
		id    uint64
		val   int64
		error int32
		flags uint32
	}
)

// listen returns a descriptor that receives this thread's system calls that change files.
func listen() (int, error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, err
	}
	const load, jumpIfEqual, end = 0x20, 0x15, 0x06 // bpf_common.h
	calls := []uint32{unix.SYS_OPENAT, unix.SYS_FSYNC, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT}
	program := []unix.SockFilter{{Code: load}}
	for i, call := range calls {
		program = append(program, unix.SockFilter{Code: jumpIfEqual, Jt: uint8(len(calls) - i), K: call})
	}
	program = append(program,
		unix.SockFilter{Code: end, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: end, K: unix.SECCOMP_RET_USER_NOTIF})
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP,
		unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&p)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// receive waits for a system call. received is false if there is none until stopped is closed.
func receive(fd int, stopped <-chan struct{}) (n notification, received bool) {
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		ready, _ := unix.Poll(fds, 1)
		if ready > 0 && fds[0].Revents&unix.POLLIN != 0 {
			n = notification{}
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n)))
			if errno == 0 {
				return n, true
			}
		}
		select {
		case <-stopped:
			return n, false
		default:
		}
	}
}

// proceed lets the kernel do the system call.
func proceed(t *testing.T, fd int, n notification) {
	r := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r)))
	require.Zero(t, errno)
}
