// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/protocol"
)

// Programs has the paths of the built programs.
type Programs struct {
	// Actuator is the path of nri-actuator, for the lab's cgroups.
	Actuator string
}

// Build builds the programs into dir.
func Build(dir string) (Programs, error) {
	p := Programs{Actuator: filepath.Join(dir, "nri-actuator")}
	cmd := exec.Command("go", "build", "-o", p.Actuator, "github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab/actuator")
	if out, err := cmd.CombinedOutput(); err != nil {
		return p, fmt.Errorf("go build: %w: %s", err, out)
	}
	return p, nil
}

// Actuator is a process of the actuator.
type Actuator struct {
	n     *Node
	cmd   *exec.Cmd
	ended chan error
	log   string
}

// StartActuator starts the actuator and waits until the runtime calls it, if
// there is a runtime.
func (n *Node) StartActuator() {
	n.t.Helper()
	require.Nil(n.t, n.actuator)
	a := &Actuator{n: n, ended: make(chan error, 1), log: n.path("actuator.log")}
	log, err := os.OpenFile(a.log, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	require.NoError(n.t, err)
	defer log.Close()
	a.cmd = exec.Command(n.o.Programs.Actuator,
		"--cdi-dir", n.CDI, "--cgroup-root", n.cgroups.socket, "--nri-socket", n.runtime.socket, "--guard-dir", n.path("guard"),
		"--proc-root", n.config.ProcRoot, "--refresh-interval", "1h")
	a.cmd.Stderr = log
	// The actuator must not outlive the test. The kernel sends the signal when the
	// starting thread ends (prctl(2), PR_SET_PDEATHSIG), so the thread is kept.
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		goruntime.LockOSThread()
		defer goruntime.UnlockOSThread()
		err := a.cmd.Start()
		started <- err
		if err == nil {
			a.ended <- a.cmd.Wait()
		}
	}()
	require.NoError(n.t, <-started)
	n.actuator = a
	if n.runtime.running() {
		n.connected()
	}
}

// StopActuator ends the actuator with SIGTERM, or with SIGKILL if kill.
func (n *Node) StopActuator(kill bool) {
	n.t.Helper()
	a := n.actuator
	n.actuator = nil
	if a == nil {
		return
	}
	signal := os.Signal(syscall.SIGTERM)
	if kill {
		signal = syscall.SIGKILL
	}
	require.NoError(n.t, a.cmd.Process.Signal(signal))
	if err := <-a.ended; !kill {
		require.NoError(n.t, err, "the actuator's end")
	}
	n.happened(protocol.ActuatorDied)
}

// PauseActuator stops all threads of the actuator until the returned function is
// called.
func (n *Node) PauseActuator() (resume func()) {
	n.t.Helper()
	process := n.actuator.cmd.Process
	require.NoError(n.t, process.Signal(syscall.SIGSTOP))
	// A thread stops only when it is scheduled.
	n.eventually("the actuator to stand still", func() error {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", process.Pid))
		for _, stat := range stats {
			data, readErr := os.ReadFile(stat)
			_, state, _ := strings.Cut(string(data), ") ")
			if readErr == nil && !strings.HasPrefix(state, "T") {
				return fmt.Errorf("a thread is in state %.1s", state)
			}
		}
		return err
	})
	return func() {
		n.t.Helper()
		require.NoError(n.t, process.Signal(syscall.SIGCONT))
	}
}

// RestartActuator ends the actuator and starts it again.
func (n *Node) RestartActuator(kill bool) {
	n.t.Helper()
	n.StopActuator(kill)
	n.StartActuator()
}

// connected waits until the actuator announces that it is connected and the
// runtime calls it. The runtime calls a plugin only after the synchronisation.
func (n *Node) connected() {
	n.t.Helper()
	n.happened(protocol.ActuatorStarted)
	n.eventually("the actuator to be connected", func() error {
		a, err := n.Announcement()
		if err == nil && (!a.Connected || a.PID != n.actuator.cmd.Process.Pid) {
			err = fmt.Errorf("announcement: %+v", a)
		}
		return err
	})
	block := n.runtime.nri.BlockPluginSync()
	block.Unblock()
}

// Announcement returns the actuator's announcement. It fails if no actuator runs.
func (n *Node) Announcement() (contract.Announcement, error) {
	return contract.ReadAnnouncement(n.CDI)
}

func (n *Node) actuatorLog() string {
	data, err := os.ReadFile(n.path("actuator.log"))
	if err != nil {
		return err.Error()
	}
	if len(data) > 8<<10 {
		data = data[len(data)-8<<10:]
	}
	return string(data)
}

// Scrape returns a page of the actuator's server, such as "/metrics".
func (n *Node) Scrape(page string) string {
	n.t.Helper()
	var address string
	n.eventually("the actuator to serve", func() error {
		log, err := os.ReadFile(n.path("actuator.log"))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(log)) {
			var entry struct{ Msg, Address string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "serving metrics" {
				address = entry.Address
				return nil
			}
		}
		return errors.New("no address in its log")
	})
	reply, err := http.Get("http://" + address + page)
	require.NoError(n.t, err)
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	require.NoError(n.t, err)
	return string(body)
}

// Metric returns the sum of a metric's samples with all of these label values.
func (n *Node) Metric(name string, labels ...string) float64 {
	n.t.Helper()
	sum := 0.0
lines:
	for line := range strings.Lines(n.Scrape("/metrics")) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(line, `"`+l+`"`) {
				continue lines
			}
		}
		var v float64
		_, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &v)
		require.NoError(n.t, err)
		sum += v
	}
	return sum
}
