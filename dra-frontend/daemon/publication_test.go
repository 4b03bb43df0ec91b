// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
)

// The API server's error does not name the feature gate of lists.
func TestRefusedSlicesNameTheFeatureGate(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{Group: "resource.k8s.io", Kind: "ResourceSlice"}, "a", nil)
	for name, c := range map[string]struct {
		configure func(*config.Config)
		err       error
		named     bool
	}{
		"a list of nodes":   {func(c *config.Config) { c.NUMANodeForm = config.NUMANodeList }, invalid, true},
		"a list of roots":   {func(c *config.Config) { c.PublishPCIeRoots = true }, invalid, true},
		"no lists":          {func(*config.Config) {}, invalid, false},
		"another API error": {func(c *config.Config) { c.PublishPCIeRoots = true }, errors.New("no connection"), false},
	} {
		t.Run(name, func(t *testing.T) {
			counters, err := metrics.New(prometheus.NewRegistry())
			require.NoError(t, err)
			o := Options{Log: zap.NewNop(), Config: config.Default(), Metrics: counters}
			c.configure(&o.Config)
			p := newSliceMonitor(o)
			p.notWritten(c.err)
			require.ErrorIs(t, p.failure(), c.err)
			if c.named {
				require.ErrorContains(t, p.failure(), featureLists)
			} else {
				require.NotContains(t, p.failure().Error(), featureLists)
			}
		})
	}
}

// While the API server is away, the slices are not read back each second.
func TestReadBackDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counters, err := metrics.New(prometheus.NewRegistry())
		require.NoError(t, err)
		client := fake.NewClientset()
		o := Options{Log: zap.NewNop(), Config: config.Default(), Metrics: counters, Client: client}
		o.Config.NodeAllocatable = true
		var away atomic.Bool
		away.Store(true)
		client.PrependReactor("list", "*", func(ktesting.Action) (bool, kruntime.Object, error) { return away.Load(), nil, errors.New("away") })
		p := newSliceMonitor(o)
		go p.run(t.Context())
		p.setSent([]resourceapi.Device{{Name: "numa-0"}})
		time.Sleep(5*time.Minute - time.Second)
		require.Len(t, client.Actions(), 10)
		away.Store(false)
		time.Sleep(time.Minute)
		require.Len(t, client.Actions(), 11, "an answer is enough")
		require.Zero(t, p.pause())
	})
}
