// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// kubelet makes kubelet's calls of the frontend.
type kubelet struct {
	client kubernetes.Interface
	conn   *grpc.ClientConn
	dra    dra.DRAPluginClient
	// addPod makes the cgroup of a pod by its UID.
	addPod func(uid string) error
}

// often is the interval at which a wait looks again.
const often = 100 * time.Millisecond

// eventually asks until condition returns nil, at most for patience.
func eventually(ctx context.Context, what string, condition func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, often, patience, true, func(ctx context.Context) (bool, error) {
		last = condition(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waited for %s: %w: %w", what, err, last)
	}
	return nil
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// register waits for the frontend and registers it, as kubelet does.
func (n *node) register(ctx context.Context, client kubernetes.Interface) (k *kubelet, err error) {
	err = eventually(ctx, "the frontend's registration", func(ctx context.Context) error {
		sockets, err := filepath.Glob(filepath.Join(n.config.KubeletRootDir, "plugins_registry", "*.sock"))
		if err != nil {
			return err
		}
		if len(sockets) != 1 {
			return fmt.Errorf("%d sockets, want 1", len(sockets))
		}
		conn, err := dial(sockets[0])
		if err != nil {
			return err
		}
		defer conn.Close()
		plugin := registration.NewRegistrationClient(conn)
		info, err := plugin.GetInfo(ctx, &registration.InfoRequest{})
		if err != nil {
			return err
		}
		if _, err := plugin.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{PluginRegistered: true}); err != nil {
			return err
		}
		k = &kubelet{client: client, addPod: n.addPod}
		if k.conn, err = dial(info.GetEndpoint()); err != nil {
			return err
		}
		k.dra = dra.NewDRAPluginClient(k.conn)
		return nil
	})
	return k, err
}

// prepare waits until the pod has a node, and prepares its claims with one call, which it repeats after an error.
func (k *kubelet) prepare(ctx context.Context, name string) error {
	var call dra.NodePrepareResourcesRequest
	err := eventually(ctx, "a node", func(ctx context.Context) error {
		pod, err := k.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Spec.NodeName == "" {
			return fmt.Errorf("no node: %+v", pod.Status.Conditions)
		}
		call.Claims = nil
		for _, c := range pod.Spec.ResourceClaims {
			claim, err := k.client.ResourceV1().ResourceClaims(namespace).Get(ctx, *c.ResourceClaimName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			call.Claims = append(call.Claims, &dra.Claim{Namespace: namespace, Name: claim.Name, Uid: string(claim.UID)})
		}
		return k.addPod(string(pod.UID))
	})
	if err != nil {
		return err
	}
	return eventually(ctx, "prepared claims", func(ctx context.Context) error {
		reply, err := k.dra.NodePrepareResources(ctx, &call)
		if err != nil {
			return err
		}
		for _, c := range call.Claims {
			if of := reply.GetClaims()[c.Uid]; of.GetError() != "" || len(of.GetDevices()) == 0 {
				return fmt.Errorf("claim %s: %d devices, error %q", c.Name, len(of.GetDevices()), of.GetError())
			}
		}
		return nil
	})
}
