// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
)

// The API server's types and the driver take each example.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../examples/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
			for {
				doc, err := docs.Read()
				if errors.Is(err, io.EOF) {
					return
				}
				require.NoError(t, err)
				checkExample(t, doc)
			}
		})
	}
}

func checkExample(t *testing.T, doc []byte) {
	t.Helper()
	var kind struct {
		Kind string `json:"kind"`
	}
	require.NoError(t, yaml.Unmarshal(doc, &kind))
	check := func(c resourceapi.DeviceConfiguration) {
		t.Helper()
		_, err := parameters.Decode(c.Opaque.Parameters.Raw)
		require.NoError(t, err)
	}
	ofSpec := func(s resourceapi.ResourceClaimSpec) {
		t.Helper()
		for _, c := range s.Devices.Config {
			check(c.DeviceConfiguration)
		}
	}
	switch kind.Kind {
	case "DeviceClass":
		var class resourceapi.DeviceClass
		require.NoError(t, yaml.UnmarshalStrict(doc, &class))
		for _, c := range class.Spec.Config {
			check(c.DeviceConfiguration)
		}
	case "ResourceClaim":
		var claim resourceapi.ResourceClaim
		require.NoError(t, yaml.UnmarshalStrict(doc, &claim))
		ofSpec(claim.Spec)
	case "ResourceClaimTemplate":
		var template resourceapi.ResourceClaimTemplate
		require.NoError(t, yaml.UnmarshalStrict(doc, &template))
		ofSpec(template.Spec.Spec)
	case "Pod":
		require.NoError(t, yaml.UnmarshalStrict(doc, &corev1.Pod{}))
	default:
		require.Failf(t, "an example of another kind", "%q", kind.Kind)
	}
}
