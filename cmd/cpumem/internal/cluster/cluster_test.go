// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster/clustertest"
)

// A zone has the taints of the rules that select it.
func TestTaintRules(t *testing.T) {
	t.Parallel()
	selects := func(driver, pool, device string) *resourcev1beta2.DeviceTaintSelector {
		s := &resourcev1beta2.DeviceTaintSelector{}
		for into, name := range map[**string]string{&s.Driver: driver, &s.Pool: pool, &s.Device: device} {
			if name != "" {
				*into = &name
			}
		}
		return s
	}
	for name, c := range map[string]struct {
		selector *resourcev1beta2.DeviceTaintSelector
		want     map[string]bool // by pool/device
	}{
		"no selector":    {nil, nil},
		"empty selector": {selects("", "", ""), map[string]bool{"a/numa-0": true, "a/numa-1": true, "b/numa-0": true, "gpus/gpu-0": true}},
		"driver":         {selects("dra.cpumem", "", ""), map[string]bool{"a/numa-0": true, "a/numa-1": true, "b/numa-0": true}},
		"pool":           {selects("", "a", ""), map[string]bool{"a/numa-0": true, "a/numa-1": true}},
		"device":         {selects("", "", "numa-0"), map[string]bool{"a/numa-0": true, "b/numa-0": true}},
		"all three":      {selects("dra.cpumem", "b", "numa-0"), map[string]bool{"b/numa-0": true}},
		"another's pool": {selects("dra.cpumem", "gpus", ""), nil},
	} {
		t.Run(name, func(t *testing.T) {
			rule := &resourcev1beta2.DeviceTaintRule{
				ObjectMeta: metav1.ObjectMeta{Name: "rule"},
				Spec: resourcev1beta2.DeviceTaintRuleSpec{
					DeviceSelector: c.selector,
					Taint:          resourcev1beta2.DeviceTaint{Key: "mine", Value: "broken", Effect: resourcev1beta2.DeviceTaintEffectNoSchedule},
				},
			}
			client := fake.NewClientset(rule,
				clustertest.Slice("a", clustertest.Zone("numa-0", "cpu", "4"), clustertest.Zone("numa-1", "cpu", "4")),
				clustertest.Slice("b", clustertest.Zone("numa-0", "cpu", "4")),
				clustertest.OtherDriver(clustertest.Slice("gpus", clustertest.Zone("gpu-0", "cpu", "1"))),
			)
			o, err := cluster.Read(t.Context(), client)
			require.NoError(t, err)
			require.Len(t, o.Slices, 3)
			for _, slice := range o.Slices {
				for _, device := range slice.Spec.Devices {
					var want []resourceapi.DeviceTaint
					if c.want[slice.Spec.Pool.Name+"/"+device.Name] {
						want = []resourceapi.DeviceTaint{{Key: "mine", Value: "broken", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
					}
					require.Equal(t, want, device.Taints, "%s of %s", device.Name, slice.Spec.Pool.Name)
				}
			}
		})
	}
}

// Servers without the API and users without the right have no rules; other errors are
// reported.
func TestTaintRulesThatCannotBeListed(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Group: "resource.k8s.io", Resource: "devicetaintrules"}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"not served": {apierrors.NewNotFound(resource, ""), ""},
		"forbidden":  {apierrors.NewForbidden(resource, "", errors.New("no")), ""},
		"broken":     {apierrors.NewInternalError(errors.New("disk")), "list DeviceTaintRules: "},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(clustertest.Slice("a", clustertest.Zone("numa-0", "cpu", "4")))
			client.PrependReactor("list", "devicetaintrules", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, c.err
			})
			o, err := cluster.Read(t.Context(), client)
			require.Len(t, o.Slices, 1)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}
