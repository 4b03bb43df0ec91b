// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// An instance that kubelet does not take asks no other instance to hand over, and reports why.
func TestRegistration(t *testing.T) {
	r := &registration{rootDir: "/var/lib/kubelet"}
	require.ErrorContains(t, r.missing(), "kubelet has not registered the driver yet: check that it watches /var/lib/kubelet/plugins_registry")
	answer := func(s *registerapi.RegistrationStatus) {
		handled := false
		_, err := r.intercept(t.Context(), s, nil, func(context.Context, any) (any, error) {
			handled = true
			return nil, nil
		})
		require.NoError(t, err)
		require.True(t, handled)
	}
	answer(&registerapi.RegistrationStatus{Error: "no such version"})
	require.EqualError(t, r.missing(), "kubelet refused to register the driver: no such version")
	answer(&registerapi.RegistrationStatus{PluginRegistered: true})
	require.NoError(t, r.missing())
}
