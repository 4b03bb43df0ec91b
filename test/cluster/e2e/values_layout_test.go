// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import "testing"

// A80 with both daemons in one pod: they end and start together.
func TestA80_UpgradesOfOnePod(t *testing.T) {
	longOnly(t)
	theSuite.configure(t, "layout=sidecar", slowNode)
	oneDriverAtATime(t, "a80-sidecar", upgrades)
}
