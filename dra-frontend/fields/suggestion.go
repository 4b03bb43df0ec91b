// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"fmt"
	"reflect"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// unknown returns the error for a field that the struct at the path does not have. It
// proposes the field of this struct that is spelt most alike, else a field elsewhere
// in the document with this name, else all fields of the struct.
func (d *decoder) unknown(path, name string, t reflect.Type) error {
	problem := fmt.Sprintf("unknown field %q", join(path, contract.Excerpt(name, maxQuote)))
	if like, found := Closest(name, names(t)); found {
		return fmt.Errorf("%s: did you mean %s?", problem, join(path, like))
	}
	all := Paths(d.root)
	last := make([]string, len(all))
	for i, p := range all {
		last[i] = p[strings.LastIndex(p, ".")+1:]
		if strings.EqualFold(last[i], name) {
			return fmt.Errorf("%s: did you mean %s?", problem, p)
		}
	}
	return fmt.Errorf("%s: the fields are %s", problem, strings.Join(prefixed(path, Paths(t)), ", "))
}

func prefixed(path string, all []string) []string {
	for i := range all {
		all[i] = join(path, all[i])
	}
	return all
}

// Paths returns the paths of the fields of a struct, as users write them: the paths
// of inner structs in place of the structs themselves.
func Paths(t reflect.Type) []string {
	var out []string
	for i, name := range names(t) {
		if inner := t.Field(i).Type; inner.Kind() == reflect.Struct && !reads(inner) {
			out = append(out, prefixed(name, Paths(inner))...)
			continue
		}
		out = append(out, name)
	}
	return out
}

// reads reports whether the type reads itself from JSON, as a quantity does.
func reads(t reflect.Type) bool {
	_, has := reflect.PointerTo(t).MethodByName("UnmarshalJSON")
	return has
}

// Closest returns the known name that a misspelt name most probably means: the name
// that differs in case only, that is longer or shorter at its end, or that differs by
// the fewest added, removed or replaced characters, at most a quarter of the name's.
func Closest(name string, known []string) (closest string, found bool) {
	name = strings.ToLower(name)
	const maxName = 64
	if len(name) > maxName {
		return "", false
	}
	fewest := len(name)/4 + 1
	for _, k := range known {
		lower := strings.ToLower(k)
		if lower == name {
			return k, true
		}
		differences := distance(name, lower)
		if len(name) > 2 && (strings.HasPrefix(lower, name) || strings.HasPrefix(name, lower)) {
			differences = 0
		}
		if differences < fewest {
			closest, fewest, found = k, differences, true
		}
	}
	return closest, found
}

// distance returns the number of characters that have to be added, removed or
// replaced to turn a into b (Levenshtein's distance).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
