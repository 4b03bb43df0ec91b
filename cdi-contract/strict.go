// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"
)

// decodeStrict decodes one JSON value into v and refuses what encoding/json
// lets pass: names that differ in case from a member's, duplicate names, null,
// bytes that are not UTF-8 and anything after the value. A member must be
// there unless its type marks it omitempty or omitzero: a missing memory.max
// would otherwise read as a limit of 0 bytes. An omitempty member that is
// there must not be empty, so that every value has one form. Members it does
// not know are ignored, because an optional addition to the contract is one.
func decodeStrict(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if _, err := walk(dec, reflect.TypeOf(v).Elem(), 0); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("trailing data after the JSON value")
	}
	return json.Unmarshal(data, v)
}

const maxDepth = 32

// walk consumes one value and reports whether it is an empty string, list or
// object; t is the Go type it will be decoded into, nil for a value that will
// be ignored.
func walk(dec *json.Decoder, t reflect.Type, depth int) (empty bool, err error) {
	if depth > maxDepth {
		return false, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	tok, err := dec.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return false, err
	}
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch tok {
	case nil:
		return false, errors.New("null is not a value of the contract")
	case json.Delim('['):
		var elem reflect.Type
		if t != nil && t.Kind() == reflect.Slice {
			elem = t.Elem()
		}
		empty = !dec.More()
		for dec.More() {
			if _, err := walk(dec, elem, depth+1); err != nil {
				return false, err
			}
		}
		_, err = dec.Token()
		return empty, err
	case json.Delim('{'):
		return walkObject(dec, t, depth)
	}
	return tok == "", nil
}

func walkObject(dec *json.Decoder, t reflect.Type, depth int) (empty bool, err error) {
	seen := make(map[string]bool)
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return false, err
		}
		name, _ := tok.(string)
		if seen[name] {
			return false, fmt.Errorf("member %q occurs twice", name)
		}
		seen[name] = true
		m, err := memberOf(t, name)
		if err != nil {
			return false, err
		}
		empty, err := walk(dec, m.typ, depth+1)
		if err != nil {
			return false, fmt.Errorf("%s: %w", name, err)
		}
		if empty && m.nonEmpty {
			return false, fmt.Errorf("member %q is empty, want a value or no member", name)
		}
	}
	if _, err := dec.Token(); err != nil {
		return false, err
	}
	for _, m := range membersOf(t) {
		if m.required && !seen[m.name] {
			return false, fmt.Errorf("member %q is missing", m.name)
		}
	}
	return len(seen) == 0, nil
}

// member is what the strict decoder knows about a member of an object. The
// zero value stands for one that will be ignored.
type member struct {
	name     string
	typ      reflect.Type
	required bool
	nonEmpty bool
}

// membersOf lists the members of a struct; other types have none.
func membersOf(t reflect.Type) []member {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	var members []member
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		members = append(members, member{
			name:     name,
			typ:      f.Type,
			required: options == "",
			// encoding/json never leaves out a struct.
			nonEmpty: options == "omitempty" && f.Type.Kind() != reflect.Struct,
		})
	}
	return members
}

func memberOf(t reflect.Type, name string) (member, error) {
	if t != nil && t.Kind() == reflect.Map {
		return member{typ: t.Elem()}, nil
	}
	for _, m := range membersOf(t) {
		if m.name == name {
			return m, nil
		}
		if strings.EqualFold(m.name, name) {
			return member{}, fmt.Errorf("member %q: the name is spelt %q", name, m.name)
		}
	}
	return member{}, nil
}
