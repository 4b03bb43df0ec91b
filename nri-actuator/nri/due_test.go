// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Looks at waiting containers do not multiply, however many calls ask for one. The
// test uses unexported parts, because a plugin cannot run in fake time.
func TestLooksDoNotMultiply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDue()
		for range 50 {
			d.look()
			time.Sleep(time.Millisecond)
		}
		looks := 0
		for end := time.After(time.Second); ; {
			select {
			case <-d.wake:
				looks++
				d.look()
				continue
			case <-end:
			}
			break
		}
		require.Equal(t, int(time.Second/waitingPeriod), looks)
		synctest.Wait()
		time.Sleep(waitingPeriod)
	})
}
