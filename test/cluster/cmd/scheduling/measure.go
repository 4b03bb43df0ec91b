// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/hollow"
)

const (
	namespace = "default"
	// firstBound is the longest time until the first pod has a node. The scheduler reads all objects first.
	firstBound = 3 * time.Minute
)

// profilePage is the scheduler's page for CPU profiles.
const profilePage = "/debug/pprof/profile"

// result is what a measurement gave.
type result struct {
	spec
	pods   int           // that got a node after the first
	took   time.Duration // from the first pod that got a node to the end of the measurement
	cpu    time.Duration // of the scheduler, in this time
	slices int           // bytes of a node's slices, as protobuf
}

func (r result) podsPerSecond() float64   { return float64(r.pods) / r.took.Seconds() }
func (r result) cpuPerPod() time.Duration { return r.cpu / time.Duration(r.pods) }

// bench measures on control planes that it starts, one for each measurement, so that none has objects of another.
type bench struct {
	dir      string
	pods     int           // that wait at the start
	limit    time.Duration // of a measurement, from the first pod that got a node
	profiles string        // directory, empty for no profiles
}

// profile returns the file for the scheduler's profile.
func (b bench) profile(s spec) string {
	return filepath.Join(b.profiles, strings.NewReplacer(" ", "-", ",", "").Replace(s.String())+".pprof")
}

// flags let the control plane work without limits on requests.
func flags() map[string]map[string]string {
	return map[string]map[string]string{
		hollow.Scheduler: {
			"kube-api-qps": "100000", "kube-api-burst": "100000",
			"bind-address": "0.0.0.0", "authorization-always-allow-paths": profilePage,
		},
		hollow.APIServer: {
			"max-requests-inflight": "0", "max-mutating-requests-inflight": "0", "enable-priority-and-fairness": "false",
		},
	}
}

// run makes one measurement.
func (b bench) run(ctx context.Context, s spec) (r result, err error) {
	p, err := hollow.Start(ctx, b.dir, flags())
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, p.Down(context.WithoutCancel(ctx))) }()
	client, err := kubernetes.NewForConfig(p.Config)
	if err != nil {
		return result{}, err
	}
	r = result{spec: s}
	if r.slices, err = s.prepare(ctx, client, b.pods); err != nil {
		return result{}, fmt.Errorf("objects: %w", err)
	}
	err = b.schedule(ctx, p, client, &r)
	return r, err
}

// prepare makes all objects and returns the size of a node's slices in bytes.
func (s spec) prepare(ctx context.Context, client kubernetes.Interface, pods int) (bytes int, err error) {
	for _, class := range classes() {
		if _, err := client.ResourceV1().DeviceClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return 0, err
		}
	}
	devices, err := s.devices()
	if err != nil {
		return 0, err
	}
	for driver, of := range devices {
		for _, slice := range hollow.Slices(hollow.Name(0), driver, of) {
			bytes += slice.Size()
		}
	}
	if err := hollow.Publish(ctx, client, s.nodes, devices); err != nil {
		return 0, err
	}
	claims := client.ResourceV1().ResourceClaims(namespace)
	err = hollow.Each(ctx, s.allocated, func(ctx context.Context, i int) error {
		claim := spec{kind: zone}.claim(fmt.Sprintf("earlier-%d", i))
		made, err := claims.Create(ctx, claim, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		made.Finalizers = append(made.Finalizers, resourceapi.Finalizer)
		if made, err = claims.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
			return err
		}
		made.Status.Allocation = s.allocation(i)
		_, err = claims.UpdateStatus(ctx, made, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return 0, err
	}
	return bytes, hollow.Each(ctx, pods, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("pod-%d", i)
		if claim := s.claim(name); claim != nil {
			if _, err := claims.Create(ctx, claim, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		_, err := client.CoreV1().Pods(namespace).Create(ctx, s.pod(name), metav1.CreateOptions{})
		return err
	})
}

// schedule starts the scheduler and watches the pods until all have a node, or until the limit.
func (b bench) schedule(ctx context.Context, p hollow.ControlPlane, client kubernetes.Interface, r *result) error {
	ctx, stop := context.WithTimeout(ctx, firstBound+b.limit)
	defer stop()
	pods := client.CoreV1().Pods(namespace)
	watch, err := pods.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer func() { watch.Stop() }()
	if err := p.StartProgram(hollow.Scheduler); err != nil {
		return err
	}
	var pid int
	var first time.Time
	var cpu time.Duration
	var over <-chan time.Time
	profiled := make(chan error, 1)
	bound := map[string]bool{}
	for measuring := true; measuring && len(bound) < b.pods; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d pods have a node: %w", len(bound), b.pods, ctx.Err())
		case <-over:
			measuring = false
		case event, open := <-watch.ResultChan():
			if !open { // The API server ends the watch of a slow reader. A new one begins with all pods.
				next, err := pods.Watch(ctx, metav1.ListOptions{})
				if err != nil {
					return err
				}
				watch = next
				continue
			}
			pod, is := event.Object.(*corev1.Pod)
			if !is || pod.Spec.NodeName == "" || bound[pod.Name] {
				continue
			}
			bound[pod.Name] = true
			if len(bound) > 1 {
				continue
			}
			if pid, err = p.PID(hollow.Scheduler); err != nil {
				return err
			}
			if cpu, err = hollow.CPUTime(pid); err != nil {
				return err
			}
			first, over = time.Now(), time.After(b.limit)
			if b.profiles != "" {
				go func() { profiled <- profile(ctx, p.Config, b.limit/2, b.profile(r.spec)) }()
			}
		}
	}
	end, err := hollow.CPUTime(pid)
	if err != nil {
		return err
	}
	r.pods, r.took, r.cpu = len(bound)-1, time.Since(first), end-cpu
	if r.pods < 1 {
		return fmt.Errorf("%s: one pod got a node in %s: give more with -limit", r.spec, b.limit)
	}
	if b.profiles != "" {
		return <-profiled
	}
	return nil
}

// profile writes the scheduler's CPU profile of the time into the file.
func profile(ctx context.Context, api *rest.Config, d time.Duration, file string) error {
	address, err := url.Parse(api.Host)
	if err != nil {
		return err
	}
	// The scheduler makes a certificate for itself.
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		return err
	}
	page := fmt.Sprintf("https://%s:10259%s?seconds=%d", address.Hostname(), profilePage, max(1, int(d.Seconds())))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("profile of the scheduler: %s: %.200s", resp.Status, data)
	}
	return os.WriteFile(file, data, 0o644)
}
