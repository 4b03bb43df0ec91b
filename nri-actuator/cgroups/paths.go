// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"fmt"
	"path"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

const (
	sliceSuffix = ".slice"
	kubepods    = "kubepods"
)

// ContainerDir returns the directory, below the cgroup mount, for a container's
// cgroups path in the OCI spec. The path has one of two forms: a path (cgroupfs
// driver) or "slice:prefix:name" (systemd driver).
func ContainerDir(cgroupsPath string) (string, error) {
	if strings.HasPrefix(cgroupsPath, "/") {
		return clean(cgroupsPath)
	}
	parts := strings.Split(cgroupsPath, ":")
	if len(parts) != 3 || strings.Contains(cgroupsPath, "/") || parts[1] == "" || parts[2] == "" {
		return "", fmt.Errorf("cgroups path %q: want /path or slice:prefix:name", cgroupsPath)
	}
	slice, err := expandSlice(parts[0])
	if err != nil {
		return "", fmt.Errorf("cgroups path %q: %w", cgroupsPath, err)
	}
	return slice + "/" + parts[1] + "-" + parts[2] + ".scope", nil
}

// PodDir returns the pod's directory, below the cgroup mount, for the cgroup
// parent of its sandbox. Kubelet gives a path with both drivers. With systemd
// only the path's last element, the slice's name, determines the directory.
func PodDir(cgroupParent string) (string, error) {
	if !strings.HasSuffix(cgroupParent, sliceSuffix) {
		return clean(cgroupParent)
	}
	if strings.Contains(cgroupParent, "/") {
		if _, err := clean(cgroupParent); err != nil {
			return "", err
		}
	}
	dir, err := expandSlice(path.Base(cgroupParent))
	if err != nil {
		return "", fmt.Errorf("cgroup parent %q: %w", cgroupParent, err)
	}
	return dir, nil
}

// Levels returns the directories of kubepods and of the QoS levels below it, by
// the contract's level keys. podDir is the directory of any pod. A level need
// not exist.
func Levels(podDir string) (map[string]string, error) {
	root := path.Dir(podDir)
	if l := lastWord(root); l == contract.LevelBurstable || l == contract.LevelBestEffort {
		root = path.Dir(root)
	}
	if lastWord(root) != kubepods {
		return nil, fmt.Errorf("pod cgroup %q is not below a %s cgroup", podDir, kubepods)
	}
	levels := map[string]string{contract.LevelKubepods: root}
	stem, systemd := strings.CutSuffix(root, sliceSuffix)
	for _, l := range []string{contract.LevelBurstable, contract.LevelBestEffort} {
		if systemd {
			levels[l] = root + "/" + path.Base(stem) + "-" + l + sliceSuffix
		} else {
			levels[l] = root + "/" + l
		}
	}
	return levels, nil
}

// Kubepods returns the directory of the cgroup of all pods, if it is directly
// below the mount.
func (m *Mount) Kubepods() (dir string, ok bool) {
	for _, dir := range []string{kubepods, kubepods + sliceSuffix} {
		if m.Exists(dir) {
			return dir, true
		}
	}
	return "", false
}

// PodUID returns the UID of the pod of the cgroup dir, empty if dir is no pod's.
// Kubelet names the cgroup "pod<UID>", with the systemd driver in a slice's name
// and with "_" for "-" (pkg/kubelet/cm, pod_container_manager_linux.go). The UID
// of a static pod has no dashes.
func PodUID(dir string) string {
	name, systemd := strings.CutSuffix(path.Base(dir), sliceSuffix)
	if systemd {
		name = name[strings.LastIndexByte(name, '-')+1:]
	}
	uid, pod := strings.CutPrefix(name, "pod")
	if systemd {
		uid = strings.ReplaceAll(uid, "_", "-")
	}
	if !pod || strings.Trim(uid, "0123456789abcdef-") != "" {
		return ""
	}
	return uid
}

// lastWord returns the name of the cgroup dir without the systemd driver's
// additions: "burstable" for "kubepods-burstable.slice".
func lastWord(dir string) string {
	name, systemd := strings.CutSuffix(path.Base(dir), sliceSuffix)
	if systemd {
		name = name[strings.LastIndexByte(name, '-')+1:]
	}
	return name
}

// clean returns an absolute path without the leading slash. A path that does not
// name a cgroup below the mount, or is not clean, is an error.
func clean(p string) (string, error) {
	rel, ok := strings.CutPrefix(p, "/")
	if !ok || rel == "" || path.Clean(p) != p || strings.ContainsRune(p, 0) {
		return "", fmt.Errorf("cgroup path %q is not a clean absolute path below the cgroup mount", p)
	}
	return rel, nil
}

// expandSlice returns a slice's directory: systemd nests "a-b.slice" in
// "a.slice" (systemd.slice(5)).
func expandSlice(name string) (string, error) {
	stem, ok := strings.CutSuffix(name, sliceSuffix)
	if !ok || strings.ContainsAny(name, "/\x00") {
		return "", fmt.Errorf("%q is not the name of a slice", name)
	}
	words := strings.Split(stem, "-")
	dirs := make([]string, len(words))
	for i, word := range words {
		if word == "" || word == "." || word == ".." {
			return "", fmt.Errorf("%q is not the name of a slice", name)
		}
		dirs[i] = strings.Join(words[:i+1], "-") + sliceSuffix
	}
	return strings.Join(dirs, "/"), nil
}
