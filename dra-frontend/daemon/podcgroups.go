// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
)

// podCgroups looks for pods' cgroups below the cgroup that the actuator
// announces.
type podCgroups struct {
	root          fs.FS
	announcements *contract.AnnouncementReader
}

func newPodCgroups(c config.Config, announcements *contract.AnnouncementReader) podCgroups {
	return podCgroups{root: os.DirFS(cgroupRoot(c)), announcements: announcements}
}

// Has implements kubelet.Cgroups. Without the actuator the answer is unknown, an
// error.
func (c podCgroups) Has(pod contract.PodRecord) (bool, error) {
	a, err := c.announcements.Read()
	if err != nil {
		return false, err
	}
	if a.Kubepods == "" {
		return false, errors.New("nri-actuator has seen no pod yet and does not know the cgroup of all pods")
	}
	_, err = fs.Stat(c.root, health.PodDir(a.Kubepods, pod.QOS, pod.UID))
	if !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	// Only the host's tree can show that a pod has no cgroup.
	if _, err := fs.Stat(c.root, a.Kubepods); err != nil {
		return false, fmt.Errorf("the cgroup of all pods cannot be read, sysfsRoot must show the host's sysfs: %w", err)
	}
	return false, nil
}

// cgroupRoot returns the cgroup mount of the host.
func cgroupRoot(c config.Config) string { return filepath.Join(c.SysfsRoot, "fs", "cgroup") }
