// SPDX-License-Identifier: Apache-2.0

package placement

// memory is the memory of one pick. The next pick of the layout reuses this memory: a large pick needs hundreds of KiB, and their
// garbage collection would take longer than the pick.
type memory struct {
	flags   arena[bool]
	counts  arena[int]
	classes arena[class]
	turns   arena[turn]
	tables
}

// reset takes back all that was taken.
func (m *memory) reset() {
	m.flags.used, m.counts.used, m.classes.used, m.turns.used = 0, 0, 0, 0
	m.costs.used, m.tooks.used, m.store.used = 0, 0, 0
	clear(m.store.block) // tables keep earlier blocks from being collected
}

// arena hands out parts of a block. reset takes all parts back, and back the latest parts.
// Each block is at least twice as long as the block before, so one block is soon enough for a pick.
type arena[T any] struct {
	block []T
	used  int
}

// take returns n values with the content of an earlier pick. The caller writes a value before it reads the value.
func (a *arena[T]) take(n int) []T {
	const least = 64
	if len(a.block)-a.used < n {
		a.block, a.used = make([]T, max(n, 2*len(a.block), least)), 0
	}
	a.used += n
	return a.block[a.used-n : a.used : a.used]
}

// zeros returns n zero values.
func (a *arena[T]) zeros(n int) []T {
	values := a.take(n)
	clear(values)
	return values
}

// back takes back the values that were taken since used was to. A block that was made since then has only such values.
func (a *arena[T]) back(to int) { a.used = min(a.used, to) }
