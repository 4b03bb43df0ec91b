// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/pages"
)

const repository = "../../.."

// TestPages runs the commands of the pages as they are written, but those whose mark gives
// a reason. Pages of recipes with an example are run by the recipes' tests.
func TestPages(t *testing.T) {
	longOnly(t)
	s := theSuite.on(wide) // its kernel has all files that pages show
	s.configure(t)
	all, err := pages.Read(repository)
	require.NoError(t, err)
	dir := s.workplace(t)
	for _, p := range all {
		if _, err := os.Stat(filepath.Join(repository, "examples", "recipes", recipeOf(p.Path)+".yaml")); !errors.Is(err, fs.ErrNotExist) {
			require.NoError(t, err)
			continue
		}
		if blocks := runnable(p); len(blocks) > 0 {
			t.Run(p.Path, func(t *testing.T) {
				t.Cleanup(func() {
					_, err := s.Kubectl(context.Background(), "delete", "pods,resourceclaims,resourceclaimtemplates", "--all", "--namespace", "default")
					require.NoError(t, err)
				})
				s.commands(t, dir, blocks)
			})
		}
	}
}

// recipeOf returns the name of a recipe's page.
func recipeOf(page string) string { return strings.TrimSuffix(filepath.Base(page), ".md") }

// recipePage runs the commands of the recipe's page in the workplace dir.
func (s suite) recipePage(t *testing.T, dir, recipe string) {
	t.Helper()
	all, err := pages.Read(repository)
	require.NoError(t, err)
	for _, p := range all {
		if filepath.Base(filepath.Dir(p.Path)) == "recipes" && recipeOf(p.Path) == recipe {
			blocks := runnable(p)
			require.NotEmpty(t, blocks, "commands of %s", p.Path)
			s.commands(t, dir, blocks)
			return
		}
	}
	t.Fatalf("recipe %s has no page", recipe)
}

// runnable returns the page's blocks that the cluster's tests run.
func runnable(p pages.Page) (blocks []pages.Block) {
	for _, b := range p.Blocks {
		_, is := b.Script()
		if b.Language == "toml" || is && (b.Mark == "" || b.Mark == pages.OnNode) {
			blocks = append(blocks, b)
		}
	}
	return blocks
}

// commands runs the blocks in the workplace dir, in their order. In commands NODE is the suite's node, and CLAIM
// a claim of a pod there.
func (s suite) commands(t *testing.T, dir string, blocks []pages.Block) {
	t.Helper()
	hasClaim := false
	for _, b := range blocks {
		if b.Language == "toml" {
			s.containerdReads(t, b)
			continue
		}
		script, _ := b.Script()
		if strings.Contains(script, "CLAIM") && !hasClaim {
			hasClaim = true
			s.claim(t, "page", "", capacity{"cpu": "1"})
			s.run(t, pod("page", []string{"sleep"}, "page"))
		}
		script = strings.NewReplacer("NODE", s.node, "CLAIM", "page").Replace(script)
		var out string
		var err error
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if b.Mark == pages.OnNode {
			out, err = s.NodeExec(ctx, s.node, "set -e; PATH=/share:$PATH\n"+script)
		} else {
			shell := exec.CommandContext(ctx, "bash", "-eo", "pipefail", "-c", script)
			shell.Dir, shell.Env = dir, append(shell.Environ(), s.Env()...)
			shell.Env = append(shell.Env, "PATH="+filepath.Join(dir, "bin")+":"+filepath.Dir(s.Program("kubectl"))+":"+os.Getenv("PATH"))
			var both []byte
			both, err = shell.CombinedOutput()
			out = string(both)
		}
		cancel()
		require.NoError(t, err, "%s:\n%s\n%s", b.At(), script, out)
		t.Logf("%s:\n%s\n%s", b.At(), script, out)
	}
}

// workplace returns a directory in which the paths of pages are as in a clone of the
// repository with `make build` done and `make demo KEEP=1` running. The suite's node has
// the tool in /share.
func (s suite) workplace(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(repository)
	require.NoError(t, err)
	dir := t.TempDir()
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Name() != "bin" && e.Name() != "_output" {
			require.NoError(t, os.Symlink(filepath.Join(root, e.Name()), filepath.Join(dir, e.Name())))
		}
	}
	require.NoError(t, errors.Join(os.Mkdir(filepath.Join(dir, "bin"), 0o755), os.Mkdir(filepath.Join(dir, "_output"), 0o755)))
	require.NoError(t, os.Symlink(filepath.Dir(filepath.Dir(s.Kubeconfig())), filepath.Join(dir, "_output", "cluster")))
	program, err := os.ReadFile(s.tool(t).path)
	require.NoError(t, err)
	for _, bin := range []string{filepath.Join(dir, "bin"), s.ShareDir(s.node)} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, "cpumem"), program, 0o755))
	}
	return dir
}

// containerdReads requires that containerd takes each key of the block: what it does not know
// is not in its dump.
func (s suite) containerdReads(t *testing.T, b pages.Block) {
	t.Helper()
	out, err := s.NodeExec(t.Context(), s.node,
		"cat >/tmp/page.toml <<'end'\nversion = 3\n"+b.Text+"end\ncontainerd --config /tmp/page.toml config dump")
	require.NoError(t, err, b.At())
	indent := regexp.MustCompile(`(?m)^[ \t]+`)
	table, keys, _ := strings.Cut(indent.ReplaceAllString(b.Text, ""), "\n")
	_, dumped, found := strings.Cut(indent.ReplaceAllString(out, ""), table+"\n")
	require.True(t, found, "%s: containerd has no table %s:\n%s", b.At(), table, out)
	dumped, _, _ = strings.Cut(dumped, "\n[")
	for key := range strings.Lines(keys) {
		require.Contains(t, strings.Split(dumped, "\n"), strings.TrimSpace(key), b.At())
	}
}

// alone keeps pods off all nodes but the suite's until the end of the test.
func (s suite) alone(t *testing.T) {
	t.Helper()
	for _, name := range s.NodeNames() {
		if name == s.node {
			continue
		}
		cordon := func(ctx context.Context, is string) error {
			patch := []byte(`{"spec":{"unschedulable":` + is + `}}`)
			_, err := s.client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		}
		require.NoError(t, cordon(t.Context(), "true"))
		t.Cleanup(func() { require.NoError(t, cordon(context.Background(), "false")) })
	}
}
