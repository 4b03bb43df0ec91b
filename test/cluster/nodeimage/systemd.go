// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// SystemdInit is the init of a node with systemd.
const SystemdInit = "/usr/lib/systemd/systemd"

// SystemdPackages are Debian's packages that hold systemd and the system bus.
var SystemdPackages = []string{"systemd", "dbus-daemon", "dbus-system-bus-common"}

// A node gets only some programs of these packages and their libraries, because each further unit and generator would
// cost time at every boot. The units are in files/systemd.
var (
	systemdPrograms = []string{
		"usr/lib/systemd/systemd", "usr/bin/systemctl", "usr/bin/systemd-run", "usr/bin/busctl", "usr/bin/dbus-daemon",
	}
	systemdMaybe = []string{"usr/lib/systemd/systemd-executor"} // since systemd 255
	busConfig    = []string{"usr/share/dbus-1/system.conf", "usr/share/dbus-1/system.d/org.freedesktop.systemd1.conf"}
	libraryDirs  = []string{"usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/systemd"}
)

const loader = "ld-linux-x86-64.so.2"

// addSystemd puts systemd, the system bus and the units of files/systemd into the node's root.
func addSystemd(packages, root string) error {
	programs := slices.Clone(systemdPrograms)
	for _, p := range systemdMaybe {
		if _, err := find(packages, p); err == nil {
			programs = append(programs, p)
		}
	}
	var files []string // in the packages
	for _, p := range programs {
		file, err := find(packages, p)
		if err != nil {
			return fmt.Errorf("systemd: %w", err)
		}
		if err := install(file, filepath.Join(root, p)); err != nil {
			return fmt.Errorf("systemd: %w", err)
		}
		files = append(files, file)
	}
	libraries, err := closure(files, imports, func(name string) (string, error) {
		var errs []error
		for _, dir := range libraryDirs {
			file, err := find(packages, path.Join(dir, name))
			if err == nil {
				return file, nil
			}
			errs = append(errs, err)
		}
		return "", errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("systemd: %w", err)
	}
	for name, file := range libraries {
		to := filepath.Join(root, libraryDirs[0], name)
		if name == loader {
			to = filepath.Join(root, "usr/lib64", name)
		}
		if err := install(file, to); err != nil {
			return fmt.Errorf("systemd: %w", err)
		}
	}
	for _, f := range busConfig {
		if err := install(filepath.Join(packages, f), filepath.Join(root, f)); err != nil {
			return fmt.Errorf("system bus: %w", err)
		}
	}
	return addUnits(root)
}

func addUnits(root string) error {
	dir := filepath.Join(root, "etc/systemd/system")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("units: %w", err)
	}
	units, err := fs.ReadDir(files, "files/systemd")
	if err != nil {
		return err
	}
	for _, u := range units {
		data, err := files.ReadFile("files/systemd/" + u.Name())
		if err != nil {
			return err
		}
		to := filepath.Join(dir, u.Name())
		if filepath.Ext(to) == ".conf" {
			to = filepath.Join(root, "etc/systemd", u.Name())
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			return fmt.Errorf("units: %w", err)
		}
	}
	if err := os.Symlink("node.target", filepath.Join(dir, "default.target")); err != nil {
		return fmt.Errorf("units: %w", err)
	}
	return nil
}

// find returns the place of usr/... in unpacked packages: some packages have it at the top, without usr.
func find(packages, name string) (string, error) {
	var errs []error
	for _, n := range []string{name, strings.TrimPrefix(name, "usr/")} {
		file := filepath.Join(packages, n)
		_, err := os.Stat(file)
		if err == nil {
			return file, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

func install(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return copyFile(from, to, 0o755)
}

// closure returns all libraries that the files need, directly or not: their files by their names.
func closure(files []string, needs func(file string) ([]string, error), find func(name string) (string, error)) (map[string]string, error) {
	libraries := map[string]string{}
	for todo := slices.Clone(files); len(todo) > 0; todo = todo[1:] {
		names, err := needs(todo[0])
		if err != nil {
			return nil, fmt.Errorf("libraries of %s: %w", todo[0], err)
		}
		for _, name := range names {
			if libraries[name] != "" {
				continue
			}
			file, err := find(name)
			if err != nil {
				return nil, fmt.Errorf("%s needs %s: %w", todo[0], name, err)
			}
			libraries[name] = file
			todo = append(todo, file)
		}
	}
	return libraries, nil
}

func imports(file string) ([]string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ImportedLibraries()
}
