// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

// Programs of the control plane.
const (
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// ControlPlane is etcd and an API server for hollow nodes.
type ControlPlane struct {
	*cluster.Cluster
	// Config has an administrator's rights and no limit of requests.
	Config *rest.Config
}

// Start starts etcd and the API server in the directory. flags are more flags of the programs, by program. The scheduler
// and the controller manager do not run: the controller manager would mark the nodes as gone, because no kubelet renews
// their leases. A cluster that is up in the directory is an error and is left alone.
func Start(ctx context.Context, dir string, flags map[string]map[string]string) (ControlPlane, error) {
	o := cluster.Defaults()
	o.Nodes, o.Log = 0, nil
	if err := o.FromEnvironment(); err != nil {
		return ControlPlane{}, err
	}
	// A new node would get a taint that the controller manager takes away.
	api := map[string]string{"disable-admission-plugins": "TaintNodesByCondition"}
	maps.Copy(api, flags[APIServer])
	o.Flags = map[string]map[string]string{}
	maps.Copy(o.Flags, flags)
	o.Flags[APIServer] = api
	if _, err := cluster.Open(dir, o); err == nil {
		return ControlPlane{}, fmt.Errorf("a cluster is up in %s, or was left there: end it with `make cluster-down`, or choose "+
			"another directory with CPUMEM_CLUSTER_DIR", dir)
	}
	p := ControlPlane{Cluster: cluster.New(dir, o)}
	err := p.Up(ctx)
	if errors.Is(err, cluster.ErrInUse) {
		return ControlPlane{}, err // the cluster of another command must not be ended here
	}
	for _, program := range []string{Scheduler, ControllerManager} {
		if err == nil {
			err = p.StopProgram(ctx, program)
		}
	}
	if err == nil {
		p.Config, err = clientcmd.BuildConfigFromFlags("", p.Kubeconfig())
	}
	if err != nil {
		// Down ends what a failed Up started, too.
		return ControlPlane{}, errors.Join(err, p.Down(context.WithoutCancel(ctx)))
	}
	p.Config.QPS = -1
	p.Config.ContentType, p.Config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf"
	return p, nil
}
