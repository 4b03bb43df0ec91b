// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// labelsOf returns the labels of each metric of docs/metrics.md, which is generated
// from what the daemons register.
func labelsOf(t *testing.T) map[string][]string {
	page, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	labels := make(map[string][]string)
	for _, line := range regexp.MustCompile("(?m)^\\| `(cpumem_[a-z0-9_]+)` \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1) {
		// The scrape adds the node.
		labels[line[1]] = []string{"node"}
		for _, label := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line[2], -1) {
			labels[line[1]] = append(labels[line[1]], label[1])
		}
	}
	require.NotEmpty(t, labels)
	return labels
}

// requireKnown requires that an expression is one, and that it names metrics and
// labels that a daemon serves.
func requireKnown(t *testing.T, known map[string][]string, expression string) {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	require.NoError(t, err, expression)
	selectors := 0
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		s, is := n.(*parser.VectorSelector)
		if !is {
			return nil
		}
		selectors++
		name, bucket := strings.CutSuffix(s.Name, "_bucket")
		labels, serves := known[name]
		require.True(t, serves, "no daemon serves %s of %s", s.Name, expression)
		if bucket {
			labels = append(slices.Clone(labels), "le")
		}
		for _, m := range s.LabelMatchers {
			if m.Name != "__name__" {
				require.Contains(t, labels, m.Name, expression)
			}
		}
		return nil
	})
	require.Positive(t, selectors, expression)
}

// A55: each alert asks for metrics that the daemons serve, and has a runbook.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../charts/dra-driver-cpumem/files/alerts.yaml")
	require.NoError(t, err)
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr         string
				Annotations, Labels map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &rules))
	page, err := os.ReadFile("../docs/runbooks.md")
	require.NoError(t, err)
	sections := make(map[string]bool)
	for _, heading := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(string(page), -1) {
		sections[heading[1]] = true
	}
	known, alerts := labelsOf(t), make(map[string]bool)
	for _, rule := range rules.Groups[0].Rules {
		t.Run(rule.Alert, func(t *testing.T) {
			requireKnown(t, known, rule.Expr)
			require.True(t, sections[rule.Alert], "docs/runbooks.md has no section of the alert's name")
			require.Contains(t, []string{"info", "warning", "critical"}, rule.Labels["severity"])
			require.Contains(t, rule.Annotations["summary"], "{{ $labels.node }}")
			require.NotEmpty(t, rule.Annotations["description"])
		})
		alerts[rule.Alert] = true
	}
	require.Equal(t, slices.Sorted(maps.Keys(alerts)), slices.Sorted(maps.Keys(sections)), "a runbook without an alert")
}

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../charts/dra-driver-cpumem/files/dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	known, queries := labelsOf(t), 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries++
			t.Run(panel.Title, func(t *testing.T) { requireKnown(t, known, target.Expr) })
		}
	}
	require.Positive(t, queries)
}
