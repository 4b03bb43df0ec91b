// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// auditFlags are the flags of the API server for a log of the driver's calls.
func auditFlags(clusterDir string) (map[string]string, error) {
	policy, err := filepath.Abs("testdata/audit.yaml")
	return map[string]string{"audit-policy-file": policy, "audit-log-path": auditLog(clusterDir)}, err
}

func auditLog(clusterDir string) string {
	return filepath.Join(clusterDir, "run", "control-plane", "audit.log")
}

// calls are calls of the API server by verb and resource, such as "get pods".
type calls map[string]int

func (c calls) sum() (n int) {
	for _, count := range c {
		n += count
	}
	return n
}

// callsOf returns the calls of a daemon's pod since the time. A watch is a call when it begins.
func (s suite) callsOf(t *testing.T, pod string, since time.Time) calls {
	t.Helper()
	data, err := os.ReadFile(auditLog(filepath.Dir(filepath.Dir(s.Kubeconfig()))))
	require.NoError(t, err)
	found := calls{}
	for line := range strings.Lines(string(data)) {
		var e struct {
			Stage, Verb string
			Begin       metav1.MicroTime                       `json:"requestReceivedTimestamp"`
			Object      struct{ Resource, Subresource string } `json:"objectRef"`
			User        struct{ Extra map[string][]string }
		}
		require.NoError(t, json.Unmarshal([]byte(line), &e), "%.300s", line)
		stage := "ResponseComplete"
		if e.Verb == "watch" {
			stage = "ResponseStarted"
		}
		by := e.User.Extra["authentication.kubernetes.io/pod-name"]
		if e.Stage != stage || e.Begin.Time.Before(since) || len(by) != 1 || by[0] != pod {
			continue
		}
		found[strings.TrimSuffix(e.Verb+" "+e.Object.Resource+"/"+e.Object.Subresource, "/")]++
	}
	return found
}

// usage is what a process of a node has taken.
type usage struct {
	resident, peak int           // MiB
	cpu            time.Duration // since its start
}

// usageOf returns what a program of the node has taken.
func (s suite) usageOf(t *testing.T, program string) usage {
	t.Helper()
	out, err := s.NodeExec(t.Context(), s.node, fmt.Sprintf("p=$(pidof %s); "+
		`awk '/^VmRSS|^VmHWM/ {print $2}' /proc/$p/status; sed 's/.*) //' /proc/$p/stat | awk '{print $12+$13}'`, program))
	require.NoError(t, err)
	var peak, resident, ticks int
	_, err = fmt.Sscan(out, &peak, &resident, &ticks)
	require.NoError(t, err, "%s: %q", program, out)
	return usage{resident: resident >> 10, peak: peak >> 10, cpu: time.Duration(ticks) * 10 * time.Millisecond}
}

// programs are the daemons' programs, and the most memory that each may have in MiB, with 60 pods.
var programs = map[string]int{"dra-frontend": 64, "nri-actuator": 32}

// TestCost reports what both daemons take: calls of the API server, memory, and CPU at rest. It fails if a pod costs more
// calls than one of each kind, or if a node at rest makes calls.
func TestCost(t *testing.T) {
	longOnly(t)
	s := theSuite
	s.configure(t)
	began := time.Now()
	old := s.daemon(t, "frontend").Name
	require.NoError(t, s.client.CoreV1().Pods(namespace).Delete(t.Context(), old, metav1.DeleteOptions{}))
	eventually(t, "a new frontend", s.ready)
	frontend := s.daemon(t, "frontend").Name
	require.NotEqual(t, old, frontend)
	atStart := s.callsOf(t, frontend, began)
	t.Logf("calls of a frontend that starts: %v", atStart)
	require.NotZero(t, atStart["watch resourceslices"], "the audit log has the frontend's calls")
	require.LessOrEqual(t, atStart.sum(), 12)

	s.atRest(t, frontend, "no claims")

	const pods = 60
	began = time.Now()
	for i := range pods {
		name := fmt.Sprintf("cost-%d", i)
		s.claim(t, name, "", capacity{"memory": "1Mi"})
		s.create(t, pod(name, []string{"sleep"}, name))
	}
	for i := range pods {
		s.running(t, fmt.Sprintf("cost-%d", i))
	}
	ofPods := s.callsOf(t, frontend, began)
	t.Logf("calls for %d pods with a claim each: %v", pods, ofPods)
	for kind, count := range ofPods {
		require.LessOrEqual(t, count, pods+pods/10, kind)
	}
	for program, most := range programs {
		require.LessOrEqual(t, s.usageOf(t, program).peak, most, program)
	}
	s.atRest(t, frontend, fmt.Sprintf("%d claims", pods))
}

// atRest observes a node for a minute in which nothing happens.
func (s suite) atRest(t *testing.T, frontend, state string) {
	t.Helper()
	before := map[string]usage{}
	for program := range programs {
		before[program] = s.usageOf(t, program)
	}
	const observed = time.Minute // 12 times refreshInterval
	began := time.Now()
	<-time.After(observed)
	for program := range programs {
		now := s.usageOf(t, program)
		t.Logf("%s with %s: %d MiB, at most %d MiB, %.2f %% of a CPU", program, state, now.resident, now.peak,
			100*float64(now.cpu-before[program].cpu)/float64(time.Since(began)))
	}
	made := s.callsOf(t, frontend, began)
	for kind := range made {
		// The API server ends each watch after some minutes.
		require.True(t, strings.HasPrefix(kind, "watch "), "a node at rest made calls: %v", made)
	}
}
