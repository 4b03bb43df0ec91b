// SPDX-License-Identifier: Apache-2.0

// Package size writes amounts of bytes for people.
package size

import (
	"fmt"
	"math"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

var units = []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}

// Format returns the bytes in the largest unit that they reach, rounded to one digit
// after the point: 1.5Gi.
func Format(bytes int64) string { return format(bytes, math.Round) }

// Floor is Format, rounded down.
func Floor(bytes int64) string { return format(bytes, math.Floor) }

func format(bytes int64, round func(float64) float64) string {
	value, unit := float64(bytes), 0
	for unit < len(units)-1 && round(value*10) >= 10240 {
		value, unit = value/1024, unit+1
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", round(value*10)/10), ".0") + units[unit]
}

// Limit returns a limit in bytes, or max.
func Limit(l contract.Limit) string {
	if l == contract.Max {
		return l.String()
	}
	return Format(int64(l))
}
