// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnsound(t *testing.T) {
	for name, c := range map[string]struct {
		result result
		err    string
	}{
		"all cycles":     {result: result{cycles: 100}},
		"fewer cycles":   {result: result{cycles: 3}, err: "made and ended 3 of 100 partitions"},
		"no partitions":  {result: result{text: "makes no partitions of this kind"}, err: "0 of 100 partitions: makes no"},
		"a hang":         {result: result{cycles: 2, hung: true}, err: "hung in cycle 3 of 100"},
		"a hang at last": {result: result{cycles: 100, hung: true}, err: "hung in cycle 101"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.result.unsound("7.0", 100)
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.err)
		})
	}
}

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		console string
		want    result
		err     string
	}{
		"all cycles": {
			console: "cycle 1\r\ncycle 2\r\ndone 2 cycles, 0 writes killed\r\n",
			want:    result{cycles: 2, text: "no hang; 0 writes killed"},
		},
		"no partitions": {
			console: "no partitions\r\n",
			want:    result{text: "makes no partitions of this kind"},
		},
		"a hang in the third cycle": {
			console: "cycle 1\r\ncycle 2\r\ncycle 3\r\n" +
				"[   41.1] INFO: task kthreadd:2 blocked for more than 30 seconds.\r\n" +
				"[   41.2] INFO: task init:61 blocked for more than 30 seconds.\r\n[   41.3] Kernel panic - not syncing\r\n",
			want: result{cycles: 2, hung: true, text: "hung: 2 tasks, first: task kthreadd:2 blocked for more than 30 seconds"},
		},
		"the program failed": {console: "cycle 1\r\nfailed: no such file\r\n", err: "without a result:\ncycle 1\r\nfailed: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := read(c.console)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}
