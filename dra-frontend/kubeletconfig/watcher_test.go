// SPDX-License-Identifier: Apache-2.0

package kubeletconfig_test

import (
	"context"
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

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/events"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubeletconfig"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
)

// An upgrade of kubelet need not change kubelet's configuration: its version is asked for again.
func TestUpgradedKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
		node.Status.NodeInfo.KubeletVersion = "v1.36.3"
		client := fake.NewClientset(node)
		m, err := metrics.New(prometheus.NewRegistry())
		require.NoError(t, err)
		var mu sync.Mutex
		var reasons []string
		sent := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return reasons
		}
		w := kubeletconfig.NewWatcher(kubeletconfig.Options{
			Log: zap.NewNop(), Metrics: m, Client: client, Node: "node", Owner: config.OwnerDriver, Interval: 30 * time.Second,
			Send: func(n events.Notice) {
				mu.Lock()
				defer mu.Unlock()
				reasons = append(reasons, n.Reason)
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.Run(ctx)
		require.Empty(t, sent())
		node.Status.NodeInfo.KubeletVersion = "v1.37.0"
		require.NoError(t, client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""))
		time.Sleep(time.Hour)
		require.Empty(t, sent(), "the version is believed for an hour")
		time.Sleep(time.Minute)
		require.Equal(t, []string{"KubeletConfigUnknown"}, sent())
	})
}
