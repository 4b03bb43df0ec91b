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
// bytes that are not UTF-8 and anything after the value. Members it does not
// know are ignored, because an optional addition to the contract is one.
func decodeStrict(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := walk(dec, reflect.TypeOf(v).Elem(), 0); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("trailing data after the JSON value")
	}
	return json.Unmarshal(data, v)
}

const maxDepth = 32

// walk consumes one value; t is the Go type it will be decoded into, nil for a
// value that will be ignored.
func walk(dec *json.Decoder, t reflect.Type, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	tok, err := dec.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch tok {
	case nil:
		return errors.New("null is not a value of the contract")
	case json.Delim('['):
		var elem reflect.Type
		if t != nil && t.Kind() == reflect.Slice {
			elem = t.Elem()
		}
		for dec.More() {
			if err := walk(dec, elem, depth+1); err != nil {
				return err
			}
		}
		_, err = dec.Token()
		return err
	case json.Delim('{'):
		return walkObject(dec, t, depth)
	}
	return nil
}

func walkObject(dec *json.Decoder, t reflect.Type, depth int) error {
	seen := make(map[string]bool)
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		name, _ := tok.(string)
		if seen[name] {
			return fmt.Errorf("member %q occurs twice", name)
		}
		seen[name] = true
		member, err := memberType(t, name)
		if err != nil {
			return err
		}
		if err := walk(dec, member, depth+1); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	_, err := dec.Token()
	return err
}

func memberType(t reflect.Type, name string) (reflect.Type, error) {
	if t == nil {
		return nil, nil
	}
	if t.Kind() == reflect.Map {
		return t.Elem(), nil
	}
	if t.Kind() != reflect.Struct {
		return nil, nil
	}
	for i := range t.NumField() {
		member, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if member == name {
			return t.Field(i).Type, nil
		}
		if strings.EqualFold(member, name) {
			return nil, fmt.Errorf("member %q: the name is spelt %q", name, member)
		}
	}
	return nil, nil
}
