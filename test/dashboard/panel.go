// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
)

// panel is a panel of the dashboard. A row is a panel without queries.
type panel struct {
	Title   string
	Type    string
	Targets []struct{ Expr, LegendFormat string }
	Config  struct {
		Defaults struct{ Unit string }
	} `json:"fieldConfig"`

	lines []line
}

// line is a series of a panel.
type line struct {
	name   string
	points []promql.FPoint // in milliseconds
}

// span is the time that the picture shows.
type span struct {
	from, to time.Time
	step     time.Duration
}

func readPanels(text []byte) ([]panel, error) {
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal(text, &dashboard); err != nil {
		return nil, err
	}
	if len(dashboard.Panels) == 0 {
		return nil, errors.New("no panels")
	}
	return dashboard.Panels, nil
}

// evaluate returns the series of the panel's queries, for all nodes, as Grafana's legend
// calls them.
func evaluate(ctx context.Context, engine *promql.Engine, data storage.Queryable, p panel, s span) (all []line, err error) {
	for _, target := range p.Targets {
		expression := strings.ReplaceAll(target.Expr, "$node", ".*")
		query, err := engine.NewRangeQuery(ctx, data, nil, expression, s.from, s.to, s.step)
		if err != nil {
			return nil, err
		}
		result := query.Exec(ctx)
		matrix, err := result.Matrix()
		if err != nil {
			query.Close()
			return nil, err
		}
		for _, series := range matrix {
			all = append(all, line{name: legend(target.LegendFormat, series.Metric), points: slices.Clone(series.Floats)})
		}
		query.Close()
	}
	slices.SortStableFunc(all, func(a, b line) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// pieces cuts a line where values are missing or are no number, such as a quantile of no calls.
func pieces(l line, step time.Duration) (all [][]promql.FPoint) {
	var piece []promql.FPoint
	end := func() {
		if len(piece) > 0 {
			all = append(all, piece)
		}
		piece = nil
	}
	for _, point := range l.points {
		if math.IsNaN(point.F) || math.IsInf(point.F, 0) {
			end()
			continue
		}
		if len(piece) > 0 && point.T-piece[len(piece)-1].T > step.Milliseconds() {
			end()
		}
		piece = append(piece, point)
	}
	end()
	return all
}

var placeholder = regexp.MustCompile(`{{\s*(\w+)\s*}}`)

// legend returns the name of a series: the format with the values of its labels.
func legend(format string, of labels.Labels) string {
	return placeholder.ReplaceAllStringFunc(format, func(word string) string {
		return of.Get(placeholder.FindStringSubmatch(word)[1])
	})
}
