// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCounter(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		_, _ = io.WriteString(w, "12345")
	}))
	defer server.Close()
	c := &counter{}
	client := &http.Client{Transport: c.through(http.DefaultTransport)}
	for _, path := range []string{"/slices", "/slices?watch=true", "/busy", "/busy?watch=true"} {
		resp, err := client.Post(server.URL+path, "text/plain", strings.NewReader("abc"))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	require.Equal(t, traffic{calls: 4, refused: 2, sent: 12, received: 20, watches: 1}, c.get())
	server.Close()
	_, err := client.Get(server.URL)
	require.Error(t, err)
	require.Equal(t, 5, c.get().calls)
}

func TestTable(t *testing.T) {
	text := table([]result{{
		event: "restart", nodes: 10, took: 2 * time.Second, cpu: time.Second, memory: 64 << 20,
		traffic: traffic{calls: 25, refused: 5, sent: 10 << 10, received: 20 << 10},
	}})
	require.Contains(t, text, "| 10 | restart | 2.0 s | 2.5 | 1.0 KiB | 2.0 KiB | 5 | 1.0 s | 64 MiB |\n")
}

// A node's slices grow with its zones, and a slice has no more devices than the API allows.
func TestSliceSizes(t *testing.T) {
	text, err := sliceSizes()
	require.NoError(t, err)
	require.Contains(t, text, "\n| 2 | 1 | ")
	require.Contains(t, text, "\n| 128 | ")
}

func TestResident(t *testing.T) {
	bytes, err := resident(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, bytes, int64(1<<20))
	_, err = resident(1 << 30)
	require.Error(t, err)
}
