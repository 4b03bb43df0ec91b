// SPDX-License-Identifier: Apache-2.0

// Command benchmarks reads the output of `go test -bench -benchmem` and writes it as a
// table into a page. `make bench` calls it. An operation that was measured several times has the medians of its numbers.
package main

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/document"
)

func main() {
	page := flag.String("page", "../docs/explanation/performance.md", "page to write into")
	flag.Parse()
	if err := run(os.Stdin, *page); err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, page string) error {
	results, err := parse(in)
	if err != nil {
		return err
	}
	return document.Insert(page, "make bench", table(medians(results)))
}

// result is one line of a benchmark.
type result struct {
	name string
	time time.Duration
	// p99 is the time within which 99 of 100 operations are done, 0 if it was not measured.
	p99   time.Duration
	bytes int64
	// allocations is per operation.
	allocations int64
}

// parse returns the results in the output. Output without a result is an error.
func parse(in io.Reader) ([]result, error) {
	var all []result
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		r := result{name: nameOf(words[0])}
		for i := 2; i+1 < len(words); i += 2 {
			value, err := strconv.ParseFloat(words[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", lines.Text(), err)
			}
			switch words[i+1] {
			case "ns/op":
				r.time = time.Duration(value)
			case "p99-ns/op":
				r.p99 = time.Duration(value)
			case "B/op":
				r.bytes = int64(value)
			case "allocs/op":
				r.allocations = int64(value)
			}
		}
		all = append(all, r)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the output of `go test -bench` has no result")
	}
	return all, nil
}

// medians returns one result for each operation, in the order of the first results.
func medians(all []result) []result {
	var one []result
	for _, r := range all {
		if slices.ContainsFunc(one, func(o result) bool { return o.name == r.name }) {
			continue
		}
		one = append(one, result{
			name:        r.name,
			time:        medianOf(all, r.name, func(r result) time.Duration { return r.time }),
			p99:         medianOf(all, r.name, func(r result) time.Duration { return r.p99 }),
			bytes:       medianOf(all, r.name, func(r result) int64 { return r.bytes }),
			allocations: medianOf(all, r.name, func(r result) int64 { return r.allocations }),
		})
	}
	return one
}

// medianOf returns the median of a number of an operation's results, the lower of two.
func medianOf[N cmp.Ordered](all []result, name string, number func(result) N) N {
	var numbers []N
	for _, r := range all {
		if r.name == name {
			numbers = append(numbers, number(r))
		}
	}
	slices.Sort(numbers)
	return numbers[(len(numbers)-1)/2]
}

// nameOf returns a benchmark's name without its prefix and the number of CPUs.
func nameOf(word string) string {
	name := strings.TrimPrefix(word, "Benchmark")
	if i := strings.LastIndexByte(name, '-'); i > 0 {
		if _, err := strconv.Atoi(name[i+1:]); err == nil {
			name = name[:i]
		}
	}
	return name
}

// table returns the results as Markdown.
func table(results []result) string {
	var b strings.Builder
	b.WriteString("| operation | time | 99 of 100 within | goal | memory | allocations |\n|---|--:|--:|--:|--:|--:|\n")
	for _, r := range results {
		within := ""
		if r.p99 > 0 {
			within = round(r.p99).String()
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %d B | %d |\n",
			strings.ReplaceAll(r.name, "_", " "), round(r.time), within, r.judge(), r.bytes, r.allocations)
	}
	return b.String()
}

// round returns a time with three digits.
func round(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
