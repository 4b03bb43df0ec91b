// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/jsonpath"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/get"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/pages"
)

// The subcommands, flags, resources, selectors and output formats of kubectl on the pages
// exist.
func TestKubectl(t *testing.T) {
	commands, err := pages.CommandsOf(read(t), "kubectl")
	require.NoError(t, err)
	mapper := testrestmapper.TestOnlyStaticRESTMapper(legacyscheme.Scheme)
	for _, c := range commands {
		assert.NoError(t, check(c, mapper))
	}
}

// ofResources are the subcommands whose first argument is a resource.
var ofResources = []string{"annotate", "delete", "describe", "edit", "get", "label", "patch", "scale", "wait"}

func check(c pages.Command, mapper meta.RESTMapper) error {
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard}
	sub, args, err := c.Parse(kubectl.NewKubectlCommand(kubectl.KubectlOptions{
		ConfigFlags: genericclioptions.NewConfigFlags(false), IOStreams: streams,
	}))
	if err != nil {
		return err
	}
	var kind schema.GroupVersionKind
	if len(args) > 0 && slices.Contains(ofResources, sub.Name()) {
		for _, resource := range strings.Split(args[0], ",") {
			resource, _, _ = strings.Cut(resource, "/")
			if kind, err = mapper.KindFor(schema.ParseGroupResource(resource).WithVersion("")); err != nil {
				return fmt.Errorf("%s: %w", c, err)
			}
		}
	}
	if err := checkSelectors(sub, kind); err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	if err := checkOutput(sub); err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	return nil
}

// flag returns the value of a flag, and "" if the command has no such flag.
func flag(cmd *cobra.Command, name string) string {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

func checkSelectors(cmd *cobra.Command, kind schema.GroupVersionKind) error {
	if _, err := labels.Parse(flag(cmd, "selector")); err != nil {
		return err
	}
	selector, err := fields.ParseSelector(flag(cmd, "field-selector"))
	if err != nil {
		return err
	}
	for _, r := range selector.Requirements() {
		if _, _, err := legacyscheme.Scheme.ConvertFieldLabel(kind, r.Field, r.Value); err != nil {
			return err
		}
	}
	return nil
}

func checkOutput(cmd *cobra.Command) error {
	format, template, _ := strings.Cut(flag(cmd, "output"), "=")
	switch format {
	case "jsonpath":
		return jsonpath.New("page").Parse(template)
	case "custom-columns":
		_, err := get.NewCustomColumnsPrinterFromSpec(template, nil, false)
		return err
	}
	if printer := cmd.Flags().Lookup("output"); printer != nil && cmd.Name() == "get" {
		formats := append(get.NewGetPrintFlags().AllowedFormats(), "", "wide")
		if !slices.Contains(formats, format) {
			return fmt.Errorf("output %s: one of %v", format, formats)
		}
	}
	return nil
}

// The checks of TestKubectl refuse what kubectl or the API server would refuse.
func TestKubectlRefuses(t *testing.T) {
	mapper := testrestmapper.TestOnlyStaticRESTMapper(legacyscheme.Scheme)
	for command, want := range map[string]string{
		"get resourceslices --field-selector spec.driver=dra.cpumem": "",
		"-n x get pods -o wide": "",
		"get pods -o wid":       "output wid",
		"gett pods":             `unknown command "gett"`,
		"get pods --all":        "unknown flag: --all",
		"get resourceslicez":    "no matches for /, Resource=resourceslicez",
		"get resourceslices --field-selector spec.pool": "invalid selector",
		"get resourceslices --field-selector spec.x=y":  `field label not supported`,
		"get pods -l a(b":              "unable to parse requirement",
		"get pods -o jsonpath={.a":     "unclosed action",
		"get pods -o custom-columns=A": "unexpected custom-columns spec",
	} {
		t.Run(command, func(t *testing.T) {
			err := check(pages.Command{Program: "kubectl", Args: strings.Fields(command), Whole: true}, mapper)
			if want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, want)
			}
		})
	}
}
