// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

var controlPlane = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// flags returns a map as arguments --key=value, sorted.
func flags(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k, v := range m {
		out = append(out, "--"+k+"="+v)
	}
	slices.Sort(out)
	return out
}

func (c *Cluster) controlPlaneFlags() map[string][]string {
	key := func(name string) string { return c.path("run", "pki", name) }
	config := func(name string) string { return c.path("run", "control-plane", name+".kubeconfig") }
	gates := make([]string, 0, len(c.opts.Gates))
	for g, on := range c.opts.Gates {
		gates = append(gates, fmt.Sprintf("%s=%t", g, on))
	}
	slices.Sort(gates)
	runtime := "resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true"
	if c.opts.RuntimeConfig != "" {
		runtime += "," + c.opts.RuntimeConfig
	}
	all := map[string]map[string]string{
		"etcd": {
			"data-dir":           c.path("run", "control-plane", "etcd"),
			"listen-client-urls": "http://127.0.0.1:2379", "advertise-client-urls": "http://127.0.0.1:2379",
			"listen-peer-urls": "http://127.0.0.1:2380", "initial-advertise-peer-urls": "http://127.0.0.1:2380",
			"initial-cluster": "default=http://127.0.0.1:2380",
			"unsafe-no-fsync": "true", "log-level": "warn",
		},
		"kube-apiserver": {
			"etcd-servers": "http://127.0.0.1:2379",
			"bind-address": "0.0.0.0", "secure-port": "443", "advertise-address": c.apiAddress().String(),
			"tls-cert-file": key("apiserver.crt"), "tls-private-key-file": key("apiserver.key"),
			"client-ca-file": key("ca.crt"), "token-auth-file": key("tokens.csv"),
			"authorization-mode": "Node,RBAC", "enable-admission-plugins": "NodeRestriction",
			"service-account-issuer":   "https://kubernetes.default.svc",
			"service-account-key-file": key("sa.pub"), "service-account-signing-key-file": key("sa.key"),
			"service-cluster-ip-range":        c.services(),
			"kubelet-client-certificate":      key("kubelet-client.crt"),
			"kubelet-client-key":              key("kubelet-client.key"),
			"kubelet-preferred-address-types": "InternalIP",
			"enable-aggregator-routing":       "true", // webhooks go straight to pods: there is no service proxy
			"endpoint-reconciler-type":        "none",
			"allow-privileged":                "true",
			"profiling":                       "false",
			"runtime-config":                  runtime,
			"feature-gates":                   strings.Join(gates, ","),
		},
		"kube-controller-manager": {
			"kubeconfig": config("controller-manager"), "leader-elect": "false", "bind-address": "127.0.0.1",
			"use-service-account-credentials":  "true",
			"service-account-private-key-file": key("sa.key"), "root-ca-file": key("ca.crt"),
			"feature-gates": strings.Join(gates, ","),
		},
		"kube-scheduler": {
			"kubeconfig": config("scheduler"), "leader-elect": "false", "bind-address": "127.0.0.1",
			"feature-gates": strings.Join(gates, ","),
		},
	}
	if c.opts.InstructionClock {
		// A node's clock falls behind the host's, so that its heartbeats come late by the host's clock.
		all["kube-controller-manager"]["node-monitor-grace-period"] = "1h"
	}
	rendered := map[string][]string{}
	for name, m := range all {
		maps.Copy(m, c.opts.Flags[name])
		rendered[name] = flags(m)
	}
	return rendered
}

// controlPlaneStart starts etcd and the API server, which waits for etcd by itself.
func (c *Cluster) controlPlaneStart() error {
	args := c.controlPlaneFlags()
	for _, name := range controlPlane[:2] {
		if err := c.startControlPlane(name, args[name]); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) startControlPlane(name string, args []string) error {
	return c.start(c.path("run", "control-plane"), name, append([]string{c.Program(name)}, args...)...)
}

// StopControlPlane stops the control plane, so that another can take its place in the network.
func (c *Cluster) StopControlPlane(ctx context.Context) error {
	for _, name := range slices.Backward(controlPlane) {
		if err := c.stop(ctx, c.path("run", "control-plane"), name); err != nil {
			return err
		}
	}
	return nil
}

// StopProgram stops one program of the control plane.
func (c *Cluster) StopProgram(ctx context.Context, name string) error {
	return c.stop(ctx, c.path("run", "control-plane"), name)
}

// StartProgram starts a program of the control plane that StopProgram stopped.
func (c *Cluster) StartProgram(name string) error {
	return c.startControlPlane(name, c.controlPlaneFlags()[name])
}

// PID returns the process id of a program of the control plane. It is an error if the program does not run.
func (c *Cluster) PID(name string) (int, error) {
	pid := c.pid(c.path("run", "control-plane"), name)
	if pid == 0 {
		return 0, fmt.Errorf("%s does not run, the end of its log:\n%s", name, c.logTail("control-plane", name+".log"))
	}
	return pid, nil
}

// StartInstead starts a program in the network and under the name of a stopped program of the control plane.
func (c *Cluster) StartInstead(name string, command ...string) error {
	return c.start(c.path("run", "control-plane"), name, command...)
}

// SetGates restarts the control plane, without etcd, with these feature gates. Nodes keep theirs.
func (c *Cluster) SetGates(ctx context.Context, gates map[string]bool) error {
	c.opts.Gates = gates
	for _, name := range controlPlane[1:] {
		if err := c.stop(ctx, c.path("run", "control-plane"), name); err != nil {
			return err
		}
	}
	if err := c.startControlPlane("kube-apiserver", c.controlPlaneFlags()["kube-apiserver"]); err != nil {
		return err
	}
	return c.controlPlaneReady(ctx)
}

// controlPlaneReady waits for the API server, starts the controller manager and the scheduler, and waits for the
// default service account, without which the API server accepts no pod.
func (c *Cluster) controlPlaneReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	await := func(what, path string) error {
		err := poll(ctx, 200*time.Millisecond, func() error {
			for _, name := range controlPlane[:2] {
				if c.pid(c.path("run", "control-plane"), name) == 0 {
					cancel()
					return fmt.Errorf("%s ended, the end of its log:\n%s", name, c.logTail("control-plane", name+".log"))
				}
			}
			_, err := c.get(ctx, path)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	if err := await("API server", "/readyz"); err != nil {
		return err
	}
	c.logf("API server ready")
	args := c.controlPlaneFlags()
	for _, name := range controlPlane[2:] {
		if err := c.startControlPlane(name, args[name]); err != nil {
			return err
		}
	}
	if err := await("default service account", "/api/v1/namespaces/default/serviceaccounts/default"); err != nil {
		return err
	}
	c.logf("control plane ready")
	return nil
}

func (c *Cluster) logTail(elem ...string) string {
	data, err := os.ReadFile(c.path(append([]string{"run"}, elem...)...))
	if err != nil {
		return err.Error()
	}
	return tail(string(data))
}

// get reads a path of the API server as administrator.
func (c *Cluster) get(ctx context.Context, path string) ([]byte, error) {
	return c.request(ctx, http.MethodGet, path)
}

func (c *Cluster) request(ctx context.Context, method, path string) ([]byte, error) {
	data, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Token string `json:"token"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Kubeconfig(), err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.Clusters[0].Cluster.CA)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, config.Clusters[0].Cluster.Server+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+config.Users[0].User.Token)
	resp, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, tail(string(body)))
	}
	return body, nil
}
