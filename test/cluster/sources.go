// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// aptSource is one file of apt's sources.list.d.
type aptSource struct{ file, text string }

// backportsSource finds the release's entry in apt's configuration and returns the entry for the backports: another
// suite of the same mirror, signed with the same keys.
func backportsSource(etc fs.FS, release, suite string) (aptSource, error) {
	lists, err := fs.Glob(etc, "sources.list.d/*.list")
	if err != nil {
		return aptSource{}, err
	}
	stanzas, err := fs.Glob(etc, "sources.list.d/*.sources")
	if err != nil {
		return aptSource{}, err
	}
	for _, name := range append(append([]string{"sources.list"}, lists...), stanzas...) {
		data, err := fs.ReadFile(etc, name)
		if err != nil {
			continue // most often there is no sources.list
		}
		source := aptSource{file: "backports" + path.Ext(name)}
		if path.Ext(name) == ".sources" {
			source.text = backportsStanza(string(data), release, suite)
		} else {
			source.text = backportsLine(string(data), release, suite)
		}
		if source.text != "" {
			return source, nil
		}
	}
	return aptSource{}, fmt.Errorf("apt's configuration has no enabled entry for %q main, "+
		"so the mirror of its backports is unknown: add one", release)
}

// backportsLine reads text in the format of one entry per line: deb [options] URI suite component... It returns the
// entry for the backports, empty if text has no entry for the release.
func backportsLine(text, release, suite string) string {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = strings.TrimSpace(rest)
		options := ""
		if strings.HasPrefix(rest, "[") {
			end := strings.Index(rest, "]")
			options, rest = rest[:end+1], rest[end+1:]
		}
		words := strings.Fields(rest)
		if kind == "deb" && len(words) > 2 && words[1] == release && slices.Contains(words[2:], "main") {
			return strings.Join([]string{kind, options, words[0], suite, "main"}, " ") + "\n"
		}
	}
	return ""
}

// backportsStanza does the same for the format of paragraphs of fields (deb822).
func backportsStanza(text, release, suite string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimRight(line, " \t\r\n"))
		}
	}
	for stanza := range strings.SplitSeq(strings.Join(lines, "\n"), "\n\n") {
		field := ""
		values := map[string]string{}
		kept := []string{"Types: deb", "Suites: " + suite, "Components: main"}
		for line := range strings.Lines(stanza) {
			line = strings.TrimSuffix(line, "\n")
			value := line
			if !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") {
				field, value, _ = strings.Cut(line, ":")
				field = strings.ToLower(field)
			}
			values[field] += " " + value
			if line != "" && field != "types" && field != "suites" && field != "components" {
				kept = append(kept, line)
			}
		}
		has := func(field, word string) bool { return slices.Contains(strings.Fields(values[field]), word) }
		if has("types", "deb") && has("suites", release) && has("components", "main") && !has("enabled", "no") {
			return strings.Join(kept, "\n") + "\n"
		}
	}
	return ""
}

// codename returns the release's name in os-release, empty if it has none.
func codename(osRelease string) string {
	for line := range strings.Lines(osRelease) {
		if value, ok := strings.CutPrefix(line, "VERSION_CODENAME="); ok {
			return strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return ""
}
