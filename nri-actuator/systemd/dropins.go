// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Dropins are runtime drop-ins of units (systemd.unit(5)). At its next reload
// systemd reads a unit's cpuset from them. No call to systemd is needed, so no
// call can come late. The drop-in is written before the cgroup's file. If systemd
// reloads between the two writes, it writes the new value, which is safe (I1).
type Dropins struct{ dir string }

// dropin sorts behind the drop-ins that systemd itself writes.
const dropin = "90-dra.cpumem.conf"

// temporaryPrefix begins the names of temporary files. An actuator that ends during a write leaves one.
const temporaryPrefix = ".dra.cpumem-"

// NewDropins returns the drop-ins in dir, normally /run/systemd/system.control.
// systemd removes nothing from there by itself.
func NewDropins(dir string) Dropins { return Dropins{dir: dir} }

// Set writes the drop-in of the unit of the cgroup dir with the cpuset files
// among files. It does nothing without cpuset files or if dir is no unit's.
func (d Dropins) Set(dir string, files map[string]string) error {
	unit, text, err := content(dir, files)
	if err != nil || text == "" {
		return err
	}
	if err := d.write(unit+".d", text); err != nil {
		return fmt.Errorf("drop-in of unit %s: %w", unit, err)
	}
	return nil
}

// Correct is Set for a unit with a drop-in that has another content.
func (d Dropins) Correct(dir string, files map[string]string) error {
	unit, text, err := content(dir, files)
	if err != nil || text == "" {
		return err
	}
	switch has, err := os.ReadFile(path.Join(d.dir, unit+".d", dropin)); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && string(has) == text:
		return nil
	}
	return d.Set(dir, files)
}

// content returns the unit of the cgroup dir and the text of its drop-in, empty
// for no drop-in.
func content(dir string, files map[string]string) (unit, text string, err error) {
	unit, ok := Unit(dir)
	if !ok {
		return "", "", nil
	}
	for _, p := range []struct{ file, property string }{{"cpuset.cpus", "AllowedCPUs"}, {"cpuset.mems", "AllowedMemoryNodes"}} {
		if value, set := files[p.file]; set {
			if _, err := contract.ParseCPUs(value); err != nil {
				return "", "", fmt.Errorf("unit %s: %s: %w", unit, p.file, err)
			}
			// systemd joins the lists of all drop-ins. The empty list drops the
			// earlier lists.
			text += fmt.Sprintf("%s=\n%s=%s\n", p.property, p.property, value)
		}
	}
	if text == "" {
		return unit, "", nil
	}
	section := strings.TrimPrefix(path.Ext(unit), ".")
	return unit, "[" + strings.ToUpper(section[:1]) + section[1:] + "]\n" + text, nil
}

// write replaces the file by a rename: systemd may be reading it.
func (d Dropins) write(dir, text string) error {
	root, err := os.OpenRoot(d.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	temporary := dir + "/" + temporaryPrefix + rand.Text()
	if err := root.WriteFile(temporary, []byte(text), 0o644); err != nil {
		return errors.Join(err, root.RemoveAll(temporary))
	}
	return root.Rename(temporary, dir+"/"+dropin)
}

// Remove removes the drop-in of the unit of the cgroup dir, if there is one.
func (d Dropins) Remove(dir string) error {
	unit, ok := Unit(dir)
	if !ok {
		return nil
	}
	return d.remove(unit + ".d")
}

func (d Dropins) remove(dir string) error {
	root, err := os.OpenRoot(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	removed := 0
	for _, entry := range entries {
		if name := entry.Name(); name == dropin || strings.HasPrefix(name, temporaryPrefix) {
			if err := root.Remove(dir + "/" + name); err != nil {
				return err
			}
			removed++
		}
	}
	// Other programs' drop-ins stay, and their directory with them.
	if removed == 0 || removed < len(entries) {
		return nil
	}
	return root.Remove(dir)
}

// Prune removes the drop-ins of all units but the units of the cgroups dirs.
func (d Dropins) Prune(dirs []string) error {
	keep := make(map[string]bool, len(dirs))
	for _, dir := range dirs {
		if unit, ok := Unit(dir); ok {
			keep[unit+".d"] = true
		}
	}
	entries, err := os.ReadDir(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if e.IsDir() && strings.HasSuffix(e.Name(), ".d") && !keep[e.Name()] {
			errs = append(errs, d.remove(e.Name()))
		}
	}
	return errors.Join(errs...)
}
