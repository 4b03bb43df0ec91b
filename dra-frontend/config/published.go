// SPDX-License-Identifier: Apache-2.0

package config

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
)

// Published returns what the configuration says about published devices. pageSize
// is the machine's base page size in bytes.
func (c Config) Published(pageSize int64, taints []resourceapi.DeviceTaint) resourceslices.Options {
	return resourceslices.Options{
		PageSize: pageSize, Taints: taints, NodeAllocatable: c.NodeAllocatable,
		NUMANodeList: c.NUMANodeForm == NUMANodeList, PCIeRoots: c.PublishPCIeRoots,
	}
}
