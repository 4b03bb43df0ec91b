// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/receipt"
)

// A85: a measurement begins when the actuator has applied the claim, goes on after a restart of
// the frontend, and leaves no file when the claim has gone.
func TestObserveReceipts(t *testing.T) {
	o, root := options(t), t.TempDir()
	o.Config.SysfsRoot, o.Config.ProcRoot, o.Kubelet.RootDir = filepath.Join(root, "sys"), filepath.Join(root, "proc"), root
	write := func(name, text string) {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	interrupts := func(n string) {
		write("proc/schedstat", "cpu2 0 0 0 0 0 0 0 0 0\n")
		write("sys/kernel/irq/24/actions", "disk\n")
		write("sys/kernel/irq/24/per_cpu_count", "0,0,"+n+"\n")
	}
	require.NoError(t, os.MkdirAll(o.Kubelet.dataDir(), 0o700))
	key := contract.Key{ClaimUID: claimUID}
	claims := []contract.ClaimRecord{{
		Namespace: "ns", Name: "db", UID: claimUID, BootID: "boot", Pods: []contract.PodRecord{{UID: "pod"}},
		Results: []contract.ResultRecord{{
			Quiet: contract.Quiet{NoInterrupts: true}, Decision: contract.Decision{CPUs: contracttest.CPUs("2"), Quota: contract.QuotaNone},
		}},
	}}
	core, logs := observer.New(zapcore.WarnLevel)
	o.Log = zap.New(core)
	d := &Daemon{o: o, bootID: "boot"}

	interrupts("100")
	waiting := observation{claims: claims, announced: announced{kubepods: "kubepods", progress: progress{behind: time.Now()}}}
	require.Empty(t, d.observeReceipts(waiting).receipts)
	applied := waiting
	applied.announced.progress.behind = time.Time{}
	last := d.observeReceipts(applied)
	require.Contains(t, last.receipts, key)
	require.Zero(t, last.receipts[key].Interrupts)

	interrupts("105")
	write("sys/fs/cgroup/kubepods/podpod/cpu.stat", "nr_throttled 3\nthrottled_usec 4\n")
	write("sys/fs/cgroup/system.slice/irqbalance.service/cgroup.events", "populated 1\n")
	again := (&Daemon{o: o, bootID: "boot"}).readReceipts(applied)
	for _, before := range []observation{last, again} {
		got := d.observeReceipts(before)
		require.EqualValues(t, 5, got.receipts[key].Interrupts)
		require.Equal(t, receipt.Throttling{Times: 3, Microseconds: 4}, got.receipts[key].Throttling)
		require.True(t, got.irqbalance)
	}
	require.Empty(t, logs.All())

	unknown := applied
	unknown.announced.kubepods = ""
	require.Empty(t, d.observeReceipts(unknown).receipts, "no throttling is known")
	require.Len(t, logs.TakeAll(), 1)

	unreadable := last
	unreadable.claims, unreadable.blocked = nil, errors.New("a claim file cannot be read")
	require.Equal(t, last.book, d.observeReceipts(unreadable).book)

	// What cannot be read keeps the last receipts.
	write("proc/schedstat", "")
	kept := d.observeReceipts(last)
	require.Equal(t, last.receipts, kept.receipts)
	require.Len(t, logs.TakeAll(), 1)

	// The same fault is logged once, and again after a time without it.
	kept = d.observeReceipts(kept)
	require.Empty(t, logs.TakeAll())
	interrupts("105")
	kept = d.observeReceipts(kept)
	write("proc/schedstat", "")
	d.observeReceipts(kept)
	require.Len(t, logs.TakeAll(), 1)

	// A book that cannot be read is begun anew, with a warning.
	write("plugins/dra.cpumem/"+receipt.FileName, "{")
	require.Empty(t, d.readReceipts(applied).book)
	require.Len(t, logs.TakeAll(), 1)

	last.claims = nil
	require.Empty(t, d.observeReceipts(last).receipts)
	require.NoFileExists(t, filepath.Join(o.Kubelet.dataDir(), receipt.FileName))
}
