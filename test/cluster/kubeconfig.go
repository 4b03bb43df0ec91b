// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/pki"
)

// renderKubeconfig returns a kubeconfig in JSON, which is YAML too.
func renderKubeconfig(server string, ca []byte, token string) ([]byte, error) {
	named := func(key string, v any) []map[string]any { return []map[string]any{{"name": "cpumem", key: v}} }
	return json.MarshalIndent(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "cpumem",
		"clusters": named("cluster", map[string]any{"server": server, "certificate-authority-data": ca}),
		"users":    named("user", map[string]any{"token": token}),
		"contexts": named("context", map[string]any{"cluster": "cpumem", "user": "cpumem"}),
	}, "", "  ")
}

// renderKubelet returns the kubelet's configuration in JSON; the fields of more win.
func renderKubelet(cgroupDriver string, gates map[string]bool, more map[string]any) ([]byte, error) {
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
		"cgroupDriver":             cgroupDriver,
		"failSwapOn":               false,
		"clusterDomain":            "cluster.local",
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": false},
			"x509": map[string]any{"clientCAFile": "/etc/kubernetes/ca.crt"},
		},
		"authorization": map[string]any{"mode": "AlwaysAllow"},
		"evictionHard": map[string]any{
			"memory.available": "50Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%",
		},
		"runtimeRequestTimeout":     "5m", // emulation is slow
		"nodeStatusUpdateFrequency": "10s",
		"syncFrequency":             "10s",
		"volumeStatsAggPeriod":      "-1s",
	}
	if len(gates) > 0 {
		config["featureGates"] = gates
	}
	for k, v := range more {
		config[k] = v
	}
	return json.MarshalIndent(config, "", "  ")
}

// renderRunc returns the part of containerd's configuration that must agree with the kubelet's cgroupDriver.
func renderRunc(cgroupDriver string) []byte {
	return fmt.Appendf(nil, "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\nSystemdCgroup = %t\n",
		cgroupDriver == CgroupDriverSystemd)
}

// user is a user that the API server knows by a static token; file is the user's kubeconfig, below run.
type user struct{ file, name, group string }

func (c *Cluster) users() []user {
	users := []user{
		{file: "kubeconfig", name: "admin", group: "system:masters"},
		{file: "control-plane/controller-manager.kubeconfig", name: "system:kube-controller-manager"},
		{file: "control-plane/scheduler.kubeconfig", name: "system:kube-scheduler"},
	}
	for _, n := range c.NodeNames() {
		users = append(users, user{file: n + "/share/kubeconfig", name: "system:node:" + n, group: "system:nodes"})
	}
	return users
}

// writeCredentials fills run/pki and writes a kubeconfig for each user and the files that each node reads at boot.
func (c *Cluster) writeCredentials() error {
	ips := []net.IP{net.IPv4(127, 0, 0, 1), c.apiAddress(), c.serviceAPI()}
	if err := pki.Write(c.path("run", "pki"), time.Now(), ips); err != nil {
		return err
	}
	ca, err := os.ReadFile(c.path("run", "pki", "ca.crt"))
	if err != nil {
		return err
	}
	for _, n := range c.NodeNames() {
		driver := c.opts.cgroupDriver(n)
		kubelet, err := renderKubelet(driver, c.opts.Gates, c.opts.Kubelet)
		if err != nil {
			return fmt.Errorf("kubelet's configuration: %w", err)
		}
		if err := os.MkdirAll(c.path("run", n, "share", "images"), 0o755); err != nil {
			return err
		}
		for name, data := range map[string][]byte{
			"ca.crt": ca, "kubelet.json": kubelet, "cgroups.toml": renderRunc(driver), "containerd.toml": []byte(c.opts.Containerd),
		} {
			if err := os.WriteFile(c.path("run", n, "share", name), data, 0o644); err != nil {
				return err
			}
		}
	}
	var tokens strings.Builder
	for i, u := range c.users() {
		token := rand.Text()
		fmt.Fprintf(&tokens, "%s,%s,user-%d", token, u.name, i)
		if u.group != "" {
			fmt.Fprintf(&tokens, ",%q", u.group)
		}
		tokens.WriteString("\n")
		config, err := renderKubeconfig("https://"+c.apiAddress().String()+":443", ca, token)
		if err != nil {
			return fmt.Errorf("kubeconfig of %s: %w", u.name, err)
		}
		if err := os.WriteFile(c.path("run", u.file), config, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(c.path("run", "pki", "tokens.csv"), []byte(tokens.String()), 0o600)
}
