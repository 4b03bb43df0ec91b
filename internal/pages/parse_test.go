// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

const page = `# Title

What the page
is for.

See [there](other.md#anchor), and ` + "`make\ntest RUN=a|b`" + ` or ` + "`kubectl get`" + `.

    cd examples && ls 'a b' \
      "c $(pidof x)"    # why

* An item.

  <!-- values -->
  ` + "```yaml" + `
  a: 1
  ` + "```" + `

<!-- not a mark -->

` + "```console" + `
$ tool show [--all] NAME | head
output of tool
` + "```" + `
`

func TestParse(t *testing.T) {
	p, err := parse("p.md", []byte(page))
	require.NoError(t, err)
	require.Equal(t, []string{"Title"}, p.Titles)
	require.Equal(t, "What the page\nis for.", p.Intro)
	require.Equal(t, []string{"other.md#anchor"}, p.Links)
	require.Len(t, p.Blocks, 3)
	require.Equal(t, Block{Page: "p.md", Line: 16, Language: "yaml", Mark: "values", Text: "a: 1\n"}, p.Blocks[1])
	require.Empty(t, p.Blocks[2].Mark)
	commands, err := p.Commands("make")
	require.NoError(t, err)
	require.Equal(t, []Command{
		{At: "p.md:9", Dir: ".", Program: "cd", Args: []string{"examples"}, Whole: true},
		{At: "p.md:9", Dir: "examples", Program: "ls", Args: []string{"a b", "c $"}, Whole: true},
		{At: "p.md:10", Dir: "examples", Program: "pidof", Args: []string{"x"}, Whole: true},
		{At: "p.md:22", Dir: ".", Program: "tool", Args: []string{"show", "--all", "NAME", "head"}},
		{At: "p.md:6", Dir: ".", Program: "make", Args: []string{"test", "RUN=a"}},
	}, commands)
}

func TestParseRefusesTextAmongCommands(t *testing.T) {
	p, err := parse("p.md", []byte("# T\n\n    <not> a (command)\n"))
	require.NoError(t, err)
	_, err = p.Commands()
	require.ErrorContains(t, err, "p.md:3: not a command")
}

func TestCommandParse(t *testing.T) {
	tree := func() *cobra.Command {
		root := &cobra.Command{Use: "tool", Args: cobra.NoArgs, Run: func(*cobra.Command, []string) {}}
		group := &cobra.Command{Use: "group"}
		show := &cobra.Command{Use: "show", Args: cobra.ExactArgs(1), Run: func(*cobra.Command, []string) {}}
		show.Flags().Bool("all", false, "")
		group.AddCommand(show)
		root.AddCommand(group)
		return root
	}
	for name, c := range map[string]struct {
		args  []string
		whole bool
		want  string
	}{
		"whole":                      {[]string{"group", "show", "--all", "x"}, true, ""},
		"help":                       {[]string{"group", "show", "--help"}, true, ""},
		"in a sentence":              {[]string{"group", "show"}, false, ""},
		"too few arguments":          {[]string{"group", "show"}, true, "accepts 1 arg(s), received 0"},
		"no flag":                    {[]string{"group", "show", "--al", "x"}, false, "unknown flag: --al"},
		"no command":                 {[]string{"grup"}, false, "tool has no command grup"},
		"no command of the group":    {[]string{"group", "sho"}, false, "tool group has no command sho"},
		"no command among its flags": {[]string{"--all", "group"}, false, "unknown flag: --all"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Command{Program: "tool", Args: c.args, Whole: c.whole}.Parse(tree())
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}
