// SPDX-License-Identifier: Apache-2.0

package placement

// memory is what a pick works with. The next pick of the layout uses it again, because a pick of half of a large machine would
// otherwise allocate hundreds of KiB, and collecting them takes longer than the pick.
type memory struct {
	free    arena[bool]
	counts  arena[int]
	classes arena[class]
	turns   arena[turn]
	tables
}

// reset takes back all that was taken.
func (m *memory) reset() {
	m.free.used, m.counts.used, m.classes.used, m.turns.used = 0, 0, 0, 0
	m.tables.costs.used, m.tables.tooks.used, m.tables.store.used = 0, 0, 0
}

// arena hands out parts of a block, and takes them all back at once.
type arena[T any] struct {
	block []T
	used  int
	// blocks counts the blocks that were made. Each is twice as long as the one before, so that soon one is enough.
	blocks int
}

// take returns n values, whose content is what the last user left.
func (a *arena[T]) take(n int) []T {
	const least = 64
	if len(a.block)-a.used < n {
		a.block, a.used = make([]T, max(n, 2*len(a.block), least)), 0
		a.blocks++
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

// position is how much of an arena was taken.
type position struct{ blocks, used int }

func (a *arena[T]) position() position { return position{a.blocks, a.used} }

// back takes back what was taken since the position, except what a block before the present one has.
func (a *arena[T]) back(to position) {
	if to.blocks == a.blocks {
		a.used = to.used
	}
}
