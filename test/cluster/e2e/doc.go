// SPDX-License-Identifier: Apache-2.0

// Package e2e shows the driver's promises on a real cluster: scheduler,
// kubelet, containerd and kernel of a node with two NUMA nodes. One cluster
// serves all cases, so each cleans up what it made; the last ones look whether
// everything came back and uninstall the chart.
//
// The cases need root, minutes and a cluster: they have the build tag e2e and
// are started by `make e2e`.
package e2e
