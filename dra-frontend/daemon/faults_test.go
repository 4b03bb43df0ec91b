// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/events"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubeletconfig"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
)

// These tests use unexported parts, as they wait for minutes and hours of fake
// time. A whole daemon, with sockets and processes, cannot run in fake time.

// sent has the reasons of the events that were sent.
type sent struct {
	mu      sync.Mutex
	reasons []string
}

func (n *sent) send(notice events.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reasons = append(n.reasons, notice.Reason)
}

func (n *sent) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.reasons)
}

func options(t *testing.T) Options {
	m, err := metrics.New(prometheus.NewRegistry())
	require.NoError(t, err)
	o := Options{Log: zap.NewNop(), Metrics: m, Config: config.Default(), PageSize: 4096}
	o.Config.CDIDir = t.TempDir()
	return o
}

// A44: pending ends with the actuator's grace. Progress and a new state begin
// the grace again.
func TestPendingEnds(t *testing.T) {
	now := time.Unix(1, 0)
	p := progress{}
	at := func(generation uint64) bool {
		p = p.withWritten(generation, now)
		return p.pending(now)
	}
	require.False(t, at(0), "no node file")
	p = p.withApplied(1)
	require.False(t, at(1))
	require.True(t, at(2))
	now = now.Add(grace - time.Second)
	require.True(t, at(2))
	require.True(t, at(3))
	p = p.withApplied(2)
	require.True(t, at(3))
	now = now.Add(grace - time.Second)
	p = p.withApplied(2)
	require.True(t, at(3), "it was behind, and made progress")
	now = now.Add(time.Second)
	require.False(t, at(3))
	p = p.withApplied(3)
	require.False(t, at(3))
	require.True(t, at(4))
	require.True(t, at(1), "the node file was lost and begins again: the actuator has not applied it")
}

// A node file that cannot be read has no generation to wait for.
func TestGeneration(t *testing.T) {
	o := options(t)
	d := kubelet.New(kubelet.Options{Ledger: ledger.New(ledger.NewClaimDir(cdidir.At(o.Config.CDIDir), "", ""), "boot")})
	require.Zero(t, d.Generation(), "no node file")
	data, err := contract.EncodeNode(contract.NodeState{
		V: contract.Version, Generation: 7, BootID: "boot",
		Shared: contract.Shared{CPUs: contracttest.CPUs("0"), Mems: contracttest.NUMANodes("0")},
	})
	require.NoError(t, err)
	require.NoError(t, atomicfile.Write(o.Config.CDIDir, contract.NodeFile, data, 0o600))
	require.Equal(t, uint64(7), d.Generation())
	require.NoError(t, atomicfile.Write(o.Config.CDIDir, contract.NodeFile, data[:len(data)/2], 0o600))
	require.Zero(t, d.Generation())
}

// While the actuator is away, its last announcement of lost partitions and of the
// cgroup of all pods counts, and another program's writes are not known.
func TestAfterAnnouncement(t *testing.T) {
	last := contract.Announcement{
		V: contract.Version, Generation: 7, Kubepods: "kubepods.slice",
		InvalidPartitions: map[string]string{claimUID: "x"}, Overwritten: map[string]contract.Files{"": {"memory.min": "0"}},
		FixedInterrupts: map[string]string{"24 disk": "2"}, MachineFaults: map[string]string{contract.FeatureFrequency: "x"},
	}
	before := announced{}.after(last, nil)
	require.Equal(t, announced{
		kubepods: "kubepods.slice", invalidPartitions: last.InvalidPartitions, partitionsKnown: true, overwritten: last.Overwritten,
		fixedInterrupts: last.FixedInterrupts, machineFaults: last.MachineFaults,
		progress: progress{applied: 7},
	}, before)
	away := before
	away.overwritten = nil
	require.Equal(t, away, before.after(contract.Announcement{}, errors.New("no actuator")))
	require.Equal(t, away, before.after(contract.Announcement{V: contract.Version, Generation: 7}, errors.New("not connected")))
	away.invalidPartitions, away.fixedInterrupts, away.machineFaults = nil, nil, nil
	require.Equal(t, away, before.after(contract.Announcement{V: contract.Version, Generation: 7}, nil))
}

// A44: the API server drops events after an hour, so a lasting fault is
// reported again.
func TestReportedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		version, reason string
		overwritten     map[string]contract.Files
		invalid         map[string]string
	}{
		"kubelet's configuration": {version: "v1.37.0", reason: "SecondMemoryOwner"},
		"values written over": {
			version: "v1.36.0", reason: "MemoryValuesOverwritten",
			overwritten: map[string]contract.Files{"": {"memory.min": "0"}, "burstable": {"memory.min": "0"}},
		},
		"partitions lost": {version: "v1.36.0", reason: "PartitionInvalid", invalid: map[string]string{claimUID: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := options(t)
				o.Config.KubeletConfigFile = filepath.Join(t.TempDir(), "kubelet.yaml")
				write := func(text string) {
					require.NoError(t, os.WriteFile(o.Config.KubeletConfigFile, []byte("kind: KubeletConfiguration\n"+text), 0o600))
				}
				write("")
				o.Client = fake.NewClientset(&corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: "worker"},
					Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: tc.version}},
				})
				o.Kubelet.NodeName = "worker"
				var n sent
				r := newReporter(o, n.send)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); kubeletconfig.NewWatcher(o.kubeletConfig(n.send)).Run(ctx) }()
				pass := func(d time.Duration) {
					for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Minute) {
						seen := observation{
							claims:    []contract.ClaimRecord{{UID: claimUID}},
							announced: announced{overwritten: tc.overwritten, invalidPartitions: tc.invalid},
						}
						r.remindOfDrift(seen.announced)
						r.remindOfPartitions(invalidPartitions(seen))
					}
					synctest.Wait()
				}
				pass(30 * time.Minute)
				require.Equal(t, []string{tc.reason}, n.all())
				pass(3 * time.Hour)
				require.Equal(t, slices.Repeat([]string{tc.reason}, 4), n.all())
				write("featureGates: {MemoryQoS: false}\n")
				tc.overwritten, tc.invalid = nil, nil
				pass(3 * time.Hour)
				require.Len(t, n.all(), 4)
				cancel()
				<-done
			})
		})
	}
}
