// SPDX-License-Identifier: Apache-2.0

// Package size writes amounts of bytes for people.
package size

import (
	"fmt"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Format returns the bytes in the largest unit that they reach, with at most one digit
// after the point: 1.5Gi.
func Format(bytes int64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti"}
	value, unit := float64(bytes), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0") + units[unit]
}

// Limit returns a limit in bytes, or max.
func Limit(l contract.Limit) string {
	if l == contract.Max {
		return l.String()
	}
	return Format(int64(l))
}
