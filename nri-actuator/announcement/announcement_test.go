// SPDX-License-Identifier: Apache-2.0

package announcement_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/announcement"
)

func base() contract.Announcement {
	return contract.Announcement{V: contract.Version, Versions: []string{contract.Version}, PID: 7}
}

func TestAnnouncement(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, contract.ActuatorFile)
	stale := filepath.Join(dir, "."+contract.ActuatorFile+".tmp-1")
	foreign := filepath.Join(dir, "."+contract.NodeFile+".tmp-1")
	require.NoError(t, os.WriteFile(stale, nil, 0o600))
	require.NoError(t, os.WriteFile(foreign, nil, 0o600))
	require.NoError(t, os.WriteFile(path, []byte("left by one that died"), 0o600))

	a, err := announcement.New(dir, base())
	require.NoError(t, err)
	require.NoFileExists(t, stale)
	require.FileExists(t, foreign, "another writer's")
	got, err := contract.ReadAnnouncement(dir)
	require.NoError(t, err)
	require.False(t, got.Connected)

	_, err = announcement.New(dir, base())
	require.ErrorIs(t, err, announcement.ErrHeld)

	before, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, a.Set(func(*contract.Announcement) {}))
	same, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, same), "the same content is not written")

	require.NoError(t, a.Set(func(c *contract.Announcement) { c.Connected, c.Generation = true, 9 }))
	got, err = contract.ReadAnnouncement(dir)
	require.NoError(t, err, "the lock came with the new file")
	require.True(t, got.Connected)
	require.EqualValues(t, 9, got.Generation)

	require.NoError(t, os.Remove(path))
	require.NoError(t, a.Set(func(*contract.Announcement) {}))
	got, err = contract.ReadAnnouncement(dir)
	require.NoError(t, err, "a removed file comes back")
	require.EqualValues(t, 9, got.Generation)

	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	require.NoFileExists(t, path)
	_, err = contract.ReadAnnouncement(dir)
	require.ErrorIs(t, err, contract.ErrActuatorDead)
}

// Two actuators that start at the same moment do not both take the announcement.
func TestOneActuatorAtATime(t *testing.T) {
	dir := t.TempDir()
	place, err := os.Open(dir)
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(place.Fd()), syscall.LOCK_EX))
	_, err = announcement.New(dir, base())
	require.ErrorIs(t, err, announcement.ErrHeld)
	require.NoError(t, place.Close())
	a, err := announcement.New(dir, base())
	require.NoError(t, err)
	require.NoError(t, a.Close())
}

// An actuator that is alive keeps its announcement, also if a newer program wrote what
// this program cannot read: two actuators would fail each other's containers.
func TestUnreadableAnnouncementIsHeld(t *testing.T) {
	dir := t.TempDir()
	const newer = `{"v":"v9"}`
	held, err := atomicfile.WriteHeld(dir, contract.ActuatorFile, []byte(newer), 0o644, contract.LockAnnouncement)
	require.NoError(t, err)
	_, err = announcement.New(dir, base())
	require.ErrorIs(t, err, announcement.ErrHeld)
	require.ErrorContains(t, err, contract.ActuatorFile)
	data, err := os.ReadFile(filepath.Join(dir, contract.ActuatorFile))
	require.NoError(t, err)
	require.Equal(t, newer, string(data))

	require.NoError(t, held.Close())
	a, err := announcement.New(dir, base())
	require.NoError(t, err, "its actuator is dead")
	require.NoError(t, a.Close())
}

// Work that the kernel kept may announce after the end.
func TestNothingIsAnnouncedAfterTheEnd(t *testing.T) {
	dir := t.TempDir()
	a, err := announcement.New(dir, base())
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, a.Set(func(c *contract.Announcement) { c.Generation = 9 }))
	require.NoFileExists(t, filepath.Join(dir, contract.ActuatorFile))
}

func TestCloseLeavesAnothersFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, contract.ActuatorFile)
	a, err := announcement.New(dir, base())
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	b, err := announcement.New(dir, base())
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.FileExists(t, path)
	_, err = contract.ReadAnnouncement(dir)
	require.NoError(t, err)
	require.NoError(t, b.Close())
}

func TestNewRefusesWhatCannotBeWritten(t *testing.T) {
	_, err := announcement.New(filepath.Join(t.TempDir(), "absent"), base())
	require.Error(t, err)
	_, err = announcement.New(t.TempDir(), contract.Announcement{})
	require.ErrorContains(t, err, "version")
}
