// SPDX-License-Identifier: Apache-2.0

package kerneltest

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
)

// Operation is what a program does to the hierarchy.
type Operation struct {
	Kind Kind
	Dir  string
	// File and Content are what Write writes.
	File, Content string
	// Namespace, if set, is the cgroup of the process that writes, and the root of the
	// process's cgroup namespace. Else a process outside of the machine's cgroups writes.
	Namespace string
	// CPU is what Offline and Online change.
	CPU int
}

// Kind is the kind of an operation.
type Kind string

// The kinds of operations.
const (
	Mkdir   Kind = "mkdir"
	Rmdir   Kind = "rmdir"
	Write   Kind = "write"
	Attach  Kind = "attach"
	Detach  Kind = "detach"
	Offline Kind = "offline"
	Online  Kind = "online"
)

// String returns the operation as a line of text.
func (o Operation) String() string {
	switch o.Kind {
	case Write:
		text := fmt.Sprintf("write %s/%s %q", o.Dir, o.File, o.Content)
		if o.Namespace != "" {
			text += " from the namespace of " + o.Namespace
		}
		return text
	case Offline, Online:
		return fmt.Sprintf("%s %d", o.Kind, o.CPU)
	}
	return fmt.Sprintf("%s %s", o.Kind, o.Dir)
}

// Do takes the operation.
func (k *Kernel) Do(o Operation) error {
	switch o.Kind {
	case Mkdir:
		return k.Mkdir(o.Dir)
	case Rmdir:
		return k.Rmdir(o.Dir)
	case Write:
		if o.Namespace == "" {
			return k.Write(o.Dir, o.File, o.Content)
		}
		if err := k.Attach(o.Namespace); err != nil {
			return err
		}
		defer func() { _ = k.Detach(o.Namespace) }()
		return k.WriteFrom(o.Namespace, o.Dir, o.File, o.Content)
	case Attach:
		return k.Attach(o.Dir)
	case Detach:
		return k.Detach(o.Dir)
	case Offline, Online:
		return k.SetOnline(o.CPU, o.Kind == Online)
	}
	return fmt.Errorf("unknown operation %q", o.Kind)
}

// places are the cgroups of random operations, parents first: levels, pods,
// containers, and a service of the machine.
var places = []string{
	"kubepods", "kubepods/burstable", "kubepods/pod0", "kubepods/burstable/pod1", "kubepods/burstable/pod2",
	"kubepods/pod0/a", "kubepods/pod0/b", "kubepods/burstable/pod1/a", "kubepods/burstable/pod1/b", "kubepods/burstable/pod2/a",
	"system", "system/service",
}

// inner reports whether random operations make cgroups below the place.
func inner(place string) bool {
	return slices.ContainsFunc(places, func(other string) bool { return strings.HasPrefix(other, place+"/") })
}

// Random returns an operation that the model can take and that damages no kernel.
func (k *Kernel) Random(r *rand.Rand) Operation {
	for {
		o := k.random(r)
		next := k.Clone()
		if err := next.Do(o); err != ErrOutside && next.Damage() == "" {
			return o
		}
	}
}

func (k *Kernel) random(r *rand.Rand) Operation {
	o := k.anyOf(r)
	if dirs := k.Dirs(); o.Kind == Write && r.IntN(8) == 0 {
		o.Namespace = []string{o.Dir, dirs[r.IntN(len(dirs))]}[r.IntN(2)]
	}
	return o
}

func (k *Kernel) anyOf(r *rand.Rand) Operation {
	dirs := k.Dirs()
	n := r.IntN(100)
	if len(dirs) == 0 || n < 12 {
		return Operation{Kind: Mkdir, Dir: places[r.IntN(len(places))]}
	}
	dir := dirs[r.IntN(len(dirs))]
	switch {
	case n < 16:
		return Operation{Kind: Rmdir, Dir: dir}
	case n < 22 && !inner(dir):
		return Operation{Kind: Attach, Dir: dir}
	case n < 26:
		return Operation{Kind: Detach, Dir: dir}
	case n < 28:
		return Operation{Kind: []Kind{Offline, Online}[r.IntN(2)], CPU: 1 + r.IntN(max(1, k.size()-1))}
	case n < 30:
		return Operation{Kind: Online, CPU: 1 + r.IntN(max(1, k.size()-1))}
	case n < 40 && inner(dir):
		return Operation{Kind: Write, Dir: dir, File: "cgroup.subtree_control", Content: "+cpuset +memory +hugetlb"}
	case n < 50:
		// A limit below what a process needs would end the process.
		names := []string{"memory.min", "memory.low", "hugetlb.2MB.max", "hugetlb.2MB.rsvd.max", "memory.high", "memory.max"}
		values := []string{"0", "1", "4097", "max", "268435456", "268435457", "9223372036854771712", "9223372036854775807", "x"}
		if i := r.IntN(len(names)); i < 4 {
			return Operation{Kind: Write, Dir: dir, File: names[i], Content: values[r.IntN(len(values))]}
		}
		return Operation{Kind: Write, Dir: dir, File: names[4+r.IntN(2)], Content: values[3+r.IntN(len(values)-3)]}
	case n < 55:
		return Operation{Kind: Write, Dir: dir, File: "cpuset.mems", Content: []string{"", "0", "1", "0-1", "7"}[r.IntN(5)]}
	case n < 66:
		return Operation{Kind: Write, Dir: dir, File: "cpuset.cpus", Content: k.someCPUs(r)}
	case n < 84:
		return Operation{Kind: Write, Dir: dir, File: "cpuset.cpus.exclusive", Content: k.someCPUs(r)}
	}
	if path.Dir(dir) == "." || inner(dir) {
		return k.anyOf(r)
	}
	return Operation{Kind: Write, Dir: dir, File: "cpuset.cpus.partition",
		Content: []string{"member", "member", "root", "root", "root", "isolated", "isolated", "x"}[r.IntN(8)]}
}

// someCPUs returns a list of CPUs: none, all, a range, or any.
func (k *Kernel) someCPUs(r *rand.Rand) string {
	switch r.IntN(6) {
	case 0:
		return ""
	case 1:
		return k.cpus.String()
	case 2, 3:
		from := r.IntN(k.size())
		return first(min(k.size(), from+1+r.IntN(3))).without(first(from)).String()
	}
	return set{r.Uint64()}.meet(k.cpus).String()
}

func (k *Kernel) size() int { return len(k.cpus.members()) }
