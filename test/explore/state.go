// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// state is a digest of the world.
type state [sha256.Size]byte

// passing matches what grows in each history and decides nothing.
var passing = regexp.MustCompile(`\\?"generation\\?":\s*\d+`)

// earlier matches an earlier boot.
var earlier = regexp.MustCompile(`boot-\d+`)

// state returns the digest of all that decides what happens next: the kernel's data,
// the CDI directory, the runtime's containers, and the memory of the actuator. The
// number of the generation is left out.
func (w *world) state() state {
	h := sha256.New()
	write(h, w.now, reflect.ValueOf(w.kernel))
	for _, files := range append(w.disk.AfterPowerLoss(), w.disk.Now()) {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			data := strings.ReplaceAll(files[name], w.bootID(), "this-boot")
			fmt.Fprintf(h, "%s %s\n", name, passing.ReplaceAllString(earlier.ReplaceAllString(data, "earlier-boot"), ""))
		}
	}
	for _, c := range w.sorted() {
		fmt.Fprintln(h, c.dir, c.phase, c.unseen, c.unbacked, c.api.Annotations)
		write(h, w.now, reflect.ValueOf(c.spec))
	}
	fmt.Fprintln(h, w.actuator.over, w.frontend.over, w.offline, w.away, w.knowsPool)
	write(h, w.now, reflect.ValueOf(w.second))
	if !w.actuator.over {
		memory := reflect.ValueOf(w.plugin).Elem().FieldByName("enforcer").Elem()
		for _, field := range []string{"containers", "stale", "looked", "canPartition"} {
			value := memory.FieldByName(field)
			if !value.IsValid() {
				panic("the actuator has no field " + field + ": states that differ in it would count as one")
			}
			write(h, w.now, value)
		}
		last := (*contract.NodeState)(memory.FieldByName("last").FieldByName("v").UnsafePointer())
		if last != nil {
			state := *last
			state.Generation, state.BootID = 0, ""
			write(h, w.now, reflect.ValueOf(state))
		}
	}
	return state(h.Sum(nil))
}

// write writes all data that a value leads to. A value that leads back to itself is
// written once on the way.
func write(out io.Writer, now time.Time, v reflect.Value) {
	(&writer{out: out, now: now, above: make(map[uintptr]bool)}).write(v)
}

type writer struct {
	out io.Writer
	now time.Time
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
			// Only a time since which less than the refresh interval has passed decides.
			fmt.Fprint(w.out, w.now.Sub(timeOf(v)) < time.Minute)
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

// timeOf returns a time, also of an unexported field; the zero time if a map has it.
func timeOf(v reflect.Value) time.Time {
	if !v.CanAddr() {
		return time.Time{}
	}
	return *(*time.Time)(v.Addr().UnsafePointer())
}
