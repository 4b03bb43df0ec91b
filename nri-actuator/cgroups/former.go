// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// formerAttribute, followed by a file's name, is the extended attribute of a
// cgroup that keeps the file's former value. The attribute is on the cgroup
// itself: it lives as long as the cgroup and survives the actuator (I4). Linux
// has such attributes on cgroups since 5.7. On an older kernel no former value
// is kept or given back.
const formerAttribute = "user." + contract.Vendor + ".former."

// Override is Write for a cgroup of another program. It keeps the former value
// of each file with the cgroup, for [Tree.Restore]. ours are the contents that
// this driver wrote last, as far as known. If a file has another content than
// in ours, another program wrote it since: it is the new former value.
func (t *Tree) Override(dir string, files, ours map[string]string) (found map[string]string, err error) {
	return t.write(dir, files, func(d *os.Root, file, found string) error {
		// Keep the value before the write: a crash in between loses nothing.
		f, err := d.Open(".")
		if err != nil {
			return err
		}
		defer f.Close()
		flags := unix.XATTR_CREATE
		if last, known := ours[file]; known && last != found {
			flags = 0
		}
		err = unix.Fsetxattr(int(f.Fd()), formerAttribute+file, []byte(found), flags)
		if err == nil || errors.Is(err, unix.EEXIST) || errors.Is(err, errors.ErrUnsupported) {
			return nil
		}
		return fmt.Errorf("keep its value %q: %w", found, err)
	})
}

// Restore gives the overridden files of the cgroup their former values, except
// the files in keep. former has the files with their former values, changed has
// the files that had another content. The cgroup keeps the former values until
// [Tree.Release].
func (t *Tree) Restore(dir string, keep map[string]string) (former map[string]string, changed []string, err error) {
	d, err := t.open(dir)
	if err != nil {
		return nil, nil, err
	}
	defer d.Close()
	f, err := d.Open(".")
	if err != nil {
		return nil, nil, t.explain(dir, "", err)
	}
	defer f.Close()
	files, err := overridden(int(f.Fd()))
	if err != nil {
		return nil, nil, t.explain(dir, "", err)
	}
	former = make(map[string]string)
	var errs []error
	for _, file := range files {
		if _, kept := keep[file]; kept {
			continue
		}
		value, wrote, err := restore(d, int(f.Fd()), file)
		if err != nil {
			errs = append(errs, t.explain(dir, file, fmt.Errorf("give back its former value: %w", err)))
			continue
		}
		former[file] = value
		if wrote {
			changed = append(changed, file)
		}
	}
	return former, changed, errors.Join(errs...)
}

func restore(d *os.Root, fd int, file string) (former string, wrote bool, err error) {
	// The largest attribute (xattr(7)): lists of CPUs can be long.
	value := make([]byte, 64<<10)
	n, err := unix.Fgetxattr(fd, formerAttribute+file, value)
	if err != nil {
		return "", false, err
	}
	former = string(value[:n])
	if err := (contract.Files{file: former}).Validate(); err != nil {
		return "", false, err
	}
	if got, err := read(d, file); err != nil || got == former {
		return former, false, err
	}
	return former, true, write(d, file, former)
}

// Release removes the kept former values of files, after [Tree.Restore].
func (t *Tree) Release(dir string, files map[string]string) error {
	d, err := t.open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	f, err := d.Open(".")
	if err != nil {
		return t.explain(dir, "", err)
	}
	defer f.Close()
	var errs []error
	for file := range files {
		if err := unix.Fremovexattr(int(f.Fd()), formerAttribute+file); err != nil {
			errs = append(errs, t.explain(dir, file, fmt.Errorf("forget its former value: %w", err)))
		}
	}
	return errors.Join(errs...)
}

// overridden returns the files with a kept former value.
func overridden(fd int) ([]string, error) {
	// The kernel allows 128 KiB of user attributes on a cgroup.
	var names [4 << 10]byte
	n, err := unix.Flistxattr(fd, names[:])
	list := names[:max(n, 0)]
	if errors.Is(err, unix.ERANGE) {
		list = make([]byte, 256<<10)
		n, err = unix.Flistxattr(fd, list)
		list = list[:max(n, 0)]
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var files []string
	for name := range bytes.SplitSeq(list, []byte{0}) {
		if file, ours := strings.CutPrefix(string(name), formerAttribute); ours {
			files = append(files, file)
		}
	}
	return files, nil
}
