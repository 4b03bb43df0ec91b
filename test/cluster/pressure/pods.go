// SPDX-License-Identifier: Apache-2.0

package pressure

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/objects"
)

// container is a container with a claim of its own on the Bench's NUMA node.
type container struct {
	name   string
	claim  int    // bytes; 0 is no claim
	memory string // field "memory" of the claim's parameters, JSON; empty for none
	swap   bool   // repeat the amount in the pod's requests: that makes it Burstable, the class that may swap
	args   []string
}

func (b *Bench) objects() objects.Objects { return objects.Objects{Client: b.Client, Node: b.Node} }

// create makes the claims and the pod of the containers.
func (b *Bench) create(ctx context.Context, name string, containers ...container) error {
	var all []objects.Container
	for _, c := range containers {
		out := objects.Container{Name: c.name, Args: c.args}
		amount := *resource.NewQuantity(int64(c.claim), resource.BinarySI)
		if c.claim == 0 {
			out.Capabilities = []corev1.Capability{"SYS_NICE"}
		} else {
			out.Claim = &objects.Claim{NUMA: b.NUMA, Class: b.Class, Amounts: objects.Amounts{"memory": amount}}
			if c.memory != "" {
				out.Claim.Parameters = `"memory":` + c.memory
			}
		}
		if c.swap {
			out.Requests = corev1.ResourceList{corev1.ResourceMemory: amount}
		}
		all = append(all, out)
	}
	return b.objects().Create(ctx, name, all...)
}

// said waits until the container's program has done the action and returns the time of the action's log line, in seconds of uptime.
func (b *Bench) said(ctx context.Context, pod, container, action string) (float64, error) {
	ahead, err := b.clock(ctx)
	if err != nil {
		return 0, err
	}
	when, err := b.objects().Said(ctx, pod, container, action)
	return float64(when.UnixNano())/1e9 - ahead, err
}

func (b *Bench) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	return b.objects().Pod(ctx, name)
}

func (b *Bench) remove(ctx context.Context, pods ...string) error {
	return b.objects().Remove(ctx, pods...)
}

// eventually calls ask until it returns nil, and else returns ask's last error.
func eventually(ctx context.Context, what string, ask func(context.Context) error) error {
	return objects.Eventually(ctx, what, 300*time.Millisecond, ask)
}
