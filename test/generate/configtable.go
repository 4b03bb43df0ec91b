// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
)

const (
	tableBegins = "<!-- The table is generated from dra-frontend/config. -->\n"
	tableEnds   = "<!-- End of the generated table. -->\n"
)

// insertTable replaces the table of the configuration's keys in a page. source is
// the file that declares the type.
func insertTable(present []byte, source string) ([]byte, error) {
	before, rest, found := bytes.Cut(present, []byte(tableBegins))
	_, after, ends := bytes.Cut(rest, []byte(tableEnds))
	if !found || !ends {
		return nil, errors.New("the page has no place for the table")
	}
	rows, err := table(source)
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{before, []byte(tableBegins + "\n" + rows + "\n" + tableEnds), after}, nil), nil
}

// table returns a row for each key, in the order of the fields.
func table(source string) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments)
	if err != nil {
		return "", err
	}
	structs := make(map[string]*ast.StructType)
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, is := n.(*ast.TypeSpec); is {
			if s, is := spec.Type.(*ast.StructType); is {
				structs[spec.Name.Name] = s
			}
		}
		return true
	})
	values, err := json.Marshal(config.Default())
	if err != nil {
		return "", err
	}
	var defaults map[string]any
	if err := json.Unmarshal(values, &defaults); err != nil {
		return "", err
	}
	t := rows{structs: structs}
	if err := t.add("Config", "", defaults); err != nil {
		return "", err
	}
	return "| key | default | meaning |\n|---|---|---|\n" + t.text.String(), nil
}

type rows struct {
	structs map[string]*ast.StructType
	text    strings.Builder
}

// add adds the fields of a struct, whose keys have a prefix.
func (t *rows) add(name, prefix string, defaults map[string]any) error {
	for _, field := range t.structs[name].Fields.List {
		tag, err := strconv.Unquote(field.Tag.Value)
		if err != nil {
			return err
		}
		key := reflect.StructTag(tag).Get("json")
		if of, is := field.Type.(*ast.Ident); is && t.structs[of.Name] != nil {
			if err := t.add(of.Name, prefix+key+".", defaults[key].(map[string]any)); err != nil {
				return err
			}
			continue
		}
		meaning := meaning(field.Names[0].Name, field.Doc.Text())
		if meaning == "" {
			return fmt.Errorf("%s has no comment", prefix+key)
		}
		if link := reflect.StructTag(tag).Get("see"); link != "" {
			meaning += " ([more](" + link + "))"
		}
		fmt.Fprintf(&t.text, "| `%s` | %s | %s |\n", prefix+key, shown(field.Type, defaults[key]), meaning)
	}
	return nil
}

// meaning returns a field's comment in one line, without its subject, the field.
func meaning(field, comment string) string {
	text := strings.Join(strings.Fields(comment), " ")
	text = regexp.MustCompile(`^`+field+` (is |are )?`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`\{".*\}|\b[a-z]+(\.[a-z]+)?[A-Z]\w*(\.[a-z]\w*)?`).ReplaceAllString(text, "`$0`")
	return strings.TrimSuffix(text, ".")
}

// shown returns a default as it is written in the file.
func shown(of ast.Expr, value any) string {
	if _, is := of.(*ast.MapType); is && value == nil {
		return "`{}`"
	}
	switch v := value.(type) {
	case nil:
		return "none"
	case string:
		if v == "" {
			return "`\"\"`"
		}
		return "`" + v + "`"
	case []any:
		return "`" + strings.ReplaceAll(fmt.Sprint(v), " ", ", ") + "`"
	}
	return fmt.Sprintf("`%v`", value)
}
