// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
)

// TestProvenance covers A33 and I6: only decisions that the frontend gave to
// this pod are obeyed.
func TestProvenance(t *testing.T) {
	pod, other, claim, second := testnode.UID(1), testnode.UID(2), testnode.UID(11), testnode.UID(12)
	n := testnode.New(t, t.TempDir())
	env := n.Prepare(pod, claim, contract.Decision{CPUs: contracttest.CPUs("4-5"), Mems: contracttest.NUMANodes("0")},
		contract.Decision{Mems: contracttest.NUMANodes("1")})
	foreign := n.Prepare(other, second, contract.Decision{CPUs: contracttest.CPUs("6")})
	device := func(claim string, i int) string { return contract.Key{ClaimUID: claim, Index: i}.CDIDevice() }
	made, err := contract.Decision{V: contract.Version, CPUs: contracttest.CPUs("0-15")}.Env(contract.Key{ClaimUID: testnode.UID(99)})
	require.NoError(t, err)
	changed, err := contract.Decision{V: contract.Version, CPUs: contracttest.CPUs("0-15")}.Env(contract.Key{ClaimUID: claim})
	require.NoError(t, err)
	beyond, err := contract.Decision{V: contract.Version, CPUs: contracttest.CPUs("0-15")}.Env(contract.Key{ClaimUID: claim, Index: 2})
	require.NoError(t, err)
	required, err := contract.Decision{V: contract.Version, Requires: []string{"teleport"}}.Env(contract.Key{ClaimUID: claim})
	require.NoError(t, err)
	forged, err := contract.Decision{V: contract.Version, Requires: []string{"teleport"}}.Env(contract.Key{ClaimUID: testnode.UID(99)})
	require.NoError(t, err)

	for name, c := range map[string]struct {
		env     []string
		devices []string
		known   bool
		pod     string
		want    int
		reason  string
		text    string
	}{
		"no claim":       {env: []string{"PATH=/bin"}},
		"both results":   {env: env, want: 2},
		"one result":     {env: env[1:], want: 1},
		"the same twice": {env: []string{env[0], "A=b", env[0]}, want: 1},
		"devices agree": {
			env:     env,
			devices: []string{device(claim, 1), device(claim, 0), "vendor/class=x"},
			known:   true,
			want:    2,
		},
		"DRA_CPUSET is never read": {env: []string{"DRA_CPUSET_" + claim + "=0-15"}},
		"devices not given":        {env: env[:1], devices: nil, want: 1},
		"made up": {
			env:    []string{made},
			reason: claims.ReasonUnbacked,
			text:   "pod " + pod + ": variable DRA_CPUMEM_00000000000040008000000000000099_0 names a claim without a file",
		},
		"copied from another pod": {env: foreign, reason: claims.ReasonNotListed, text: "not prepared for this pod"},
		"used in another pod":     {env: env, pod: other, reason: claims.ReasonNotListed},
		// No oracle: only the claim's own pod may learn whether a value is right.
		"another pod's, guessed value": {
			env:    []string{changed},
			pod:    other,
			reason: claims.ReasonNotListed,
			text:   "not prepared for this pod",
		},
		"another pod's, guessed result": {
			env:    []string{beyond},
			pod:    other,
			reason: claims.ReasonNotListed,
			text:   "not prepared for this pod",
		},
		"right key, other value":      {env: []string{changed}, reason: claims.ReasonDiffers, text: "another value than device"},
		"result that does not exist":  {env: []string{beyond}, reason: claims.ReasonUnbacked, text: "has no device"},
		"twice with different values": {env: []string{env[0], changed}, reason: claims.ReasonAmbiguous, text: "different values"},
		// A value that no file has is not decoded: it may be large.
		"malformed, made up":   {env: []string{strings.Split(made, "=")[0] + `={"v":"v1",`}, reason: claims.ReasonUnbacked},
		"malformed, right key": {env: []string{strings.Split(env[0], "=")[0] + `={"v":"v1",`}, reason: claims.ReasonDiffers},
		"prefix only":          {env: []string{"DRA_CPUMEM_X=1"}, reason: claims.ReasonMalformed, text: "DRA_CPUMEM_X"},
		// Not ErrUnknownFeature, with which a running container would stay as it is.
		"requires what nobody knows, another value": {env: []string{required}, reason: claims.ReasonDiffers},
		"requires what nobody knows, made up":       {env: []string{forged}, reason: claims.ReasonUnbacked},
		"variable without device": {
			env:     env[:1],
			devices: []string{"vendor/class=x"},
			known:   true,
			reason:  claims.ReasonDevices,
			text:    "did not ask for the CDI device",
		},
		"variable and no device at all": {env: env[:1], known: true, reason: claims.ReasonDevices},
		"device without variable": {
			env:     env[:1],
			devices: []string{device(claim, 0), device(claim, 1)},
			known:   true,
			reason:  claims.ReasonDevices,
			text:    "did not inject",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := claims.New(cdidir.At(n.CDI), []string{"known"}, "boot")
			node, err := d.Node()
			require.NoError(t, err)
			if c.pod == "" {
				c.pod = pod
			}
			got, err := d.ForContainer(node, claims.Container{PodUID: c.pod, Env: c.env, Devices: c.devices, DevicesKnown: c.known})
			if c.reason != "" {
				var refusal *claims.Refusal
				require.ErrorAs(t, err, &refusal)
				require.Equal(t, c.reason, refusal.Reason)
				require.ErrorContains(t, err, c.text)
				require.NotContains(t, err.Error(), "0-15", "a value is not repeated")
				return
			}
			require.NoError(t, err)
			require.Len(t, got, c.want)
		})
	}
}

// A54: an unknown feature is no refusal, because the frontend backs the variable. A
// variable that the frontend does not back is still refused.
func TestUnknownFeature(t *testing.T) {
	pod, claim, other, second := testnode.UID(1), testnode.UID(11), testnode.UID(2), testnode.UID(12)
	n := testnode.New(t, t.TempDir())
	required := n.Prepare(pod, claim, contract.Decision{CPUs: contracttest.CPUs("4"), Requires: []string{"teleport"}})
	plain := n.Prepare(other, second, contract.Decision{CPUs: contracttest.CPUs("5")})
	n.Change(func(s *contract.NodeState) {
		entry := s.Pods[other]
		entry.Requires = []string{"known", "fly"}
		s.Pods[other] = entry
	})
	device := func(claim string) []string { return []string{contract.Key{ClaimUID: claim}.CDIDevice()} }
	for name, c := range map[string]struct {
		container claims.Container
		features  []string
		unknown   string
		reason    string
	}{
		"of a decision": {container: claims.Container{PodUID: pod, Env: required}, unknown: "teleport"},
		"of a pod":      {container: claims.Container{PodUID: other, Env: plain}, unknown: "fly"},
		"with its device": {
			container: claims.Container{PodUID: pod, Env: required, Devices: device(claim), DevicesKnown: true},
			unknown:   "teleport",
		},
		"without the claim": {container: claims.Container{PodUID: other}},
		"beside a forged variable": {
			container: claims.Container{PodUID: pod, Env: append(slices.Clone(required), plain...)},
			reason:    claims.ReasonNotListed,
		},
		"without its device": {
			container: claims.Container{PodUID: pod, Env: required, DevicesKnown: true},
			reason:    claims.ReasonDevices,
		},
		"known": {container: claims.Container{PodUID: other, Env: plain}, features: []string{"known", "fly"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := claims.New(cdidir.At(n.CDI), append(c.features, "known"), "boot")
			node, err := d.Node()
			require.NoError(t, err)
			_, err = d.ForContainer(node, c.container)
			var refusal *claims.Refusal
			require.Equal(t, c.reason != "", errors.As(err, &refusal), err)
			require.Equal(t, c.unknown != "", errors.Is(err, contract.ErrUnknownFeature), err)
			if refusal != nil {
				require.Equal(t, c.reason, refusal.Reason)
				return
			}
			if c.unknown == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.unknown)
			require.ErrorContains(t, err, "pod "+c.container.PodUID)
		})
	}
}

// TestEffective covers I9: a container gets the contract's merge, completed from
// the shared pool.
func TestEffective(t *testing.T) {
	pod, claim := testnode.UID(1), testnode.UID(11)
	n := testnode.New(t, t.TempDir())
	env := n.Prepare(pod, claim, contract.Decision{CPUs: contracttest.CPUs("4-5")}, contract.Decision{CPUs: contracttest.CPUs("8")})
	d := claims.New(cdidir.At(n.CDI), nil, "boot")
	node, err := d.Node()
	require.NoError(t, err)
	got, err := d.ForContainer(node, claims.Container{PodUID: pod, Env: env})
	require.NoError(t, err)
	require.Equal(t, contract.Merge(got).WithShared(node.Shared), claims.Effective(got, node.Shared))
	require.Equal(t, "4-5,8", claims.Effective(got, node.Shared).CPUs.String())
	require.Equal(t, contract.Shared{CPUs: contracttest.CPUs("0-3,6-7,9-15"), Mems: contracttest.NUMANodes("0-1")}, node.Shared)
	require.Equal(t, "0-3,6-7,9-15", claims.Effective(nil, node.Shared).CPUs.String())
}

// TestNeverStale: each answer has the files' content at the time of the call.
func TestNeverStale(t *testing.T) {
	pod, claim := testnode.UID(1), testnode.UID(11)
	n := testnode.New(t, t.TempDir())
	d := claims.New(cdidir.At(n.CDI), nil, "boot")
	for range 20 {
		n.Change(func(*contract.NodeState) {})
		node, err := d.Node()
		require.NoError(t, err)
		require.Equal(t, n.State.Generation, node.Generation)
	}
	env := n.Prepare(pod, claim, contract.Decision{CPUs: contracttest.CPUs("4")})
	node, err := d.Node()
	require.NoError(t, err)
	ask := claims.Container{PodUID: pod, Env: env}
	for range 2 {
		_, err = d.ForContainer(node, ask)
		require.NoError(t, err)
	}
	require.NoError(t, os.Remove(filepath.Join(n.CDI, contract.ClaimFile(claim))))
	_, err = d.ForContainer(node, ask)
	require.ErrorContains(t, err, "without a file")

	require.NoError(t, os.Remove(filepath.Join(n.CDI, contract.NodeFile)))
	_, err = d.Node()
	require.ErrorIs(t, err, fs.ErrNotExist)
	n.WriteFile(contract.NodeFile, []byte("{"))
	_, err = d.Node()
	require.ErrorContains(t, err, contract.NodeFile)
	n.Change(func(*contract.NodeState) {})
	node, err = d.Node()
	require.NoError(t, err)
	require.Equal(t, n.State.Generation, node.Generation)
}

// TestUnreadableIsNoRefusal: an unreadable file says nothing about the container
// (I4).
func TestUnreadableIsNoRefusal(t *testing.T) {
	pod, claim := testnode.UID(1), testnode.UID(11)
	n := testnode.New(t, t.TempDir())
	env := n.Prepare(pod, claim, contract.Decision{CPUs: contracttest.CPUs("4")})
	for name, data := range map[string][]byte{"empty": nil, "broken": []byte("{"), "too large": make([]byte, contract.MaxFileSize+1)} {
		t.Run(name, func(t *testing.T) {
			d := claims.New(cdidir.At(n.CDI), nil, "boot")
			n.WriteFile(contract.ClaimFile(claim), data)
			node, err := d.Node()
			require.NoError(t, err)
			_, err = d.ForContainer(node, claims.Container{PodUID: pod, Env: env})
			require.Error(t, err)
			require.False(t, errors.As(err, new(*claims.Refusal)))
			require.ErrorContains(t, err, contract.ClaimFile(claim))

			_, err = d.ForContainer(node, claims.Container{PodUID: testnode.UID(2), Env: env})
			var refusal *claims.Refusal
			require.ErrorAs(t, err, &refusal, "a pod must not read what another pod's claim file has")
			require.Equal(t, claims.ReasonNotListed, refusal.Reason)
		})
	}
}

// A FIFO in place of a file is an error without waiting: the lock is held, and
// all other containers of the node would wait, too.
func TestFIFODoesNotBlock(t *testing.T) {
	pod, claim := testnode.UID(1), testnode.UID(11)
	n := testnode.New(t, t.TempDir())
	env := n.Prepare(pod, claim, contract.Decision{CPUs: contracttest.CPUs("4")})
	for _, name := range []string{contract.ClaimFile(claim), contract.NodeFile} {
		d := claims.New(cdidir.At(n.CDI), nil, "boot")
		node, err := d.Node()
		require.NoError(t, err)
		path := filepath.Join(n.CDI, name)
		require.NoError(t, os.Remove(path))
		require.NoError(t, syscall.Mkfifo(path, 0o600))
		done := make(chan error, 1)
		go func() {
			_, nodeErr := d.Node()
			_, claimErr := d.ForContainer(node, claims.Container{PodUID: pod, Env: env})
			done <- errors.Join(nodeErr, claimErr)
		}()
		select {
		case err := <-done:
			require.ErrorContains(t, err, name+" is not a regular file")
			require.False(t, errors.As(err, new(*claims.Refusal)))
		case <-time.After(time.Minute):
			t.Fatal("the reader waits for a writer")
		}
	}
}

func FuzzForContainer(f *testing.F) {
	pod, claim := testnode.UID(1), testnode.UID(11)
	n := testnode.New(f, f.TempDir())
	env := n.Prepare(pod, claim, contract.Decision{CPUs: contracttest.CPUs("4-5")}, contract.Decision{Mems: contracttest.NUMANodes("1")})
	d := claims.New(cdidir.At(n.CDI), nil, "boot")
	node, err := d.Node()
	require.NoError(f, err)
	f.Add(env[0], env[1])
	f.Add(env[0], "DRA_CPUMEM_")
	f.Add("DRA_CPUMEM_00000000000040008000000000000011_0={}", "=")
	f.Fuzz(func(t *testing.T, a, b string) {
		ask := claims.Container{PodUID: pod, Env: []string{a, b}}
		got, err := d.ForContainer(node, ask)
		if err != nil {
			require.LessOrEqual(t, len(err.Error()), 650)
			require.NotRegexp(t, `[^ -~]`, err.Error())
			return
		}
		// I6: each accepted entry is in the claim's file.
		for key := range got {
			require.Contains(t, env, ask.Env[slices.IndexFunc(ask.Env, func(e string) bool { return e == env[key.Index] })])
		}
	})
}

// A node state of another boot counts as missing: the machine may have other CPUs since.
func TestNodeStateOfAnotherBoot(t *testing.T) {
	n := testnode.New(t, t.TempDir())
	n.Change(func(*contract.NodeState) {})
	d := claims.New(cdidir.At(n.CDI), nil, "the next boot")
	for range 2 {
		_, err := d.Node()
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.ErrorContains(t, err, "was written during boot boot, this is boot the next boot")
	}
	n.Change(func(s *contract.NodeState) { s.BootID = "the next boot" })
	_, err := d.Node()
	require.NoError(t, err)
}
