// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

const (
	adviseNoHugepage = 15 // MADV_NOHUGEPAGE: pages per node shall be base pages
	mapHugetlb       = 0x40000
	hugeShift        = 26 // MAP_HUGE_SHIFT
)

type touched struct {
	Action string         `json:"action"`
	Bytes  int            `json:"bytes"`
	Nodes  map[string]int `json:"pagesPerNode"` // node id → base pages of the mapping
}

func touch(size int) (touched, error) {
	// A guard page in front keeps the kernel from merging two mappings into one line of numa_maps.
	page := os.Getpagesize()
	mem, err := syscall.Mmap(-1, 0, page+size, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return touched{}, fmt.Errorf("map %d bytes: %w", size, err)
	}
	mem = mem[page:]
	if err := syscall.Mprotect(mem, syscall.PROT_READ|syscall.PROT_WRITE); err != nil {
		return touched{}, fmt.Errorf("make %d bytes writable: %w", size, err)
	}
	if err := syscall.Madvise(mem, adviseNoHugepage); err != nil && !errors.Is(err, syscall.EINVAL) {
		return touched{}, fmt.Errorf("advise against huge pages: %w", err)
	}
	for i := 0; i < size; i += page {
		mem[i] = 1
	}
	maps, err := os.ReadFile("/proc/self/numa_maps")
	if err != nil {
		return touched{}, err
	}
	nodes, err := pagesPerNode(string(maps), uint64(uintptr(unsafe.Pointer(&mem[0]))))
	return touched{Action: "touch", Bytes: size, Nodes: nodes}, err
}

// pagesPerNode returns the pages of the mapping that starts at addr, by NUMA node; maps is the content of numa_maps.
func pagesPerNode(maps string, addr uint64) (map[string]int, error) {
	for line := range strings.Lines(maps) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if start, err := strconv.ParseUint(fields[0], 16, 64); err != nil || start != addr {
			continue
		}
		nodes := map[string]int{}
		for _, f := range fields[1:] {
			key, value, ok := strings.Cut(f, "=")
			node, isNode := strings.CutPrefix(key, "N")
			if _, err := strconv.Atoi(node); !ok || !isNode || err != nil {
				continue
			}
			count, err := strconv.Atoi(value)
			if err != nil {
				return nil, fmt.Errorf("numa_maps: field %q: %w", f, err)
			}
			nodes[node] = count
		}
		return nodes, nil
	}
	return nil, fmt.Errorf("numa_maps: no mapping at %x", addr)
}

func fillCache(file string, size int) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for left := size; left > 0; left -= min(left, len(block)) {
		if _, err := f.Write(block[:min(left, len(block))]); err != nil {
			return err
		}
	}
	// Write dirty pages back: the kernel can drop only clean pages.
	if err := f.Sync(); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, block)
	return err
}

type huge struct {
	Action   string `json:"action"`
	PageSize int    `json:"pageSize"`
	Asked    int    `json:"asked"`
	Got      int    `json:"got"`
	Stopped  string `json:"stopped,omitempty"` // why not all: mmap's errno (no reservation) or a fault (no charge)
}

// hugepages maps and writes count pages of size bytes, one by one, up to the first page that it does not get.
func hugepages(size, count int) (huge, error) {
	h := huge{Action: "hugepages", PageSize: size, Asked: count}
	if bits.OnesCount(uint(size)) != 1 {
		return h, fmt.Errorf("hugepage size %d is no power of two", size)
	}
	flags := syscall.MAP_PRIVATE | syscall.MAP_ANON | mapHugetlb | bits.TrailingZeros(uint(size))<<hugeShift
	for range count {
		mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, flags)
		if err != nil {
			h.Stopped = "mmap: " + err.Error()
			return h, nil
		}
		if !writable(mem) {
			h.Stopped = "fault: the page was mapped, but not charged (SIGBUS)"
			return h, nil
		}
		h.Got++
	}
	return h, nil
}

// hugefile does the same with a file in the hugetlbfs dir, as DPDK does. The file system has one page size.
func hugefile(dir string, count int) (huge, error) {
	h := huge{Action: "hugefile", Asked: count}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return h, fmt.Errorf("statfs %s: %w", dir, err)
	}
	const hugetlbfsMagic = 0x958458f6
	if uint32(fs.Type) != hugetlbfsMagic {
		return h, fmt.Errorf("%s is no hugetlbfs (statfs says %#x)", dir, fs.Type)
	}
	h.PageSize = int(fs.Bsize)
	f, err := os.CreateTemp(dir, "probe")
	if err != nil {
		return h, err
	}
	defer f.Close()
	for i := range count {
		mem, err := syscall.Mmap(int(f.Fd()), int64(i*h.PageSize), h.PageSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		if err != nil {
			h.Stopped = "mmap: " + err.Error()
			return h, nil
		}
		if !writable(mem) {
			h.Stopped = "fault: the page was mapped, but not charged (SIGBUS)"
			return h, nil
		}
		h.Got++
	}
	return h, nil
}

// writable writes to the mapping and reports whether it could. If the cgroup may not charge the page, the kernel sends
// SIGBUS, which Go turns into a panic here.
func writable(mem []byte) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	mem[0] = 1
	return true
}
