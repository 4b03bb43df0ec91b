// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/document"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/isolation"
)

// result is what the cluster of one contender measured.
type result struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Kernel      string `json:"kernel"`
	Repetitions int    `json:"repetitions"`
	// Starts has three numbers for each kind and level: see [isolation.Starts.Summary].
	Starts isolation.Starts `json:"starts"`
}

// results are in the order of [contenders].
type results []result

// readResults reads the numbers of earlier runs. Without the file there are none.
func readResults(file string) (results, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all results
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return all, nil
}

// levels returns how many levels the result of the contender has, 0 without a result.
func (all results) levels(id string) int {
	for _, r := range all {
		if r.ID == id {
			return len(r.Starts.Levels)
		}
	}
	return 0
}

// with returns the results and r, which replaces the earlier result of the same contender.
func (all results) with(r result) results {
	order := []string{"driver", "static", "peer"}
	out := slices.DeleteFunc(slices.Clone(all), func(o result) bool { return o.ID == r.ID })
	out = append(out, r)
	slices.SortFunc(out, func(a, b result) int { return slices.Index(order, a.ID) - slices.Index(order, b.ID) })
	return out
}

// write writes the numbers, the picture and the tables of the page into the directory.
func (all results) write(dir string) error {
	data, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, numbers), append(data, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, picture), []byte(drawCosts(all.starts())), 0o644),
		document.Insert(filepath.Join(dir, page), target, all.text()),
	)
}

func (all results) starts() []isolation.Starts {
	var out []isolation.Starts
	for _, r := range all {
		out = append(out, r.Starts)
	}
	return out
}

// text returns what the command writes into the page.
func (all results) text() string {
	var text strings.Builder
	fmt.Fprintf(&text, "![Chart: how many times as long as a pod without a claim the start of a pod with CPUs of its own takes, "+
		"over the number of containers](%s)\n\n"+
		"The times are seconds from a pod's creation until the pod is ready: the median (least to most). *To no claim* is "+
		"this median divided by the median of the pods without a claim on the same row. *Growth* is *to no claim* divided by "+
		"*to no claim* on the first row; for this driver it must not be above %.1f. *Part* is the time that kubelet and the runtime wait "+
		"for this driver's daemons, divided by the median of the pods without a claim on the same row; it must not be above %.1f.\n",
		picture, isolation.Goal, isolation.PartGoal)
	for _, r := range all {
		fmt.Fprintf(&text, "\n%s, on Linux %s, %d starts each:\n\n%s", r.Name, r.Kernel, r.Repetitions, startTable(r.Starts)+partTable(r.Starts))
	}
	return text.String()
}
