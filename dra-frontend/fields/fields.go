// SPDX-License-Identifier: Apache-2.0

// Package fields reads documents that people write, such as the configuration file
// and the parameters of claims, into structs. It is strict, and reports all wrong
// fields at once: each by its path, with its value and what is allowed there. The
// package is pure. Packages config, parameters and description call it; they check
// the values afterwards.
package fields

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// maxQuote bounds the part of the document that an error quotes, in bytes.
const maxQuote = 40

// maxErrors is the number of errors after which Decode stops: more of them help no person, and each takes time.
const maxErrors = 50

// Decode reads a JSON object into the struct that into points to. It returns an error
// for each field that is unknown (also by its case), that is there twice, or whose
// value has a wrong type. All other fields are set, and fields that the object does
// not have keep their values, so that a caller can check the rest as well. A null
// removes a pointer, a list or a map, and changes nothing else. After maxErrors errors
// Decode stops, and the rest of the fields is not set.
func Decode(data []byte, into any) []error {
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		return []error{err}
	}
	d := decoder{root: reflect.TypeOf(into).Elem()}
	d.value("", data, reflect.ValueOf(into).Elem())
	return d.errs
}

type decoder struct {
	// root is the type of the document.
	root reflect.Type
	errs []error
}

// wrong reports the value at the path.
func (d *decoder) wrong(path string, raw []byte, want string) {
	if path == "" {
		path = "the document"
	}
	d.errs = append(d.errs, fmt.Errorf("%s: %s, want %s", path, contract.Excerpt(string(raw), maxQuote), want))
}

func (d *decoder) value(path string, raw []byte, v reflect.Value) {
	if len(d.errs) >= maxErrors {
		return
	}
	raw = bytes.TrimSpace(raw)
	if string(raw) == "null" {
		switch v.Kind() {
		case reflect.Pointer, reflect.Map, reflect.Slice:
			v.SetZero()
		default:
		}
		return
	}
	if own, has := v.Addr().Interface().(json.Unmarshaler); has {
		d.own(path, raw, v, own)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		target := reflect.New(v.Type().Elem())
		d.value(path, raw, target.Elem())
		v.Set(target)
	case reflect.Struct:
		d.object(path, raw, v)
	case reflect.Map:
		d.mapping(path, raw, v)
	case reflect.Slice:
		d.list(path, raw, v)
	default:
		if err := json.Unmarshal(raw, v.Addr().Interface()); err != nil {
			d.wrong(path, raw, wanted(v.Kind(), raw))
		}
	}
}

// quantityForm has short exponents: the library computes with a long exponent for
// hours. Helm writes large numbers with an exponent.
var quantityForm = regexp.MustCompile(`^[+-]?[0-9]{1,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,2}|[numkMGTPE]|[KMGTPE]i)?$`)

// own reads a type that reads itself.
func (d *decoder) own(path string, raw []byte, v reflect.Value, own json.Unmarshaler) {
	err := errors.New("no quantity")
	if _, is := v.Interface().(resource.Quantity); !is || quantityForm.Match(bytes.Trim(raw, `"`)) {
		err = own.UnmarshalJSON(raw)
	}
	if err == nil {
		return
	}
	switch v.Interface().(type) {
	case resource.Quantity:
		d.wrong(path, raw, "a quantity, such as 512Mi")
	case metav1.Duration:
		d.wrong(path, raw, "a duration, such as 30s or 1m30s")
	default:
		d.errs = append(d.errs, fmt.Errorf("%s: %w", path, err))
	}
}

// wanted describes the values of a kind.
func wanted(kind reflect.Kind, raw []byte) string {
	switch kind {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		if raw[0] != '{' && raw[0] != '[' {
			return fmt.Sprintf(`text: write it with quotes, as "%s"`, contract.Excerpt(string(raw), maxQuote))
		}
		return "text"
	case reflect.Float32, reflect.Float64:
		return "a number"
	default:
		return "a whole number"
	}
}

func (d *decoder) object(path string, raw []byte, v reflect.Value) {
	members, ok := d.members(path, raw)
	if !ok {
		return
	}
	known := names(v.Type())
	for _, m := range members {
		if len(d.errs) >= maxErrors {
			return
		}
		i := slices.Index(known, m.name)
		if i < 0 {
			d.errs = append(d.errs, d.unknown(path, m.name, v.Type()))
			continue
		}
		d.value(join(path, m.name), m.value, v.Field(i))
	}
}

// mapping reads a map, whose keys are text. The map is replaced.
func (d *decoder) mapping(path string, raw []byte, v reflect.Value) {
	members, ok := d.members(path, raw)
	if !ok {
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, m := range members {
		element := reflect.New(v.Type().Elem()).Elem()
		before := len(d.errs)
		d.value(join(path, contract.Excerpt(m.name, maxQuote)), m.value, element)
		if len(d.errs) == before {
			v.SetMapIndex(reflect.ValueOf(m.name).Convert(v.Type().Key()), element)
		}
	}
}

func (d *decoder) list(path string, raw []byte, v reflect.Value) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		d.wrong(path, raw, "a list")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		d.value(fmt.Sprintf("%s[%d]", path, i), item, out.Index(i))
	}
	v.Set(out)
}

// member is a member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// members returns the members in their order. A name that is there twice is an error,
// and its first value counts.
func (d *decoder) members(path string, raw []byte) (members []member, ok bool) {
	r := json.NewDecoder(bytes.NewReader(raw))
	if open, err := r.Token(); err != nil || open != json.Delim('{') {
		d.wrong(path, raw, "fields with values")
		return nil, false
	}
	for r.More() && len(d.errs) < maxErrors {
		var m member
		// The text is JSON: Decode has checked it.
		name, _ := r.Token()
		m.name, _ = name.(string)
		if err := r.Decode(&m.value); err != nil {
			d.wrong(path, raw, "JSON: "+err.Error())
			return nil, false
		}
		if slices.ContainsFunc(members, func(other member) bool { return other.name == m.name }) {
			d.errs = append(d.errs, fmt.Errorf("duplicate field %q: remove one of the two", join(path, contract.Excerpt(m.name, maxQuote))))
			continue
		}
		members = append(members, m)
	}
	return members, true
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// names returns the names of the struct's fields, in their order.
func names(t reflect.Type) []string {
	out := make([]string, t.NumField())
	for i := range out {
		out[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	return out
}
