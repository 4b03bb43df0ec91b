// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/announcement"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/machine"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/nri"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/systemd"
)

// A32: on a busy machine the actuator may read the watch only after the
// synchronisation. It applies a node state that the frontend wrote in between,
// without waiting for the next refresh.
func TestNothingIsMissedBeforeTheWatch(t *testing.T) {
	dir := t.TempDir()
	node := testnode.New(t, dir)
	held, err := announcement.New(node.CDI, contract.Announcement{V: contract.Version, PID: 1})
	require.NoError(t, err)
	m, err := metrics.New(prometheus.NewRegistry())
	require.NoError(t, err)
	bus := systemd.New(func(context.Context) (systemd.Bus, error) { return nil, context.Canceled }, func(string) {})
	plugin := nri.New(nri.Options{Announcer: held, Options: enforce.Options{Kernel: "6.12.0",
		Host:      machine.New(machine.Dirs{}, cdidir.At(node.CDI), "boot"),
		Directory: claims.New(cdidir.At(node.CDI), contract.Features(), "boot"), Mount: node.Mount(),
		Units:   systemd.Systemd{Slices: bus, Dropins: systemd.NewDropins(dir)},
		Metrics: m, RefreshInterval: time.Hour, Clock: time.Now,
	}})
	ctx, cancel := context.WithCancel(t.Context())
	c := cdidir.At(node.CDI).Changes(cdidir.Watch{Renew: time.Hour, Concerns: concerns, Warn: func(string, error) {}})
	c.Start()
	_, err = plugin.NewSession(func() string { return "" }).Synchronize(t.Context(), nil, nil)
	require.NoError(t, err)
	node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-3") })

	d := &Daemon{config: Config{CDIDir: node.CDI, RefreshInterval: time.Hour}}
	ended := make(chan error)
	go c.Run(ctx)
	go func() { ended <- d.watch(ctx, plugin, c.C()) }()
	// The timeout only bounds a hang.
	require.Eventually(t, func() bool {
		a, err := contract.ReadAnnouncement(node.CDI)
		return err == nil && a.Generation == node.State.Generation
	}, 5*time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	require.NoError(t, held.Close())
}
