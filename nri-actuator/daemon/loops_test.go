// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/containerd/ttrpc"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/nri"
)

// unconfigured is a registered stub of a runtime that does not configure it.
type unconfigured struct {
	stub.Stub
	configured, stopped chan struct{}
}

func (s *unconfigured) Start(context.Context) error { <-s.configured; return nil }

func (s *unconfigured) Configure(context.Context, *api.ConfigureRequest) (*api.ConfigureResponse, error) {
	close(s.configured)
	return &api.ConfigureResponse{}, nil
}

func (s *unconfigured) Stop() { close(s.stopped) }

// A runtime that registers the actuator and hangs then loses it after a while, so that the actuator connects again.
func TestRuntimeThatDoesNotConfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, runtimes := net.Pipe()
		defer runtimes.Close()
		shake := &handshake{registered: make(chan struct{})}
		close(shake.registered)
		s := &unconfigured{configured: make(chan struct{}), stopped: make(chan struct{})}
		began := time.Now()
		err := start(t.Context(), s, &connection{Conn: ours, lost: make(chan struct{})}, shake)
		require.ErrorContains(t, err, "the runtime did not configure nri-actuator within 30s")
		require.Equal(t, configureTimeout, time.Since(began))
		_, err = runtimes.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "the connection is closed")
		<-s.stopped
	})
}

// The stub keeps all parts of the runtime's list: environments do not get that far.
func TestListIsReduced(t *testing.T) {
	sent := &api.SynchronizeRequest{More: true, Containers: []*api.Container{{Id: "c", Env: []string{"LARGE=" + strings.Repeat("x", 1<<20)}}}}
	var got api.SynchronizeRequest
	shake := &handshake{registered: make(chan struct{})}
	_, err := shake.serve(t.Context(), func(message any) error {
		proto.Merge(message.(proto.Message), sent)
		return nil
	}, &ttrpc.UnaryServerInfo{FullMethod: "/nri.pkg.api.v1alpha1.Plugin/Synchronize"},
		func(_ context.Context, unmarshal func(any) error) (any, error) { return nil, unmarshal(&got) })
	require.NoError(t, err)
	require.True(t, got.More)
	require.Equal(t, "c", got.Containers[0].Id)
	require.Less(t, proto.Size(&got), 1<<10)
}

// silent takes no announcement.
type silent struct{}

func (silent) Set(func(*contract.Announcement)) error { return nil }

// While no runtime is there, the actuator tries again, less and less often.
func TestPausesBetweenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := metrics.New(prometheus.NewRegistry())
		require.NoError(t, err)
		core, logged := observer.New(zap.WarnLevel)
		ctx, cancel := context.WithTimeout(logs.With(t.Context(), zap.New(core)), 20*time.Second)
		defer cancel()
		d := &Daemon{config: Config{NRISocket: filepath.Join(t.TempDir(), "absent")}}
		d.stayConnected(ctx, nri.New(nri.Options{Announcer: silent{}, Options: enforce.Options{Metrics: m, Clock: time.Now}}))
		var pauses []time.Duration
		for _, e := range logged.FilterMessage("not connected to the runtime").All() {
			pauses = append(pauses, e.ContextMap()["retry"].(time.Duration))
		}
		const ms = time.Millisecond
		require.Equal(t, []time.Duration{
			100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, maxReconnect, maxReconnect, maxReconnect,
		}, pauses)
	})
}

// If the CDI directory was removed and made again, only a new container sees the new directory: the actuator ends.
func TestReplacedDirectoryEndsTheActuator(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cdi")
	require.NoError(t, os.Mkdir(dir, 0o755))
	mounted, err := os.Open(dir)
	require.NoError(t, err)
	defer mounted.Close()
	require.NoError(t, os.Remove(dir))
	m, err := metrics.New(prometheus.NewRegistry())
	require.NoError(t, err)
	d := &Daemon{config: Config{CDIDir: fmt.Sprintf("/proc/self/fd/%d", mounted.Fd()), RefreshInterval: time.Millisecond}}
	plugin := nri.New(nri.Options{Announcer: silent{}, Options: enforce.Options{Metrics: m, Clock: time.Now}})
	require.ErrorIs(t, d.watch(t.Context(), plugin, nil), atomicfile.ErrReplaced)
}
