// SPDX-License-Identifier: Apache-2.0

package httpserver_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/httpserver"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
)

func get(t *testing.T, server *httptest.Server, path string) (int, string) {
	t.Helper()
	resp, err := server.Client().Get(server.URL + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func fine() error { return nil }

func TestHandler(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	require.NoError(t, err)
	m.Claims(3, 8, 24)
	m.Node(nil, errors.New("dead"))
	m.Unprepared(nil)
	ready, fit := errors.New("kubelet has not registered the driver"), errors.New("the actuator is dead")
	server := httptest.NewServer(httpserver.Handler(registry, func() error { return ready }, func() error { return fit }))
	defer server.Close()

	status, body := get(t, server, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "kubelet has not registered the driver\n", body, "readiness says why")
	status, body = get(t, server, "/readyz?full")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "kubelet has not registered the driver\nno new claims are taken: the actuator is dead\n", body)
	ready = nil
	status, _ = get(t, server, "/readyz")
	require.Equal(t, http.StatusOK, status, "a node that is not fit does not stop a rollout")
	status, body = get(t, server, "/readyz?full")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "ok\nno new claims are taken: the actuator is dead\n", body)
	fit = nil
	_, body = get(t, server, "/readyz?full")
	require.Equal(t, "ok\nnew claims are taken\n", body)
	status, _ = get(t, server, "/healthz")
	require.Equal(t, http.StatusOK, status)
	_, body = get(t, server, "/metrics")
	for _, line := range []string{
		"cpumem_frontend_claims 3", `cpumem_frontend_cpus{state="exclusive"} 8`, `cpumem_frontend_cpus{state="shared"} 24`,
		"cpumem_frontend_actuator_ready 0", "cpumem_frontend_blocked 0", `cpumem_frontend_unprepare_total{result="success"} 1`,
	} {
		require.Contains(t, body, line)
	}
}

// Without a gatherer no metrics are served.
func TestNoMetrics(t *testing.T) {
	server := httptest.NewServer(httpserver.Handler(nil, fine, fine))
	defer server.Close()
	status, _ := get(t, server, "/metrics")
	require.Equal(t, http.StatusNotFound, status)
	status, _ = get(t, server, "/readyz")
	require.Equal(t, http.StatusOK, status)
}

// A62: two pages of metrics are made at a time, and further scrapes get 503.
func TestScrapesAreBounded(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "slow"}, func() float64 {
		entered <- struct{}{}
		<-release
		return 0
	})))
	server := httptest.NewServer(httpserver.Handler(registry, nil, nil))
	defer server.Close()
	slow := make(chan int, 2)
	for range 2 {
		go func() {
			reply, err := server.Client().Get(server.URL + "/metrics")
			if err != nil {
				slow <- 0
				return
			}
			slow <- reply.StatusCode
			_ = reply.Body.Close()
		}()
		<-entered
	}
	status, _ := get(t, server, "/metrics")
	require.Equal(t, http.StatusServiceUnavailable, status)
	close(release)
	require.Equal(t, []int{http.StatusOK, http.StatusOK}, []int{<-slow, <-slow})
}

func TestServe(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, err = httpserver.Serve(t.Context(), taken.Addr().String(), http.NotFoundHandler())
	require.ErrorContains(t, err, "address already in use")

	ctx, stop := context.WithCancel(t.Context())
	wait, err := httpserver.Serve(ctx, "127.0.0.1:0", http.NotFoundHandler())
	require.NoError(t, err)
	stop()
	require.NoError(t, wait())
}
