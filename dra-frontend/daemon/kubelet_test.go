// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
)

// publishing is an error as the helper makes it of one that the API server returned.
type publishing struct{ error }

func (publishing) Is(other error) bool { return other == kubeletplugin.ErrRecoverable }
func (p publishing) Unwrap() error     { return p.error }

// The slices are outdated after an error of publishing alone, and the instance ends after
// an error that the helper does not retry alone.
func TestHandleError(t *testing.T) {
	for name, c := range map[string]struct {
		err             error
		outdated, ended bool
	}{
		"publishing":      {err: publishing{errors.New("no connection")}, outdated: true},
		"late health":     {err: fmt.Errorf("no report was sent for 31s: %w", kubeletplugin.ErrRecoverable)},
		"a failed server": {err: errors.New("no socket"), ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			counters, err := metrics.New(prometheus.NewRegistry())
			require.NoError(t, err)
			published := newSliceMonitor(Options{Log: zap.NewNop(), Config: config.Default(), Metrics: counters})
			ctx, fail := context.WithCancelCause(t.Context())
			kubeletSide{log: zap.NewNop(), published: published, fail: fail}.HandleError(ctx, c.err, "message")
			if c.outdated {
				require.ErrorIs(t, published.failure(), c.err)
			} else {
				require.NoError(t, published.failure())
			}
			if c.ended {
				require.ErrorIs(t, context.Cause(ctx), c.err)
			} else {
				require.NoError(t, ctx.Err())
			}
		})
	}
}

// A device's problem reaches kubelet cut to what the API takes, in characters that gRPC takes.
func TestHealthMessage(t *testing.T) {
	problem := strings.Repeat("é", 2000)
	s := newStatus(observation{})
	s.set(state{assessment: assessment{problems: map[string]string{"numa-0": problem, "numa-1": ""}}})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reports := make(chan kubeletplugin.DeviceHealthReport)
	go func() { _ = kubeletSide{status: s}.WatchHealthStatus(ctx, reports) }()
	devices := (<-reports).Devices
	require.Len(t, devices, 2)
	for _, d := range devices {
		if d.DeviceName == "numa-1" {
			require.Equal(t, kubeletplugin.HealthStatusHealthy, d.Health)
			require.Empty(t, d.Message)
			continue
		}
		require.Equal(t, kubeletplugin.HealthStatusUnhealthy, d.Health)
		require.NotEmpty(t, d.Message)
		require.LessOrEqual(t, len(d.Message), 1024)
		require.True(t, utf8.ValidString(d.Message), d.Message)
	}
}
