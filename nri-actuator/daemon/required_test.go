// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	validator "github.com/containerd/nri/plugins/default-validator/builtin"
	"github.com/stretchr/testify/require"
)

// TestRuntimeThatRequiresTheActuator: with the settings of docs/how-to/operations.md
// and no actuator the runtime creates only the actuator's own container.
func TestRuntimeThatRequiresTheActuator(t *testing.T) {
	const tolerate = "tolerate-missing-plugins.noderesource.dev"
	h := newHost(t)
	h.options = []adaptation.Option{adaptation.WithDefaultValidator(&validator.DefaultValidatorConfig{
		Enable: true, RequiredPlugins: []string{"cpumem"}, TolerateMissingAnnotation: tolerate,
	})}
	h.startRuntime()
	defer h.stopRuntime()
	_, err := h.create("early", podB)
	require.ErrorContains(t, err, `required plugin "cpumem" not present`)
	annotated := func(container string) error {
		pod := &api.PodSandbox{Id: "actuator", Uid: podA, Annotations: map[string]string{tolerate + "/container.actuator": "true"}}
		_, err := h.nri.CreateContainer(t.Context(), &adaptation.CreateContainerRequest{
			Pod: pod, Container: &api.Container{Id: container, PodSandboxId: pod.Id, Name: container},
		})
		return err
	}
	require.NoError(t, annotated("actuator"))
	require.ErrorContains(t, annotated("frontend"), "not present")
	h.startActuator()
	h.plugged()
	_, err = h.create("pool", podB)
	require.NoError(t, err)
}
