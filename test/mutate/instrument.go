// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// edit puts text around a part of a source. before has %d for the change's number. Where
// operator is not 0, the operator of so many bytes at comma becomes a comma.
type edit struct {
	before, after   string
	begin, end      int
	comma, operator int
}

// instrument returns the source with all changes in it. The environment selects one when
// a test runs (support), so that a test binary is built once for all changes. number is
// the number of the first change.
func instrument(source []byte, all []mutant, number int) []byte {
	type insertion struct {
		at int
		// A part ends before the next part begins. Of parts that begin at one place the
		// longer one comes first, and of parts that end at one place the shorter one.
		order  [3]int
		text   string
		remove int
	}
	var insertions []insertion
	for i, m := range all {
		e := m.choice
		length := e.end - e.begin
		insertions = append(insertions,
			insertion{at: e.begin, order: [3]int{1, -length, i}, text: fmt.Sprintf(e.before, number+i)},
			insertion{at: e.end, order: [3]int{0, length, -i}, text: e.after})
		if e.operator > 0 {
			insertions = append(insertions, insertion{at: e.comma, order: [3]int{1}, text: ", ", remove: e.operator})
		}
	}
	slices.SortStableFunc(insertions, func(a, b insertion) int {
		if a.at != b.at {
			return a.at - b.at
		}
		return slices.Compare(a.order[:], b.order[:])
	})
	var out strings.Builder
	done := 0
	for _, n := range insertions {
		out.Write(source[done:n.at])
		out.WriteString(n.text)
		done = n.at + n.remove
	}
	out.Write(source[done:])
	return []byte(out.String())
}

const (
	// selects has the number of the change that a test runs with.
	selects = "CPUMEM_MUTANT"
	// reaches names the file to which a test adds the numbers of the changes that its
	// run comes by.
	reaches = "CPUMEM_MUTANTS_REACHED"
)

// support returns the source that an instrumented package needs, for so many changes.
func support(pkg string, count int) []byte {
	return fmt.Appendf(nil, `package %s

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutantNumber, _ = strconv.Atoi(os.Getenv(%q))
	mutantFile      = os.Getenv(%q)
	mutantReached   [%d]atomic.Bool
	mutantAsk       = mutantRecorder()
	mutantAnswer    = make(chan bool)
)

// mutantRecorder adds the numbers that it receives to the file. The tests may forbid a
// thread to write files.
func mutantRecorder() chan<- int {
	numbers := make(chan int)
	if mutantFile == "" {
		return numbers
	}
	go func() {
		for number := range numbers {
			file, err := os.OpenFile(mutantFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				panic(err)
			}
			fmt.Fprintln(file, number)
			mutantAnswer <- file.Close() == nil
		}
	}()
	return numbers
}

func mutantOn(number int) bool {
	if mutantFile != "" && !mutantReached[number].Swap(true) {
		mutantAsk <- number
		<-mutantAnswer
	}
	return number == mutantNumber
}

type mutantNumeric interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64
}

func mutantNil(number int, err error) error {
	if mutantOn(number) {
		return nil
	}
	return err
}

func mutantLess[T cmp.Ordered](number int, a, b T) bool { return a < b || mutantOn(number) && a == b }

func mutantLessOrEqual[T cmp.Ordered](number int, a, b T) bool {
	return a < b || a == b && !mutantOn(number)
}

func mutantGreater[T cmp.Ordered](number int, a, b T) bool { return a > b || mutantOn(number) && a == b }

func mutantGreaterOrEqual[T cmp.Ordered](number int, a, b T) bool {
	return a > b || a == b && !mutantOn(number)
}

func mutantAdd[T mutantNumeric](number int, a, b T) T {
	if mutantOn(number) {
		return a - b
	}
	return a + b
}

func mutantSubtract[T mutantNumeric](number int, a, b T) T {
	if mutantOn(number) {
		return a + b
	}
	return a - b
}
`, pkg, selects, reaches, count)
}
