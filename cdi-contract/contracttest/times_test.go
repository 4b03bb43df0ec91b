// SPDX-License-Identifier: Apache-2.0

package contracttest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := NewTimes()
		for n := range 200 {
			times.Measure(func() { time.Sleep(time.Duration(200-n) * time.Second) })
		}
		require.Equal(t, 100*time.Second, times.within(0.5))
		require.Equal(t, 198*time.Second, times.within(0.99), "the slowest one of a hundred does not count")
		require.Equal(t, 200*time.Second, times.within(1))
	})
}
