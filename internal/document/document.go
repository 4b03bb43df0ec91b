// SPDX-License-Identifier: Apache-2.0

// Package document writes the results of a command into a page, between marks.
package document

import (
	"fmt"
	"os"
	"strings"
)

// marks returns the lines before and after the text that the author, a command, writes into a document.
func marks(author string) (begin, end string) {
	return "<!-- written by " + author + " -->\n", "<!-- end of what " + author + " writes -->\n"
}

// Insert replaces the text between the author's marks in the file. A file without the marks is an error.
func Insert(file, author, text string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := marks(author)
	before, rest, begins := strings.Cut(string(data), begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return fmt.Errorf("%s: no lines %q and %q to write between", file, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(file, []byte(before+begin+"\n"+text+"\n"+end+after), 0o644)
}
