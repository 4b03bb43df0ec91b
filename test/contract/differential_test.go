// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// These tests change golden records in one to three places. Each record that a
// decoder then accepts must satisfy the schema.

const recordAnnotation = contract.Vendor + "/record"

// known returns the features of this version and the feature in the skew files.
func known() []string {
	return []string{"latency", contract.FeatureMemoryPolicy, contract.FeatureWeightedInterleave, contract.FeatureOOMScore}
}

// broken returns replacements of values, as JSON.
func broken() []string {
	uid := `"` + claimUID + `"`
	return []string{
		`null`, `true`, `-1`, `0`, `1`, `4095`, `4096`, `1.5`, `1.0`, `1e3`, `9223372036854775807`,
		`""`, `"max"`, `"Max"`, `"0"`, `"1,0"`, `"0-1"`, `"00"`, `"1-"`, `"v1"`, `"v2"`, `"/a"`, `"a/../b"`, `"x\n"`, uid,
		`"2026-02-03T04:05:06Z"`,
		`[]`, `[""]`, `["latency"]`, `["oomScoreAdj"]`, `-1001`, `-997`, `["memoryPolicy","weightedInterleave"]`, `"bind"`,
		`{"mode":"bind","nodes":"0"}`, `{"mode":"strict","nodes":"0"}`, `[null]`, `[` + uid + `]`, `{}`, `{"x":"1"}`,
		`{"2Mi":0}`, `{"2Mi":"max","3Mi":0}`, `{"memory.min":"0"}`, `{"memory.max":"0"}`,
	}
}

// names returns names for renamed and added members.
func names() []string {
	return []string{
		"x", "", "v", "cpus", "CPUs", "mems", "memory", "hugepages", "requires", "memoryPolicy", "oomScoreAdj", "mode", "nodes",
		"min", "max", "2Mi", "2MB", "64Ki", "1024Ki",
		"memory.min", "memory.max", "hugetlb.2MB.max", "burstable", "guaranteed", "guard", "pods", "runtime", claimUID, otherUID,
	}
}

func genBroken() *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any { return parse(t, rapid.SampledFrom(broken()).Draw(t, "json")) })
}

// parse returns the tree of a JSON text; numbers keep their text.
func parse(t require.TestingT, text string) any {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var tree any
	require.NoError(t, dec.Decode(&tree))
	return tree
}

// mutate changes one place in the tree v and returns the tree.
func mutate(t *rapid.T, v any) any {
	object, isObject := v.(map[string]any)
	list, isList := v.([]any)
	deeper := rapid.IntRange(0, 3).Draw(t, "deeper") > 0
	switch {
	case isObject && len(object) > 0:
		key := rapid.SampledFrom(slices.Sorted(maps.Keys(object))).Draw(t, "member")
		if deeper {
			object[key] = mutate(t, object[key])
			return object
		}
		switch rapid.IntRange(0, 3).Draw(t, "how") {
		case 0:
			delete(object, key)
		case 1:
			object[rapid.SampledFrom(names()).Draw(t, "name")] = genBroken().Draw(t, "added")
		case 2:
			object[rapid.SampledFrom(names()).Draw(t, "name")] = object[key]
			delete(object, key)
		default:
			object[key] = genBroken().Draw(t, "value")
		}
		return object
	case isList && len(list) > 0 && deeper:
		i := rapid.IntRange(0, len(list)-1).Draw(t, "element")
		list[i] = mutate(t, list[i])
		return list
	}
	return genBroken().Draw(t, "value")
}

// mutated draws one of the JSON texts and changes it.
func mutated(t *rapid.T, texts map[string]string) []byte {
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(texts))).Draw(t, "record")
	tree := parse(t, texts[name])
	for range rapid.IntRange(1, 3).Draw(t, "places") {
		tree = mutate(t, tree)
	}
	text, err := json.Marshal(tree)
	require.NoError(t, err)
	return text
}

// wrap puts a changed record into its file.
func wrap(t require.TestingT, file, record []byte) []byte {
	var spec map[string]any
	require.NoError(t, json.Unmarshal(file, &spec))
	spec["annotations"].(map[string]any)[recordAnnotation] = string(record)
	data, err := json.Marshal(spec)
	require.NoError(t, err)
	return data
}

func record(t require.TestingT, file []byte) string {
	var spec struct{ Annotations map[string]string }
	require.NoError(t, json.Unmarshal(file, &spec))
	return spec.Annotations[recordAnnotation]
}

func TestDecodersAcceptNothingTheSchemasRefuse(t *testing.T) {
	v := validator(t)
	t.Run("decision", func(t *testing.T) {
		texts := map[string]string{}
		for _, dir := range []string{goldenDir, skewDir} {
			for name, data := range files(t, dir, "decision") {
				texts[name] = string(data)
			}
		}
		accepted := 0
		rapid.Check(t, func(t *rapid.T) {
			for range 20 {
				text := mutated(t, texts)
				if _, err := contract.DecodeDecision(string(text), known()); err == nil {
					accepted++
					require.NoError(t, v.Record("decision", text), string(text))
				}
			}
		})
		require.Positive(t, accepted, "a check that accepts nothing proves nothing")
	})
	for kind, decode := range map[string]func([]byte) error{
		"node":         func(data []byte) error { _, err := contract.DecodeNode(data); return err },
		"announcement": func(data []byte) error { _, err := contract.DecodeAnnouncement(data); return err },
		"claim": func(data []byte) error {
			_, err := contract.DecodeClaim(contract.ClaimFile(claimUID), data)
			return err
		},
	} {
		t.Run(kind, func(t *testing.T) {
			golden := files(t, goldenDir, kind)
			accepted := 0
			rapid.Check(t, func(t *rapid.T) {
				name := rapid.SampledFrom(slices.Sorted(maps.Keys(golden))).Draw(t, "file")
				texts := map[string]string{name: record(t, golden[name])}
				for range 10 {
					text := mutated(t, texts)
					if decode(wrap(t, golden[name], text)) == nil {
						accepted++
						require.NoError(t, v.Record(kind, text), string(text))
					}
				}
			})
			require.Positive(t, accepted, "a check that accepts nothing proves nothing")
		})
	}
}

func FuzzDecisionSchema(f *testing.F) {
	v := validator(f)
	for _, dir := range []string{goldenDir, skewDir} {
		for _, data := range files(f, dir, "decision") {
			f.Add(string(data))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := contract.DecodeDecision(text, known()); err == nil {
			require.NoError(t, v.Record("decision", []byte(text)))
		}
	})
}

func FuzzNodeSchema(f *testing.F) {
	v := validator(f)
	golden := files(f, goldenDir, "node")
	for _, data := range golden {
		f.Add(record(f, data))
	}
	file := golden["node.json"]
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := contract.DecodeNode(wrap(t, file, []byte(text))); err == nil {
			// The annotation has replacements for bytes that are not UTF-8.
			require.NoError(t, v.Record("node", []byte(strings.ToValidUTF8(text, "\ufffd"))))
		}
	})
}
