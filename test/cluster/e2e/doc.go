// SPDX-License-Identifier: Apache-2.0

// Package e2e shows the driver's promises on a real cluster: scheduler, kubelet,
// containerd and kernel. Most cases run on a small node with two NUMA nodes, some
// on a wide node with five NUMA nodes and several last-level caches. The small node
// has the cgroup driver cgroupfs, the wide node systemd; -systemd chooses.
//
// One cluster serves all cases, so each case removes what it made. Cases run in the
// order of their files: first the cases with the chart's default values, then
// values_* with other values, each change of which rolls the frontends. The last
// file checks that nothing of a claim is left and that the chart uninstalls.
//
// The cases need root, minutes and a cluster: they have the build tag e2e, and
// `make e2e` starts them.
package e2e
