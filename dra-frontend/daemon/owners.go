// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"reflect"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/events"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/preflight"
)

// owners compares the configured owner of memory protection with kubelet's
// configuration, repeatedly: kubelet may be upgraded, or restarted with another
// configuration. It runs beside the daemon's loop because it asks the API server.
type owners struct {
	log      *zap.Logger
	metrics  *metrics.Metrics
	client   kubernetes.Interface
	send     func(events.Notice)
	node     string
	owner    string
	path     string
	interval time.Duration

	// version is kubelet's, asked the time of asking for it.
	version string
	asked   time.Time
	read    kubeletRead
	// found is the last finding, sent the time of its report.
	found preflight.Finding
	sent  time.Time
	// complaint is the last error that was logged.
	complaint string
}

// kubeletRead is kubelet's configuration, or the problem with reading it.
type kubeletRead struct {
	kubelet preflight.Kubelet
	problem string
}

// versionInterval is how long kubelet's version is believed. A changed
// configuration, which most upgrades bring, makes the daemon ask at once.
const versionInterval = time.Hour

// againInterval is how often a lasting fault is reported again. The API server
// keeps events for an hour, and may be away for longer than a notice waits.
const againInterval = time.Hour

func newOwners(o Options, send func(events.Notice)) *owners {
	return &owners{
		log: o.Log, metrics: o.Metrics, client: o.Client, send: send, node: o.Kubelet.NodeName,
		owner: o.Config.MemoryQoS.Owner, path: o.Config.KubeletConfigFile, interval: o.Config.RefreshInterval.Duration,
	}
}

func (w *owners) run(ctx context.Context) {
	w.metrics.KubeletFinding("", preflight.Reasons())
	if w.owner == config.OwnerNone {
		return
	}
	ticker := time.NewTicker(w.interval)
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

func (w *owners) check(ctx context.Context) {
	kubelet, problem := preflight.Kubelet{}, error(preflight.ErrNotShown)
	if w.path != "" {
		kubelet, problem = preflight.ReadKubelet(w.path)
	}
	if read := (kubeletRead{kubelet: kubelet, problem: text(problem)}); !reflect.DeepEqual(read, w.read) {
		w.read, w.version = read, ""
		if problem == nil {
			w.log.Info("kubelet's configuration", zap.Any("memoryQoS", kubelet))
		}
	}
	if w.version == "" || time.Since(w.asked) > versionInterval {
		if err := w.ask(ctx); err != nil && w.version == "" {
			w.complain(ctx, err)
			return
		}
	}
	finding, err := preflight.Owners(w.owner, w.version, kubelet, problem)
	if err != nil {
		w.complain(ctx, err)
		return
	}
	w.complaint = ""
	w.report(finding)
}

func (w *owners) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node, err := w.client.CoreV1().Nodes().Get(ctx, w.node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	w.version, w.asked = node.Status.NodeInfo.KubeletVersion, time.Now()
	return nil
}

func (w *owners) complain(ctx context.Context, err error) {
	if ctx.Err() == nil && err.Error() != w.complaint {
		w.complaint = err.Error()
		w.log.Warn("owner of memory protection not checked, it is tried again", zap.Error(err))
	}
}

// report sends a finding as event, log line and metric, each hour while the finding
// stays. It logs the end of a finding.
func (w *owners) report(finding *preflight.Finding) {
	now := preflight.Finding{}
	if finding != nil {
		now = *finding
	}
	w.metrics.KubeletFinding(now.Reason, preflight.Reasons())
	if now == w.found && (finding == nil || time.Since(w.sent) < againInterval) {
		return
	}
	w.found, w.sent = now, time.Now()
	if finding == nil {
		w.log.Info("memory protection has one owner", zap.String("owner", w.owner))
		return
	}
	w.log.Warn("preflight", zap.String("reason", now.Reason), zap.String("finding", now.Message))
	w.send(events.Notice{Reason: now.Reason, Note: now.Message})
}
