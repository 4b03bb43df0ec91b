// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
)

// A container refers to the contract by its variables and devices, and by variables
// that are too large to keep.
func TestReferences(t *testing.T) {
	pod := testnode.UID(1)
	device := contract.Key{ClaimUID: testnode.UID(11)}.CDIDevice()
	ofSize := func(size int) string {
		return contract.EnvPrefix + strings.Repeat("x", size-len(contract.EnvPrefix))
	}
	half := ofSize(contract.MaxEnv / 2)
	for name, c := range map[string]struct {
		env     []string
		devices []string
		want    claims.Container
		refers  bool
	}{
		"nothing":           {},
		"foreign variables": {env: []string{"PATH=/bin", "A_DRA_CPUMEM_=", "DRA_CPUSET_1=2"}},
		"foreign devices":   {devices: []string{"vendor/class=x", contract.ClaimKind, "x" + device}},
		"a variable": {
			env:    []string{"PATH=/bin", "DRA_CPUMEM_A=1", "B=2", "DRA_CPUMEM_B=2"},
			want:   claims.Container{Env: []string{"DRA_CPUMEM_A=1", "DRA_CPUMEM_B=2"}},
			refers: true,
		},
		"a device": {
			devices: []string{"vendor/class=x", device},
			want:    claims.Container{Devices: []string{device}},
			refers:  true,
		},
		"the most that is kept": {
			env:    []string{half, "PATH=" + half, half},
			want:   claims.Container{Env: []string{half, half}},
			refers: true,
		},
		"one byte too many": {
			env:    []string{half, half + "x"},
			want:   claims.Container{Oversize: contract.MaxEnv + 1},
			refers: true,
		},
		"all variables count": {
			env:    []string{half, half + "x", half},
			want:   claims.Container{Oversize: contract.MaxEnv*3/2 + 1},
			refers: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := claims.Container{PodUID: pod}.WithEnv(c.env)
			for _, device := range c.devices {
				got = got.WithDevice(device)
			}
			c.want.PodUID = pod
			require.Equal(t, c.want, got)
			require.Equal(t, c.refers, got.NamesClaim())
		})
	}
}

func TestOversizeIsRefused(t *testing.T) {
	n := testnode.New(t, t.TempDir())
	d := claims.New(cdidir.At(n.CDI), nil, "boot")
	_, err := d.ForContainer(n.State, claims.Container{PodUID: testnode.UID(1), Oversize: contract.MaxEnv + 1})
	var refusal *claims.Refusal
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, claims.ReasonMalformed, refusal.Reason)
	require.ErrorContains(t, err, "have 65537 bytes, a container has at most 65536")
}

// A pod's CPUs are the CPUs of all results of all its claims. What cannot be read is an
// error: the caller would take claimed CPUs from the pod's containers.
func TestCPUsOf(t *testing.T) {
	pod, first, second := testnode.UID(1), testnode.UID(11), testnode.UID(12)
	for name, c := range map[string]struct {
		pod  string
		file []byte
		more contract.Decision
		err  string
	}{
		"all claims":        {pod: pod},
		"a pod without any": {pod: testnode.UID(2)},
		"unreadable file":   {pod: pod, file: []byte("{"), err: "claim " + second + ": "},
		"unknown feature": {
			pod:  pod,
			more: contract.Decision{CPUs: contracttest.CPUs("8"), Requires: []string{"teleport"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := testnode.New(t, t.TempDir())
			n.Prepare(pod, first, contract.Decision{CPUs: contracttest.CPUs("4")}, contract.Decision{CPUs: contracttest.CPUs("6")})
			n.Prepare(testnode.UID(3), testnode.UID(13), contract.Decision{CPUs: contracttest.CPUs("12")})
			if c.more.CPUs.IsEmpty() {
				c.more.CPUs = contracttest.CPUs("8")
			}
			n.Prepare(pod, second, c.more)
			if c.file != nil {
				n.WriteFile(contract.ClaimFile(second), c.file)
			}
			d := claims.New(cdidir.At(n.CDI), nil, "boot")
			got, err := d.CPUsOf(n.State, c.pod)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.True(t, got.IsEmpty())
				return
			}
			require.NoError(t, err)
			want := map[string]string{pod: "4,6,8"}[c.pod]
			require.Equal(t, want, got.String())
		})
	}
}
