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
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// labelsOf returns the labels of each metric of docs/reference/metrics.md, which is generated
// from what the daemons register, and of the metrics of kubelet that the dashboard shows.
func labelsOf(t *testing.T) map[string][]string {
	page, err := os.ReadFile("../docs/reference/metrics.md")
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
	// What kubelet 1.36 serves at /metrics/cadvisor.
	for _, resource := range []string{"cpu", "memory"} {
		labels["container_pressure_"+resource+"_waiting_seconds_total"] = []string{
			"container", "id", "image", "name", "namespace", "pod", "node",
		}
	}
	return labels
}

// requireKnown requires that an expression is one, and that it names metrics and
// labels that are served.
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
		require.True(t, serves, "nothing serves %s of %s", s.Name, expression)
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

// alertRule is an alert of the chart.
type alertRule struct {
	Alert, Expr         string
	Annotations, Labels map[string]string
}

func alertRules(t *testing.T) (all []alertRule) {
	text, err := os.ReadFile("../charts/dra-driver-cpumem/files/alerts.yaml")
	require.NoError(t, err)
	var file struct{ Groups []struct{ Rules []alertRule } }
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// A55: each alert asks for metrics that the daemons serve, and has a runbook.
func TestAlerts(t *testing.T) {
	page, err := os.ReadFile("../docs/how-to/runbooks.md")
	require.NoError(t, err)
	sections := make(map[string]bool)
	for _, heading := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(string(page), -1) {
		sections[heading[1]] = true
	}
	known, alerts := labelsOf(t), make(map[string]bool)
	for _, rule := range alertRules(t) {
		t.Run(rule.Alert, func(t *testing.T) {
			requireKnown(t, known, rule.Expr)
			require.True(t, sections[rule.Alert], "docs/how-to/runbooks.md has no section of the alert's name")
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

// The queries on the pages name metrics and labels that are served.
func TestQueriesOnPages(t *testing.T) {
	known, queries := labelsOf(t), 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, block := range regexp.MustCompile("(?s)```promql\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			queries++
			t.Run(page, func(t *testing.T) { requireKnown(t, known, block[1]) })
		}
	}
	require.Positive(t, queries)
}

// Series of a quarter of an hour, a sample a minute, in the notation of promtool. Each alert
// has series that raise it and series that do not.
var alertCases = map[string]struct{ raised, quiet []string }{
	"CPUMemNodeTakesNoClaims": {
		[]string{`cpumem_frontend_unfit{node="n",pod="a",reason="NodeUnfit"} 1x15`},
		[]string{`cpumem_frontend_unfit{node="n",pod="a",reason="NodeUnfit"} 0x15`},
	},
	"CPUMemDaemonMissing": {
		[]string{`cpumem_frontend_active{node="n",pod="a"} 1x15`},
		// Two pods of a daemon, as in an update.
		[]string{
			`cpumem_frontend_active{node="n",pod="a"} 1x15`, `cpumem_frontend_active{node="n",pod="b"} 0x15`,
			`cpumem_actuator_connected{node="n",pod="c"} 0x15`, `cpumem_actuator_connected{node="n",pod="d"} 1x15`,
		},
	},
	"CPUMemNoActiveFrontend": {
		[]string{`cpumem_frontend_active{node="n",pod="a"} 0x15`, `cpumem_frontend_active{node="n",pod="b"} 0x15`},
		[]string{`cpumem_frontend_active{node="n",pod="a"} 0x15`, `cpumem_frontend_active{node="n",pod="b"} 1x15`},
	},
	"CPUMemActuatorNotConnected": {
		[]string{`cpumem_actuator_connected{node="n",pod="a"} 0x15`},
		[]string{`cpumem_actuator_connected{node="n",pod="a"} 0x15`, `cpumem_actuator_connected{node="n",pod="b"} 1x15`},
	},
	"CPUMemNodeStateNotApplied": {
		[]string{`cpumem_frontend_node_generation{node="n",pod="a"} 5x15`, `cpumem_actuator_node_generation{node="n",pod="b"} 4x15`},
		// Claims come and go all the time, and the frontend is always scraped later.
		// A node is rebooted meanwhile.
		[]string{
			`cpumem_frontend_node_generation{node="n",pod="a"} 1+1x15`, `cpumem_actuator_node_generation{node="n",pod="b"} 0+1x15`,
			`cpumem_frontend_node_generation{node="m",pod="a"} 9x10 1x5`, `cpumem_actuator_node_generation{node="m",pod="b"} 9x10 1x5`,
		},
	},
	"CPUMemSlicesOutdated": {
		[]string{`cpumem_frontend_slices_outdated{node="n",pod="a"} 1x15`}, []string{`cpumem_frontend_slices_outdated{node="n",pod="a"} 0x15`},
	},
	"CPUMemPartitionInvalid": {
		[]string{`cpumem_frontend_invalid_partitions{node="n",pod="a"} 2x15`},
		[]string{`cpumem_frontend_invalid_partitions{node="n",pod="a"} 0x15`},
	},
	"CPUMemDeviceUnhealthy": {
		[]string{
			`cpumem_frontend_unhealthy_devices{node="n",pod="a",reason="PartitionInvalid"} 1x15`,
			`cpumem_frontend_unhealthy_devices{node="n",pod="a",reason="CPUsOffline"} 1x15`,
		},
		[]string{`cpumem_frontend_unhealthy_devices{node="n",pod="a",reason="PartitionInvalid"} 1x15`},
	},
	"CPUMemMemoryNotProtected": {
		[]string{`cpumem_frontend_memory_protection{node="n",effective="False"} 1x15`},
		[]string{`cpumem_frontend_memory_protection{node="n",effective="True"} 1x15`},
	},
	"CPUMemForeignWriter": {
		[]string{`cpumem_actuator_repaired_total{node="n",file="memory.min"} 1+1x15`},
		[]string{`cpumem_actuator_repaired_total{node="n",file="memory.min"} 7x15`},
	},
	"CPUMemKubeletFinding": {
		[]string{`cpumem_frontend_kubelet_findings{node="n",reason="NoMemoryOwner"} 1x15`},
		[]string{`cpumem_frontend_kubelet_findings{node="n",reason="KubeletConfigUnknown"} 1x15`},
	},
	"CPUMemPrepareFails": {
		[]string{`cpumem_frontend_prepare_failures_total{node="n",reason="claim"} 0+1x15`},
		[]string{`cpumem_frontend_prepare_failures_total{node="n",reason="claim"} 0 0 0 0 0 1x10`},
	},
	"CPUMemClaimRefused": {
		// A container is counted once.
		[]string{`cpumem_actuator_refused_total{node="n",reason="differs"} 0 0 0 0 0 0 0 0 0 0 1x5`},
		[]string{
			`cpumem_actuator_refused_total{node="n",reason="unbacked"} 0 0 0 0 0 0 0 0 0 0 1x5`,
			`cpumem_actuator_refused_total{node="n",reason="differs"} 0x15`,
		},
	},
	"CPUMemCallsSlow": {
		[]string{
			`cpumem_actuator_call_seconds_bucket{node="n",call="Create",le="1"} 0+10x15`,
			`cpumem_actuator_call_seconds_bucket{node="n",call="Create",le="2"} 0+20x15`,
			`cpumem_actuator_call_seconds_bucket{node="n",call="Create",le="+Inf"} 0+20x15`,
		},
		[]string{
			`cpumem_actuator_call_seconds_bucket{node="n",call="Create",le="1"} 0+20x15`,
			`cpumem_actuator_call_seconds_bucket{node="n",call="Create",le="+Inf"} 0+20x15`,
		},
	},
	"CPUMemOrphanedClaims": {
		[]string{`cpumem_frontend_orphaned_claims{node="n",pod="a"} 1x15`}, []string{`cpumem_frontend_orphaned_claims{node="n",pod="a"} 0x15`},
	},
	"CPUMemDisplacedClaims": {
		[]string{`cpumem_frontend_displaced_claims{node="n",pod="a"} 1x15`}, []string{`cpumem_frontend_displaced_claims{node="n",pod="a"} 0x15`},
	},
}

// Prometheus' own engine says for which series an alert's condition holds. The result has
// the labels that the alert's text names.
func TestAlertsAreRaised(t *testing.T) {
	used := regexp.MustCompile(`\$labels\.(\w+)`)
	names := make(map[string]bool)
	for _, rule := range alertRules(t) {
		names[rule.Alert] = true
		c := alertCases[rule.Alert]
		require.NotEmpty(t, c.raised, "%s has no cases", rule.Alert)
		t.Run(rule.Alert, func(t *testing.T) {
			raised := evaluate(t, rule.Expr, c.raised)
			require.NotEmpty(t, raised)
			for _, label := range used.FindAllStringSubmatch(rule.Annotations["summary"]+rule.Annotations["description"], -1) {
				require.NotEmpty(t, raised[0].Metric.Get(label[1]), "the text names the label %s", label[1])
			}
			require.Empty(t, evaluate(t, rule.Expr, c.quiet))
		})
	}
	require.Len(t, alertCases, len(names))
}

// evaluate returns the value of an expression after a quarter of an hour.
func evaluate(t *testing.T, expression string, series []string) promql.Vector {
	storage := promqltest.LoadedStorage(t, "load 1m\n  "+strings.Join(series, "\n  "))
	defer func() { require.NoError(t, storage.Close()) }()
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	query, err := engine.NewInstantQuery(t.Context(), storage, nil, expression, time.Unix(15*60, 0))
	require.NoError(t, err)
	defer query.Close()
	result, err := query.Exec(t.Context()).Vector()
	require.NoError(t, err)
	return result
}
