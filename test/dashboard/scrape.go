// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// shown are the beginnings of the names of metrics that the dashboard has.
var shown = []string{"cpumem_", "container_pressure_"}

// target is an endpoint of the API server that passes a scrape on, and the labels that the
// scrape adds.
type target struct {
	path string
	add  map[string]string
}

// scrape reads all metrics at each interval until the end. A scrape that fails is a gap, as
// it is for Prometheus: pods come and go. It is an error if all fail.
func scrape(
	ctx context.Context, client kubernetes.Interface, namespace string, into storage.Appendable, until time.Time, interval time.Duration,
) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	scraped := 0
	var last error
	before := map[uint64]labels.Labels{} // series of the last scrape, by their hash
	for time.Now().Before(until) {
		all, err := targets(ctx, client, namespace)
		if err != nil {
			last = err
		}
		now, these := time.Now(), map[uint64]labels.Labels{}
		for _, t := range all {
			text, err := client.CoreV1().RESTClient().Get().AbsPath(t.path).DoRaw(ctx)
			if err == nil {
				err = store(ctx, into, text, t.add, now, these)
			}
			if err != nil {
				last = fmt.Errorf("%s: %w", t.path, err)
				fmt.Fprintln(os.Stderr, "dashboard: a gap:", last)
				continue
			}
			scraped++
		}
		if err := end(ctx, into, before, these, now); err != nil {
			return err
		}
		before = these
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	if scraped == 0 {
		return errors.Join(errors.New("nothing was scraped: is the driver installed with metrics.enabled=true?"), last)
	}
	return nil
}

// targets returns the daemons that run, and the kubelets.
func targets(ctx context.Context, client kubernetes.Interface, namespace string) (all []target, err error) {
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component"})
	if err != nil {
		return nil, err
	}
	nodes := map[string]bool{}
	for _, p := range pods.Items {
		if p.Status.Phase != corev1.PodRunning {
			continue
		}
		nodes[p.Spec.NodeName] = true
		for _, c := range p.Spec.Containers {
			for _, port := range c.Ports {
				all = append(all, target{
					path: fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy/metrics", namespace, p.Name, port.ContainerPort),
					add:  map[string]string{"node": p.Spec.NodeName, "pod": p.Name, "namespace": namespace},
				})
			}
		}
	}
	for node := range nodes {
		all = append(all, target{
			path: "/api/v1/nodes/" + node + "/proxy/metrics/cadvisor", add: map[string]string{"node": node},
		})
	}
	return all, nil
}

// store appends the samples of the shown metrics in the text, and adds their series to these.
func store(
	ctx context.Context, into storage.Appendable, text []byte, add map[string]string, at time.Time, these map[uint64]labels.Labels,
) error {
	p, err := textparse.New(text, "text/plain", nil, textparse.ParserOptions{})
	if err != nil {
		return err
	}
	out := into.Appender(ctx)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return out.Commit()
		}
		if err != nil {
			return errors.Join(err, out.Rollback())
		}
		if entry != textparse.EntrySeries {
			continue
		}
		series, _, sample := p.Series()
		if !isShown(string(series)) {
			continue
		}
		var of labels.Labels
		p.Labels(&of)
		named := labels.NewBuilder(of)
		for name, content := range add {
			named.Set(name, content)
		}
		complete := named.Labels()
		if _, err := out.Append(0, complete, at.UnixMilli(), sample); err != nil {
			return errors.Join(err, out.Rollback())
		}
		these[complete.Hash()] = complete
	}
}

// end marks the series that the scrape before had and this scrape has not, as Prometheus
// does: their lines end here, and not after five minutes.
func end(ctx context.Context, into storage.Appendable, before, these map[uint64]labels.Labels, at time.Time) error {
	out := into.Appender(ctx)
	for hash, series := range before {
		if _, there := these[hash]; there {
			continue
		}
		if _, err := out.Append(0, series, at.UnixMilli(), math.Float64frombits(value.StaleNaN)); err != nil {
			return errors.Join(err, out.Rollback())
		}
	}
	return out.Commit()
}

// isShown reports whether the dashboard may have the series.
func isShown(series string) bool {
	for _, name := range shown {
		if strings.HasPrefix(series, name) {
			return true
		}
	}
	return false
}
