// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/qemu"
)

func TestRenderKubeconfig(t *testing.T) {
	data, err := renderKubeconfig("https://10.89.0.1:443", []byte("CA"), "secret")
	require.NoError(t, err)
	require.JSONEq(t, `{"apiVersion":"v1","kind":"Config","current-context":"cpumem",
		"clusters":[{"name":"cpumem","cluster":{"server":"https://10.89.0.1:443","certificate-authority-data":"Q0E="}}],
		"users":[{"name":"cpumem","user":{"token":"secret"}}],
		"contexts":[{"name":"cpumem","context":{"cluster":"cpumem","user":"cpumem"}}]}`, string(data))
}

func TestRenderKubelet(t *testing.T) {
	data, err := renderKubelet("cgroupfs", map[string]bool{"A": true}, map[string]any{"cgroupDriver": "systemd", "maxPods": 7})
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(data, &got))
	require.Equal(t, "systemd", got["cgroupDriver"], "given fields win")
	require.EqualValues(t, 7, got["maxPods"])
	require.Equal(t, map[string]any{"A": true}, got["featureGates"])
}

// A node's kubelet and runtime must have the same cgroup driver.
func TestCgroupDriver(t *testing.T) {
	opts := Defaults()
	opts.Nodes, opts.Systemd = 2, []string{"node1"}
	c := New(t.TempDir(), opts)
	require.NoError(t, c.prepareRun())
	for node, want := range map[string]string{"node0": CgroupDriverFS, "node1": CgroupDriverSystemd} {
		require.Equal(t, want, c.CgroupDriver(node))
		var kubelet map[string]any
		data, err := os.ReadFile(c.path("run", node, "share", "kubelet.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &kubelet))
		require.Equal(t, want, kubelet["cgroupDriver"])
		data, err = os.ReadFile(c.path("run", node, "share", "cgroups.toml"))
		require.NoError(t, err)
		require.Equal(t, want == CgroupDriverSystemd, strings.Contains(string(data), "SystemdCgroup = true"), string(data))
	}
}

func TestCredentials(t *testing.T) {
	opts := Defaults()
	opts.Nodes, opts.Machines = 2, map[string]qemu.Machine{"node1": qemu.Wide()}
	c := New(t.TempDir(), opts)
	require.NoError(t, c.prepareRun())
	tokens, err := os.ReadFile(c.path("run", "pki", "tokens.csv"))
	require.NoError(t, err)
	require.Regexp(t, `^[A-Z2-7]{26},admin,user-0,"system:masters"
[A-Z2-7]{26},system:kube-controller-manager,user-1
[A-Z2-7]{26},system:kube-scheduler,user-2
[A-Z2-7]{26},system:node:node0,user-3,"system:nodes"
[A-Z2-7]{26},system:node:node1,user-4,"system:nodes"
$`, string(tokens))
	for _, f := range []string{"kubeconfig", "node1/share/kubeconfig", "node1/share/kubelet.json", "node0/share/ca.crt"} {
		require.FileExists(t, c.path("run", f))
	}
	again, err := Open(c.dir, Options{})
	require.NoError(t, err)
	require.Equal(t, []string{"node0", "node1"}, again.NodeNames())
	require.Equal(t, opts.Machine, again.Machine("node0"))
	require.Equal(t, qemu.Wide(), again.Machine("node1"))
}

func TestOpenWithoutACluster(t *testing.T) {
	_, err := Open(t.TempDir(), Defaults())
	require.ErrorContains(t, err, "run `cluster up`")
}

func TestOptionsValidate(t *testing.T) {
	cases := map[string]struct {
		change func(*Options)
		say    string
	}{
		"flags": {func(o *Options) { o.Flags = map[string]map[string]string{"scheduler": {}} },
			`flags for "scheduler": there is no such program, there are [etcd kube-apiserver`},
		"nodes below 0": {func(o *Options) { o.Nodes = -1 }, "-1 nodes: give 0 to 16"},
		"subnet":        {func(o *Options) { o.Subnet = 256 }, "1 to 255"},
		"no time":       {func(o *Options) { o.Ready = 0 }, "above 0"},
		"missing image": {func(o *Options) { o.Images = []string{"/nowhere.tar"} }, "/nowhere.tar"},
		"machine":       {func(o *Options) { o.Machine.Cores = 0 }, "at least 1"},
		"one machine":   {func(o *Options) { o.Machines = map[string]qemu.Machine{"node0": {}} }, "node0: machine"},
		"no systemd":    {func(o *Options) { o.Systemd = []string{"node1"} }, `systemd on "node1": there is no such node`},
		"no kernel":     {func(o *Options) { o.Kernel = "" }, `kernel "": give one of [stable backports newest]`},
		"kernel":        {func(o *Options) { o.Kernels = map[string]string{"node0": "6.12"} }, `kernel "6.12": give one of`},
		"kernel's node": {
			func(o *Options) { o.Kernels = map[string]string{"node1": "stable"} },
			`a kernel for "node1": there is no such node`,
		},
		"no such node": {
			func(o *Options) { o.Machines = map[string]qemu.Machine{"node1": qemu.Wide()} },
			`"node1": there is no such node, there are [node0]`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := Defaults()
			c.change(&o)
			require.ErrorContains(t, o.validate(), c.say)
		})
	}
	require.NoError(t, Defaults().validate())
	require.ErrorContains(t, New("relative", Defaults()).Up(t.Context()), "absolute path")
}

func TestFreeSubnet(t *testing.T) {
	network := func(cidr string) *net.IPNet {
		ip, n, err := net.ParseCIDR(cidr)
		require.NoError(t, err)
		n.IP = ip.To4() // as the host reports its addresses
		return n
	}
	other, left, wide := network("192.0.2.2/24"), network("10.89.0.254/24"), network("10.0.0.5/8")
	cases := map[string]struct {
		wanted int
		used   []*net.IPNet
		want   int
		say    string
	}{
		"free host":                   {used: []*net.IPNet{other}, want: 89},
		"another cluster's address":   {used: []*net.IPNet{other, left}, want: 90},
		"wanted and free":             {wanted: 77, used: []*net.IPNet{left}, want: 77},
		"wanted and taken":            {wanted: 89, used: []*net.IPNet{left}, say: "10.89.0.254/24 inside the cluster's 10.89.0.0/16"},
		"the host's network has all":  {used: []*net.IPNet{wide}, say: "choose another subnet"},
		"the host's network has ours": {wanted: 77, used: []*net.IPNet{wide}, say: "10.0.0.5/8"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := freeSubnet(c.wanted, c.used)
			if c.say != "" {
				require.ErrorContains(t, err, c.say)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestControlPlaneFlags(t *testing.T) {
	opts := Defaults()
	opts.Subnet, opts.Gates, opts.RuntimeConfig = 77, map[string]bool{"B": false, "A": true}, "x/v1=true"
	opts.Flags = map[string]map[string]string{"kube-scheduler": {"bind-address": "0.0.0.0", "v": "4"}}
	flags := New("/d", opts).controlPlaneFlags()
	require.Contains(t, flags["kube-apiserver"], "--feature-gates=A=true,B=false")
	require.Contains(t, flags["kube-apiserver"], "--service-cluster-ip-range=10.77.128.0/20")
	require.Contains(t, flags["kube-apiserver"], "--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true,x/v1=true")
	require.Contains(t, flags["kube-scheduler"], "--kubeconfig=/d/run/control-plane/scheduler.kubeconfig")
	require.Subset(t, flags["kube-scheduler"], []string{"--bind-address=0.0.0.0", "--v=4"})
	require.NotContains(t, flags["kube-scheduler"], "--bind-address=127.0.0.1")
	const grace = "--node-monitor-grace-period=1h"
	require.NotContains(t, flags["kube-controller-manager"], grace)
	opts.InstructionClock = true
	require.Contains(t, New("/d", opts).controlPlaneFlags()["kube-controller-manager"], grace)
}

func TestSourceKey(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	key := func(args ...string) string {
		k, err := sourceKey(dir, []string{"./part", "example.com/other"}, args)
		require.NoError(t, err)
		return k
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "part"), 0o755))
	write("part/part.go", "package main")
	write("main.go", "package main")
	write("go.mod", "module x")
	first := key("build")
	write("part/part.go", "package main // other")
	require.NotEqual(t, first, key("build"), "a package of the module")
	first = key("build")
	write("main_test.go", "package main")
	require.Equal(t, first, key("build"), "tests change no program")
	require.NotEqual(t, first, key("build", "-tags", "x"))
	write("go.mod", "module y")
	require.NotEqual(t, first, key("build"))
}

// The programs have modules of their own, so that the driver's build does not see their versions.
func TestProgramsExist(t *testing.T) {
	source, err := findSource()
	require.NoError(t, err)
	for _, p := range programs() {
		_, err := os.Stat(filepath.Join(source, p.dir))
		require.NoError(t, err, p.name)
	}
}

func TestKernelPackage(t *testing.T) {
	const out = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n  Recommends: firmware\n"
	require.Equal(t, "linux-image-6.1.0-56-amd64", kernelPackage.FindStringSubmatch(out)[1])
}

func TestKernels(t *testing.T) {
	opts := Defaults()
	opts.Nodes = 3
	require.Equal(t, []string{KernelStable}, opts.kernels())
	opts.Kernels = map[string]string{"node1": KernelBackports}
	require.Equal(t, []string{KernelBackports, KernelStable}, opts.kernels(), "each once")
	c := New("/d", opts)
	require.Equal(t, KernelStable, c.Kernel("node0"))
	require.Equal(t, KernelBackports, c.Kernel("node1"))
	opts.Kernel = KernelBackports
	require.Equal(t, []string{KernelBackports}, opts.kernels())
}

// Unchanged inputs build nothing, and a failed build is repeated.
func TestRenew(t *testing.T) {
	dir := t.TempDir()
	input, stamp := filepath.Join(dir, "input"), filepath.Join(dir, "stamp")
	built := 0
	build := func() error { built++; return nil }
	do := func(build func() error) error { return renew(stamp, sha256.New(), []string{input}, build) }
	require.ErrorIs(t, do(build), os.ErrNotExist)
	require.NoError(t, os.WriteFile(input, []byte("a"), 0o644))
	require.NoError(t, do(build))
	require.NoError(t, do(build))
	require.Equal(t, 1, built)
	require.NoError(t, os.WriteFile(input, []byte("ab"), 0o644))
	require.ErrorContains(t, do(func() error { return errors.New("disk full") }), "disk full")
	require.NoError(t, do(build))
	require.Equal(t, 2, built)
}

func TestEnded(t *testing.T) {
	require.False(t, ended(os.Getpid()))
	require.True(t, ended(1<<30))
}
