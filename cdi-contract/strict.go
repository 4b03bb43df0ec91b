// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"
)

// decodeStrict decodes one JSON value into v. It refuses input that
// encoding/json accepts: names that differ from a member's in case, duplicate
// names, null, bytes that are not UTF-8, and text after the value. A member
// without omitempty or omitzero must be present: a missing memory.max would
// otherwise mean a limit of 0 bytes. A member with omitempty must not be empty,
// so that each value has one form. Unknown members are ignored, because they
// are optional additions to the contract.
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
// object. t is the Go type of the value, nil for a value that is ignored.
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
	if text, ok := tok.(string); ok {
		return text == "", checkText(t, text)
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
	return false, nil
}

// checkText checks a string whose Go type, t, decodes itself: the error of
// encoding/json would not name the member.
func checkText(t reflect.Type, text string) error {
	if t == nil {
		return nil
	}
	if value, ok := reflect.New(t).Interface().(encoding.TextUnmarshaler); ok {
		return value.UnmarshalText([]byte(text))
	}
	return nil
}

func walkObject(dec *json.Decoder, t reflect.Type, depth int) (empty bool, err error) {
	seen := make(map[string]bool)
	members := membersOf(t)
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
		m, err := memberOf(t, members, name)
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
	for _, m := range members {
		if m.required && !seen[m.name] {
			return false, fmt.Errorf("member %q is missing", m.name)
		}
	}
	return len(seen) == 0, nil
}

// member describes a member of an object to the strict decoder. The zero value
// is a member that is ignored.
type member struct {
	name     string
	typ      reflect.Type
	required bool
	nonEmpty bool
}

// membersOf returns the members of a struct type, and none for other types.
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

// memberOf returns the member of t with the name. members are those of t.
func memberOf(t reflect.Type, members []member, name string) (member, error) {
	if t != nil && t.Kind() == reflect.Map {
		return member{typ: t.Elem()}, nil
	}
	for _, m := range members {
		if m.name == name {
			return m, nil
		}
		if strings.EqualFold(m.name, name) {
			return member{}, fmt.Errorf("member %q: the name is spelt %q", name, m.name)
		}
	}
	return member{}, nil
}
