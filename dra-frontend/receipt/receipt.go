// SPDX-License-Identifier: Apache-2.0

// Package receipt measures what has disturbed the CPUs of a claim that asks for quiet CPUs:
// interrupts of devices, threads that waited for a CPU, throttling, and lost partitions.
//
// The kernel counts since the boot. So a [Book] keeps the counters of the moment at which a
// result was first measured, in a file of the frontend ([File]): a restart does not begin
// the measurement again. The daemon keeps the book, package health makes a condition from
// receipts, and the operator's tool shows them.
package receipt

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Measured reports whether a result asks for quiet CPUs, and so is measured.
func Measured(r contract.ResultRecord) bool {
	return !r.Decision.CPUs.IsEmpty() && (len(r.Quiet.Features()) > 0 || r.Decision.Quota == contract.QuotaNone)
}

// Book has an entry for each measured result. It is a value: methods return the next one.
type Book struct {
	// BootID is the boot whose counters the entries have.
	BootID string `json:"bootID"`
	// Entries are named like the results' devices ([contract.Key.DeviceName]).
	Entries map[string]Entry `json:"entries,omitempty"`
}

// Entry is what is kept about a result.
type Entry struct {
	// CPUs are the result's. A claim that is decided anew may have others.
	CPUs contract.CPUSet `json:"cpus,omitzero"`
	// Since is when the measurement began, and Start has the counters of that moment.
	Since time.Time `json:"since"`
	Start Counters  `json:"start"`
	// Losses is how often the result has lost its partition since. Lost reports whether it
	// is lost now.
	Losses int  `json:"losses,omitempty"`
	Lost   bool `json:"lost,omitempty"`
}

// Node is what a book follows.
type Node struct {
	BootID string
	Now    time.Time
	Claims []contract.ClaimRecord
	// Applied reports whether the actuator has applied the node state. A measurement begins
	// after that: interrupts come to a claim's CPUs until they are moved.
	Applied bool
	// ClaimsMissing reports whether Claims may lack a claim, because its file cannot be read.
	ClaimsMissing bool
	// InvalidPartitions has the claims whose partition is lost, by UID. PartitionsKnown reports whether an actuator has
	// announced that since the frontend's start.
	InvalidPartitions map[string]string
	PartitionsKnown   bool
	Machine           Machine
}

// Next returns the book after a look at the node. Entries of results that are gone, or of
// another boot, are left out, but not while claims may be missing.
func (b Book) Next(n Node) Book {
	next := Book{BootID: n.BootID, Entries: make(map[string]Entry)}
	if n.ClaimsMissing && b.BootID == n.BootID {
		maps.Copy(next.Entries, b.Entries)
	}
	for _, c := range n.Claims {
		for i, r := range c.Results {
			if !Measured(r) {
				continue
			}
			name := contract.Key{ClaimUID: c.UID, Index: i}.DeviceName()
			entry, known := b.Entries[name]
			switch known = known && b.BootID == n.BootID && entry.CPUs == r.Decision.CPUs; {
			case !known && !n.Applied:
				continue
			case !known:
				entry = Entry{CPUs: r.Decision.CPUs, Since: n.Now.UTC().Truncate(time.Second), Start: n.Machine.of(r.Decision.CPUs)}
			}
			if _, lost := n.InvalidPartitions[c.UID]; n.PartitionsKnown && lost != entry.Lost && r.Decision.Partition != "" {
				entry.Lost = lost
				if lost {
					entry.Losses++
				}
			}
			next.Entries[name] = entry
		}
	}
	return next
}

// Receipt is what has happened on the CPUs of a result since the measurement began.
type Receipt struct {
	Since time.Time `json:"since"`
	// Interrupts counts interrupts of devices, except the device that the claim asks for.
	Interrupts uint64 `json:"interrupts"`
	// Disturbers are the devices whose interrupts came more than once, the most frequent
	// first: an interrupt that is moved may still come to its former CPU once.
	Disturbers []string `json:"disturbers,omitempty"`
	// Waited is the time that threads, the container's own too, have waited for one of the CPUs.
	Waited time.Duration `json:"waitedNanoseconds"`
	// Switches counts how often a thread was put on one of the CPUs.
	Switches uint64 `json:"switches"`
	// Throttling is of the pods and containers that exist now.
	Throttling Throttling `json:"throttling"`
	// PartitionLosses is how often the partition was lost.
	PartitionLosses int `json:"partitionLosses"`
}

// Receipts returns the receipts of the results in the book. throttled has the throttling of
// the results. A result has no receipt if its claim was prepared in another boot, because
// the counters began again, or if its CPUs differ from the CPUs of its entry.
func (b Book) Receipts(claims []contract.ClaimRecord, m Machine, throttled map[contract.Key]Throttling) map[contract.Key]Receipt {
	all := make(map[contract.Key]Receipt)
	for _, c := range claims {
		for i, r := range c.Results {
			key := contract.Key{ClaimUID: c.UID, Index: i}
			if entry, measured := b.Entries[key.DeviceName()]; measured && c.BootID == b.BootID && entry.CPUs == r.Decision.CPUs {
				all[key] = entry.receipt(r, m, throttled[key])
			}
		}
	}
	return all
}

const (
	// maxDisturbers bounds the devices in a receipt.
	maxDisturbers = 4
	// maxName bounds the names of a device's interrupt, in bytes.
	maxName = 60
)

func (e Entry) receipt(r contract.ResultRecord, m Machine, t Throttling) Receipt {
	m.Interrupts = m.without(r.Quiet.Device)
	now := m.of(r.Decision.CPUs)
	receipt := Receipt{Since: e.Since, Throttling: t, PartitionLosses: e.Losses, Switches: grown(e.Start.Switches, now.Switches)}
	receipt.Waited = time.Duration(min(grown(e.Start.Waited, now.Waited), 1<<62)) //nolint:gosec // bounded
	often := make(map[string]uint32)
	for number := range m.Interrupts {
		n := came(e.Start.Interrupts[number], now.Interrupts[number])
		receipt.Interrupts += uint64(n)
		if n > 1 {
			often[number] = n
		}
	}
	numbers := slices.SortedFunc(maps.Keys(often), func(a, b string) int {
		return cmp.Or(cmp.Compare(often[b], often[a]), strings.Compare(a, b))
	})
	for _, number := range numbers[:min(len(numbers), maxDisturbers)] {
		// A pod may have named a network device, and so its interrupt.
		names := contract.Excerpt(strings.Join(m.Interrupts[number].Handlers, " "), maxName)
		receipt.Disturbers = append(receipt.Disturbers, fmt.Sprintf("%s (%d)", names, often[number]))
	}
	if more := len(numbers) - maxDisturbers; more > 0 {
		receipt.Disturbers = append(receipt.Disturbers, fmt.Sprintf("%d more", more))
	}
	return receipt
}

// came returns how often an interrupt has come. The kernel's count begins again at 0 after
// 32 bits, and with another device that gets the number: half the range separates the two.
func came(from, to uint32) uint32 {
	if n := to - from; n < 1<<31 {
		return n
	}
	return to
}

// grown returns by how much a counter has grown. A CPU that went offline and came back may
// begin again: its counter has not grown then.
func grown(from, to uint64) uint64 {
	if to < from {
		return 0
	}
	return to - from
}

// String returns the receipt as a sentence.
func (r Receipt) String() string {
	return fmt.Sprintf("since %s: %d interrupts of devices, threads waited %s and were switched to %d times, "+
		"throttled %d times (%s), partition lost %d times",
		r.Since.UTC().Format(time.RFC3339), r.Interrupts, r.Waited.Round(time.Microsecond), r.Switches,
		r.Throttling.Times, time.Duration(min(r.Throttling.Microseconds, 1<<50))*time.Microsecond, r.PartitionLosses) //nolint:gosec // bounded
}

// Magnitudes returns the numbers of digits of the counters. A status that is written when
// they change is written a bounded number of times.
func (r Receipt) Magnitudes() string {
	var digits []string
	for _, n := range []uint64{
		r.Interrupts, uint64(max(r.Waited, 0)), r.Switches, r.Throttling.Times, r.Throttling.Microseconds, uint64(max(r.PartitionLosses, 0)),
	} {
		text := ""
		if n > 0 {
			text = fmt.Sprint(n)
		}
		digits = append(digits, fmt.Sprint(len(text)))
	}
	return strings.Join(digits, "-")
}
