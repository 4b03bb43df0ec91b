// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/runtime-tools/generate"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	oci "github.com/opencontainers/runtime-tools/generate"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/daemon"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/metrics"
)

const (
	// patience only bounds a hang.
	patience = 5 * time.Minute
	pause    = 5 * time.Millisecond
)

// host is a node with the NRI side of a real runtime on a socket.
type host struct {
	t      *testing.T
	node   *testnode.Node
	config daemon.Config
	// runtime and version determine the features of the runtime.
	runtime, version string
	logs             *observer.ObservedLogs
	registry         *prometheus.Registry
	// options are further settings of the runtime's NRI.
	options []adaptation.Option

	mu         sync.Mutex
	pods       []*api.PodSandbox
	containers []*api.Container
	nri        *adaptation.Adaptation
	listener   net.Listener
	conns      []net.Conn
}

func newHost(t *testing.T) *host {
	dir := t.TempDir()
	h := &host{t: t, node: testnode.New(t, dir), runtime: "containerd", version: "v2.2.7"}
	h.config = daemon.Config{
		CDIDir: h.node.CDI, NRISocket: filepath.Join(dir, "nri.sock"), PluginName: "cpumem", PluginIndex: "90",
		CgroupRoot: "/cgroup", SystemBus: filepath.Join(dir, "bus"), UnitDir: filepath.Join(dir, "units"), ProcRoot: filepath.Join(dir, "proc"),
		GuardDir: filepath.Join(dir, "guard"), RefreshInterval: time.Hour,
	}
	for file, content := range map[string]string{"osrelease": "6.12.0", "random/boot_id": h.node.State.BootID} {
		file = filepath.Join(h.config.ProcRoot, "sys/kernel", file)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(content+"\n"), 0o644))
	}
	h.config.GuardProgram, _ = os.Executable()
	return h
}

// startRuntime starts the runtime's side of NRI.
func (h *host) startRuntime() {
	// A busy machine must not make the runtime drop the actuator.
	adaptation.SetPluginRequestTimeout(patience)
	adaptation.SetPluginRegistrationTimeout(patience)
	var err error
	h.nri, err = adaptation.New(h.runtime, h.version,
		func(ctx context.Context, synchronize adaptation.SyncCB) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			_, err := synchronize(ctx, h.pods, h.containers)
			return err
		},
		func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
			h.t.Error("the actuator asked for an update")
			return nil, nil
		},
		append(h.options, adaptation.WithSocketPath(h.config.NRISocket+".runtime"),
			adaptation.WithPluginPath(filepath.Join(h.t.TempDir(), "plugins")),
			adaptation.WithPluginConfigPath(filepath.Join(h.t.TempDir(), "conf.d")))...)
	require.NoError(h.t, err)
	require.NoError(h.t, h.nri.Start())
	_ = os.Remove(h.config.NRISocket)
	h.listener, err = net.Listen("unix", h.config.NRISocket)
	require.NoError(h.t, err)
	go h.forward(h.listener)
}

// forward relays the actuator's connections, so that stopRuntime can cut them:
// within one process the runtime's side leaves them open.
func (h *host) forward(l net.Listener) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("unix", h.config.NRISocket+".runtime")
		if err != nil {
			from.Close()
			continue
		}
		h.mu.Lock()
		h.conns = append(h.conns, from, to)
		h.mu.Unlock()
		go func() { defer to.Close(); _, _ = io.Copy(to, from) }()
		go func() { defer from.Close(); _, _ = io.Copy(from, to) }()
	}
}

// stopRuntime ends the runtime's side and cuts its connections.
func (h *host) stopRuntime() {
	h.listener.Close()
	h.mu.Lock()
	for _, c := range h.conns {
		c.Close()
	}
	h.conns = nil
	h.mu.Unlock()
	h.nri.Stop()
}

// startActuator runs the daemon. stop ends the daemon and waits for its end.
func (h *host) startActuator() (d *daemon.Daemon, stop func()) {
	h.registry = prometheus.NewRegistry()
	m, err := metrics.New(h.registry)
	require.NoError(h.t, err)
	d, err = daemon.New(h.config, h.node.OpenMount, m)
	require.NoError(h.t, err)
	core, observed := observer.New(zapcore.DebugLevel)
	h.logs = observed
	ctx, cancel := context.WithCancel(logs.With(h.t.Context(), zap.New(core)))
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-ended:
				require.NoError(h.t, err)
			case <-time.After(patience):
				require.Fail(h.t, "the actuator does not end")
			}
		})
	}
	h.t.Cleanup(stop)
	return d, stop
}

// connected waits for an announcement with Connected == want and returns it.
func (h *host) connected(want bool) contract.Announcement {
	var got contract.Announcement
	require.Eventually(h.t, func() bool {
		a, err := contract.ReadAnnouncement(h.node.CDI)
		got = a
		return err == nil && a.Connected == want
	}, patience, pause)
	return got
}

// plugged waits until the runtime calls the plugin, which is after the
// synchronisation.
func (h *host) plugged() {
	h.connected(true)
	block := h.nri.BlockPluginSync()
	block.Unblock()
}

// create calls the plugins and returns the container's OCI spec with their
// answer applied, as a runtime does.
func (h *host) create(id, pod string, env ...string) (*specs.Spec, error) {
	sandbox := &api.PodSandbox{Id: "s" + pod, Name: "pod", Namespace: "ns", Uid: pod,
		Linux: &api.LinuxPodSandbox{CgroupParent: "/kubepods/pod" + pod}}
	container := &api.Container{Id: id, PodSandboxId: sandbox.Id, Name: id, Env: env, State: api.ContainerState_CONTAINER_CREATED,
		Linux: &api.LinuxContainer{CgroupsPath: "/kubepods/pod" + pod + "/" + id}}
	reply, err := h.nri.CreateContainer(h.t.Context(), &adaptation.CreateContainerRequest{Pod: sandbox, Container: container})
	if err != nil {
		return nil, err
	}
	spec := &specs.Spec{Process: &specs.Process{Env: env}, Linux: &specs.Linux{Resources: &specs.LinuxResources{
		Unified:        map[string]string{"memory.min": "0", "memory.low": "0"},
		HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB"}, {Pagesize: "1GB"}},
	}}}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pods, h.containers = append(h.pods, sandbox), append(h.containers, container)
	return spec, generate.SpecGenerator(&oci.Generator{Config: spec}).Adjust(reply.Adjust)
}

// start makes the container's cgroup and starts the container.
func (h *host) start(id string, spec *specs.Spec) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, c := range h.containers {
		if c.Id != id {
			continue
		}
		h.node.AddCgroup(c.Linux.CgroupsPath)
		if spec.Linux.Resources.CPU != nil {
			h.node.SetFile(c.Linux.CgroupsPath, "cpuset.cpus", spec.Linux.Resources.CPU.Cpus)
		}
		c.State = api.ContainerState_CONTAINER_RUNNING
		return h.nri.StartContainer(h.t.Context(), &adaptation.StartContainerRequest{Pod: h.pods[i], Container: c})
	}
	return os.ErrNotExist
}

func (h *host) cpus(pod, id string) string {
	return h.node.File("kubepods/pod"+pod+"/"+id, "cpuset.cpus")
}
