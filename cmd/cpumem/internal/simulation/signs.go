// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Signs of CPUs that no claim holds.
const (
	signShared   = '.'
	signReserved = '#'
	signOther    = '~'
	signIdle     = ':'
)

// signs has the signs of CPUs.
type signs struct {
	// claims are the letters of claims with CPUs, by index and of one length;
	// holder is the index of the claim of a CPU.
	claims map[int]string
	holder map[int]int
	// free is the sign of each CPU while no claim holds it.
	free   map[int]rune
	length int
	colour bool
}

func (r Result) signs(colour bool) signs {
	s := signs{claims: make(map[int]string), holder: make(map[int]int), free: make(map[int]rune), colour: colour}
	var holders []int
	for i, c := range r.Claims {
		for _, cpu := range c.CPUs.List() {
			s.holder[cpu] = i
		}
		if !c.CPUs.IsEmpty() {
			holders = append(holders, i)
		}
	}
	s.length = lettersFor(len(holders))
	for n, i := range holders {
		s.claims[i] = letters(n, s.length)
	}
	for _, core := range r.cores() {
		for _, cpu := range core.List() {
			s.free[cpu] = signIdle
		}
	}
	for _, set := range []struct {
		cpus contract.CPUSet
		sign rune
	}{{r.CPUs.Shared, signShared}, {r.CPUs.Unmanaged, signOther}, {r.CPUs.Reserved, signReserved}} {
		for _, cpu := range set.cpus.List() {
			s.free[cpu] = set.sign
		}
	}
	return s
}

// cores returns the cores of the machine.
func (r Result) cores() []contract.CPUSet {
	var out []contract.CPUSet
	for _, z := range r.Zones {
		for _, l3 := range z.L3s {
			out = append(out, l3.Cores...)
		}
	}
	for _, l3 := range r.OutsideZones {
		out = append(out, l3.Cores...)
	}
	return out
}

// Up to 52 claims have one letter each. Longer signs begin with an upper-case
// letter, so that they need no space between them.
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

func lettersFor(claims int) int {
	length, most := 1, len(alphabet)
	for claims > most {
		length++
		most = 26
		for range length - 1 {
			most *= 26
		}
	}
	return length
}

func letters(n, length int) string {
	if length == 1 {
		return alphabet[n : n+1]
	}
	out := make([]byte, length)
	for i := length - 1; i > 0; i, n = i-1, n/26 {
		out[i] = alphabet[26+n%26]
	}
	out[0] = alphabet[n%26]
	return string(out)
}

// core draws the threads of a core and returns their width in columns.
func (s signs) core(threads contract.CPUSet) (string, int) {
	var out strings.Builder
	width := 0
	for _, cpu := range threads.List() {
		width += s.length
		if claim, held := s.holder[cpu]; held {
			out.WriteString(s.claim(claim))
			continue
		}
		sign := s.free[cpu]
		text := strings.Repeat(string(sign), s.length)
		if s.colour && sign != signShared {
			text = "\x1b[2m" + text + "\x1b[0m"
		}
		out.WriteString(text)
	}
	return out.String(), width
}

// claim returns the sign of the claim with the index.
func (s signs) claim(i int) string {
	text, has := s.claims[i]
	if !has {
		return strings.Repeat(" ", s.length)
	}
	if !s.colour {
		return text
	}
	// Black on the six colours of a terminal, then on their bright ones.
	background := 41 + i%6
	if i/6%2 == 1 {
		background += 60
	}
	return fmt.Sprintf("\x1b[30;%dm%s\x1b[0m", background, text)
}

// legend explains the signs that are in the picture.
func (s signs) legend() string {
	var parts []string
	if len(s.claims) > 0 {
		parts = append(parts, "letters: claimed CPUs")
	}
	present := make(map[rune]bool)
	for cpu, sign := range s.free {
		if _, held := s.holder[cpu]; !held {
			present[sign] = true
		}
	}
	for _, l := range []struct {
		sign    rune
		meaning string
	}{
		{signShared, "shared pool"}, {signReserved, "reserved"}, {signOther, "unmanaged CPUs"}, {signIdle, "free for claims"},
	} {
		if present[l.sign] {
			parts = append(parts, fmt.Sprintf("%c %s", l.sign, l.meaning))
		}
	}
	return strings.Join(parts, gap)
}
