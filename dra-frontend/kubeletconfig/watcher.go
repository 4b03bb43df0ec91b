// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/events"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
)

// Options are what a Watcher needs.
type Options struct {
	Log     *zap.Logger
	Metrics *metrics.Metrics
	Client  kubernetes.Interface
	Send    func(events.Notice)
	// Node is this node's name.
	Node string
	// Owner is the configured owner of memory protection.
	Owner string
	// Path is the path of kubelet's configuration file, empty if the frontend
	// does not see it.
	Path     string
	Interval time.Duration
}

// Watcher compares the configured owner of memory protection with kubelet's
// configuration, repeatedly: kubelet may be upgraded, or restarted with another
// configuration.
type Watcher struct {
	o Options

	// kubeletVersion was read at versionTime.
	kubeletVersion string
	versionTime    time.Time
	last           reading
	// lastFinding was reported at reportTime.
	lastFinding Finding
	reportTime  time.Time
	// complaint is the last error that was logged.
	complaint string
}

// reading is kubelet's configuration, or the problem with reading it.
type reading struct {
	kubelet Kubelet
	problem string
}

// versionInterval is how long kubelet's version is believed. A changed
// configuration, which most upgrades bring, makes the daemon ask at once.
const versionInterval = time.Hour

// callTimeout limits one request to the API server.
const callTimeout = 10 * time.Second

// NewWatcher returns a Watcher.
func NewWatcher(o Options) *Watcher { return &Watcher{o: o} }

// Run compares until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	w.o.Metrics.KubeletFinding("", Reasons())
	if w.o.Owner == config.OwnerNone {
		return
	}
	ticker := time.NewTicker(w.o.Interval)
	defer ticker.Stop()
	for {
		w.check(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (w *Watcher) check(ctx context.Context) {
	kubelet, problem := Kubelet{}, ErrNotShown
	if w.o.Path != "" {
		kubelet, problem = Read(w.o.Path)
	}
	if now := (reading{kubelet: kubelet, problem: fmt.Sprint(problem)}); !reflect.DeepEqual(now, w.last) {
		w.last, w.kubeletVersion = now, ""
		if problem == nil {
			w.o.Log.Info("kubelet's configuration", zap.Any("memoryQoS", kubelet))
		}
	}
	if w.kubeletVersion == "" || time.Since(w.versionTime) > versionInterval {
		if err := w.ask(ctx); err != nil && w.kubeletVersion == "" {
			w.complain(ctx, err)
			return
		}
	}
	finding, err := Owners(w.o.Owner, w.kubeletVersion, kubelet, problem)
	if err != nil {
		w.complain(ctx, err)
		return
	}
	w.complaint = ""
	w.report(finding)
}

func (w *Watcher) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node, err := w.o.Client.CoreV1().Nodes().Get(ctx, w.o.Node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	w.kubeletVersion, w.versionTime = node.Status.NodeInfo.KubeletVersion, time.Now()
	return nil
}

func (w *Watcher) complain(ctx context.Context, err error) {
	if ctx.Err() == nil && err.Error() != w.complaint {
		w.complaint = err.Error()
		w.o.Log.Warn("owner of memory protection not checked; the frontend tries again", zap.Error(err))
	}
}

// report sets the metric, and sends and logs a finding when it is new and each hour while
// it stays. It logs the end of a finding.
func (w *Watcher) report(finding *Finding) {
	now := Finding{}
	if finding != nil {
		now = *finding
	}
	w.o.Metrics.KubeletFinding(now.Reason, Reasons())
	if now == w.lastFinding && (finding == nil || time.Since(w.reportTime) < events.AgainInterval) {
		return
	}
	w.lastFinding, w.reportTime = now, time.Now()
	if finding == nil {
		w.o.Log.Info("memory protection has one owner", zap.String("owner", w.o.Owner))
		return
	}
	w.o.Log.Warn("kubelet's configuration does not suit the driver's", zap.String("reason", now.Reason), zap.String("finding", now.Message))
	w.o.Send(events.Notice{Reason: now.Reason, Note: now.Message})
}
