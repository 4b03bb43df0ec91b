// SPDX-License-Identifier: Apache-2.0

package fields_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/fields"
)

type document struct {
	Name   string                       `json:"name"`
	Number int                          `json:"number"`
	Factor *float64                     `json:"factor,omitempty"`
	Wait   metav1.Duration              `json:"wait"`
	Sizes  map[string]resource.Quantity `json:"sizes"`
	List   []string                     `json:"list"`
	Inner  inner                        `json:"inner"`
	Many   []inner                      `json:"many"`
}

type inner struct {
	Whole bool   `json:"whole"`
	Own   strict `json:"own"`
}

// strict reads itself.
type strict string

func (s *strict) UnmarshalJSON(data []byte) error {
	if string(data) != `"good"` {
		return errors.New("want good")
	}
	*s = "good"
	return nil
}

func TestDecode(t *testing.T) {
	d := document{Name: "kept", Number: 7, Factor: new(0.5), List: []string{"kept"}}
	require.Empty(t, fields.Decode([]byte(` {
		"number": 3, "name": null, "factor": null, "wait": "1m", "sizes": {"a": "1Gi", "b": 2, "c": 6.8719476736e+10}, "list": ["x"],
		"inner": {"whole": true, "own": "good"}, "many": [{}, {"whole": true}]
	}`), &d))
	require.Equal(t, "1Gi", new(d.Sizes["a"]).String())
	require.EqualValues(t, 2, new(d.Sizes["b"]).Value())
	require.EqualValues(t, 64<<30, new(d.Sizes["c"]).Value())
	d.Sizes = nil
	want := document{Name: "kept", Number: 3, List: []string{"x"}, Inner: inner{Whole: true, Own: "good"}, Many: []inner{{}, {Whole: true}}}
	want.Wait.Duration = 60e9
	require.Equal(t, want, d)
	require.Empty(t, fields.Decode([]byte(`null`), &d))
	require.Equal(t, want, d)
}

// A document of nothing but wrong fields takes a bounded time.
func TestManyWrongFields(t *testing.T) {
	many := func(member string) string { return strings.Repeat(member+",", 999) + member }
	var unknown []string
	for i := range 1000 {
		unknown = append(unknown, fmt.Sprintf(`"wrong%d": 1`, i))
	}
	for name, text := range map[string]string{
		"unknown": "{" + strings.Join(unknown, ",") + "}", "twice": "{" + many(`"name": "x"`) + "}",
		"in a list":         `{"list": [` + many("1") + "]}",
		"in a map":          `{"sizes": {` + strings.ReplaceAll(strings.Join(unknown, ","), ": 1", ": []") + "}}",
		"unknown in a list": `{"many": [` + many(`{"x": 1}`) + "]}",
	} {
		require.Len(t, fields.Decode([]byte(text), new(document)), 50, name)
	}
}

// A wrong field is reported, and all other fields are set.
func TestDecodeReports(t *testing.T) {
	for name, tc := range map[string]struct{ member, want string }{
		"unknown":            {`"size": 1`, `unknown field "size": did you mean sizes?`},
		"unlike any":         {`"xyz": 1`, `unknown field "xyz": the fields are name, number, factor, wait, sizes, list, inner.whole,`},
		"unknown inside":     {`"inner": {"hole": 1}`, `unknown field "inner.hole": did you mean inner.whole?`},
		"too deep":           {`"inner": {"number": 1}`, `unknown field "inner.number": did you mean number?`},
		"unlike any inside":  {`"inner": {"xyz": 1}`, `unknown field "inner.xyz": the fields are inner.whole, inner.own`},
		"in a list":          {`"many": [{}, {"whole": 0}]`, "many[1].whole: 0, want true or false"},
		"twice":              {`"list": ["x"], "list": ["x"]`, `duplicate field "list": remove one of the two`},
		"no whole number":    {`"number": 1.5`, "number: 1.5, want a whole number"},
		"no number":          {`"factor": "half"`, `factor: "half", want a number`},
		"an object for text": {`"name": {}`, "name: {}, want text"},
		"no quantity":        {`"sizes": {"a": "much", "b": "1Gi"}`, `sizes.a: "much", want a quantity, such as 512Mi`},
		"a long exponent":    {`"sizes": {"a": 1e111111111111111118}`, "sizes.a: 1e111111111111111118, want a quantity"},
		"a tiny quantity":    {`"sizes": {"a": "1e-100000000"}`, `sizes.a: "1e-100000000", want a quantity`},
		"own error":          {`"inner": {"own": 1}`, "inner.own: want good"},
		"a long value": {
			member: `"number": "` + strings.Repeat("x", 100) + `"`,
			want:   `number: "` + strings.Repeat("x", 39) + `... (62 bytes more), want a whole number`,
		},
		"a long name": {`"` + strings.Repeat("x", 100) + `": 1`, `unknown field "` + strings.Repeat("x", 40) + "... (60 bytes more)"},
	} {
		t.Run(name, func(t *testing.T) {
			var d document
			errs := fields.Decode([]byte(`{`+tc.member+`, "wait": "1s"}`), &d)
			require.Len(t, errs, 1)
			require.ErrorContains(t, errs[0], tc.want)
			require.EqualValues(t, 1e9, d.Wait.Duration)
			if name == "no quantity" {
				require.Equal(t, "1Gi", new(d.Sizes["b"]).String())
				require.NotContains(t, d.Sizes, "a")
			}
		})
	}
}

func TestDecodeRefusesText(t *testing.T) {
	for text, want := range map[string]string{
		"": "unexpected end", `{"name": "x"`: "unexpected end", `{} {}`: "after top-level value",
		`[]`: "the document: [], want fields with values",
	} {
		errs := fields.Decode([]byte(text), &document{})
		require.Len(t, errs, 1, text)
		require.ErrorContains(t, errs[0], want)
	}
}

func TestClosest(t *testing.T) {
	known := []string{"cpu", "memory", "hugepages_2Mi", "hugepages_1Gi"}
	for name, want := range map[string]string{
		"CPU": "cpu", "mem": "memory", "memroy": "", "momory": "memory", "hugepages-2Mi": "hugepages_2Mi", "hugepages-1Gi": "hugepages_1Gi",
		"hugepages_2mb": "hugepages_2Mi", "gpu": "", "nvidia.com/gpu": "", "": "", strings.Repeat("cpu", 30): "",
	} {
		got, found := fields.Closest(name, known)
		require.Equal(t, want, got, name)
		require.Equal(t, want != "", found, name)
	}
}

func TestPaths(t *testing.T) {
	require.Equal(t, []string{"name", "number", "factor", "wait", "sizes", "list", "inner.whole", "inner.own", "many"},
		fields.Paths(reflect.TypeFor[document]()))
}

// FuzzDecode: Decode accepts what the standard library accepts, but for names that are
// unknown or there twice, and reads the same from it. Its errors are short.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name": "x", "number": 1, "factor": 0.5, "wait": "1s", "sizes": {"a": "1"}, "list": ["x"], "many": [{"whole": true}]}`))
	f.Add([]byte(`{"inner": {"own": "good"}, "inner": null}`))
	f.Add([]byte(`{"number": 1e3, "factor": "x"} {`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want document
		errs := fields.Decode(data, &got)
		for _, err := range errs {
			require.Less(t, len(err.Error()), 2000)
		}
		if len(errs) == 0 {
			require.NoError(t, json.Unmarshal(data, &want))
			require.Equal(t, want, got)
		}
	})
}
