// SPDX-License-Identifier: Apache-2.0

// Package e2e shows the driver's promises on a real cluster: scheduler,
// kubelet, containerd and kernel of a small node with two NUMA nodes, on which
// most cases run, and of a wide one with five and several last-level caches. The
// first has the cgroup driver cgroupfs, the wide one systemd; -systemd chooses.
//
// One cluster serves all cases, so each cleans up what it made. They run in the
// order of their files: first those of the chart's default values, then values_*
// with others, each change of which rolls the frontends, and at last whether
// everything came back and the chart uninstalls.
//
// The cases need root, minutes and a cluster: they have the build tag e2e and
// are started by `make e2e`.
package e2e
