// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestBackportsSource(t *testing.T) {
	cases := map[string]struct {
		etc  map[string]string
		want aptSource
		say  string
	}{
		"one line": {
			etc: map[string]string{"sources.list": `# deb http://old/debian bookworm main
deb-src http://m/debian bookworm main
deb http://security/debian bookworm-security main
deb [arch=amd64 signed-by=/k.gpg] http://m/debian bookworm main contrib # ours
`},
			want: aptSource{"backports.list", "deb [arch=amd64 signed-by=/k.gpg] http://m/debian bookworm-backports main\n"},
		},
		"a line without options": {
			etc:  map[string]string{"sources.list": "", "sources.list.d/d.list": "deb http://m bookworm main"},
			want: aptSource{"backports.list", "deb  http://m bookworm-backports main\n"},
		},
		"stanza": {
			etc: map[string]string{"sources.list.d/d.sources": `Types: deb
URIs: http://elsewhere/vendor
Suites: nodistro
Components: main

# snapshot
Types: deb deb-src
URIs: http://m/debian
# between
Suites: bookworm
 bookworm-updates
Components: main non-free
Signed-By: /k.gpg
`},
			want: aptSource{"backports.sources",
				"Types: deb\nSuites: bookworm-backports\nComponents: main\nURIs: http://m/debian\nSigned-By: /k.gpg\n"},
		},
		"a key in the stanza": {
			etc: map[string]string{
				"sources.list.d/d.sources": "types: deb\nuris: http://m\nsuites: bookworm\ncomponents: main\n" +
					"signed-by:\n -----BEGIN\n .\n AAAA\n",
			},
			want: aptSource{"backports.sources",
				"Types: deb\nSuites: bookworm-backports\nComponents: main\nuris: http://m\nsigned-by:\n -----BEGIN\n .\n AAAA\n"},
		},
		"disabled": {
			etc: map[string]string{
				"sources.list.d/d.sources": "Enabled: no\nTypes: deb\nURIs: http://m\nSuites: bookworm\nComponents: main\n",
			},
			say: `no enabled entry for "bookworm" main`,
		},
		"another release": {etc: map[string]string{"sources.list": "deb http://m trixie main\n"}, say: `no enabled entry`},
		"other names are no sources": {
			etc: map[string]string{"sources.list.d/d.list.disabled": "deb http://m bookworm main\n"}, say: `no enabled entry`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			etc := fstest.MapFS{}
			for file, text := range c.etc {
				etc[file] = &fstest.MapFile{Data: []byte(text)}
			}
			source, err := backportsSource(etc, "bookworm", "bookworm-backports")
			if c.say != "" {
				require.ErrorContains(t, err, c.say)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, source)
		})
	}
}

func TestCodename(t *testing.T) {
	require.Equal(t, "bookworm", codename("ID=debian\nVERSION_CODENAME=bookworm\n"))
	require.Equal(t, "trixie", codename(`VERSION_CODENAME="trixie"`))
	require.Empty(t, codename("ID=debian\n"), "unstable has none")
}

// Whatever an entry looks like, the entry made from it asks for backports and for nothing else.
func FuzzBackportsSource(f *testing.F) {
	f.Add("deb [signed-by=/k] http://m bookworm main")
	f.Add("Types: deb\nURIs: http://m\nSuites: bookworm\nComponents: main\n")
	f.Fuzz(func(t *testing.T, text string) {
		const suite = "bookworm-backports"
		for _, out := range []string{backportsLine(text, "bookworm", suite), backportsStanza(text, "bookworm", suite)} {
			if out != "" {
				require.Contains(t, out, "bookworm-backports")
				require.True(t, strings.HasPrefix(out, "deb ") || strings.HasPrefix(out, "Types: deb\nSuites: bookworm-backports\n"), out)
			}
		}
	})
}
