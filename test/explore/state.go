// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"time"
)

// state is a digest of the world.
type state [sha256.Size]byte

// passing matches what grows in each history and decides nothing.
var passing = regexp.MustCompile(`"generation":\s*\d+|boot-\d+`)

// state returns the digest of all that decides what happens next: the kernel's state,
// the CDI directory, the runtime's containers, and the memory of the actuator. Times
// and the generation's number are left out.
func (w *world) state() (state, error) {
	h := sha256.New()
	write(h, reflect.ValueOf(w.kernel))
	names, err := filepath.Glob(filepath.Join(w.cdi(), "*"))
	if err != nil {
		return state{}, err
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return state{}, err
		}
		fmt.Fprintf(h, "%s %s\n", filepath.Base(name), passing.ReplaceAll(data, nil))
	}
	for _, id := range sortedIDs(w.containers) {
		c := w.containers[id]
		fmt.Fprintln(h, id, c.running, c.unknown)
		write(h, reflect.ValueOf(c.spec))
	}
	fmt.Fprintln(h, w.actuator.over, w.frontend.over)
	if !w.actuator.over {
		memory := reflect.ValueOf(w.plugin).Elem().FieldByName("enforcer").Elem()
		for _, field := range []string{"containers", "last", "stale", "looked", "canPartition"} {
			write(h, memory.FieldByName(field))
		}
	}
	return state(h.Sum(nil)), nil
}

// write writes all data that a value leads to. A value that leads back to itself is
// written once on the way.
func write(out io.Writer, v reflect.Value) {
	(&writer{out: out, above: make(map[uintptr]bool)}).write(v)
}

type writer struct {
	out io.Writer
	// above are the pointers that lead to the value.
	above map[uintptr]bool
}

func (w *writer) write(v reflect.Value) {
	if !v.IsValid() {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || w.above[v.Pointer()] {
			fmt.Fprint(w.out, "-")
			return
		}
		w.above[v.Pointer()] = true
		w.write(v.Elem())
		delete(w.above, v.Pointer())
	case reflect.Interface:
		w.write(v.Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			fmt.Fprint(w.out, v.Type().Field(i).Name, ":")
			w.write(v.Field(i))
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return slices.Compare([]byte(fmt.Sprint(a)), []byte(fmt.Sprint(b))) })
		for _, key := range keys {
			w.write(key)
			fmt.Fprint(w.out, "=")
			w.write(v.MapIndex(key))
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			w.write(v.Index(i))
		}
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
	default:
		fmt.Fprint(w.out, v, ";")
	}
}
