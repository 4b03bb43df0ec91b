// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// maxMaskWords is enough for the ids that a list may have.
const maxMaskWords = 1 << 16 / 32

// ParseCPUMask parses the kernel's masks of CPUs: hexadecimal words of 32 bits, the highest
// first, such as "3,00000001" for 0 and 32-33 (cpuset(7), "Mask format").
func ParseCPUMask(text string) (CPUSet, error) {
	words := strings.Split(text, ",")
	if len(words) > maxMaskWords {
		return CPUSet{}, fmt.Errorf("CPU mask of %d words, want at most %d", len(words), maxMaskWords)
	}
	var ids []int
	for i := len(words) - 1; i >= 0; i-- {
		word, err := strconv.ParseUint(words[i], 16, 32)
		if err != nil || len(words[i]) > 8 || i > 0 && len(words[i]) != 8 {
			return CPUSet{}, fmt.Errorf("CPU mask %q: word %q is not of 8 hexadecimal digits", Excerpt(text, 100), Excerpt(words[i], 20))
		}
		for ; word != 0; word &= word - 1 {
			ids = append(ids, 32*(len(words)-1-i)+bits.TrailingZeros64(word))
		}
	}
	return CPUs(ids...), nil
}

// CPUMask returns the set in the form that [ParseCPUMask] parses.
func CPUMask(cpus CPUSet) string {
	words := make([]uint32, 1)
	for _, id := range cpus.List() {
		for len(words) <= id/32 {
			words = append(words, 0)
		}
		words[id/32] |= 1 << (id % 32)
	}
	text := make([]string, 0, len(words))
	for _, word := range slices.Backward(words) {
		text = append(text, fmt.Sprintf("%08x", word))
	}
	return strings.Join(text, ",")
}
