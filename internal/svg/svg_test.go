// SPDX-License-Identifier: Apache-2.0

package svg

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPicture(t *testing.T) {
	p := Begin(100, 50, `a "label" & more`)
	p.At(1, 2, func() { p.Text(1, 2, "start", Blue, "", "p99 < p99.9") })
	p.Upwards(1, 2, Grey, "seconds")
	p.Key(1, 2, Green, Dash(true), "key")
	p.Dot(1, 2, 3, Purple)
	p.Line([][2]float64{{1, 2}, {3, 4}}, Orange, Dash(false))
	picture := p.End()
	require.Contains(t, picture, `points="1.0,2.0 3.0,4.0"`)
	require.Contains(t, picture, "p99 &lt; p99.9")
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
	}
}

func TestGridStep(t *testing.T) {
	for span, want := range map[float64]float64{0: 1, 6: 1, 7: 2, 100: 20, 270: 50, 301: 100, 0.5: 0.1} {
		require.InDelta(t, want, GridStep(span), 1e-9, "span %v", span)
	}
}
