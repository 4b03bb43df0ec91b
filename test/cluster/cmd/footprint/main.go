// SPDX-License-Identifier: Apache-2.0

// Command footprint measures what both daemons take on a node with up to 500 prepared claims. etcd, the API server, the
// scheduler and the daemons are the real programs, on this host, where they have whole CPUs: an emulated node takes hours for
// so many pods. The machine is a description. Kubelet and the container runtime are stand-ins: the one prepares the claims of
// pods that have a node, and the other has one container, without a claim. Cgroups are plain files.
//
// The flow: main.go has the steps, node.go starts the daemons, kubelet.go prepares claims, usage.go reads and writes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/document"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/hollow"
)

const (
	author    = "make bench-footprint: claims"
	namespace = "default"
	// perPod are the claims of each pod, each of 1 CPU and 16Mi.
	perPod = 10
	// patience only keeps a failure from hanging.
	patience = 5 * time.Minute
)

// level is a row's number of claims: ofTemplates are made from templates, named are not. The frontend watches named claims, because
// more pods may use them.
type level struct{ ofTemplates, named int }

func levels() []level { return []level{{0, 0}, {100, 0}, {500, 0}, {500, 100}} }

func (l level) claims() int { return l.ofTemplates + l.named }

func main() {
	page := flag.String("page", "../../docs/explanation/performance.md", "page to write into; empty: none")
	bin := flag.String("bin", "../../bin", "directory of the daemons' programs, which make build fills")
	rest := flag.Duration("rest", time.Minute, "time that each row's CPU is of")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, *bin, *rest, *page); err != nil {
		fmt.Fprintln(os.Stderr, "footprint:", err)
		os.Exit(1)
	}
}

// measure starts everything, measures each level and ends everything.
func measure(ctx context.Context, bin string, rest time.Duration, page string) (err error) {
	dir, err := cluster.DefaultDir()
	if err != nil {
		return err
	}
	p, err := hollow.Start(ctx, dir, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Down(context.WithoutCancel(ctx))) }()
	client, err := kubernetes.NewForConfig(p.Config)
	if err != nil {
		return err
	}
	if err := publish(ctx, client, p); err != nil {
		return err
	}
	n, err := startNode(bin, filepath.Join(dir, "run", "footprint"), p.Kubeconfig())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	k, err := n.register(ctx, client)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.conn.Close()) }()
	var rows []row
	prepared := 0
	for _, l := range levels() {
		for ; prepared < l.claims(); prepared += perPod {
			name := fmt.Sprintf("pod-%d", prepared/perPod)
			if err := create(ctx, client, name, prepared < l.ofTemplates); err != nil {
				return err
			}
			if err := k.prepare(ctx, name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		r, err := n.measure(ctx, l, rest)
		if err != nil {
			return err
		}
		fmt.Print(r)
		rows = append(rows, r)
	}
	if page == "" {
		return nil
	}
	return document.Insert(page, author, table(rows))
}

// publish makes the node and the class, and starts the scheduler.
func publish(ctx context.Context, client kubernetes.Interface, p hollow.ControlPlane) error {
	class := &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: hollow.Driver},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{
			CEL: &resourceapi.CELDeviceSelector{Expression: resourceslices.ClassSelector(topology.MemoryDRAM)},
		}}},
	}
	if _, err := client.ResourceV1().DeviceClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := hollow.Publish(ctx, client, 1, nil); err != nil {
		return err
	}
	return p.StartProgram(hollow.Scheduler)
}

// create makes a pod and its claims. The pod owns them if they shall be as from a template.
func create(ctx context.Context, client kubernetes.Interface, name string, ofTemplate bool) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "none"}}},
	}
	app := &pod.Spec.Containers[0]
	for i := range perPod {
		inPod, inCluster := fmt.Sprintf("claim-%d", i), fmt.Sprintf("%s-%d", name, i)
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: inPod, ResourceClaimName: &inCluster})
		app.Resources.Claims = append(app.Resources.Claims, corev1.ResourceClaim{Name: inPod})
	}
	// The pod waits for its claims.
	pod, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for _, c := range pod.Spec.ResourceClaims {
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: *c.ResourceClaimName}}
		if ofTemplate {
			claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
			claim.Annotations = map[string]string{resourceapi.PodResourceClaimAnnotation: c.Name}
		}
		claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "zone", Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: hollow.Driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
			Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
				"cpu": resource.MustParse("1"), "memory": resource.MustParse("16Mi"),
			}},
		}}}
		if _, err := client.ResourceV1().ResourceClaims(namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}
