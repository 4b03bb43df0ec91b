// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
)

const (
	node     = "node0"
	cdiDir   = "/var/run/cdi"
	kubepods = "/sys/fs/cgroup/kubepods"
)

// levelDir is the cgroup of the pod's level.
func levelDir(pod *corev1.Pod) string {
	switch pod.Status.QOSClass {
	case corev1.PodQOSBurstable:
		return kubepods + "/burstable"
	case corev1.PodQOSBestEffort:
		return kubepods + "/besteffort"
	}
	return kubepods
}

func podDir(pod *corev1.Pod) string { return levelDir(pod) + "/pod" + string(pod.UID) }

// containerDir is the cgroup of the pod's only container.
func containerDir(pod *corev1.Pod) string {
	return podDir(pod) + "/" + strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "containerd://")
}

// read returns the first line of each file on the node, by path.
func (d *demo) read(ctx context.Context, files ...string) (map[string]string, error) {
	out, err := d.NodeExec(ctx, node, "head -n 1 -q "+strings.Join(files, " "))
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(lines) != len(files) {
		return nil, fmt.Errorf("read %s on %s: %d lines of %d files", strings.Join(files, " "), node, len(lines), len(files))
	}
	contents := make(map[string]string, len(files))
	for i, f := range files {
		contents[f] = lines[i]
	}
	return contents, nil
}

// decision is the part of a decision that the story needs.
type decision struct {
	CPUs, Mems string
}

// state is the part of the node state that the story needs.
type state struct {
	Shared    struct{ CPUs, Mems string }
	Pods      map[string]struct{ Claims []string }
	Exclusive map[string]string // the CPUs of partitions below each cgroup
}

// pool returns the CPUs of containers without a claim. The kernel takes the CPUs of
// partitions, which this node's kernel may make, out of the shared pool.
func (s state) pool() (cpuset.CPUSet, error) {
	pool, err := cpuset.Parse(s.Shared.CPUs)
	if err != nil {
		return cpuset.New(), err
	}
	partitions, err := cpuset.Parse(s.Exclusive[""])
	return pool.Difference(partitions), err
}

// spec is the part of a CDI spec file that the story needs.
type spec struct {
	Annotations map[string]string
	Devices     []struct {
		Name           string
		ContainerEdits struct{ Env []string }
	}
}

const (
	recordKey = "dra.cpumem/record"
	nodeFile  = "dra.cpumem-node.json"
	envPrefix = "DRA_CPUMEM_"
)

func (d *demo) spec(ctx context.Context, name string) (spec, error) {
	out, err := d.NodeExec(ctx, node, "cat "+path.Join(cdiDir, name))
	if err != nil {
		return spec{}, err
	}
	var s spec
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return spec{}, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// env returns the first variable of the contract; its value is a decision.
func (s spec) env() (name, value string, err error) {
	for _, dev := range s.Devices {
		for _, entry := range dev.ContainerEdits.Env {
			if strings.HasPrefix(entry, envPrefix) {
				name, value, _ = strings.Cut(entry, "=")
				return name, value, nil
			}
		}
	}
	return "", "", fmt.Errorf("no device injects a variable that starts with %s", envPrefix)
}

// nodeState returns the node state and its text.
func (d *demo) nodeState(ctx context.Context) (state, string, error) {
	s, err := d.spec(ctx, nodeFile)
	if err != nil {
		return state{}, "", err
	}
	var st state
	text := s.Annotations[recordKey]
	if err := json.Unmarshal([]byte(text), &st); err != nil {
		return state{}, "", fmt.Errorf("%s: %w", nodeFile, err)
	}
	return st, text, nil
}

func (d *demo) cdiFiles(ctx context.Context) ([]string, error) {
	out, err := d.NodeExec(ctx, node, "ls -A "+cdiDir)
	return strings.Fields(out), err
}
