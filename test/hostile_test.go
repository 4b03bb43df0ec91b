// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// hostile is the number of connections, each with up to hostileBytes.
	hostile      = 1000
	hostileBytes = 900 << 10
	// growth is the memory in bytes that the connections may cost a daemon.
	// With the daemon's own memory it is below the chart's limits: 128Mi for
	// the actuator.
	growth = 64 << 20
)

// server is a daemon's server in another process.
type server struct {
	pid     int
	address string
}

// startServer starts a program that prints its address in a line of JSON on
// standard error.
func startServer(t *testing.T, cmd *exec.Cmd) server {
	out, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var line struct{ Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Address != "" {
			go func() {
				for lines.Scan() {
				}
			}()
			return server{cmd.Process.Pid, line.Address}
		}
	}
	require.FailNow(t, "the server ended", "%v", lines.Err())
	return server{}
}

// peak returns the largest memory that the process has had, in bytes.
func (s server) peak(t *testing.T) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return kib << 10
}

func (s server) get(t *testing.T, page string) {
	// The timeout only keeps a failure from hanging.
	client := http.Client{Timeout: 5 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Get("http://" + s.address + page)
	require.NoError(t, err)
	require.NoError(t, reply.Body.Close())
	require.Equal(t, http.StatusOK, reply.StatusCode, page)
}

// A62: a thousand connections of hostile clients cost a daemon a bounded amount of
// memory, and a probe is answered meanwhile. Both daemons have the same server; the
// actuator has the smaller limit of memory, and needs no Kubernetes API to run.
func TestHostileConnections(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "nri-actuator")
	// Without the race detector, as in the image: the memory of a process with it is
	// not the daemon's.
	build := exec.Command("go", "build", "-o", bin, "./cmd/nri-actuator")
	build.Dir = ".."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	command := func(t *testing.T) *exec.Cmd {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.controllers"), nil, 0o600))
		return exec.Command(bin, "--metrics", "--metrics-address=127.0.0.1:0",
			"--cdi-dir="+filepath.Join(dir, "cdi"), "--nri-socket="+filepath.Join(dir, "nri.sock"), "--cgroup-root="+dir)
	}
	const request = "GET /metrics HTTP/1.1\r\nHost: h\r\n"
	attacks := map[string]string{
		"silent":            "",
		"unfinished header": request + "X: " + strings.Repeat("a", hostileBytes),
		"huge header":       request + "X: " + strings.Repeat("a", hostileBytes) + "\r\n\r\n",
		"many headers":      request + strings.Repeat("X: a\r\n", hostileBytes/6),
		"body":              request + "Content-Length: 1000000000\r\n\r\n" + strings.Repeat("a", hostileBytes),
		"reads nothing":     strings.Repeat(request+"\r\n", hostileBytes/len(request)),
	}
	for attack, sent := range attacks {
		t.Run(attack, func(t *testing.T) {
			s := startServer(t, command(t))
			s.get(t, "/metrics")
			before := s.peak(t)
			var writers sync.WaitGroup
			for i := range hostile {
				conn, err := net.Dial("tcp", s.address)
				require.NoError(t, err)
				defer conn.Close()
				writers.Go(func() { _, _ = io.WriteString(conn, sent) })
				if i%20 == 0 {
					// A daemon without a limit fails before it takes the machine's memory.
					require.Less(t, s.peak(t)-before, growth, "after %d connections", i+1)
				}
			}
			s.get(t, "/healthz")
			writers.Wait()
			require.Less(t, s.peak(t)-before, growth)
			s.get(t, "/healthz")
			t.Logf("%d KiB before, %d KiB more", before>>10, (s.peak(t)-before)>>10)
		})
	}
}
