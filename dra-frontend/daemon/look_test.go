// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

// A07: an impossible statement of the kernel is logged when it is seen first,
// not at every look.
func TestWarningsAboutTheMachine(t *testing.T) {
	s, dir := topologytest.T2(), t.TempDir()
	sys := s.Sys()
	for _, f := range sys {
		f.Mode = 0o600
	}
	require.NoError(t, os.CopyFS(dir, sys))
	o := options(t)
	core, logs := observer.New(zapcore.WarnLevel)
	o.Log, o.Config.SysfsRoot = zap.New(core), dir
	d := &Daemon{o: o}
	machine, err := d.discover()
	require.NoError(t, err)
	last, reports := observation{divided: machine}, newReporter(o, new(sent).send)
	// look returns the warnings that another look at the machine logs.
	look := func() []observer.LoggedEntry {
		before := last
		last = d.observeMachine(before)
		reports.logNode(before, last)
		return logs.TakeAll()
	}

	file := filepath.Join(dir, "devices/system/cpu/cpu1/cache/index2/shared_cpu_list")
	good, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte("1\n"), 0o600))
	require.Len(t, look(), 1)
	require.Empty(t, look())

	require.NoError(t, os.WriteFile(file, good, 0o600))
	require.Empty(t, look())
	require.NoError(t, os.WriteFile(file, []byte("1\n"), 0o600))
	again := look()
	require.Len(t, again, 1)
	require.Contains(t, again[0].ContextMap()["warning"], file[:len(file)-len("cpu1/cache/index2/shared_cpu_list")])
}
