// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Limit is an amount of bytes or [Max]. In JSON it is a number or the string
// "max", the kernel's word for no limit (cgroup-v2.rst, "Conventions").
type Limit int64

// Max means that there is no limit.
const Max Limit = math.MaxInt64

// String returns the form for a cgroup file.
func (l Limit) String() string {
	if l == Max {
		return "max"
	}
	return strconv.FormatInt(int64(l), 10)
}

// MarshalJSON implements json.Marshaler.
func (l Limit) MarshalJSON() ([]byte, error) {
	if l < 0 {
		return nil, fmt.Errorf("limit %d is negative", int64(l))
	}
	if l == Max {
		return []byte(`"max"`), nil
	}
	return []byte(l.String()), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *Limit) UnmarshalJSON(data []byte) error {
	s := string(data)
	if s == `"max"` {
		*l = Max
		return nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n == int64(Max) || strings.HasPrefix(s, "+") {
		return fmt.Errorf("limit %s: want bytes (0 to %d) or \"max\"", s, int64(Max)-1)
	}
	*l = Limit(n)
	return nil
}

// add returns the sum of two limits. Max plus an amount is Max. A sum beyond
// int64 is Max as well, so that addition is associative.
func (l Limit) add(m Limit) Limit {
	if l > Max-m {
		return Max
	}
	return l + m
}

// ParsePageSize returns the bytes of a hugepage size in binary units ("64Ki",
// "2Mi", "1Gi"). Everything but the shortest form of a power of two is an error.
func ParsePageSize(s string) (int64, error) {
	for shift, unit := range map[uint]string{10: "Ki", 20: "Mi", 30: "Gi"} {
		digits, ok := strings.CutSuffix(s, unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 32)
		if err != nil || n <= 0 || n&(n-1) != 0 || FormatPageSize(n<<shift) != s {
			break
		}
		return n << shift, nil
	}
	return 0, fmt.Errorf("page size %q: want a power of two in binary units, such as 64Ki, 2Mi or 1Gi", s)
}

// FormatPageSize is the inverse of [ParsePageSize], for sizes from 1 KiB.
func FormatPageSize(size int64) string {
	switch {
	case size%(1<<30) == 0:
		return strconv.FormatInt(size>>30, 10) + "Gi"
	case size%(1<<20) == 0:
		return strconv.FormatInt(size>>20, 10) + "Mi"
	default:
		return strconv.FormatInt(size>>10, 10) + "Ki"
	}
}

// CgroupPageSize returns a page size of the contract ("2Mi") in the form of
// cgroup file names and of the OCI runtime spec ("2MB"). Both mean the same
// amount (Documentation/admin-guide/cgroup-v2.rst, "HugeTLB").
func CgroupPageSize(size string) string { return strings.TrimSuffix(size, "i") + "B" }
