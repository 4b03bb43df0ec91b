// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/hollow"
)

func TestCounter(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		if r.URL.Path == "/broken" {
			w.Header().Set("Content-Length", "9")
		}
		_, _ = io.WriteString(w, "12345")
	}))
	defer server.Close()
	c := newCounter()
	clients := map[int]*http.Client{}
	for node := range 3 {
		clients[node] = &http.Client{Transport: c.through(node, time.Now().Add(-time.Hour))(http.DefaultTransport)}
	}
	call := func(node int, path string) error {
		resp, err := clients[node].Post(server.URL+path, "text/plain", strings.NewReader("abc"))
		if err != nil {
			return err
		}
		_, err = io.ReadAll(resp.Body)
		return errors.Join(err, resp.Body.Close())
	}
	served := func() int {
		_, waits := c.get()
		return len(waits)
	}
	require.NoError(t, call(1, "/slices?watch=true"))
	require.NoError(t, call(1, "/busy?watch=true"))
	require.NoError(t, call(2, nodePath(2)))
	require.NoError(t, call(2, "/busy?watch=true"))
	require.Zero(t, served(), "one lacks its Node, the other its watch")
	require.NoError(t, call(1, nodePath(1)))
	require.Equal(t, 1, served())
	require.NoError(t, call(2, "/slices?watch=true"))
	require.Equal(t, 2, served())
	_, before := c.get()
	require.NoError(t, call(1, "/slices?watch=true"), "only the first watch is of the start")
	_, waits := c.get()
	require.Equal(t, before, waits)
	require.NoError(t, call(1, "/slices"))
	_, waits = c.get()
	require.Greater(t, waits[1], before[1], "the creation of the slice is of the start")
	require.ErrorIs(t, call(1, "/broken"), io.ErrUnexpectedEOF)
	closed, err := clients[1].Get(server.URL + "/closed")
	require.NoError(t, err)
	require.NoError(t, closed.Body.Close())
	_, err = closed.Body.Read(make([]byte, 1))
	require.Error(t, err, "the client has closed it: no failure")
	server.Close()
	require.Error(t, call(1, "/slices"))
	got, _ := c.get()
	failures := map[string]int{"429 Too Many Requests": 2, "connection refused": 1, "unexpected EOF": 1}
	require.Equal(t, traffic{
		calls: map[string]int{http.MethodGet: 1, http.MethodPost: 5, "watch": 5}, failures: failures, sent: 30, received: 45,
	}, got)
}

func TestTable(t *testing.T) {
	r := result{
		event: "restart", nodes: 10, waits: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, cpu: time.Second,
		memory: 64 << 20, traffic: traffic{calls: map[string]int{"watch": 11, "GET": 10}, sent: 10 << 10, received: 20 << 10},
	}
	spread := r
	spread.within, spread.traffic.failures = 90*time.Second, map[string]int{"a": 2, "b": 2, "c": 7}
	text := table([]result{r, spread})
	for start, failed := range map[string]string{"at once": "0", "within 1.5 min": "7: c<br>2: a<br>2: b"} {
		require.Contains(t, text,
			"| 10 | "+start+" | restart | 2.0 s | 4.0 s | GET 1.00, watch 1.10 | 1.0 KiB | 2.0 KiB | "+failed+" | 1.0 s | 64 MiB |\n")
	}
}

func TestParseFleet(t *testing.T) {
	for word, want := range map[string]struct {
		nodes  int
		within time.Duration
	}{"100": {100, 0}, "15000/10m": {15000, 10 * time.Minute}} {
		nodes, within, err := parseFleet(word)
		require.NoError(t, err)
		require.Equal(t, want.nodes, nodes)
		require.Equal(t, want.within, within)
	}
	for _, word := range []string{"", "many", "1/", "1/m"} {
		_, _, err := parseFleet(word)
		require.Error(t, err, word)
	}
}

func TestSliceSizes(t *testing.T) {
	text, err := sliceSizes(2, 8)
	require.NoError(t, err)
	rows := strings.Split(strings.TrimSpace(text), "\n")
	require.Len(t, rows, 4)
	for i, zones := range []int{2, 8} {
		devices, err := hollow.Devices(zones)
		require.NoError(t, err)
		bytes := hollow.Slices(hollow.Name(0), hollow.Driver, devices)[0].Size()
		want := fmt.Sprintf("| %d | 1 | %d | %[2]d |", zones, bytes)
		for _, nodes := range []int{1000, 5000, 15000} {
			want += fmt.Sprintf(" %.1f MiB |", float64(nodes*bytes)/(1<<20))
		}
		require.Equal(t, want, rows[2+i])
	}
}

func TestResident(t *testing.T) {
	bytes, err := resident(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, bytes, int64(1<<20))
	_, err = resident(1 << 30)
	require.Error(t, err)
}
