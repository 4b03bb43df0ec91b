// SPDX-License-Identifier: Apache-2.0

package receipt_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/receipt"
)

var (
	start = time.Date(2026, 11, 25, 6, 0, 0, 0, time.UTC)
	key   = contract.Key{ClaimUID: "c"}
)

// quietClaim asks for no interrupts on CPUs 2-3, beside those of nic*.
func quietClaim() contract.ClaimRecord {
	return contract.ClaimRecord{UID: "c", BootID: "boot", Results: []contract.ResultRecord{{
		Decision: contract.Decision{CPUs: contracttest.CPUs("2-3"), Partition: contract.PartitionRoot},
		Quiet:    contract.Quiet{NoInterrupts: true, Device: "nic*"},
	}}}
}

func machine(disk, nic, timer uint32, waited, switches uint64) receipt.Machine {
	return receipt.Machine{
		Interrupts: map[string]receipt.Interrupt{
			"24": {Handlers: []string{"disk"}, Counts: []uint32{1000, 1000, disk, disk}},
			"25": {Handlers: []string{"nic0-rx"}, Counts: []uint32{0, 0, nic, 0}},
			"26": {Handlers: []string{"timer"}, Counts: []uint32{0, 0, timer}},
		},
		CPUs: map[int]receipt.CPU{0: {Waited: 1e9, Switches: 1e9}, 2: {Waited: waited}, 3: {Switches: switches}},
	}
}

// A85: what was measured since the start, also after a restart, and not of another boot.
func TestReceipts(t *testing.T) {
	claims := []contract.ClaimRecord{quietClaim()}
	look := receipt.Node{BootID: "boot", Now: start, Claims: claims, Machine: machine(1<<32-1, 5, 1, 100, 10)}
	book := receipt.Book{}.Next(look)
	require.Empty(t, book.Entries, "interrupts may not have been moved yet")

	look.Applied, look.PartitionsKnown = true, true
	book = book.Next(look)
	require.Equal(t, receipt.Receipt{Since: start}, book.Receipts(claims, look.Machine, nil)[key])

	// The partition is lost twice. The disk's counters begin again at 0.
	for minute, lost := range []bool{true, true, false, true} {
		look.Now = start.Add(time.Duration(minute+1) * time.Minute)
		look.InvalidPartitions = nil
		if lost {
			look.InvalidPartitions = map[string]string{"c": "invalid"}
		}
		book = book.Next(look)
	}
	throttled := receipt.Throttling{Times: 2, Microseconds: 1500}
	got := book.Receipts(claims, machine(2, 99, 2, 2100, 13), map[contract.Key]receipt.Throttling{key: throttled})
	require.Equal(t, map[contract.Key]receipt.Receipt{key: {
		Since: start, Interrupts: 7, Disturbers: []string{"disk (6)"}, Waited: 2 * time.Microsecond, Switches: 3,
		Throttling: throttled, PartitionLosses: 2,
	}}, got)
	require.Equal(t, "since 2026-11-25T06:00:00Z: 7 interrupts of devices, threads waited 2µs and were switched to 3 times, "+
		"throttled 2 times (1.5ms), partition lost 2 times", got[key].String())

	// A restart and a release.
	file := receipt.File{Dir: t.TempDir()}
	require.NoError(t, file.Write(book))
	again, err := file.Read()
	require.NoError(t, err)
	require.Equal(t, book, again)
	require.Equal(t, book, again.Next(look))
	look.Claims = nil
	require.NoError(t, file.Write(again.Next(look)))
	again, err = file.Read()
	require.NoError(t, err)
	require.Empty(t, again)

	// The counters of another boot are no start, and no measure of a claim from before.
	look.BootID, look.InvalidPartitions, look.Claims = "next", nil, []contract.ClaimRecord{quietClaim()}
	require.Empty(t, book.Next(look).Receipts(look.Claims, look.Machine, nil))
	look.Claims[0].BootID = "next"
	require.Empty(t, book.Receipts(look.Claims, look.Machine, nil))
	require.Equal(t, receipt.Receipt{Since: look.Now}, book.Next(look).Receipts(look.Claims, look.Machine, nil)[key])
}

// A claim file that cannot be read for a while does not begin the measurement of its claim again.
func TestClaimsThatAreMissing(t *testing.T) {
	look := receipt.Node{
		BootID: "boot", Now: start, Claims: []contract.ClaimRecord{quietClaim()}, Machine: machine(1, 5, 1, 100, 10), Applied: true,
	}
	book := receipt.Book{}.Next(look)
	missing := look
	missing.Claims, missing.ClaimsMissing, missing.Now = nil, true, start.Add(time.Minute)
	require.Equal(t, book, book.Next(missing))
	missing.BootID = "next"
	require.Empty(t, book.Next(missing).Entries)
	missing.BootID, missing.ClaimsMissing = "boot", false
	require.Empty(t, book.Next(missing).Entries, "the claim was released")
}

// A claim that is decided anew may get other CPUs: their counters are not those of the CPUs before.
func TestReceiptsOfOtherCPUs(t *testing.T) {
	look := receipt.Node{BootID: "boot", Now: start, Claims: []contract.ClaimRecord{quietClaim()}, Applied: true}
	look.Machine, look.InvalidPartitions = machine(0, 0, 0, 0, 0), map[string]string{"c": "invalid"}
	book := receipt.Book{}.Next(look)
	anew := quietClaim()
	anew.Results[0].Decision.CPUs = contracttest.CPUs("0")
	look.Claims, look.InvalidPartitions, look.Now = []contract.ClaimRecord{anew}, nil, start.Add(time.Minute)
	look.Machine = machine(7, 7, 7, 7, 7)
	require.Empty(t, book.Receipts(look.Claims, look.Machine, nil), "the frontend has not looked since")
	require.Equal(t, receipt.Receipt{Since: look.Now}, book.Next(look).Receipts(look.Claims, look.Machine, nil)[key])
}

func TestMeasured(t *testing.T) {
	cpus := contract.Decision{CPUs: contracttest.CPUs("2")}
	lifted := contract.Decision{CPUs: contracttest.CPUs("2"), Quota: contract.QuotaNone}
	for name, c := range map[string]struct {
		result contract.ResultRecord
		want   bool
	}{
		"CPUs alone":       {result: contract.ResultRecord{Decision: cpus, Quiet: contract.Quiet{LimitMilli: 500}}},
		"no interrupts":    {result: contract.ResultRecord{Decision: cpus, Quiet: contract.Quiet{NoInterrupts: true}}, want: true},
		"no work queues":   {result: contract.ResultRecord{Decision: cpus, Quiet: contract.Quiet{NoWorkQueues: true}}, want: true},
		"no limit":         {result: contract.ResultRecord{Decision: lifted}, want: true},
		"no CPUs, no less": {result: contract.ResultRecord{Decision: contract.Decision{Quota: contract.QuotaNone}}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, receipt.Measured(c.result)) })
	}
}

// A receipt names few devices, the most frequent first, however many there are.
func TestDisturbersAreBounded(t *testing.T) {
	m := receipt.Machine{Interrupts: make(map[string]receipt.Interrupt)}
	for n := range 10 {
		m.Interrupts[string(rune('0'+n))] = receipt.Interrupt{
			Handlers: []string{"disk" + string(rune('0'+n))}, Counts: []uint32{0, 0, uint32(n)}, //nolint:gosec // small
		}
	}
	claims := []contract.ClaimRecord{quietClaim()}
	look := receipt.Node{BootID: "boot", Now: start, Claims: claims, Applied: true}
	got := receipt.Book{}.Next(look).Receipts(claims, m, nil)[key]
	require.Equal(t, []string{"disk9 (9)", "disk8 (8)", "disk7 (7)", "disk6 (6)", "4 more"}, got.Disturbers)
}

// A pod may choose the name of a network device, and so of its interrupt.
func TestDisturbersAreShownAsText(t *testing.T) {
	for name, c := range map[string]struct{ handler, want string }{
		"bytes for a terminal": {"eth\x1b[2J-rx", "eth?[2J-rx (2)"},
		"a long name":          {strings.Repeat("x", 70), strings.Repeat("x", 60) + "... (10 bytes more) (2)"},
	} {
		t.Run(name, func(t *testing.T) {
			m := receipt.Machine{Interrupts: map[string]receipt.Interrupt{"24": {Handlers: []string{c.handler}, Counts: []uint32{0, 0, 2}}}}
			claims := []contract.ClaimRecord{quietClaim()}
			look := receipt.Node{BootID: "boot", Now: start, Claims: claims, Applied: true}
			require.Equal(t, []string{c.want}, receipt.Book{}.Next(look).Receipts(claims, m, nil)[key].Disturbers)
		})
	}
}

// What was measured grows with the kernel's counters, and never below zero.
func TestReceiptsGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		claims := []contract.ClaimRecord{quietClaim()}
		disk := rapid.Uint32().Draw(t, "disk")
		waited, switches := rapid.Uint64().Draw(t, "waited"), rapid.Uint64().Draw(t, "switches")
		look := receipt.Node{BootID: "boot", Now: start, Claims: claims, Applied: true, Machine: machine(disk, 0, 0, waited, switches)}
		book := receipt.Book{}.Next(look)
		more := rapid.Uint32Range(0, 1<<29).Draw(t, "more")
		got := book.Receipts(claims, machine(disk+more, 0, 0, waited-min(waited, uint64(more)), switches), nil)[key]
		if got.Interrupts != 2*uint64(more) || got.Waited != 0 || got.Switches != 0 {
			t.Fatalf("got %+v after %d more interrupts on each of two CPUs", got, more)
		}
	})
}

// Another device that gets the number of one that is gone has begun at 0.
func TestInterruptOfAnotherDevice(t *testing.T) {
	claims := []contract.ClaimRecord{quietClaim()}
	book := receipt.Book{}.Next(receipt.Node{BootID: "boot", Claims: claims, Applied: true, Machine: machine(5000, 0, 0, 0, 0)})
	require.EqualValues(t, 6, book.Receipts(claims, machine(3, 0, 0, 0, 0), nil)[key].Interrupts)
}

// Magnitudes change rarely: a status that follows them is written a bounded number of times.
// The other request of a claim has no partition that could be lost.
func TestLossOfOneRequest(t *testing.T) {
	c := quietClaim()
	c.Results = append(c.Results, contract.ResultRecord{
		Decision: contract.Decision{CPUs: contracttest.CPUs("0")}, Quiet: contract.Quiet{NoInterrupts: true},
	})
	look := receipt.Node{BootID: "boot", Now: start, Claims: []contract.ClaimRecord{c}, Machine: machine(0, 0, 0, 0, 0), Applied: true}
	book := receipt.Book{}.Next(look)
	look.InvalidPartitions, look.PartitionsKnown = map[string]string{"c": "invalid"}, true
	got := book.Next(look).Receipts(look.Claims, look.Machine, nil)
	require.Equal(t, 1, got[key].PartitionLosses)
	require.Zero(t, got[contract.Key{ClaimUID: "c", Index: 1}].PartitionLosses)
}

// A frontend that starts while no actuator is there does not know whether a partition is still lost. The loss counts once.
func TestLossOverARestart(t *testing.T) {
	claims := []contract.ClaimRecord{quietClaim()}
	look := receipt.Node{BootID: "boot", Now: start, Claims: claims, Machine: machine(0, 0, 0, 0, 0), Applied: true}
	book := receipt.Book{}.Next(look)
	lost := look
	lost.InvalidPartitions, lost.PartitionsKnown = map[string]string{"c": "invalid"}, true
	book = book.Next(lost).Next(look).Next(lost)
	require.Equal(t, 1, book.Receipts(claims, look.Machine, nil)[key].PartitionLosses)
	look.PartitionsKnown = true
	book = book.Next(look).Next(lost)
	require.Equal(t, 2, book.Receipts(claims, look.Machine, nil)[key].PartitionLosses, "it was back in between")
}

// Each number of a receipt is in its magnitudes.
func TestMagnitudesOfEach(t *testing.T) {
	none := receipt.Receipt{}.Magnitudes()
	for name, r := range map[string]receipt.Receipt{
		"interrupts":             {Interrupts: 1},
		"waited":                 {Waited: 1},
		"switches":               {Switches: 1},
		"times of throttling":    {Throttling: receipt.Throttling{Times: 1}},
		"throttled microseconds": {Throttling: receipt.Throttling{Microseconds: 1}},
		"partition losses":       {PartitionLosses: 1},
	} {
		t.Run(name, func(t *testing.T) { require.NotEqual(t, none, r.Magnitudes()) })
	}
}

func TestMagnitudes(t *testing.T) {
	changes, last := 0, ""
	for n := range uint64(100_000) {
		r := receipt.Receipt{Interrupts: n, Switches: n}
		if now := r.Magnitudes(); now != last {
			changes, last = changes+1, now
		}
	}
	require.Equal(t, 6, changes, "0, 1, 10, 100, 1000 and 10000")
}

func TestFile_Broken(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, receipt.FileName), []byte("{"), 0o600))
	_, err := receipt.File{Dir: dir}.Read()
	require.ErrorContains(t, err, receipt.FileName)
	require.ErrorContains(t, err, "the frontend writes it anew")
}

// Whatever the file holds, it is refused or it is a book that can be written again.
func FuzzBook(f *testing.F) {
	f.Add([]byte(`{"bootID":"boot","entries":{"c-0":{"cpus":"2-3"}}}`))
	f.Add([]byte(`{"entries":{"":{"start":{"interrupts":{"1":null}}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := receipt.File{Dir: t.TempDir()}
		require.NoError(t, os.WriteFile(filepath.Join(file.Dir, receipt.FileName), data, 0o600))
		book, err := file.Read()
		if err != nil {
			return
		}
		claims := []contract.ClaimRecord{quietClaim()}
		look := receipt.Node{BootID: book.BootID, Now: start, Claims: claims, Machine: machine(1, 2, 3, 4, 5), Applied: true}
		_ = book.Receipts(claims, look.Machine, nil)
		next := book.Next(look)
		require.NoError(t, file.Write(next))
		again, err := file.Read()
		require.NoError(t, err)
		require.Equal(t, next, again)
	})
}
