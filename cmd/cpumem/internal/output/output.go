// SPDX-License-Identifier: Apache-2.0

// Package output writes the results of commands in the form that the user chose.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Forms for programs, which every result has.
const (
	JSON = "json"
	YAML = "yaml"
)

// Forms are the forms of a command's result. The first is the default.
type Forms struct {
	chosen string
	people []string
}

// Flag adds the flag --output to the command. people are the forms for people, the
// default first.
func Flag(cmd *cobra.Command, people ...string) *Forms {
	f := &Forms{people: people}
	all := f.all()
	cmd.Flags().StringVarP(&f.chosen, "output", "o", all[0], "form of the output: "+strings.Join(all, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
	return f
}

func (f *Forms) all() []string { return append(slices.Clone(f.people), JSON, YAML) }

// Check refuses a form that the command does not have.
func (f *Forms) Check() error {
	if slices.Contains(f.all(), f.chosen) {
		return nil
	}
	return fmt.Errorf("--output %q: want one of %s", f.chosen, strings.Join(f.all(), ", "))
}

// Write writes the result: for programs as it is encoded in JSON, for people with the
// function of the chosen form.
func (f *Forms) Write(w io.Writer, result any, people map[string]func(io.Writer) error) error {
	switch f.chosen {
	case JSON:
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(result)
	case YAML:
		data, err := yaml.Marshal(result)
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	}
	return people[f.chosen](w)
}

// Separator returns what stands between two results of a command that writes several.
func (f *Forms) Separator() string {
	if f.chosen == YAML {
		return "---\n"
	}
	return "\n"
}
