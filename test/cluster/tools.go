// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"os"
	"path/filepath"
)

// Env returns the environment that kubectl and helm need; it keeps helm's files out of the user's home.
func (c *Cluster) Env() []string {
	return []string{
		"KUBECONFIG=" + c.Kubeconfig(),
		"PATH=" + c.path("bin") + ":" + os.Getenv("PATH"),
		"HELM_CACHE_HOME=" + c.path("run", "helm", "cache"),
		"HELM_CONFIG_HOME=" + c.path("run", "helm", "config"),
		"HELM_DATA_HOME=" + c.path("run", "helm", "data"),
	}
}

// Kubectl runs kubectl as administrator and returns its standard output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return run(ctx, "", c.Env(), c.Program("kubectl"), args...)
}

// Helm runs helm as administrator and returns its standard output.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	return run(ctx, "", c.Env(), c.Program("helm"), args...)
}

// InNamespace returns the command line that runs a program in the cluster's network namespace, to see the network as
// the control plane sees it. kubectl and helm do not need this.
func (c *Cluster) InNamespace(name string, args ...string) []string {
	return append([]string{"/usr/bin/nsenter", "--net=" + filepath.Join("/run/netns", c.namespace()), name}, args...)
}
