// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What POSIX leaves open at each operation of a write and of a removal.
func TestAfterPowerLoss(t *testing.T) {
	before, temporary := Files{"d/a": "old", "d/b": "b"}, "d/.a.tmp-1"
	with := func(name, content string) Files { return Files{"d/a": "old", "d/b": "b", name: content} }
	unfinished := []Files{before, with(temporary, ""), with(temporary, "n"), with(temporary, "\x00\x00\x00"), with(temporary, "new")}
	replaced := Files{"d/a": "new", "d/b": "b"}
	for _, c := range []struct {
		name       string
		operations []Operation
		done       int
		left       []Files
	}{
		{"nothing is open before", Replacement("d/a", "new"), 0, []Files{before}},
		{"the name of a new file", Replacement("d/a", "new"), 1, []Files{before, with(temporary, "")}},
		{"the content", Replacement("d/a", "new"), 2, unfinished},
		{"not the content of a synchronised file", Replacement("d/a", "new"), 3, []Files{before, with(temporary, "new")}},
		{"each of two names", Replacement("d/a", "new"), 4,
			[]Files{before, with(temporary, "new"), replaced, {"d/a": "new", "d/b": "b", temporary: "new"}}},
		{"nothing is open after a write", Replacement("d/a", "new"), 5, []Files{replaced}},
		{"a removal", Removal("d/b"), 1, []Files{before, {"d/a": "old"}}},
		{"nothing is open after a removal", Removal("d/b"), 2, []Files{{"d/a": "old"}}},
		{"a new file's name", Replacement("d/c", "c"), 4,
			[]Files{before, with("d/.c.tmp-1", "c"), with("d/c", "c"), {"d/a": "old", "d/b": "b", "d/c": "c", "d/.c.tmp-1": "c"}}},
		{"another directory's synchronisation closes nothing", append(Removal("d/b")[:1:1], Operation{Kind: SyncDirectory, Path: "e"}), 2,
			[]Files{before, {"d/a": "old"}}},
		{"a rename before the content is synchronised", []Operation{
			{Kind: Create, Path: "d/c"}, {Kind: Write, Path: "d/c", Data: "new"},
			{Kind: Rename, Path: "d/c", To: "d/a"}, {Kind: SyncDirectory, Path: "d"},
		}, 4, []Files{with("d/a", ""), with("d/a", "n"), with("d/a", "\x00\x00\x00"), replaced}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := New(before)
			for _, o := range c.operations[:c.done] {
				d.Do(o)
			}
			require.ElementsMatch(t, c.left, d.AfterPowerLoss())
		})
	}
}

func TestNow(t *testing.T) {
	d := New(Files{"d/a": "old"})
	for _, o := range append(Replacement("d/a", "new"), Removal("d/absent")...) {
		d.Do(o)
	}
	require.Equal(t, Files{"d/a": "new"}, d.Now())
}
