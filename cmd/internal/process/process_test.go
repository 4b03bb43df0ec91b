// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func fine() error { return nil }

// Each decision has a line, also if all pods of a node start at once. Of an error that comes back for ever, most lines are left out.
func TestLoggerWritesTheFirstThousandLinesOfASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, err := NewLogger(zapcore.InfoLevel)
		require.NoError(t, err)
		written := func(lines int) (n int) {
			for range lines {
				if log.Check(zapcore.InfoLevel, "claim prepared") != nil {
					n++
				}
			}
			return n
		}
		require.Equal(t, 1000, written(1000))
		require.Equal(t, 2, written(200))
		time.Sleep(time.Second)
		require.Equal(t, 1000, written(1000))
	})
}

func TestProbes(t *testing.T) {
	bad := errors.New("kubelet has not registered the driver")
	unserved := errors.New("the actuator is dead")
	for name, c := range map[string]struct {
		alive, ready, claims error
		path                 string
		status               int
		body                 string
	}{
		"alive": {path: "/healthz", status: http.StatusOK, body: "ok\n"},
		"not alive": {
			alive: bad, path: "/healthz", status: http.StatusServiceUnavailable,
			body: "kubelet has not registered the driver\n",
		},
		"ready": {path: "/readyz", status: http.StatusOK, body: "ok\nnew claims are served\n"},
		"not ready": {
			ready: bad, claims: unserved, path: "/readyz", status: http.StatusServiceUnavailable,
			body: "kubelet has not registered the driver\nnew claims are not served: the actuator is dead\n",
		},
		"ready on a node without claims": {
			claims: unserved, path: "/readyz", status: http.StatusOK,
			body: "ok\nnew claims are not served: the actuator is dead\n",
		},
		"no metrics": {path: "/metrics", status: http.StatusNotFound, body: "404 page not found\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Server{
				Alive: func() error { return c.alive }, Ready: func() error { return c.ready }, ServesClaims: func() error { return c.claims },
			}
			server := httptest.NewServer(s.handler())
			defer server.Close()
			status, body := get(t, server.URL+c.path)
			require.Equal(t, c.status, status)
			require.Equal(t, c.body, body)
		})
	}
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
	server := httptest.NewServer(Server{Metrics: registry, Alive: fine, Ready: fine, ServesClaims: fine}.handler())
	defer server.Close()
	slow := make(chan int, 2)
	for range 2 {
		go func() {
			reply, err := http.Get(server.URL + "/metrics")
			if err != nil {
				slow <- 0
				return
			}
			slow <- reply.StatusCode
			_ = reply.Body.Close()
		}()
		<-entered
	}
	status, _ := get(t, server.URL+"/metrics")
	require.Equal(t, http.StatusServiceUnavailable, status)
	close(release)
	require.Equal(t, []int{http.StatusOK, http.StatusOK}, []int{<-slow, <-slow})
}

func TestRun(t *testing.T) {
	server := Server{Address: "127.0.0.1:0", Metrics: NewRegistry(), Alive: fine, Ready: fine, ServesClaims: fine}
	core, logs := observer.New(zap.InfoLevel)
	ended := errors.New("the daemon has ended")
	err := Run(t.Context(), zap.New(core), server, func(context.Context) error {
		address := logs.FilterMessage("serving metrics and probes").All()[0].ContextMap()["address"].(string)
		status, body := get(t, "http://"+address+"/metrics")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, body, "go_goroutines")
		return ended
	})
	require.ErrorIs(t, err, ended)

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	server.Address = taken.Addr().String()
	err = Run(t.Context(), zap.NewNop(), server, func(context.Context) error { return ended })
	require.ErrorContains(t, err, "--metrics-address")
	require.NotErrorIs(t, err, ended)

	// Without a server the daemon runs until it is asked to end.
	server.Address = ""
	ctx, stop := context.WithCancel(t.Context())
	require.NoError(t, Run(ctx, zap.NewNop(), server, func(ctx context.Context) error {
		require.NoError(t, ctx.Err())
		stop()
		<-ctx.Done()
		return nil
	}))
}

// A server that fails ends the daemon, with the server's error.
func TestRunWithoutItsServer(t *testing.T) {
	failed := errors.New("the server has failed")
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	err := run(ctx, cancel, served, func(ctx context.Context) error {
		served <- failed
		<-ctx.Done()
		return nil
	})
	require.ErrorIs(t, err, failed)
}

// A server that does not end does not keep the process.
func TestRunWithAServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := errors.New("the daemon has ended")
		served := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		require.Equal(t, ended, run(ctx, cancel, served, func(context.Context) error { return ended }))
		served <- nil // lets the waiting goroutine go
	})
}

func TestVersion(t *testing.T) {
	require.Equal(t, "v1.2.3", Version("v1.2.3"))
	require.NotEmpty(t, Version(""))
}
