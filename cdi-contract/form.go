// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"regexp"
	"sync"
)

// form says which texts are valid. It is a regular expression that is compiled when it is first used: the start of each container
// with a claim waits for the start of the guard's program, which needs few of the contract's forms.
type form func() *regexp.Regexp

func formOf(expression string) form {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// matches reports whether the text has the form.
func (f form) matches(text string) bool { return f().MatchString(text) }
