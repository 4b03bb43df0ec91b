// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/pages"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

// TestKubeadm runs the commands of the page about kubeadm, in their order and with the page's configuration: kubeadm init and
// kubeadm join make a cluster, A51: the chart is installed and helm test passes, and the example gets its CPUs.
func TestKubeadm(t *testing.T) {
	longOnly(t)
	const name = "docs/getting-started/kubeadm.md"
	all, err := pages.Read(repository)
	require.NoError(t, err)
	i := slices.IndexFunc(all, func(p pages.Page) bool { return p.Path == name })
	require.GreaterOrEqual(t, i, 0, "no page %s", name)
	k := newKubeadm(t, all[i])
	dir := k.workplace(t)
	var done []string
	for _, b := range all[i].Blocks {
		script, is := b.Script()
		switch {
		case !is:
		case b.Mark == pages.WithKubeadm && strings.HasPrefix(script, "kubeadm init"):
			k.init(t, b)
			done = append(done, "init")
		case b.Mark == pages.WithKubeadm && strings.HasPrefix(script, "kubeadm join"):
			k.join(t, b)
			done = append(done, "join")
		case b.Mark == pages.WithKubeadm:
			b.Mark = pages.OnNode
			k.commands(t, dir, []pages.Block{b})
		case strings.HasPrefix(script, "helm install"): // from a registry
			require.NoError(t, k.helm(t.Context(), "install", []string{"config.kubeletConfigFile=/var/lib/kubelet/config.yaml"}))
			done = append(done, "install")
		default:
			k.commands(t, dir, []pages.Block{b})
		}
	}
	require.Equal(t, []string{"init", "join", "install"}, done, "commands of %s", name)

	claimed := cpus(t, k.cgroup(t, k.running(t, "latency-critical"), "app", "cpuset.cpus"))
	require.Equal(t, 2, claimed.Size())
	frontend := k.daemon(t, "frontend")
	pool := cpus(t, k.cgroup(t, &frontend, "frontend", "cpuset.cpus.effective"))
	require.False(t, pool.IsEmpty())
	require.True(t, pool.Intersection(claimed).IsEmpty(), "the frontend runs on %s, the claim has %s", pool, claimed)
}

// kubeadm is a cluster that kubeadm makes. The control plane is what kubeadm writes for it, without its containers: in an
// emulated machine the API server does not get ready within its own limits. The node is a machine that kubeadm joins.
type kubeadm struct {
	suite
	program string
	root    string // what kubeadm init sees as the root of the control plane's machine
	token   string // arguments of kubeadm join
	hash    string
	server  string
}

// newKubeadm makes a cluster in a directory of its own and takes from it what kubeadm shall make.
func newKubeadm(t *testing.T, page pages.Page) *kubeadm {
	t.Helper()
	program, err := theSuite.BuildKubeadm(t.Context())
	require.NoError(t, err)
	built := filepath.Dir(filepath.Dir(theSuite.Kubeconfig()))
	dir := built + "-kubeadm"
	kernel := "kernel-" + theSuite.Kernel(node)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	for _, part := range []string{"bin", "systemd", kernel} {
		require.NoError(t, os.Symlink(filepath.Join(built, part), filepath.Join(dir, part)))
	}
	options := cluster.Defaults()
	options.Images = strings.Split(*images, ",")
	options.Kernel, options.Systemd = theSuite.Kernel(node), []string{node} // kubeadm starts kubelet with systemctl
	c := cluster.New(dir, options)
	t.Cleanup(func() {
		ctx := context.Background()
		if t.Failed() && *logs != "" {
			t.Log(c.CollectLogs(ctx, filepath.Join(*logs, "kubeadm")))
		}
		require.NoError(t, c.Down(ctx))
	})
	require.NoError(t, c.Up(t.Context()))
	s, err := newSuite(c)
	require.NoError(t, err)
	k := &kubeadm{suite: s, program: program, root: filepath.Join(dir, "run", "kubeadm")}

	require.NoError(t, c.StopControlPlane(t.Context()))
	for _, d := range []string{"bin", "tmp"} {
		require.NoError(t, os.MkdirAll(filepath.Join(k.root, d), 0o755))
	}
	k.configure(t, page)

	share := c.ShareDir(node)
	data, err := os.ReadFile(program)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(share, "kubeadm"), data, 0o755))
	// kubeadm looks for the kernel's configuration in /boot. The unit of kubelet gets what the drop-in of kubeadm's packages says.
	require.NoError(t, os.CopyFS(filepath.Join(share, "boot"), os.DirFS(filepath.Join(built, kernel, "boot"))))
	_, err = c.NodeExec(t.Context(), node, `set -e
systemctl stop kubelet
rm -rf /var/lib/kubelet /etc/kubernetes
mkdir -p /etc/systemd/system/kubelet.service.d
cat >/etc/systemd/system/kubelet.service.d/10-kubeadm.conf <<'end'
[Service]
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart=
ExecStart=/usr/local/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
    --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS
StandardOutput=append:/var/log/kubelet.log
StandardError=append:/var/log/kubelet.log
Restart=always
RestartSec=10
end
ln -s /share/boot /`)
	require.NoError(t, err)
	return k
}

// configure writes cluster.yaml: the page's configuration, the addresses of the network, and the phases that need a
// kubelet beside the control plane.
func (k *kubeadm) configure(t *testing.T, page pages.Page) {
	t.Helper()
	version, err := theSuite.client.Discovery().ServerVersion()
	require.NoError(t, err)
	server, err := url.Parse(k.config.Host)
	require.NoError(t, err)
	subnet := strings.Join(strings.Split(server.Hostname(), ".")[:2], ".")
	parts := map[string]string{
		// kubeadm would ask the internet for the newest version.
		pages.Kubeadm: fmt.Sprintf("kubernetesVersion: %s\nnetworking: {serviceSubnet: %s.128.0/20}\n", version.GitVersion, subnet),
		pages.Kubelet: "",
	}
	text := fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %s, bindPort: %s}
nodeRegistration: {name: control-plane, criSocket: unix:///run/containerd/containerd.sock}
skipPhases: [preflight, kubelet-start, wait-control-plane, mark-control-plane, kubelet-finalize, addon]
timeouts: {kubernetesAPICall: 3m}
`, server.Hostname(), server.Port())
	for _, b := range page.Blocks {
		if more, is := parts[b.Mark]; is {
			text += "---\n" + b.Text + more
			delete(parts, b.Mark)
		}
	}
	require.Empty(t, parts, "blocks that %s lacks", page.Path)
	require.NoError(t, os.WriteFile(filepath.Join(k.root, "cluster.yaml"), []byte(text), 0o644))
}

// init runs kubeadm init, and each program of the control plane as soon as there is its manifest.
func (k *kubeadm) init(t *testing.T, b pages.Block) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	script, _ := b.Script()
	args := k.InNamespace("bash", "-ec", fmt.Sprintf("kubeadm() { %s --rootfs %s \"$@\"; }\n%s", k.program, k.root, script))
	var out strings.Builder
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		k.start(t, name)
	}
	err := <-ended
	t.Logf("%s:\n%s\n%s", b.At(), script, out.String())
	require.NoError(t, err, b.At())

	join := regexp.MustCompile(`kubeadm join (\S+) --token (\S+) \\\s+--discovery-token-ca-cert-hash (\S+)`).FindStringSubmatch(out.String())
	require.NotNil(t, join, "kubeadm init prints no kubeadm join")
	k.server, k.token, k.hash = join[1], join[2], join[3]
	admin, err := os.ReadFile(filepath.Join(k.root, "etc/kubernetes/admin.conf"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(k.Kubeconfig(), admin, 0o600))
	k.suite, err = newSuite(k.Cluster)
	require.NoError(t, err)
}

// start starts the command of a static pod, as kubelet would, without the container.
func (k *kubeadm) start(t *testing.T, name string) {
	t.Helper()
	var p corev1.Pod
	eventually(t, "manifest of "+name, func(context.Context) error {
		text, err := os.ReadFile(filepath.Join(k.root, "etc/kubernetes/manifests", name+".yaml"))
		if err != nil {
			return err
		}
		if err := yaml.Unmarshal(text, &p); err != nil {
			return err
		}
		if len(p.Spec.Containers) == 0 {
			return errors.New("not written yet")
		}
		return nil
	})
	command := p.Spec.Containers[0].Command
	program := filepath.Join("bin", command[0])
	require.NoError(t, os.Link(k.Program("kubernetes"), filepath.Join(k.root, program)))
	require.NoError(t, k.StartInstead(name, append([]string{"chroot", k.root, "/" + program}, command[1:]...)...))
}

// join runs kubeadm join on the node and waits until the node is Ready.
func (k *kubeadm) join(t *testing.T, b pages.Block) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	script, _ := b.Script()
	script = strings.NewReplacer("SERVER", k.server, "TOKEN", k.token, "HASH", k.hash).Replace(script)
	out, err := k.NodeExec(ctx, k.node, "set -e; PATH=/share:$PATH\n"+script)
	t.Logf("%s:\n%s\n%s", b.At(), script, out)
	require.NoError(t, err, b.At())
	eventually(t, "node Ready", func(ctx context.Context) error {
		ready, err := k.Kubectl(ctx, "get", "node", k.node, "-o", "jsonpath={.status.conditions[?(@.type=='Ready')]}")
		if err == nil && !strings.Contains(ready, `"status":"True"`) {
			err = fmt.Errorf("node %s is not Ready: %s", k.node, ready)
		}
		return err
	})
}
