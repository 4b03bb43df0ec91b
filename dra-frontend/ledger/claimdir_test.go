// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
)

const (
	boot      = "11111111-2222-3333-4444-555555555555"
	otherBoot = "99999999-2222-3333-4444-555555555555"
)

var claimFile = contract.ClaimFile("00000000-0000-0000-0000-000000000001")

// placed opens the directory called name below root. All directories below one
// root share one place file.
func placed(t *testing.T, root, name, bootID string) ledger.ClaimDir {
	d, err := cdidir.Open(filepath.Join(root, name))
	require.NoError(t, err)
	return ledger.NewClaimDir(d, filepath.Join(root, "place.json"), bootID)
}

func requireListed(t *testing.T, d ledger.ClaimDir) {
	_, err := d.List()
	require.NoError(t, err)
}

// A79, I1: while claim files are in one directory, another directory is
// refused: it would be empty, and the claims' CPUs would be given away again.
func TestClaimsInAnotherDirectory(t *testing.T) {
	root := t.TempDir()
	before, after := placed(t, root, "before", boot), placed(t, root, "after", boot)
	requireListed(t, after)
	require.NoError(t, before.Write(claimFile, nil))

	// The old directory is out of sight, as in a container that does not mount it.
	aside := filepath.Join(root, "aside")
	require.NoError(t, os.Rename(filepath.Join(root, "before"), aside))
	refused := func(err error) {
		t.Helper()
		require.ErrorContains(t, err, "the claims of this node are in "+filepath.Join(root, "before"))
		require.ErrorContains(t, err, "cdiDir is "+filepath.Join(root, "after"))
		require.ErrorContains(t, err, "set cdiDir back")
		require.ErrorContains(t, err, filepath.Join(root, "place.json"))
	}
	_, err := after.List()
	refused(err)
	refused(after.Write(claimFile, nil))
	refused(after.Remove(claimFile))
	require.NoError(t, os.Rename(aside, filepath.Join(root, "before")))

	// The directory stays usable under another spelling of its path.
	before = placed(t, root, "before/.", boot)
	requireListed(t, before)
	require.NoError(t, before.Write(contract.ClaimFile("00000000-0000-0000-0000-000000000002"), nil))
	require.NoError(t, before.Remove(claimFile))
	_, err = after.List()
	refused(err)
	require.NoError(t, before.Remove(contract.ClaimFile("00000000-0000-0000-0000-000000000002")))
	requireListed(t, after)
	require.NoError(t, after.Write(claimFile, nil))
	_, err = before.List()
	require.ErrorContains(t, err, "the claims of this node are in "+filepath.Join(root, "after"))
}

// List notices claim files that were written without a place, and claim files
// that were removed by hand.
func TestPlaceFollowsTheDirectory(t *testing.T) {
	root := t.TempDir()
	before, after := placed(t, root, "before", boot), placed(t, root, "after", boot)
	file := filepath.Join(root, "before", claimFile)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	requireListed(t, before)
	_, err := after.List()
	require.ErrorContains(t, err, "the claims of this node are in")
	require.NoError(t, os.Remove(file))
	requireListed(t, before)
	requireListed(t, after)
}

// After a reboot no container runs, so no claim holds a CPU.
func TestPlaceOfAnotherBoot(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, placed(t, root, "before", otherBoot).Write(claimFile, nil))
	after := placed(t, root, "after", boot)
	requireListed(t, after)
	require.NoError(t, after.Write(claimFile, nil))
	requireListed(t, placed(t, root, "after", boot))
}

// A place that cannot be read does not count as absent (I4).
func TestPlaceUnreadable(t *testing.T) {
	for name, c := range map[string]struct{ content, reason string }{
		"empty":        {reason: "unexpected end of JSON input"},
		"cut off":      {content: `{"bootID":"`, reason: "unexpected end of JSON input"},
		"no directory": {content: `{"bootID":"` + boot + `"}`, reason: "it names no boot and directory"},
		"no boot":      {content: `{"cdiDir":"/var/run/cdi"}`, reason: "it names no boot and directory"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(root, "place.json"), []byte(c.content), 0o600))
			d := placed(t, root, "cdi", boot)
			_, err := d.List()
			require.ErrorContains(t, err, filepath.Join(root, "place.json"))
			require.ErrorContains(t, err, "cannot be read: "+c.reason)
			require.ErrorContains(t, err, "remove it")
			require.Equal(t, err, d.Check())
		})
	}
}

// No claim file is written if the place cannot be written.
func TestPlaceCannotBeWritten(t *testing.T) {
	root := t.TempDir()
	d, err := cdidir.Open(filepath.Join(root, "cdi"))
	require.NoError(t, err)
	p := ledger.NewClaimDir(d, filepath.Join(root, "absent", "place.json"), boot)
	require.Error(t, p.Write(claimFile, nil))
	require.NoFileExists(t, filepath.Join(root, "cdi", claimFile))
	require.NoError(t, p.Write(contract.NodeFile, nil), "the node file holds nothing")
	requireListed(t, p)
	// An older frontend's claim file is not taken without the place.
	require.NoError(t, os.WriteFile(filepath.Join(root, "cdi", claimFile), nil, 0o600))
	_, err = p.List()
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// The place is written once: a call that changes nothing writes nothing.
func TestPlaceIsWrittenOnce(t *testing.T) {
	root := t.TempDir()
	d := placed(t, root, "cdi", boot)
	require.NoError(t, d.Write(claimFile, nil))
	before, err := os.Stat(filepath.Join(root, "place.json"))
	require.NoError(t, err)
	requireListed(t, d)
	require.NoError(t, d.Write(claimFile, nil))
	after, err := os.Stat(filepath.Join(root, "place.json"))
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
}

func TestDirectoryThatFails(t *testing.T) {
	root := t.TempDir()
	d := placed(t, root, "cdi", boot)
	// A directory in place of the claim file cannot be removed while it has an entry.
	require.NoError(t, os.MkdirAll(filepath.Join(root, "cdi", claimFile, "entry"), 0o755))
	require.ErrorContains(t, d.Remove(claimFile), "directory not empty")
	require.NoError(t, os.RemoveAll(filepath.Join(root, "cdi")))
	_, err := d.List()
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// FuzzPlace: the place file has any content. A directory is listed if the file names it or
// is of another boot.
func FuzzPlace(f *testing.F) {
	root := f.TempDir()
	f.Add([]byte(`{"bootID":"` + boot + `","cdiDir":"` + filepath.Join(root, "cdi") + `"}`))
	f.Add([]byte(`{"bootID":"` + otherBoot + `","cdiDir":"/"}`))
	f.Add([]byte(`{"bootID":"` + boot + `","cdiDir":"` + filepath.Join(root, "cdi", "..", "cdi") + `"}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		file := filepath.Join(root, "place.json")
		require.NoError(t, os.WriteFile(file, content, 0o600))
		d, err := cdidir.Open(filepath.Join(root, "cdi"))
		require.NoError(t, err)
		if ledger.NewClaimDir(d, file, boot).Check() != nil {
			return
		}
		var place struct{ BootID, CDIDir string }
		require.NoError(t, json.Unmarshal(content, &place))
		require.True(t, place.BootID != boot && place.BootID != "" || place.CDIDir == filepath.Join(root, "cdi"))
	})
}

// I3: a frontend that was killed leaves no file for ever.
func TestUnfinishedFilesAreRemoved(t *testing.T) {
	root := t.TempDir()
	d := placed(t, root, "cdi", boot)
	for _, name := range []string{
		".place.json.tmp-1", "cdi/." + claimFile + ".tmp-1", "cdi/." + contract.NodeFile + ".tmp-1", ".other.json.tmp-1",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), nil, 0o600))
	}
	require.NoError(t, d.RemoveStale())
	left, err := filepath.Glob(filepath.Join(root, "*", ".*"))
	require.NoError(t, err)
	require.Empty(t, left)
	left, err = filepath.Glob(filepath.Join(root, ".*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(root, ".other.json.tmp-1")}, left, "another program is writing it")
}
