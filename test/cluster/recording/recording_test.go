// SPDX-License-Identifier: Apache-2.0

package recording_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/recording"
)

const output = `[  20 s] installing the chart

1. What the node offers
-----------------------
  device numa-0:
    cpu            3
  ` + "\x1b[32m[kept]\x1b[0m" + `   one device & <more>

2. Two pods without a claim
---------------------------
  plain-1: cpuset.cpus.effective 0-7

8. After the pod was deleted
----------------------------
  plain-1: cpuset.cpus.effective 0-7
    dra.cpumem-node.json
[  50 s] the cluster stays: export KUBECONFIG=/some/where

demo: 15 of 15 promises kept, 50 s
`

func TestLines(t *testing.T) {
	lines, err := recording.Lines(output)
	require.NoError(t, err)
	require.Equal(t, []string{
		"$ make demo", "",
		"1. What the node offers", "  device numa-0:", "    cpu            3", "  [kept]   one device & <more>", "",
		"8. After the pod was deleted", "  plain-1: cpuset.cpus.effective 0-7", "",
		"demo: 15 of 15 promises kept, 50 s",
	}, lines)

	_, err = recording.Lines(strings.Split(output, "demo: ")[0])
	require.ErrorContains(t, err, "no line with the number of kept promises")
}

func TestSVG(t *testing.T) {
	lines, err := recording.Lines(output)
	require.NoError(t, err)
	picture := recording.SVG(lines)
	require.Contains(t, picture, ">  [kept]   one device &amp; &lt;more&gt;</text>")
	require.Equal(t, picture, recording.SVG(lines), "the same lines give the same picture")
	texts := 0
	for decoder := xml.NewDecoder(strings.NewReader(picture)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, "the picture is XML")
		if start, is := token.(xml.StartElement); is && start.Name.Local == "text" {
			texts++
		}
	}
	require.Equal(t, 8, texts, "empty lines have no text")
}
