// SPDX-License-Identifier: Apache-2.0

package churn_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/churn"
)

// starts are 50 pods, one each 10 seconds, of which the nth took n seconds.
func starts() (all []churn.Start) {
	for i := range 50 {
		all = append(all, churn.Start{At: time.Duration(i+1) * 10 * time.Second, Took: time.Duration(i+1) * time.Second})
	}
	return all
}

func TestTable(t *testing.T) {
	text := churn.Table(starts())
	require.Contains(t, text, "| 1 to 10 | 6.0 s | 9.0 s | 10.0 s |\n")
	require.Contains(t, text, "| 41 to 50 | 46.0 s | 49.0 s | 50.0 s |\n")
	require.Equal(t, 2+5, strings.Count(text, "\n"))
	require.Equal(t, 2+5, strings.Count(churn.Table(starts()[:5]), "\n"), "one start in each fifth")
}

func TestDraw(t *testing.T) {
	picture := churn.Draw(starts())
	require.Equal(t, 50, strings.Count(picture, "<circle"))
	require.NotContains(t, picture, "NaN")
	require.NotContains(t, picture, "Inf")
}
