// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"strings"
)

// MaxEnv is how many bytes the variables of one container may have in sum,
// names included. The largest decision of a machine with 4096 CPUs has a sixth
// of that, and Linux runs no program with a string of 128 KiB (execve(2),
// MAX_ARG_STRLEN). A reader refuses more: a pod's author can write megabytes
// where the frontend writes a line.
const MaxEnv = 64 << 10

// Excerpt returns at most size bytes of s for an error or a log. It replaces
// each character but printable ASCII with "?" and counts the bytes that it cuts
// off. Text that a pod's author chose reaches people only through Excerpt.
func Excerpt(s string, size int) string {
	cut := len(s) - size
	if cut > 0 {
		s = s[:size]
	}
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	if cut > 0 {
		return fmt.Sprintf("%s... (%d bytes more)", s, cut)
	}
	return s
}

// Few joins the first names of a list, as many as most, and adds the number of further
// names, so that a message does not grow with the list.
func Few(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// maxError is how many bytes of an error about a pod's variable, or about a file, are kept.
const maxError = 300

// bounded returns the error with the first maxError bytes of its text. The decoders
// quote input that they do not understand.
func bounded(err error) error {
	if err == nil {
		return nil
	}
	return excerptError{Excerpt(err.Error(), maxError), err}
}

// excerptError is an error whose text is cut off.
type excerptError struct {
	text string
	err  error
}

func (e excerptError) Error() string { return e.text }
func (e excerptError) Unwrap() error { return e.err }
