// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/simulation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

func picture(t *testing.T, r simulation.Result, v simulation.View) string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, r.Picture(&out, v))
	return out.String()
}

func TestPictureFits(t *testing.T) {
	result := run(t, topologytest.T4().Machine(), config.Default(), claim("a", "cpu: 20", ""))
	for _, width := range []int{30, 34, 35, 67, 68, 120, 300} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			for line := range strings.Lines(picture(t, result, simulation.View{Width: width})) {
				if strings.Contains(line, "L3 of") || strings.HasPrefix(line, "    ") {
					require.LessOrEqual(t, len(strings.TrimRight(line, "\n")), width, line)
				}
			}
		})
	}
	require.Contains(t, picture(t, result, simulation.View{Width: 20}), ""+
		"  L3 of 0:  AA AA AA\n"+
		"            AA AA AA\n"+
		"            AA AA\n")
	require.Contains(t, picture(t, result, simulation.View{Width: 1}), "L3 of 0:  AA\n            AA\n", "one core at least")
}

// Amounts that the scheduler rounds up are named.
func TestPictureOfRoundedAmounts(t *testing.T) {
	alternatives := strings.NewReplacer("exactly: {deviceClassName", "firstAvailable: [{name: small, deviceClassName", "}}}}]", "}}}]}]").
		Replace(claim("either", "memory: 1500Ki", ""))
	out := picture(t, run(t, topologytest.T4().Machine(), config.Default(),
		claim("half", "cpu: 500m, memory: 1Gi", ""), alternatives, claim("exact", "cpu: 2", "")), simulation.View{Width: 100})
	require.Contains(t, out, "\nrounded up by the scheduler:\n"+
		"  default/half: cpu 1 instead of 500m\n"+
		"  default/either: memory 2Mi instead of 1500Ki\n")
	require.NotContains(t, out, "default/exact: cpu")
}

// With more claims than letters a sign is two letters.
func TestPictureOfManyClaims(t *testing.T) {
	var documents []string
	for i := range 60 {
		documents = append(documents, claim(fmt.Sprintf("c%d", i), "cpu: 1", ""))
	}
	out := picture(t, run(t, topologytest.T4().Machine(), config.Default(), documents...), simulation.View{Width: 200})
	require.Contains(t, out, "L3 of 0:  AaAb AcAd AeAf AgAh AiAj AkAl AmAn AoAp ")
	require.Contains(t, out, "CeCf CgCh .... ....\n")
	require.Contains(t, out, "\nCh  default/c59 ")
}

func TestPictureInColour(t *testing.T) {
	c := config.Default()
	c.ReservedCPUs = "7"
	var documents []string
	for i := range 6 {
		documents = append(documents, claim(fmt.Sprintf("c%d", i), "cpu: 1", ""))
	}
	result := run(t, topologytest.T2().Machine(), c, append(documents, claim("memory", "memory: 1Gi", ""))...)
	plain := picture(t, result, simulation.View{Width: 100})
	coloured := picture(t, result, simulation.View{Width: 100, Colour: true})
	require.Contains(t, coloured, "\x1b[30;41mA\x1b[0m")
	require.Contains(t, coloured, "\x1b[2m#\x1b[0m")
	require.Equal(t, plain, regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(coloured, ""))
}

func TestPictureOfTheOutside(t *testing.T) {
	s := topologytest.T2()
	for i := range s.Nodes {
		s.Nodes[i].Hugepages = nil
	}
	s.Nodes[1].Memory = 0
	s.CPUs[3].Offline = true
	c := config.Default()
	c.ReservedCPUs = "2,6-7"
	result := run(t, s.Machine(), c, claim("a", "cpu: 2", ""))
	result.CPUs.Offline = contract.CPUs(3)
	require.Contains(t, picture(t, result, simulation.View{Width: 100}), ""+
		"\nCPUs of no zone, none of which is offered\n"+
		"  L3 of 2: ## #\n"+
		"\nletters: claimed CPUs   . shared pool   # reserved\n"+
		"shared pool: 1-2,5-7\n"+
		"offline, not drawn: 3\n")
}

// Results may come from a file.
func TestResultOfNonsense(t *testing.T) {
	for _, text := range []string{`{"claims":[{"cpus":"x"}]}`, `{"outsideZones":[{"cores":["x"]}]}`} {
		var r simulation.Result
		require.ErrorContains(t, json.Unmarshal([]byte(text), &r), `"x" is not an id`)
	}
}
