// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/events"
)

// A new fault is reported at once; all faults are reported an hour after the
// last report of all.
func TestReminder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r events.Reminder
		a, both := map[string]string{"a": ""}, map[string]string{"a": "", "b": ""}
		for i, step := range []struct {
			now  map[string]string
			want []string
		}{
			{nil, nil},
			{a, []string{"a"}},
			{both, []string{"b"}},
			{both, []string{"a", "b"}},
			{both, nil},
			{a, []string{"a"}},
			{nil, nil},
			{a, []string{"a"}},
			{a, nil},
		} {
			require.Equal(t, step.want, r.Fresh(step.now), "after %d half hours", i)
			time.Sleep(30 * time.Minute)
		}
	})
}
