// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"slices"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func FuzzParseMemTotal(f *testing.F) {
	f.Add("Node 0 MemTotal:       10053836 kB\nNode 0 MemFree: 1 kB\n")
	f.Add("MemTotal: 16 kB")
	f.Fuzz(func(t *testing.T, text string) {
		total, err := parseMemTotal(text)
		if err == nil {
			require.GreaterOrEqual(t, total, int64(0))
		}
	})
}

func FuzzParseHugepageDir(f *testing.F) {
	f.Add("hugepages-2048kB")
	f.Fuzz(func(t *testing.T, name string) {
		size, err := parseHugepageDir(name)
		if err == nil {
			require.Positive(t, size)
			require.Zero(t, size&(size-1))
		}
	})
}

func FuzzParseDistances(f *testing.F) {
	f.Add("10 21", 2)
	f.Fuzz(func(t *testing.T, text string, nodes int) {
		distances, err := parseDistances(text, nodes)
		if err == nil {
			require.Len(t, distances, nodes)
		}
	})
}

func FuzzList(f *testing.F) {
	f.Add("0-3,8\n")
	f.Add("0-4294967295")
	f.Fuzz(func(t *testing.T, text string) {
		s := source{fsys: fstest.MapFS{"list": {Data: []byte(text)}}, name: "sysfs"}
		cpus, err := s.cpus("list")
		if err == nil && !cpus.IsEmpty() {
			require.LessOrEqual(t, slices.Max(cpus.List()), 1<<16)
		}
	})
}
