// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	frontend "github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
	actuator "github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/metrics"
)

// metric is a metric as a daemon registers it.
type metric struct {
	name, help string
	labels     []string
}

// registered notes the metrics that a daemon registers.
type registered struct{ metrics []metric }

// prometheus has no other access to these parts of a Desc.
var descForm = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: "(.+)", unit: "", constLabels: \{\}, variableLabels: \{([^}]*)\}\}$`)

// Register implements prometheus.Registerer.
func (r *registered) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc)
	go func() {
		c.Describe(descs)
		close(descs)
	}()
	var errs []error
	for d := range descs {
		parts := descForm.FindStringSubmatch(d.String())
		if parts == nil {
			errs = append(errs, fmt.Errorf("metric %s is not of the known form", d))
			continue
		}
		m := metric{name: parts[1], help: parts[2]}
		if parts[3] != "" {
			m.labels = strings.Split(parts[3], ",")
		}
		r.metrics = append(r.metrics, m)
	}
	return errors.Join(errs...)
}

// MustRegister implements prometheus.Registerer.
func (r *registered) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer.
func (r *registered) Unregister(prometheus.Collector) bool { return false }

// metricsOf returns the metrics of both daemons.
func metricsOf() (ofFrontend, ofActuator []metric, err error) {
	var f, a registered
	_, errFrontend := frontend.New(&f)
	_, errActuator := actuator.New(&a)
	return f.metrics, a.metrics, errors.Join(errFrontend, errActuator)
}

// insertMetrics replaces the tables of docs/reference/metrics.md.
func insertMetrics(present []byte) ([]byte, error) {
	ofFrontend, ofActuator, err := metricsOf()
	if err != nil {
		return nil, err
	}
	for daemon, metrics := range map[string][]metric{"dra-frontend": ofFrontend, "nri-actuator": ofActuator} {
		begins := []byte("<!-- The table is generated from " + daemon + "/metrics. -->\n")
		before, rest, found := bytes.Cut(present, begins)
		_, after, ends := bytes.Cut(rest, []byte(tableEnds))
		if !found || !ends {
			return nil, fmt.Errorf("the page has no place for the metrics of %s", daemon)
		}
		table := "\n| metric | labels | meaning |\n|---|---|---|\n"
		for _, m := range metrics {
			labels := ""
			if len(m.labels) > 0 {
				labels = "`" + strings.Join(m.labels, "`, `") + "`"
			}
			table += fmt.Sprintf("| `%s` | %s | %s |\n", m.name, labels, m.help)
		}
		present = bytes.Join([][]byte{before, begins, []byte(table + "\n" + tableEnds), after}, nil)
	}
	return present, nil
}
