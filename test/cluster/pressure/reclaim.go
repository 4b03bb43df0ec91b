// SPDX-License-Identifier: Apache-2.0

package pressure

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Sizes are the amounts of a reclaim run, in bytes.
type Sizes struct {
	Claim  int // of each of the three pods
	Cache  int // page cache a pod has
	Anon   int // anonymous memory a pod has
	Stream int // file data the neighbour reads
	Room   int // what the neighbour leaves free on the NUMA node before it reads
}

// Sizes returns the amounts for the whole of the Bench's NUMA node.
func (b *Bench) Sizes(ctx context.Context) (Sizes, error) {
	memory, err := b.numaMemory(ctx)
	if err != nil {
		return Sizes{}, err
	}
	total := int(memory["MemTotal"] / mib)
	claim := total * 3 / 16
	return Sizes{
		Claim: claim * mib, Cache: claim * 15 / 32 * mib, Anon: claim * 15 / 32 * mib,
		Stream: total * 5 / 4 * mib, Room: total / 12 * mib,
	}, nil
}

// Names of the lines of a reclaim run.
const (
	Protected   = "protected"
	LeafOnly    = "leaf only"
	Unprotected = "unprotected"
)

// Reclaim is what happened to three claims of the same size while a neighbour without a claim wanted their NUMA node.
// The neighbour maps most of the free memory, reads files, and maps more than there is. The claims differ in their
// protection: by the driver; by the container's own memory.min with nothing above it; none.
type Reclaim struct {
	Cache, Anon, Swap       []Line
	Reads, Maps, End        Mark // the neighbour begins to read files, begins to map memory, has taken it
	CacheBefore, CacheAfter map[string]float64
	AnonBefore, AnonAfter   map[string]float64
	NUMAMiB, HogReads       int
	OOMKills                int64
}

// KeptCache is the share of the page cache that was kept, 0 to 1.
func (r Reclaim) KeptCache(name string) float64 { return r.CacheAfter[name] / r.CacheBefore[name] }

// KeptAnon is the share of the resident anonymous memory that was kept, 0 to 1.
func (r Reclaim) KeptAnon(name string) float64 { return r.AnonAfter[name] / r.AnonBefore[name] }

const (
	hog     = "pressure-hog"
	swapMax = "memory.swap.max"
)

func reclaimPod(name string) string {
	return map[string]string{Protected: "pressure-protected", LeafOnly: "pressure-leaf", Unprotected: "pressure-none"}[name]
}

// Names returns the lines' names in the order in which they are shown.
func Names() []string { return []string{Protected, LeafOnly, Unprotected} }

// Reclaim makes the run and removes its objects.
func (b *Bench) Reclaim(ctx context.Context, size Sizes) (r Reclaim, err error) {
	pods := []string{hog}
	for _, name := range Names() {
		pods = append(pods, reclaimPod(name))
	}
	defer func() { err = errors.Join(err, b.remove(context.WithoutCancel(ctx), pods...)) }()
	for _, name := range Names() {
		memory := `{"protection":"none"}`
		if name == Protected {
			memory = ""
		}
		err := b.create(ctx, reclaimPod(name), container{name: "main", claim: size.Claim, memory: memory, swap: true, args: []string{
			"read", "/file", strconv.Itoa(size.Cache), "1", "touch", strconv.Itoa(size.Anon), "sleep",
		}})
		if err != nil {
			return r, err
		}
	}
	dirs, hold := map[string]string{}, map[string]string{}
	for _, name := range Names() {
		if _, err := b.said(ctx, reclaimPod(name), "main", "touch"); err != nil {
			return r, err
		}
		if dirs[name], err = b.cgroup(ctx, reclaimPod(name)); err != nil {
			return r, err
		}
		granted, err := b.Cluster.NodeExec(ctx, b.Node, "cat "+dirs[name]+"/"+swapMax)
		if err != nil {
			return r, err
		}
		if strings.TrimSpace(granted) == "0" {
			// By default the kubelet allows no swap. All three may swap here, because the run shows which of them must.
			hold[dirs[name]+"/"+swapMax] = "max"
			b.logf("%s: the kubelet grants no swap, the run does", name)
		}
	}
	// A plugin of the runtime could do only this. The value is held, because the actuator repairs it.
	hold[dirs[LeafOnly]+"/"+keyMin] = strconv.Itoa(size.Claim)

	var all []string
	for _, name := range Names() {
		all = append(all, dirs[name])
	}
	stop := b.watch(ctx, all, hold)
	marks, err := b.pressOn(ctx, size, &r, dirs[Unprotected])
	samples, watched := stop()
	if err := errors.Join(err, watched); err != nil {
		return r, err
	}
	return r, r.fill(samples, dirs, marks)
}

// pressOn lets the neighbour take memory until the container of the cgroup dir has lost most of its anonymous memory. marks are
// when the neighbour began to read, when it began to map more than there is, and when the loss was seen, in seconds of uptime.
func (b *Bench) pressOn(ctx context.Context, size Sizes, r *Reclaim, dir string) (marks [3]float64, err error) {
	memory, err := b.numaMemory(ctx)
	if err != nil {
		return marks, err
	}
	ballast := max((memory["MemFree"]-int64(size.Room))/mib, 1) * mib
	// take is all free memory, page cache, and anonymous memory of the two pods without protection. The neighbour is
	// stopped before it has mapped so much.
	take := memory["MemFree"] + memory["Active(file)"] + memory["Inactive(file)"] - int64(size.Cache) + int64(2*size.Anon) - ballast
	r.NUMAMiB, r.HogReads = int(memory["MemTotal"]/mib), size.Stream/mib
	b.logf("NUMA node %d: %d MiB free of %d; the neighbour maps %d MiB, reads %d MiB and maps at most %d MiB more",
		b.NUMA, memory["MemFree"]/mib, r.NUMAMiB, ballast/mib, r.HogReads, take/mib)
	err = b.create(ctx, hog, container{name: "main", args: []string{
		"bind", strconv.Itoa(b.NUMA), "fill", strconv.FormatInt(ballast, 10),
		"read", "/file", strconv.Itoa(size.Stream), "1", "grow", strconv.FormatInt(take, 10), "4Mi", "20ms", "sleep",
	}})
	for i, action := range []string{"fill", "read"} {
		if err == nil {
			marks[i], err = b.said(ctx, hog, "main", action)
		}
	}
	if err != nil {
		return marks, err
	}
	err = eventually(ctx, "pressure on anonymous memory", func(ctx context.Context) error {
		out, err := b.Cluster.NodeExec(ctx, b.Node, "cat /proc/uptime; grep '^anon ' "+dir+"/memory.stat")
		if err != nil {
			return err
		}
		var idle float64
		var anon int
		if _, err := fmt.Sscanf(out, "%f %f\nanon %d", &marks[2], &idle, &anon); err != nil {
			return fmt.Errorf("%q: %w", out, err)
		}
		if anon > size.Anon*2/5 {
			return fmt.Errorf("the container without protection has %d MiB", anon/mib)
		}
		return nil
	})
	return marks, err
}

func (r *Reclaim) fill(samples []sample, dirs map[string]string, marks [3]float64) error {
	first := samples[0].at
	r.Reads, r.Maps, r.End = Mark{"reads files", marks[0] - first}, Mark{"maps memory", marks[1] - first}, Mark{"", marks[2] - first}
	r.CacheBefore, r.CacheAfter = map[string]float64{}, map[string]float64{}
	r.AnonBefore, r.AnonAfter = map[string]float64{}, map[string]float64{}
	for _, name := range Names() {
		cache, anon := line(name, samples, dirs[name], keyFile), line(name, samples, dirs[name], keyAnon)
		r.Cache, r.Anon = append(r.Cache, cache), append(r.Anon, anon)
		r.Swap = append(r.Swap, line(name, samples, dirs[name], keySwap))
		r.CacheBefore[name], r.AnonBefore[name] = cache.At(0), anon.At(0)
		r.CacheAfter[name] = cache.At(r.Maps.Seconds) // before the neighbour maps memory
		r.AnonAfter[name] = anon.At(r.End.Seconds)
		r.OOMKills += last(samples, dirs[name], keyOOMKill)
		if r.CacheBefore[name] == 0 || r.AnonBefore[name] == 0 {
			return fmt.Errorf("%s had no page cache or no anonymous memory before the pressure", name)
		}
	}
	return nil
}

// Check returns nil if protection kept the pages that the two other containers lost.
func (r Reclaim) Check() error {
	var errs []error
	for _, name := range Names() {
		cache, anon := r.KeptCache(name), r.KeptAnon(name)
		switch {
		case name == Protected && min(cache, anon) < 0.95:
			errs = append(errs, fmt.Errorf("%s: kept %.2f of its page cache and %.2f of its anonymous memory, want 0.95",
				name, cache, anon))
		case name != Protected && (cache > 0.5 || anon > 0.8):
			// Not a fault of the driver, but the run shows nothing.
			errs = append(errs, fmt.Errorf("%s: kept %.2f of its page cache and %.2f of its anonymous memory: the pressure was too low",
				name, cache, anon))
		}
	}
	if r.OOMKills > 0 {
		errs = append(errs, fmt.Errorf("%d processes of claims were killed", r.OOMKills))
	}
	return errors.Join(errs...)
}
