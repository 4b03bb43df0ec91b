// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// The fuzz targets try each decoder of foreign bytes: it does not panic, and a
// value that it accepts is the same after encoding and decoding.

// seeds adds the golden and skew files with names that begin with kind.
func seeds(f *testing.F, kind string) {
	for _, dir := range []string{goldenDir, "testdata/skew"} {
		for _, name := range goldenNames(f, dir) {
			if !strings.HasPrefix(name, kind) {
				continue
			}
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
}

// unchanged fails if the value that was decoded again differs from the accepted
// value. Unknown members are gone; empty and absent are equal.
func unchanged(t *testing.T, accepted, again any) {
	t.Helper()
	if diff := gocmp.Diff(accepted, again, cmpopts.EquateEmpty(), sets); diff != "" {
		t.Fatalf("accepted -, read again +\n%s", diff)
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func FuzzDecodeClaim(f *testing.F) {
	seeds(f, "claim")
	file := contract.ClaimFile(claimUID)
	f.Fuzz(func(t *testing.T, data []byte) {
		accepted, err := contract.DecodeClaim(file, data)
		if err != nil {
			return
		}
		written, err := contract.EncodeClaim(accepted)
		if err != nil && strings.Contains(err.Error(), "CDI allows") {
			return // escapes can make the record too long
		}
		noError(t, err)
		again, err := contract.DecodeClaim(file, written)
		noError(t, err)
		unchanged(t, accepted, again)
	})
}

func FuzzDecodeClaimEntries(f *testing.F) {
	seeds(f, "claim")
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := contract.DecodeClaimEntries(claimUID, data)
		if err != nil {
			return
		}
		for key, entry := range entries {
			if key.ClaimUID != claimUID {
				t.Fatalf("claim %s gave a decision of %s", claimUID, key.ClaimUID)
			}
			if name, _, _ := strings.Cut(entry, "="); name != key.EnvName() {
				t.Fatalf("entry %q is not of %v", entry, key)
			}
		}
	})
}

func FuzzDecodeNode(f *testing.F) {
	seeds(f, "node")
	f.Fuzz(func(t *testing.T, data []byte) {
		accepted, err := contract.DecodeNode(data)
		if err != nil {
			return
		}
		if accepted.Shared.CPUs.IsEmpty() { // I7
			t.Fatal("accepted an empty shared pool")
		}
		written, err := contract.EncodeNode(accepted)
		if err != nil && strings.Contains(err.Error(), "CDI allows") {
			return
		}
		noError(t, err)
		again, err := contract.DecodeNode(written)
		noError(t, err)
		unchanged(t, accepted, again)
	})
}

func FuzzDecodeAnnouncement(f *testing.F) {
	seeds(f, "announcement")
	f.Fuzz(func(t *testing.T, data []byte) {
		accepted, err := contract.DecodeAnnouncement(data)
		if err != nil {
			return
		}
		written, err := contract.EncodeAnnouncement(accepted)
		if err != nil && strings.Contains(err.Error(), "CDI allows") {
			return
		}
		noError(t, err)
		again, err := contract.DecodeAnnouncement(written)
		noError(t, err)
		unchanged(t, accepted, again)
	})
}

func FuzzDecodeDecision(f *testing.F) {
	seeds(f, "decision")
	f.Fuzz(func(t *testing.T, data []byte) {
		known := append(features(), "latency")
		accepted, err := contract.DecodeDecision(string(data), known)
		if err != nil {
			return
		}
		env, err := accepted.Env(contract.Key{ClaimUID: claimUID})
		noError(t, err)
		_, again, _, err := contract.ParseEnv(env, known)
		noError(t, err)
		unchanged(t, accepted, again)
		// An accepted decision can be merged and written.
		noError(t, contract.Combine(accepted, again).Validate())
	})
}

func FuzzParseEnv(f *testing.F) {
	f.Add("PATH=/bin")
	f.Add("DRA_CPUMEM_MODE=fast")
	for _, d := range goldenDecisions() {
		env, err := d.Env(contract.Key{ClaimUID: claimUID, Index: 3})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(env)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		k, accepted, ours, err := contract.ParseEnv(entry, features())
		if ours != strings.HasPrefix(entry, contract.EnvPrefix) {
			t.Fatalf("ours is %v", ours)
		}
		if err != nil {
			requireBounded(t, err)
			return
		}
		if !ours {
			return
		}
		env, err := accepted.Env(k)
		noError(t, err)
		kAgain, again, _, err := contract.ParseEnv(env, features())
		noError(t, err)
		unchanged(t, k, kAgain)
		unchanged(t, accepted, again)
	})
}

func FuzzParseEnvName(f *testing.F) {
	f.Add(contract.Key{ClaimUID: claimUID, Index: 3}.EnvName())
	f.Add(contract.Key{ClaimUID: claimUID, Index: 1023}.EnvName() + "0")
	f.Add("DRA_CPUMEM_00000000000040008000000000000011_+1")
	f.Fuzz(func(t *testing.T, name string) {
		if k, err := contract.ParseEnvName(name); err == nil && k.EnvName() != name {
			t.Fatalf("%q is accepted as %v, whose name is %q", name, k, k.EnvName())
		}
	})
}

func FuzzClaimUIDOfFile(f *testing.F) {
	f.Add(contract.ClaimFile(claimUID))
	f.Add(contract.ClaimFile("../" + claimUID))
	f.Fuzz(func(t *testing.T, name string) {
		uid, ours := contract.ClaimUIDOfFile(name)
		if uid == "" {
			return
		}
		if !ours || contract.ClaimFile(uid) != name || filepath.Base(name) != name {
			t.Fatalf("%q is taken for the file of claim %q", name, uid)
		}
	})
}

// FuzzWithPods: a claim file with other pods has these pods, and is the same
// otherwise.
func FuzzWithPods(f *testing.F) {
	seeds(f, "claim")
	file := contract.ClaimFile(claimUID)
	pods := []contract.PodRecord{{UID: claimUID, QOS: contract.LevelBurstable}}
	f.Fuzz(func(t *testing.T, data []byte) {
		accepted, err := contract.DecodeClaim(file, data)
		written, errPods := contract.WithPods(file, data, pods)
		if err != nil {
			if errPods == nil {
				t.Fatal("a file that cannot be read got other pods")
			}
			return
		}
		if errPods != nil && strings.Contains(errPods.Error(), "CDI allows") {
			return
		}
		noError(t, errPods)
		again, err := contract.DecodeClaim(file, written)
		noError(t, err)
		accepted.Pods = pods
		unchanged(t, accepted, again)
	})
}

// FuzzPlatform: the versions of a runtime and a kernel have any form. A platform has
// exactly the features that it does not lack, as it is announced.
func FuzzPlatform(f *testing.F) {
	f.Add("containerd", "v2.3.7", "v0.12.0", "6.12.43+deb13-amd64")
	f.Add("cri-o", "1.37.0", "unknown", "9999999999.1")
	f.Fuzz(func(t *testing.T, runtime, version, nri, kernel string) {
		p := contract.Platform{Runtime: runtime, RuntimeVersion: version, NRIVersion: nri, Kernel: kernel}
		p.NamesDevices()
		var a contract.Announcement
		a.SetPlatform(p)
		unchanged(t, p, a.Platform())
		for _, feature := range contract.Features() {
			if has := slices.Contains(p.Features(), feature); has != (a.Lacks(feature) == "") || has != (p.Lacks(feature) == "") {
				t.Fatalf("feature %s: has %v, lacks %q, announced %q", feature, has, p.Lacks(feature), a.Lacks(feature))
			}
		}
	})
}

func FuzzParseNUMANodes(f *testing.F) {
	for _, s := range []string{"0", "0-3,8", "65537", "1,,2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		nodes, err := contract.ParseNUMANodes(s)
		if err != nil || nodes.IsEmpty() {
			return
		}
		// The list is the set's only text.
		var again contract.NUMANodeSet
		noError(t, again.UnmarshalText([]byte(nodes.String())))
		unchanged(t, nodes, again)
		if ids := nodes.List(); ids[len(ids)-1] > 1<<16 || len(ids) != nodes.Size() {
			t.Fatalf("%q is %d ids up to %d", s, nodes.Size(), ids[len(ids)-1])
		}
	})
}

func FuzzParseCPUs(f *testing.F) {
	for _, s := range []string{"0", "0-3,8,10-11", "65536", "8,0-1", "0-65536,0-65536", "3-1", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cpus, err := contract.ParseCPUs(s)
		if err != nil {
			return
		}
		again, err := contract.ParseCPUs(cpus.String())
		noError(t, err)
		unchanged(t, cpus, again)
	})
}

func FuzzParsePageSize(f *testing.F) {
	for _, s := range []string{"64Ki", "2Mi", "1Gi", "1024Ki", "0Mi", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		size, err := contract.ParsePageSize(s)
		if err != nil {
			return
		}
		if size <= 0 || contract.FormatPageSize(size) != s {
			t.Fatalf("%q is %d, which is %q", s, size, contract.FormatPageSize(size))
		}
	})
}
