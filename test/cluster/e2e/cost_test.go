// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
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
	log := filepath.Join(clusterDir, "run", "control-plane", "audit.log")
	return map[string]string{"audit-policy-file": policy, "audit-log-path": log}, err
}

// calls are calls of the API server by verb and resource, such as "get pods".
type calls map[string]int

func (c calls) sum() (n int) {
	for _, count := range c {
		n += count
	}
	return n
}

// writes returns the calls that write.
func (c calls) writes() calls {
	found := calls{}
	for kind, count := range c {
		switch verb, _, _ := strings.Cut(kind, " "); verb {
		case "create", "update", "patch", "delete":
			found[kind] = count
		}
	}
	return found
}

// callsOf returns the calls of a daemon's pod since the time. A watch is a call when it begins.
func (s suite) callsOf(t *testing.T, pod string, since time.Time) calls {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(filepath.Dir(s.Kubeconfig()), "control-plane", "audit.log"))
	require.NoError(t, err)
	data = data[:bytes.LastIndexByte(data, '\n')+1] // the last line may be a part
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
	own            int           // MiB of resident that is no page of the program's file
	files          int           // open files
	cpu            time.Duration // since its start
}

// usageOf returns what a program of the node has taken. A file that the program closes while ls reads the
// list is no error.
func (s suite) usageOf(t *testing.T, program string) usage {
	t.Helper()
	out, err := s.NodeExec(t.Context(), s.node, fmt.Sprintf("p=$(pidof %s); "+
		`awk '/^VmRSS|^VmHWM|^RssAnon/ {print $2}' /proc/$p/status; ls /proc/$p/fd 2>/dev/null | wc -l; `+
		`sed 's/.*) //' /proc/$p/stat | awk '{print $12+$13}'`,
		program))
	require.NoError(t, err)
	var peak, resident, own, files, ticks int
	_, err = fmt.Sscan(out, &peak, &resident, &own, &files, &ticks)
	require.NoError(t, err, "%s: %q", program, out)
	return usage{resident: resident >> 10, peak: peak >> 10, own: own >> 10, files: files, cpu: time.Duration(ticks) * 10 * time.Millisecond}
}

// programs are the daemons' programs, and the most memory that each may have in MiB, with 10 pods.
var programs = map[string]int{"dra-frontend": 64, "nri-actuator": 32}

// callsOfAClaim has the most calls of a kind that one claim may cost. Kubelet's plugin library reads the claim once. The frontend
// writes the status once, or twice if the claim's memory is protected later than the first write. It reads the claim before each write.
var callsOfAClaim = map[string]int{"get resourceclaims": 3, "patch resourceclaims/status": 2}

// restartFrontend gives the node a new frontend as an update does, and returns the pod's name. After the end of a pod alone
// kubelet deletes the node's slices if the next pod takes more than 30 seconds, as it may on an emulated node.
func (s suite) restartFrontend(t *testing.T) (name string) {
	t.Helper()
	old := s.daemon(t, "frontend").Name
	s.configure(t, "frontend.podAnnotations.restarted=once")
	eventually(t, "the end of the old frontend", func(ctx context.Context) error {
		pods, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "spec.nodeName=" + s.node, LabelSelector: "app.kubernetes.io/component=frontend",
		})
		if err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Name == old {
			return fmt.Errorf("%d frontends, and %s must not be one", len(pods.Items), old)
		}
		name = pods.Items[0].Name
		return nil
	})
	return name
}

// A08: TestCost reports what both daemons take: calls of the API server, memory, and CPU at rest. A frontend that starts
// again writes nothing. A node at rest makes no calls. A pod with a claim costs each kind of call once, or callsOfAClaim.
func TestCost(t *testing.T) {
	longOnly(t)
	s := theSuite
	s.configure(t)
	began := time.Now()
	frontend := s.restartFrontend(t)
	s.atRest(t, frontend, "no claims", began)
	atStart := s.callsOf(t, frontend, began)
	t.Logf("calls of a frontend that starts: %v", atStart)
	require.NotZero(t, atStart["watch resourceslices"], "the audit log has the frontend's calls")
	require.LessOrEqual(t, atStart.sum(), 12)
	require.Empty(t, atStart.writes())

	const pods = 10
	began = time.Now()
	for i := range pods {
		name := fmt.Sprintf("cost-%d", i)
		s.claim(t, name, "", capacity{"memory": "24Mi"})
		s.create(t, pod(name, []string{"sleep"}, name))
	}
	for i := range pods {
		s.running(t, fmt.Sprintf("cost-%d", i))
	}
	s.atRest(t, frontend, fmt.Sprintf("%d claims", pods), began)
	ofPods := s.callsOf(t, frontend, began)
	t.Logf("calls for %d pods with a claim each: %v", pods, ofPods)
	for kind, count := range ofPods {
		require.LessOrEqual(t, count, pods*max(1, callsOfAClaim[kind]), kind)
	}
	for program, most := range programs {
		require.LessOrEqual(t, s.usageOf(t, program).peak, most, program)
	}
}

// atRest waits until the frontend has made no call for ten seconds, beginning at a time, and then observes for a minute in
// which nothing happens.
func (s suite) atRest(t *testing.T, frontend, state string, began time.Time) {
	t.Helper()
	const pause = 10 * time.Second
	last, since := s.callsOf(t, frontend, began).sum(), time.Now()
	eventually(t, "no more calls", func(context.Context) error {
		if now := s.callsOf(t, frontend, began).sum(); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < pause {
			return fmt.Errorf("%d calls, the last at %s", last, since)
		}
		return nil
	})
	before := map[string]usage{}
	for program := range programs {
		before[program] = s.usageOf(t, program)
	}
	const observed = time.Minute // 12 times refreshInterval
	began = time.Now()
	<-time.After(observed)
	for program := range programs {
		now := s.usageOf(t, program)
		t.Logf("%s with %s: %d MiB, at most %d MiB, %.2f %% of a CPU", program, state, now.resident, now.peak,
			100*float64(now.cpu-before[program].cpu)/float64(time.Since(began)))
	}
	// The API server ends each watch after five minutes or more, and the frontend begins it again.
	watches := []string{"watch resourceslices", "watch resourceclaims"}
	made := s.callsOf(t, frontend, began)
	for kind := range made {
		require.Contains(t, watches, kind, "a node at rest made calls: %v", made)
	}
}

// remains is what pods with claims may leave on a node.
type remains struct{ cdiFiles, cgroups, openFiles int }

func (s suite) remains(t *testing.T) (found remains) {
	t.Helper()
	out, err := s.NodeExec(t.Context(), s.node, `ls -A /var/run/cdi | wc -l; find /sys/fs/cgroup -type d | wc -l`)
	require.NoError(t, err)
	_, err = fmt.Sscan(out, &found.cdiFiles, &found.cgroups)
	require.NoError(t, err, "%q", out)
	for program := range programs {
		found.openFiles += s.usageOf(t, program).files
	}
	return found
}
