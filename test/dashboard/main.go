// SPDX-License-Identifier: Apache-2.0

// Command dashboard draws the chart's Grafana dashboard as a picture for the pages, from a
// real run: it scrapes the daemons and the kubelets of a cluster for a while, with the
// labels that the chart's PodMonitor gives, evaluates the panels' queries with Prometheus'
// engine, and writes all panels as one SVG. The cluster needs the driver with
// metrics.enabled=true. Kubeconfig is KUBECONFIG's:
//
//	go run ./dashboard -for 10m > ../docs/reference/dashboard.svg
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	period := flag.Duration("for", 10*time.Minute, "how long to scrape")
	interval := flag.Duration("every", 10*time.Second, "time between scrapes")
	namespace := flag.String("namespace", "cpumem-system", "namespace of the daemons")
	file := flag.String("dashboard", "../charts/dra-driver-cpumem/files/dashboard.json", "the chart's dashboard")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, *file, *namespace, *period, *interval)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file, namespace string, period, interval time.Duration) (err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	all, err := readPanels(text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "dashboard")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	database, err := tsdb.Open(dir, slog.New(slog.DiscardHandler), nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Close()) }()

	from := time.Now()
	if err := scrape(ctx, client, namespace, database, from.Add(period), interval); err != nil {
		return err
	}
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 10_000_000, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{}),
	})
	span := span{from: from, to: time.Now(), step: interval}
	for i := range all {
		if all[i].lines, err = evaluate(ctx, engine, database, all[i], span); err != nil {
			return fmt.Errorf("panel %s: %w", all[i].Title, err)
		}
	}
	_, err = os.Stdout.WriteString(draw(all, span))
	return err
}
