// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing/fstest"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/description"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/hollow"
)

const (
	frontend = "dra-frontend"
	actuator = "nri-actuator"
	// refresh is a sixth of the default, as on the emulated node of make bench-footprint.
	refresh = 5 * time.Second
)

// node is a directory with the files of a machine, and the daemons that use it.
type node struct {
	bin, dir string
	config   config.Config
	runtime  *adaptation.Adaptation
	programs map[string]*exec.Cmd
}

// startNode starts both daemons on a node in the directory dir. Their programs are in the directory bin.
func startNode(bin, dir, kubeconfig string) (n *node, err error) {
	n = &node{bin: bin, dir: dir, config: config.Default(), programs: map[string]*exec.Cmd{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.stop())
		}
	}()
	n.config.SysfsRoot, n.config.ProcRoot = n.path("sys"), n.path("proc")
	n.config.CDIDir, n.config.KubeletRootDir = n.path("cdi"), n.path("kubelet")
	n.config.RefreshInterval = metav1.Duration{Duration: refresh}
	if err := n.write(); err != nil {
		return n, err
	}
	if err := n.startRuntime(); err != nil {
		return n, err
	}
	if err := n.start(actuator, "--cdi-dir", n.config.CDIDir, "--cgroup-root", n.cgroup(), "--nri-socket", n.path("nri.sock"),
		"--guard-dir", n.path("guard"), "--metrics-address", "127.0.0.1:0", "--refresh-interval", refresh.String()); err != nil {
		return n, err
	}
	return n, n.start(frontend, "--config", n.path("config.yaml"), "--node-name", hollow.Name(0), "--kubeconfig", kubeconfig,
		"--metrics-address", "127.0.0.1:0")
}

func (n *node) path(elem ...string) string { return filepath.Join(append([]string{n.dir}, elem...)...) }

// cgroup returns the path of a cgroup, which is a directory of plain files.
func (n *node) cgroup(elem ...string) string {
	return filepath.Join(append([]string{n.path("sys", "fs", "cgroup")}, elem...)...)
}

// kubepods is the cgroup of the pods, which are all of the class BestEffort.
const kubepods = "kubepods/besteffort"

// addPod makes the cgroup of a pod, as kubelet does before it prepares the pod's claims.
func (n *node) addPod(uid string) error { return n.addCgroup(filepath.Join(kubepods, "pod"+uid)) }

// addCgroup makes a cgroup and those above it.
func (n *node) addCgroup(dir string) error {
	if _, err := os.Stat(n.cgroup(dir)); err == nil {
		return nil
	}
	if above := filepath.Dir(dir); above != "." {
		if err := n.addCgroup(above); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(n.cgroup(dir), 0o755); err != nil {
		return err
	}
	for file, content := range map[string]string{
		"cgroup.events": "populated 1", "cpuset.cpus": "", "cpuset.mems": "", "cpuset.cpus.exclusive": "", "cpuset.cpus.partition": "member",
		"memory.min": "0", "memory.low": "0", "memory.high": "max", "memory.max": "max", "cpu.max": "max 100000",
	} {
		if err := os.WriteFile(n.cgroup(dir, file), []byte(content+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// write writes the machine's files and the frontend's configuration. The machine has a CPU for each claim of the highest
// level and more.
func (n *node) write() error {
	const sockets, l3s, cores, threads = 2, 10, 16, 2
	machine := topologytest.Spec(description.Regular{
		Sockets: sockets, Nodes: 1, L3s: l3s, Cores: cores, Threads: threads, PageSize: 4 << 10, Memory: 256 << 30,
	}.Spec())
	proc := machine.Proc()
	for name, text := range map[string]string{
		"self/mountinfo":            "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
		"sys/kernel/osrelease":      "6.1.0\n",
		"sys/kernel/random/boot_id": "11111111-2222-4333-8444-000000000001\n",
	} {
		proc[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	if err := os.CopyFS(n.path("sys"), machine.Sys()); err != nil {
		return err
	}
	if err := os.CopyFS(n.path("proc"), proc); err != nil {
		return err
	}
	for _, dir := range []string{"cdi", "guard", "kubelet/plugins_registry", "nri/plugins", "nri/conf.d"} {
		if err := os.MkdirAll(n.path(dir), 0o755); err != nil {
			return err
		}
	}
	if err := n.addCgroup(filepath.Join(kubepods, "pod"+systemPod, systemPod)); err != nil {
		return err
	}
	if err := os.WriteFile(n.cgroup("cgroup.controllers"), nil, 0o644); err != nil {
		return err
	}
	text, err := yaml.Marshal(n.config)
	if err != nil {
		return err
	}
	return os.WriteFile(n.path("config.yaml"), text, 0o644)
}

// systemPod is the UID of the pod that has the runtime's only container, without a claim: the actuator finds the cgroup of all
// pods by a pod.
const systemPod = "00000000-0000-4000-8000-000000000001"

// startRuntime starts the runtime's side of NRI.
func (n *node) startRuntime() (err error) {
	dir := "/" + filepath.Join(kubepods, "pod"+systemPod)
	pod := &adaptation.PodSandbox{
		Id: "sandbox", Name: "system", Namespace: "kube-system", Uid: systemPod, Linux: &adaptation.LinuxPodSandbox{CgroupParent: dir},
	}
	container := &adaptation.Container{
		Id: systemPod, PodSandboxId: pod.Id, Name: "system", State: adaptation.ContainerState_CONTAINER_RUNNING,
		Linux: &adaptation.LinuxContainer{CgroupsPath: filepath.Join(dir, systemPod)},
	}
	n.runtime, err = adaptation.New("containerd", "v2.3.7",
		func(ctx context.Context, synchronize adaptation.SyncCB) error {
			_, err := synchronize(ctx, []*adaptation.PodSandbox{pod}, []*adaptation.Container{container})
			return err
		},
		func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
			return nil, nil
		},
		adaptation.WithSocketPath(n.path("nri.sock")), adaptation.WithPluginPath(n.path("nri/plugins")),
		adaptation.WithPluginConfigPath(n.path("nri/conf.d")))
	if err != nil {
		return err
	}
	return n.runtime.Start()
}

// start starts a program, whose log becomes a file.
func (n *node) start(program string, args ...string) error {
	log, err := os.Create(n.path(program + ".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(n.bin, program), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	n.programs[program] = cmd
	return nil
}

// stop ends everything of the node.
func (n *node) stop() (err error) {
	for program, cmd := range n.programs {
		failed := cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		if failed = errors.Join(failed, cmd.Wait()); failed != nil {
			err = errors.Join(err, fmt.Errorf("end of %s: %w", program, failed))
		}
		late.Stop()
	}
	if n.runtime != nil {
		n.runtime.Stop()
	}
	return err
}
