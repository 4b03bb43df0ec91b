// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
)

// The text of an announcement reaches the log, events and /readyz: it is one
// printable line, whatever the actuator announces.
func TestActuatorsReasonIsBounded(t *testing.T) {
	data, err := contract.EncodeAnnouncement(contract.Announcement{
		V: contract.Version, Versions: []string{contract.Version}, Disconnected: "because\n" + strings.Repeat("é\x1b", 10<<10),
	})
	require.NoError(t, err)
	dir := t.TempDir()
	f, err := atomicfile.WriteHeld(dir, contract.ActuatorFile, data, 0o644, contract.LockAnnouncement)
	require.NoError(t, err)
	defer f.Close()
	_, err = actuator{contract.NewAnnouncementReader(dir)}.Announcement()
	require.ErrorContains(t, err, "not connected to the container runtime: because?")
	require.Less(t, len(err.Error()), 700)
	require.NotRegexp(t, `[^ -~]`, err.Error())
}
