// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Attributes of a device's metadata (KEP-5304), beside the consumed capacities,
// which have their own names. A name without a domain is this driver's.
const (
	metadataCPUs = "cpuset"
	metadataMems = "mems"
)

// metadata returns what a container may read about its result. It depends on
// the record alone, like the answer (I8). Kubelet's plugin helper writes it if
// the configuration switches metadata on.
func metadata(r contract.ResultRecord) *kubeletplugin.DeviceMetadata {
	attributes := make(map[string]resourceapi.DeviceAttribute)
	for name, list := range map[string]string{metadataCPUs: r.Decision.CPUs.String(), metadataMems: r.Decision.Mems.String()} {
		if list != "" {
			attributes[name] = resourceapi.DeviceAttribute{StringValue: new(list)}
		}
	}
	for name, amount := range r.Consumed {
		if q, err := resource.ParseQuantity(amount); err == nil && q.Sign() > 0 {
			attributes[name] = resourceapi.DeviceAttribute{IntValue: new(q.Value())}
		}
	}
	return &kubeletplugin.DeviceMetadata{Attributes: attributes}
}
