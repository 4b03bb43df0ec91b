// SPDX-License-Identifier: Apache-2.0

package kubeletconfig_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubeletconfig"
)

const kind = "kind: KubeletConfiguration\n"

func TestParseKubelet(t *testing.T) {
	want := kubeletconfig.Kubelet{Kind: "KubeletConfiguration", FeatureGates: map[string]bool{"MemoryQoS": true, "Other": false},
		MemoryReservationPolicy: "TieredReservation"}
	for name, text := range map[string]string{
		"YAML": kind + `
apiVersion: kubelet.config.k8s.io/v1beta1
featureGates: {MemoryQoS: true, Other: false}
memoryReservationPolicy: TieredReservation
memoryThrottlingFactor: 1
cgroupDriver: systemd
evictionHard: {memory.available: 5%}
futureField: [{a: 1}]
`,
		"JSON": `{"kind":"KubeletConfiguration",` +
			`"featureGates":{"MemoryQoS":true,"Other":false},"memoryReservationPolicy":"TieredReservation",
"memoryThrottlingFactor":1.0,"cgroupDriver":"systemd","authentication":{"x509":{"clientCAFile":"x"}},"MEMORYRESERVATIONPOLICY":"None"}`,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := kubeletconfig.Parse([]byte(text))
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
	for name, text := range map[string]string{
		"empty":           "",
		"another kind":    "kind: Pod\n",
		"a list":          "[]",
		"no text":         "\x00\xff",
		"gate is no bool": kind + `featureGates: {MemoryQoS: "true"}`,
		"YAML bomb": kind + "a: &a [x,x,x,x,x,x,x,x,x]\n" +
			"b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n" +
			"c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n" +
			"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
			"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n" +
			"f: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n" +
			"g: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kubeletconfig.Parse([]byte(text))
			require.Error(t, err)
		})
	}
}

func TestReadKubelet(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	_, err := kubeletconfig.Read(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = kubeletconfig.Read(dir)
	require.ErrorContains(t, err, "kubelet's configuration")
	require.NoError(t, os.WriteFile(path, []byte(kind+"memoryReservationPolicy: TieredReservation\n"), 0o600))
	k, err := kubeletconfig.Read(path)
	require.NoError(t, err)
	require.Equal(t, "TieredReservation", k.MemoryReservationPolicy)
	require.NoError(t, os.WriteFile(path, []byte(kind+strings.Repeat("#", 1<<20)), 0o600))
	_, err = kubeletconfig.Read(path)
	require.ErrorContains(t, err, "longer than")

	// Like a mount, a descriptor stays with its file after a replacement.
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, os.Remove(path))
	_, err = kubeletconfig.Read(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	require.ErrorContains(t, err, "was replaced")
}

// A44, A45: exactly one program writes the values of ancestors.
func TestOwners(t *testing.T) {
	gates := func(kv ...any) kubeletconfig.Kubelet {
		k := kubeletconfig.Kubelet{FeatureGates: map[string]bool{}}
		for i := 0; i < len(kv); i += 2 {
			k.FeatureGates[kv[i].(string)] = kv[i+1].(bool)
		}
		return k
	}
	tiered := func(k kubeletconfig.Kubelet) kubeletconfig.Kubelet {
		k.MemoryReservationPolicy = "TieredReservation"
		return k
	}
	broken := errors.New("kubelet's configuration is broken")
	for name, tc := range map[string]struct {
		owner, version string
		kubelet        kubeletconfig.Kubelet
		err            error
		reason         string
		words          []string
	}{
		"off by default up to 1.36": {owner: "driver", version: "v1.36.3"},
		"on by default from 1.37": {
			owner:   "driver",
			version: "v1.37.0",
			reason:  "SecondMemoryOwner",
			words:   []string{"MemoryQoS: false", "owner: kubelet", "v1.37.0", "None"},
		},
		"on by default, a vendor's build": {owner: "driver", version: "v1.38.1-rc.0+k3s1", reason: "SecondMemoryOwner"},
		"turned off":                      {owner: "driver", version: "v1.37.0", kubelet: gates("MemoryQoS", false)},
		"turned on": {
			owner:   "driver",
			version: "v1.36.3",
			kubelet: gates("MemoryQoS", true),
			reason:  "SecondMemoryOwner",
		},
		"turned on, tiered": {
			owner:   "driver",
			version: "v1.36.3",
			kubelet: tiered(gates("MemoryQoS", true)),
			reason:  "SecondMemoryOwner",
			words:   []string{"TieredReservation"},
		},
		"all alpha": {
			owner:   "driver",
			version: "v1.36.3",
			kubelet: gates("AllAlpha", true),
			reason:  "SecondMemoryOwner",
		},
		"all alpha but this": {owner: "driver", version: "v1.36.3", kubelet: gates("AllAlpha", true, "MemoryQoS", false)},
		"no beta":            {owner: "driver", version: "v1.37.0", kubelet: gates("AllBeta", false)},
		"all alpha says nothing of beta": {
			owner:   "driver",
			version: "v1.37.0",
			kubelet: gates("AllAlpha", false),
			reason:  "SecondMemoryOwner",
		},
		"kubelet does": {owner: "kubelet", version: "v1.37.0", kubelet: tiered(gates())},
		"kubelet has the gate off": {
			owner:   "kubelet",
			version: "v1.36.3",
			kubelet: tiered(gates()),
			reason:  "NoMemoryOwner",
			words:   []string{"MemoryQoS: true", "owner: driver"},
		},
		"kubelet has no policy": {
			owner:   "kubelet",
			version: "v1.37.0",
			reason:  "NoMemoryOwner",
			words:   []string{"memoryReservationPolicy None", "TieredReservation"},
		},
		"a policy is needed from 1.36 on": {
			owner:   "kubelet",
			version: "v1.36.0",
			kubelet: gates("MemoryQoS", true),
			reason:  "NoMemoryOwner",
		},
		"the gate is enough before":        {owner: "kubelet", version: "v1.35.4", kubelet: gates("MemoryQoS", true)},
		"the gate is enough for all alpha": {owner: "kubelet", version: "v1.34.0", kubelet: gates("AllAlpha", true)},
		"the gate is off before": {
			owner:   "kubelet",
			version: "v1.35.4",
			kubelet: tiered(gates()),
			reason:  "NoMemoryOwner",
			words:   []string{"set featureGates: {MemoryQoS: true} in kubelet's"},
		},
		"turned on before": {
			owner:   "driver",
			version: "v1.34.9",
			kubelet: gates("MemoryQoS", true),
			reason:  "SecondMemoryOwner",
			words:   []string{"(feature gate MemoryQoS is on)"},
		},
		"nobody owns":                  {owner: "none", version: "v1.37.0"},
		"nobody owns and nobody looks": {owner: "none", version: "", err: kubeletconfig.ErrNotShown},
		"not shown, off by default":    {owner: "driver", version: "v1.36.3", err: kubeletconfig.ErrNotShown},
		"not shown, on by default": {
			owner:   "driver",
			version: "v1.37.0",
			err:     kubeletconfig.ErrNotShown,
			reason:  "KubeletConfigUnknown",
			words:   []string{"kubeletConfigFile", "MemoryQoS: false"},
		},
		"not shown, kubelet shall do it": {
			owner:   "kubelet",
			version: "v1.36.3",
			err:     kubeletconfig.ErrNotShown,
			reason:  "KubeletConfigUnknown",
			words:   []string{"TieredReservation"},
		},
		"unreadable though off by default": {
			owner:   "driver",
			version: "v1.36.3",
			err:     broken,
			reason:  "KubeletConfigUnknown",
			words:   []string{"is broken"},
		},
		"unreadable and on by default":       {owner: "driver", version: "v1.37.0", err: broken, reason: "KubeletConfigUnknown"},
		"unreadable, kubelet shall write it": {owner: "kubelet", version: "v1.37.0", err: broken, reason: "KubeletConfigUnknown"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := kubeletconfig.Owners(tc.owner, tc.version, tc.kubelet, tc.err)
			require.NoError(t, err)
			if tc.reason == "" {
				require.Nil(t, f)
				return
			}
			require.NotNil(t, f)
			require.Equal(t, tc.reason, f.Reason)
			require.Contains(t, kubeletconfig.Reasons(), f.Reason)
			for _, words := range tc.words {
				require.Contains(t, f.Message, words)
			}
		})
	}
	_, err := kubeletconfig.Owners("driver", "unknown", kubeletconfig.Kubelet{}, nil)
	require.ErrorContains(t, err, `"unknown"`)
}

// FuzzParseKubelet: Owners takes each configuration that Parse accepts.
func FuzzParseKubelet(f *testing.F) {
	f.Add([]byte(kind + "featureGates: {MemoryQoS: true}"))
	f.Add([]byte(`{"kind":"KubeletConfiguration","memoryReservationPolicy":"None"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := kubeletconfig.Parse(data)
		if err != nil {
			return
		}
		_, err = kubeletconfig.Owners("driver", "v1.37.0", k, nil)
		require.NoError(t, err)
	})
}
