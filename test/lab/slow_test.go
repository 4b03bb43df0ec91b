// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

// slow is an API server that delays the reads of one pod until answer is closed.
type slow struct {
	kubernetes.Interface
	pod    string
	asked  func()
	answer <-chan struct{}
}

// IsWatchListSemanticsUnSupported reports the same as the fake server.
func (slow) IsWatchListSemanticsUnSupported() bool { return true }

func (s slow) CoreV1() typed.CoreV1Interface { return slowCore{s.Interface.CoreV1(), s} }

type slowCore struct {
	typed.CoreV1Interface
	slow slow
}

func (c slowCore) Pods(namespace string) typed.PodInterface {
	return slowPods{c.CoreV1Interface.Pods(namespace), c.slow}
}

type slowPods struct {
	typed.PodInterface
	slow slow
}

func (p slowPods) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Pod, error) {
	if name == p.slow.pod {
		p.slow.asked()
		<-p.slow.answer
	}
	return p.PodInterface.Get(ctx, name, o)
}

// A slow read of the API server delays only the claim that needs the read. Other
// claims are prepared and released meanwhile.
func TestSlowAPIServerDelaysOneClaim(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}), make(chan struct{})
	n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, Client: func(c kubernetes.Interface) kubernetes.Interface {
		return slow{Interface: c, pod: "late", asked: sync.OnceFunc(func() { close(asked) }), answer: answer}
	}})
	late, prompt := podWith(n, "late", lab.Request{Zone: "numa-0", Capacity: cpu("1")}),
		podWith(n, "prompt", lab.Request{Zone: "numa-1", Capacity: cpu("2")})
	require.True(t, n.Allocate(late))
	require.True(t, n.Allocate(prompt))
	done := make(chan error, 1)
	go func() { done <- n.Prepare(late) }()
	<-asked
	require.NoError(t, n.Prepare(prompt))
	require.NoError(t, n.Unprepare(prompt))
	require.Empty(t, n.Records())
	close(answer)
	require.NoError(t, <-done)
	n.Check()
	require.Len(t, n.Records(), 1)
}
