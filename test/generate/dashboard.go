// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
)

// panel is a panel of the Grafana dashboard.
type panel struct {
	title, description string
	// unit is Grafana's: short, bytes, s, ops.
	unit string
	// queries are pairs: an expression and the legend of its series.
	queries [][2]string
}

// perNode selects the nodes that the reader of the dashboard has chosen.
const perNode = `node=~"$node"`

// dashboardRows are the dashboard: headings with their panels.
func dashboardRows() []row {
	return []row{
		{"What is free", []panel{
			{"Free CPUs", "Published CPUs that no prepared claim holds, by zone.", "short", [][2]string{
				{`cpumem_frontend_zone_free{resource="cpu",` + perNode + `}`, "{{node}} {{zone}}"},
			}},
			{"Free memory", "Published memory that no prepared claim holds, by zone.", "bytes", [][2]string{
				{`cpumem_frontend_zone_free{resource="memory",` + perNode + `}`, "{{node}} {{zone}}"},
			}},
			{"Free hugepages", "By zone and page size.", "bytes", [][2]string{
				{`cpumem_frontend_zone_free{resource=~"hugepages_.*",` + perNode + `}`, "{{node}} {{zone}} {{resource}}"},
			}},
			{"Claimed part of the CPUs", "By zone, 1 for all of them.", "percentunit", [][2]string{
				{`cpumem_frontend_zone_claimed{resource="cpu",` + perNode + `} / cpumem_frontend_zone_capacity{resource="cpu"}`, "{{node}} {{zone}}"},
			}},
			{"Largest free block", "Free cores that share an L3 cache, and L3 caches that are free as a whole, by zone.", "short", [][2]string{
				{`cpumem_frontend_zone_largest_block_cores{` + perNode + `}`, "{{node}} {{zone}} cores"},
				{`cpumem_frontend_zone_free_l3s{` + perNode + `}`, "{{node}} {{zone}} L3s"},
			}},
			{"Shared pool", "CPUs of containers without claimed CPUs, as nri-actuator applied them.", "short", [][2]string{
				{`cpumem_actuator_pool_cpus{` + perNode + `}`, "{{node}}"},
			}},
		}},
		{"Claims", []panel{
			{"Prepared claims", "", "short", [][2]string{
				{`cpumem_frontend_claims{` + perNode + `}`, "{{node}}"},
			}},
			{"Claims with CPUs by isolation", "none: only the shared pool leaves the CPUs out.", "short", [][2]string{
				{`sum by (isolation) (cpumem_frontend_isolated_results{` + perNode + `})`, "{{isolation}}"},
			}},
			{"Disturbances of quiet CPUs",
				"In a second, on CPUs of claims that ask for quiet ones: interrupts of devices, stops by CPU limits, lost partitions.",
				"ops", [][2]string{
					{`sum by (node, kind) (rate(cpumem_frontend_disturbances_total{` + perNode + `}[5m]))`, "{{node}} {{kind}}"},
				}},
			{"Claims that were not prepared", "Tries in a second, by the kind of reason.", "ops", [][2]string{
				{`sum by (reason) (rate(cpumem_frontend_prepare_failures_total{` + perNode + `}[5m]))`, "{{reason}}"},
			}},
			{"Time to prepare", "99 of 100 claims take less.", "s", [][2]string{
				{`histogram_quantile(0.99, sum by (node, le) (rate(cpumem_frontend_prepare_seconds_bucket{` + perNode + `}[5m])))`, "{{node}}"},
			}},
			{"Memory protection", "Results of claims by whether their protection is effective.", "short", [][2]string{
				{`sum by (effective) (cpumem_frontend_memory_protection{` + perNode + `})`, "{{effective}}"},
			}},
			{"Lost partitions, orphans, displaced claims", "All should be 0.", "short", [][2]string{
				{`cpumem_frontend_invalid_partitions{` + perNode + `}`, "{{node}} lost partitions"},
				{`cpumem_frontend_orphaned_claims{` + perNode + `}`, "{{node}} orphans"},
				{`cpumem_frontend_displaced_claims{` + perNode + `}`, "{{node}} displaced"},
			}},
		}},
		{"Pressure, from kubelet's metrics", []panel{
			waiting("cpu", "Pods that wait for CPUs"),
			waiting("memory", "Pods that wait for memory"),
		}},
		{"Daemons", []panel{
			{"Nodes that take no new claims", "1 for each reason.", "short", [][2]string{
				{`max by (node, reason) (cpumem_frontend_unfit{` + perNode + `}) == 1`, "{{node}} {{reason}}"},
			}},
			{"Time of the runtime's calls", "99 of 100 calls take less. The runtime goes on after 2 seconds.", "s", [][2]string{
				{`histogram_quantile(0.99, sum by (node, le) (rate(cpumem_actuator_call_seconds_bucket{` + perNode + `}[5m])))`, "{{node}}"},
			}},
			{"Node states that are not applied", "Generations that nri-actuator is behind.", "short", [][2]string{
				{
					`max by (node) (cpumem_frontend_node_generation{` + perNode + `})` +
						` - on (node) max by (node) (cpumem_actuator_node_generation)`, "{{node}}",
				},
			}},
			{"Repairs", "Cgroup files in a second that another program had changed.", "ops", [][2]string{
				{`sum by (node, file) (rate(cpumem_actuator_repaired_total{` + perNode + `}[5m]))`, "{{node}} {{file}}"},
			}},
			{"Containers whose claims were refused", "By reason.", "ops", [][2]string{
				{`sum by (node, reason) (rate(cpumem_actuator_refused_total{` + perNode + `}[5m]))`, "{{node}} {{reason}}"},
			}},
			{"Versions", "", "short", [][2]string{
				{`count by (version) (cpumem_frontend_build_info{` + perNode + `})`, "dra-frontend {{version}}"},
				{`count by (version) (cpumem_actuator_build_info{` + perNode + `})`, "nri-actuator {{version}}"},
			}},
		}},
	}
}

// waiting returns the panel of the pods that wait most for a resource, from a metric of
// kubelet.
func waiting(resource, title string) panel {
	return panel{title, "Part of the time in which a task waits: the five highest, with and without claims.", "percentunit", [][2]string{{
		`topk(5, rate(container_pressure_` + resource + `_waiting_seconds_total{container="",pod!="",` + perNode + `}[5m]))`,
		"{{node}} {{namespace}}/{{pod}}",
	}}}
}

type row struct {
	title  string
	panels []panel
}

// Sizes in Grafana's units: three panels are a line.
const (
	panelWidth  = 8
	panelHeight = 8
	lineWidth   = 24
)

// dashboard returns the Grafana dashboard of the driver's metrics.
func dashboard() ([]byte, error) {
	type object = map[string]any
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var panels []object
	id, y := 0, 0
	add := func(p object, x, width, height int) {
		id++
		p["id"], p["gridPos"] = id, object{"x": x, "y": y, "w": width, "h": height}
		panels = append(panels, p)
	}
	for _, r := range dashboardRows() {
		add(object{"type": "row", "title": r.title, "collapsed": false, "panels": []any{}}, 0, lineWidth, 1)
		y++
		for i, p := range r.panels {
			if x := i * panelWidth % lineWidth; x == 0 && i > 0 {
				y += panelHeight
			}
			var targets []object
			for k, q := range p.queries {
				targets = append(targets, object{
					"refId": string(rune('A' + k)), "expr": q[0], "legendFormat": q[1], "datasource": source,
				})
			}
			add(object{
				"type": "timeseries", "title": p.title, "description": p.description, "datasource": source, "targets": targets,
				"fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0}, "overrides": []any{}},
			}, i*panelWidth%lineWidth, panelWidth, panelHeight)
		}
		y += panelHeight
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(object{
		"title": "dra-driver-cpumem", "uid": "dra-driver-cpumem", "schemaVersion": 39, "tags": []string{"kubernetes", "dra"},
		"time": object{"from": "now-6h", "to": "now"}, "refresh": "1m", "panels": panels,
		"templating": object{"list": []object{
			{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
			{
				"name": "node", "type": "query", "label": "Node", "datasource": source, "multi": true, "includeAll": true,
				"allValue": ".*", "query": "label_values(cpumem_frontend_build_info, node)", "refresh": 2,
				"current": object{"text": "All", "value": "$__all"},
			},
		}},
	})
	return b.Bytes(), err
}
