// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxListID bounds CPU and NUMA node ids. It is far above every kernel's
// NR_CPUS, and so low that a hostile list cannot exhaust memory.
const maxListID = 1 << 16

// ParseList parses a list ("0-3,8,10-11"; cpuset(7), "List format") into
// sorted distinct ids. An empty string, an id above 65536 and a descending
// range are errors.
func ParseList(s string) ([]int, error) {
	var ids []int
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		first, err := parseID(lo)
		if err != nil {
			return nil, fmt.Errorf("list %q: %w", s, err)
		}
		last := first
		if isRange {
			if last, err = parseID(hi); err != nil {
				return nil, fmt.Errorf("list %q: %w", s, err)
			}
		}
		if last < first {
			return nil, fmt.Errorf("list %q: range %q descends", s, part)
		}
		if len(ids)+last-first > 2*maxListID {
			return nil, fmt.Errorf("list of %d characters names more than %d ids", len(s), 2*maxListID)
		}
		for id := first; id <= last; id++ {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func parseID(s string) (int, error) {
	if s == "" || len(s) > 6 || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("%q is not an id", s)
	}
	id, err := strconv.Atoi(s)
	if err != nil || id > maxListID {
		return 0, fmt.Errorf("%q is not an id between 0 and %d", s, maxListID)
	}
	return id, nil
}

// FormatList returns the list of sorted distinct ids.
func FormatList(ids []int) string {
	var b strings.Builder
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(ids[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(ids[j]))
		}
		i = j + 1
	}
	return b.String()
}

// checkList refuses a list that is not normalised: the guard and the
// provenance check compare lists as text.
func checkList(what, s string) error {
	ids, err := ParseList(s)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if n := FormatList(ids); n != s {
		return fmt.Errorf("%s: list %q is not normalised, want %q", what, s, n)
	}
	return nil
}

// unionList returns the union of two lists. Both are normalised or empty.
func unionList(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "" || a == b:
		return a
	}
	x, errA := ParseList(a)
	y, errB := ParseList(b)
	if errA != nil || errB != nil {
		// The decoder validated both.
		panic(fmt.Sprintf("contract: merging unvalidated lists %q and %q", a, b))
	}
	x = append(x, y...)
	slices.Sort(x)
	return FormatList(slices.Compact(x))
}

// subtractList returns the ids of a that are not in b. Both lists are
// normalised or empty.
func subtractList(a, b string) string {
	if a == "" || b == "" {
		return a
	}
	x, errA := ParseList(a)
	y, errB := ParseList(b)
	if errA != nil || errB != nil {
		panic(fmt.Sprintf("contract: unvalidated lists %q and %q", a, b))
	}
	return FormatList(slices.DeleteFunc(x, func(id int) bool {
		_, found := slices.BinarySearch(y, id)
		return found
	}))
}
