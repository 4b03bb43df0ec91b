// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/syntax"
)

// Marks of blocks of commands. The cluster's tests run a block without a mark on the
// machine that they run on, with kubectl and helm of the cluster.
const (
	OnNode = "on a node"
	// WithKubeadm marks commands that make a cluster with kubeadm, or need a node of such a cluster. TestKubeadm of the
	// cluster's tests runs them.
	WithKubeadm = "with kubeadm"
	// RunBy begins the mark of commands that the named files run: "run by .ci/run".
	RunBy = "run by "
	// NotRun begins the mark of commands that no test runs, and gives the reason.
	NotRun = "not run: "
)

// Command is a call of a program on a page.
type Command struct {
	At string // page and line
	// Dir is the directory of the repository in which the command runs.
	Dir     string
	Program string
	Args    []string
	// Whole is set if the command can be typed as it stands. A command in a sentence may
	// be the program's name alone, and "..." stands for arguments.
	Whole bool
}

func (c Command) String() string {
	return c.At + ": " + c.Program + " " + strings.Join(c.Args, " ")
}

var (
	// optional matches the begin of an optional part: cpumem nodes [NODE...].
	optional = regexp.MustCompile(`\s\[[-A-Za-z]`)
	choice   = regexp.MustCompile(`(\w)(\|\w+)+`)
	prompt   = regexp.MustCompile(`(?m)^\$ `)
)

// Commands returns the commands of the page, those in sentences included if their
// program is among named.
func (p Page) Commands(named ...string) ([]Command, error) {
	var all []Command
	for _, b := range p.Blocks {
		script, is := b.script()
		if !is {
			continue
		}
		commands, err := b.commands(script, true)
		if err != nil {
			return nil, err
		}
		all = append(all, commands...)
	}
	for _, code := range p.Codes {
		if first, _, _ := strings.Cut(code.Text, " "); !slices.Contains(named, program(first)) {
			continue
		}
		commands, err := code.commands(code.Text, false)
		if err != nil {
			return nil, err
		}
		all = append(all, commands...)
	}
	return all, nil
}

// CommandsOf returns the commands of one program on all pages.
func CommandsOf(pages []Page, name string) ([]Command, error) {
	var all []Command
	for _, p := range pages {
		commands, err := p.Commands(name)
		if err != nil {
			return nil, err
		}
		for _, c := range commands {
			if c.Program == name {
				all = append(all, c)
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no page has a command of %s", name)
	}
	return all, nil
}

// Script returns the block as a shell script that can be run, and false if the block has
// none: it is output, or it shows how a command is called.
func (b Block) Script() (string, bool) {
	script, is := b.script()
	if !is {
		return "", false
	}
	commands, err := b.commands(script, true)
	usage := slices.ContainsFunc(commands, func(c Command) bool { return !c.Whole })
	return script, err == nil && len(commands) > 0 && !usage
}

// script returns the block as a shell script, with its lines in place, if it has
// commands. In a console only the lines after a prompt are commands, the rest is output.
func (b Block) script() (string, bool) {
	switch b.Language {
	case "sh", "bash", "shell":
		return b.Text, true
	case Commands:
		if !prompt.MatchString(b.Text) {
			return b.Text, true
		}
	case "console":
	default:
		return "", false
	}
	lines := strings.Split(b.Text, "\n")
	goesOn := false
	for i, line := range lines {
		command, is := strings.CutPrefix(line, "$ ")
		if !is && !goesOn {
			command = ""
		}
		lines[i], goesOn = command, strings.HasSuffix(command, `\`)
	}
	return strings.Join(lines, "\n"), true
}

func (b Block) commands(script string, whole bool) ([]Command, error) {
	if optional.MatchString(script) || !whole {
		whole = false
		script = choice.ReplaceAllString(script, "$1")
		script = strings.NewReplacer("[", "", "]", "", " | ", " ").Replace(script)
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), "")
	if err != nil {
		return nil, fmt.Errorf("%s: not a command, write text between fences: %w", b.At(), err)
	}
	dir := "."
	var commands []Command
	syntax.Walk(file, func(n syntax.Node) bool {
		call, is := n.(*syntax.CallExpr)
		if !is || len(call.Args) == 0 {
			return true
		}
		words := make([]string, len(call.Args))
		for i, w := range call.Args {
			words[i] = literal(w.Parts)
		}
		c := Command{
			At: fmt.Sprintf("%s:%d", b.Page, b.Line+int(call.Pos().Line())-1), Dir: dir,
			Program: program(words[0]), Args: words[1:], Whole: whole,
		}
		if c.Program == "kubectl" && len(c.Args) > 0 && c.Args[0] == "cpumem" { // the plugin
			c.Program, c.Args = "cpumem", c.Args[1:]
		}
		if slices.Contains(c.Args, "...") {
			c.Args = slices.DeleteFunc(c.Args, func(w string) bool { return w == "..." })
			c.Whole = false
		}
		if c.Program == "cd" && len(c.Args) == 1 {
			dir = path.Join(dir, c.Args[0])
		}
		commands = append(commands, c)
		return true
	})
	return commands, nil
}

// program returns the name of a program, which the pages call by its path in bin, too.
func program(word string) string {
	return strings.TrimPrefix(strings.TrimPrefix(word, "./"), "bin/")
}

// literal returns a word without its quotes. What the shell would put in stays as $.
func literal(parts []syntax.WordPart) string {
	var word strings.Builder
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			word.WriteString(unescaped.ReplaceAllString(p.Value, "$1"))
		case *syntax.SglQuoted:
			word.WriteString(p.Value)
		case *syntax.DblQuoted:
			word.WriteString(literal(p.Parts))
		default:
			word.WriteString("$")
		}
	}
	return word.String()
}

var unescaped = regexp.MustCompile(`(?s)\\(.)`)

// Parse returns the subcommand that the command calls in the tree of its program, and
// that command's arguments without flags. It is an error if the subcommand or a flag
// does not exist, or if the arguments of a whole command do not suit.
func (c Command) Parse(tree *cobra.Command) (sub *cobra.Command, args []string, err error) {
	sub, rest, err := tree.Find(c.Args)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c, err)
	}
	sub.InitDefaultHelpFlag()
	sub.InitDefaultVersionFlag()
	if err := sub.ParseFlags(rest); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c, err)
	}
	args = sub.Flags().Args()
	if sub.HasSubCommands() && len(args) > 0 {
		return nil, nil, fmt.Errorf("%s: %s has no command %s", c, sub.CommandPath(), args[0])
	}
	if help := sub.Flags().Lookup("help"); c.Whole && !help.Changed {
		for _, check := range []func() error{
			func() error { return sub.ValidateArgs(args) }, sub.ValidateRequiredFlags, sub.ValidateFlagGroups,
		} {
			if err := check(); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", c, err)
			}
		}
	}
	return sub, args, nil
}
