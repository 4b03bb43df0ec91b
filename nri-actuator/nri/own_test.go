// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
)

// delegated is a cgroup hierarchy without attributes that refuses writes to the cgroup
// root, as nsdelegate does for the root of a cgroup namespace.
type delegated struct {
	*os.Root
	root string
}

func (h delegated) Mkdir(dir string) error { return h.Root.Mkdir(dir, 0o755) }

func (h delegated) Open(dir string) (cgroups.Cgroup, error) {
	below, err := h.OpenRoot(dir)
	return delegatedCgroup{Root: below, refuses: dir == h.root}, err
}

type delegatedCgroup struct {
	*os.Root
	refuses bool
}

func (c delegatedCgroup) Children() ([]string, error)       { return nil, nil }
func (c delegatedCgroup) Read(file string) ([]byte, error)  { return c.ReadFile(file) }
func (c delegatedCgroup) Attributes() ([]string, error)     { return nil, errors.ErrUnsupported }
func (c delegatedCgroup) Attribute(string) (string, error)  { return "", errors.ErrUnsupported }
func (c delegatedCgroup) SetAttribute(string, string) error { return errors.ErrUnsupported }
func (c delegatedCgroup) RemoveAttribute(string) error      { return errors.ErrUnsupported }
func (c delegatedCgroup) Write(file, content string) error {
	if c.refuses {
		return syscall.EPERM
	}
	return c.WriteFile(file, []byte(content), 0)
}

// sets are the calls of Set.
type sets struct {
	enforce.Units
	calls []map[string]string
	dir   string
}

func (s *sets) Set(dir string, files map[string]string) error {
	if dir == s.dir {
		s.calls = append(s.calls, files)
	}
	return s.Units.Set(dir, files)
}

// The actuator may not write to the root of its own cgroup namespace. Its pod gets the
// pool instead, once, and systemd follows. No other error is hidden this way.
func TestOwnContainer(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	dir, pod := r.podDir(podB)+"/own", r.podDir(podB)
	r.node.AddCgroup(pod)
	r.node.AddCgroup(dir)
	r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-3") })
	root, err := os.OpenRoot(r.node.Cgroup)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })

	options := r.plugin.Options.Options
	units := &sets{Units: options.Units, dir: pod}
	options.Mount, options.Units = cgroups.NewMount(delegated{Root: root, root: dir}), units
	apply := func(change func(*enforce.Container)) error {
		c := &enforce.Container{
			ID: "own", Name: "ns/own", References: claims.Container{PodUID: podB},
			Cgroups: enforce.Cgroups{Dir: dir, Pod: pod}, Life: enforce.Life{Started: true},
		}
		change(c)
		e := enforce.New(options)
		e.Replace(t.Context(), []*enforce.Container{c})
		_, err := e.ApplyAll(t.Context())
		return err
	}
	for range 2 {
		require.NoError(t, apply(func(*enforce.Container) {}))
		require.Equal(t, "0-3", r.node.File(pod, "cpuset.cpus"))
		require.Equal(t, "0-15", r.node.File(dir, "cpuset.cpus"))
		require.Equal(t, []map[string]string{{"cpuset.cpus": "0-3", "cpuset.mems": "0-1"}}, units.calls)
	}

	require.ErrorIs(t, apply(func(c *enforce.Container) { c.Cgroups.Pod, c.Cgroups.PodErr = "", errors.New("unknown") }), syscall.EPERM)
	env := r.node.Prepare(podB, claimA, quad())
	require.ErrorIs(t, apply(func(c *enforce.Container) { c.References = c.References.WithEnv(env) }), syscall.EPERM)
	r.node.Unprepare(podB, claimA, "")
	r.node.RemoveFile(pod, "cpuset.cpus")
	require.ErrorContains(t, apply(func(*enforce.Container) {}), pod)
}

// A level that refuses a write is an error, and no container's.
func TestLevelThatRefuses(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.foreign("c", podB)
	r.node.Change(func(s *contract.NodeState) { s.Ancestors = map[string]contract.Files{"": {"memory.min": "4096"}} })
	root, err := os.OpenRoot(r.node.Cgroup)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	options := r.plugin.Options.Options
	options.Mount = cgroups.NewMount(delegated{Root: root, root: "kubepods"})
	e := enforce.New(options)
	e.Add(&enforce.Container{ID: "c", Cgroups: enforce.Cgroups{Dir: r.podDir(podB) + "/c", Pod: r.podDir(podB)}})
	_, err = e.ApplyAll(t.Context())
	require.ErrorIs(t, err, syscall.EPERM)
}
