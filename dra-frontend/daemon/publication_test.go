// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
