// SPDX-License-Identifier: Apache-2.0

package pages_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/pages"
)

const root = "../.."

func read(t *testing.T) []pages.Page {
	t.Helper()
	all, err := pages.Read(root)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	return all
}

// Each page below docs has one title and a first paragraph that says what the page is
// for. The index docs/README.md has a link to each page of its folders, and links lead
// from there to all other pages.
func TestPages(t *testing.T) {
	const index = "docs/README.md"
	docs := map[string]pages.Page{}
	for _, p := range read(t) {
		if strings.HasPrefix(p.Path, "docs/") {
			docs[p.Path] = p
		}
	}
	require.NotEmpty(t, docs[index].Path, "no page %s", index)
	links := func(of string) (out []string) {
		for _, link := range docs[of].Links {
			file, _, _ := strings.Cut(link, "#")
			if target := path.Join(path.Dir(of), file); file != "" && docs[target].Path != "" {
				out = append(out, target)
			}
		}
		return out
	}
	reached := []string{index}
	for i := 0; i < len(reached); i++ {
		for _, target := range links(reached[i]) {
			if !slices.Contains(reached, target) {
				reached = append(reached, target)
			}
		}
	}
	for name, p := range docs {
		assert.Len(t, p.Titles, 1, "%s: titles", name)
		assert.Regexp(t, `^(?s)(\S+\s+){5,}\S+[.:]$`, p.Intro, "%s: after the title comes a paragraph that says what the page is for", name)
		assert.Contains(t, reached, name, "no links lead from %s to the page", index)
		if name != index && strings.Count(name, "/") == 2 {
			assert.Contains(t, links(index), name, "%s has no line of the page", index)
		}
	}
}

// text are the languages of blocks that no program reads.
var text = map[string]string{
	"":     "output, file formats and drawings",
	"text": "the same",
	"toml": "containerd's configuration, which containerd reads in the cluster's tests",
}

// Each block is of a kind that a test checks, here or where the code is.
func TestBlocks(t *testing.T) {
	// Queries are checked in package test, beside the dashboard's.
	known := []string{pages.Commands, "sh", "bash", "shell", "console", "yaml", "json", "promql"}
	for _, p := range read(t) {
		for _, b := range p.Blocks {
			if _, is := text[b.Language]; is {
				for line := range strings.Lines(b.Text) {
					first, _, _ := strings.Cut(line, " ")
					assert.NotContains(t, []string{"$", "cpumem", "kubectl", "helm", "make"}, first,
						"%s has a command: mark the block as sh, or as console if it has output too", b.At())
				}
				continue
			}
			assert.Contains(t, known, b.Language, "%s: no test checks this language", b.At())
			if b.Language == "json" {
				assert.True(t, json.Valid([]byte(b.Text)), "%s: not JSON", b.At())
			}
		}
	}
}

// Each block of YAML is whole objects (checked in test/kubernetes) or has a mark of what
// it is a part of: values (test/chart), a machine (cmd/cpumem), kubelet's configuration or a
// part of an object (test/kubernetes), or the frontend's configuration.
func TestYAML(t *testing.T) {
	blocks, err := pages.YAML(root, read(t))
	require.NoError(t, err)
	require.NotEmpty(t, blocks)
	for _, b := range blocks {
		switch {
		case b.Mark == pages.Configuration:
			_, err := config.Parse([]byte(b.Text))
			assert.NoError(t, err, b.At())
		case b.Mark == "":
			for documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(b.Text))); ; {
				document, err := documents.Read()
				if errors.Is(err, io.EOF) {
					break
				}
				var object struct{ APIVersion, Kind string }
				require.NoError(t, err, b.At())
				require.NoError(t, yaml.Unmarshal(document, &object), b.At())
				assert.True(t, object.APIVersion != "" && object.Kind != "",
					"%s: not a whole object: write <!-- values --> or another mark of package pages before it", b.At())
			}
		default:
			known := slices.Contains([]string{pages.Values, pages.Machine, pages.Kubelet, pages.Kubeadm}, b.Mark)
			assert.True(t, known || strings.HasPrefix(b.Mark, pages.Part),
				"%s: no test checks YAML with the mark %q", b.At(), b.Mark)
		}
	}
}

// elsewhere are the programs that other packages check.
var elsewhere = map[string]string{
	"cpumem": "cmd/cpumem", "dra-frontend": "cmd/dra-frontend", "nri-actuator": "cmd/nri-actuator",
	"helm": "test/chart", "kubectl": "test/kubernetes",
}

// unchecked are the programs whose arguments no test knows, with the reason.
var unchecked = map[string]string{
	"cat":        "a program of every machine",
	"containerd": "of another version on each node",
	"export":     "of the shell",
	"find":       "a program of every machine",
	"grep":       "a program of every machine",
	"curl":       "a program of every machine",
	"kubeadm":    "its configuration is checked in test/kubernetes",
	"pidof":      "a program of every machine",
	"sed":        "a program of every machine",
	"tee":        "a program of every machine",
	"uname":      "a program of every machine",
}

// directories returns the directories of the repository's root, but those of built files.
func directories(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	for _, e := range entries {
		if e.IsDir() && e.Name() != "bin" && e.Name() != "_output" {
			names = append(names, e.Name())
		}
	}
	return names
}

// Each path of the repository in a sentence exists: `test/lab`.
func TestPaths(t *testing.T) {
	of := regexp.MustCompile(`^(?:` + strings.Join(directories(t), "|") + `)/[\w./-]*$`)
	found := 0
	for _, p := range read(t) {
		for _, code := range p.Codes {
			if of.MatchString(code.Text) {
				found++
				_, err := os.Stat(filepath.Join(root, code.Text))
				assert.NoError(t, err, "%s: no such file", code.At())
			}
		}
	}
	require.Greater(t, found, 50, "the test has found the paths")
}

// Each command is of a program that a test knows, and the files of the repository that
// it names exist.
func TestCommands(t *testing.T) {
	top := append(directories(t), ".")
	found := 0
	for _, p := range read(t) {
		commands, err := p.Commands("make", "go", "cd")
		require.NoError(t, err)
		for _, c := range commands {
			found++
			for _, arg := range c.Args {
				_, value, is := strings.Cut(arg, "=")
				if !is {
					value = arg
				}
				if first, _, is := strings.Cut(value, "/"); is && slices.Contains(top, first) && !strings.HasSuffix(value, "...") {
					_, err := os.Stat(filepath.Join(root, c.Dir, value))
					assert.NoError(t, err, "%s: no such file", c)
				}
			}
			switch c.Program {
			case "make":
				checkMake(t, c)
			case "cd":
				assert.DirExists(t, filepath.Join(root, c.Dir, strings.Join(c.Args, " ")), c.String())
			case "go":
				checkGo(t, c)
			default:
				assert.True(t, elsewhere[c.Program] != "" || unchecked[c.Program] != "", "%s: no test knows this program", c)
			}
		}
	}
	require.Greater(t, found, 50, "the test has found the commands")
}

// The marks of blocks of commands are known. The files of "run by" have each of the
// block's commands; they are make's targets.
func TestCommandsRun(t *testing.T) {
	run := 0
	for _, p := range read(t) {
		for _, b := range p.Blocks {
			script, is := b.Script()
			if !is {
				continue
			}
			files, by := strings.CutPrefix(b.Mark, pages.RunBy)
			reason, not := strings.CutPrefix(b.Mark, pages.NotRun)
			switch {
			case b.Mark == "", b.Mark == pages.OnNode, b.Mark == pages.WithKubeadm:
				run++
			case not:
				assert.NotEmpty(t, reason, "%s: no reason", b.At())
			case by:
				var text string
				for name := range strings.SplitSeq(files, ", ") {
					data, err := os.ReadFile(filepath.Join(root, name))
					require.NoError(t, err, b.At())
					text += string(data)
				}
				for line := range strings.Lines(script) {
					words := strings.Fields(line)
					require.Equal(t, "make", words[0], "%s: %s: only make's targets are run by files", b.At(), line)
					assert.Regexp(t, `(?m)\bmake (\S+ )*`+regexp.QuoteMeta(words[1])+`(\s|$)`, text, "%s: %s does not run it", b.At(), files)
				}
			default:
				t.Errorf("%s: unknown mark %q of commands", b.At(), b.Mark)
			}
		}
	}
	require.Greater(t, run, 25, "blocks that are run")
}

var (
	target = regexp.MustCompile(`(?m)^([a-z0-9-]+):(?:[^=]|$)`)
	script = regexp.MustCompile(`[\w/.]+\.sh`)
)

// checkMake fails unless the Makefile has the targets, and the Makefile or a script
// that it runs uses the variables.
func checkMake(t *testing.T, c pages.Command) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	text := string(data)
	var targets []string
	for _, m := range target.FindAllStringSubmatch(text, -1) {
		targets = append(targets, m[1])
	}
	for _, file := range script.FindAllString(text, -1) {
		if data, err := os.ReadFile(filepath.Join(root, file)); err == nil {
			text += string(data)
		}
	}
	for _, arg := range c.Args {
		if name, _, is := strings.Cut(arg, "="); is {
			assert.Regexp(t, `\$[({]?`+regexp.QuoteMeta(name)+`\b`, text, "%s: no such variable", c)
		} else {
			assert.Contains(t, targets, arg, "%s: no such target", c)
		}
	}
}

// checkGo fails unless the functions that the command selects exist in the directory;
// TestCommands has the paths.
func checkGo(t *testing.T, c pages.Command) {
	t.Helper()
	for i, arg := range c.Args {
		if !slices.Contains([]string{"-run", "-fuzz", "-bench"}, arg) || i+1 == len(c.Args) || c.Args[i+1] == "^$" {
			continue
		}
		name := strings.Trim(c.Args[i+1], "^$")
		files, err := filepath.Glob(filepath.Join(root, c.Dir, c.Args[len(c.Args)-1], "*_test.go"))
		require.NoError(t, err)
		assert.True(t, slices.ContainsFunc(files, func(file string) bool {
			data, err := os.ReadFile(file)
			return err == nil && regexp.MustCompile(`(?m)^func \w*`+name).Match(data)
		}), "%s: no function %s", c, name)
	}
}
