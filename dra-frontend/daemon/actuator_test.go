// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
)

// announce writes the announcement of an actuator, which lives until the file is closed or the test ends.
func announce(t *testing.T, dir string, a contract.Announcement) *os.File {
	t.Helper()
	data, err := contract.EncodeAnnouncement(a)
	require.NoError(t, err)
	f, err := atomicfile.WriteHeld(dir, contract.ActuatorFile, data, 0o644, contract.LockAnnouncement)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() }) // the test may have closed it
	return f
}

// The text of an announcement reaches the log, events and /readyz: it is one
// printable line, whatever the actuator announces.
func TestActuatorsReasonIsBounded(t *testing.T) {
	dir := t.TempDir()
	announce(t, dir, contract.Announcement{
		V: contract.Version, Versions: []string{contract.Version}, Disconnected: "because\n" + strings.Repeat("é\x1b", 10<<10),
	})
	_, err := actuator{contract.NewAnnouncementReader(dir)}.Announcement()
	require.ErrorContains(t, err, "not connected to the container runtime: because?")
	require.Less(t, len(err.Error()), 700)
	require.NotRegexp(t, `[^ -~]`, err.Error())
}
