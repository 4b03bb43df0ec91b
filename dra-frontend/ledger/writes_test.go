// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
)

func uid(n int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", n) }

func record(n int, cpus string) contract.ClaimRecord {
	return contract.ClaimRecord{
		V: contract.Version, Namespace: "default", Name: "claim", UID: uid(n), BootID: boot,
		Results: []contract.ResultRecord{{Request: "zone", Pool: "node", Device: "numa-0", Decision: contract.Decision{
			V: contract.Version, CPUs: contracttest.CPUs(cpus), Mems: contracttest.NUMANodes("0"),
		}}},
	}
}

func state(pool string, claims ...int) contract.NodeState {
	s := contract.NodeState{
		V: contract.Version, BootID: boot,
		Shared: contract.Shared{CPUs: contracttest.CPUs(pool), Mems: contracttest.NUMANodes("0")},
		Pods:   map[string]contract.PodState{}, Ancestors: map[string]contract.Files{},
	}
	for _, n := range claims {
		s.Pods[uid(1000+n)] = contract.PodState{Claims: []string{uid(n)}}
	}
	return s
}

// directory is a CDI directory that notes its calls and can fail: fail has the error of
// a call "write NAME".
type directory struct {
	ledger.Directory
	calls    []string
	fail     map[string]error
	reversed bool
}

func newDirectory(t *testing.T) *directory {
	d, err := cdidir.Open(t.TempDir())
	require.NoError(t, err)
	return &directory{Directory: d, fail: map[string]error{}}
}

func (d *directory) call(what, name string) error {
	name = map[string]string{contract.NodeFile: "node", contract.ClaimFile(uid(1)): "claim"}[name]
	d.calls = append(d.calls, what+" "+name)
	return d.fail[what+" "+name]
}

func (d *directory) List() ([]fs.FileInfo, error) {
	infos, err := d.Directory.List()
	if d.reversed {
		slices.Reverse(infos)
	}
	return infos, errors.Join(err, d.call("list", ""))
}

func (d *directory) Read(name string) ([]byte, error) {
	if err := d.call("read", name); err != nil {
		return nil, err
	}
	return d.Directory.Read(name)
}

func (d *directory) Write(name string, data []byte) error {
	if err := d.call("write", name); err != nil {
		return err
	}
	return d.Directory.Write(name, data)
}

func (d *directory) Remove(name string) error {
	if err := d.call("remove", name); err != nil {
		return err
	}
	return d.Directory.Remove(name)
}

// changes returns the calls that change the directory.
func (d *directory) changes() (changes []string) {
	for _, c := range d.calls {
		if strings.HasPrefix(c, "write") || strings.HasPrefix(c, "remove") {
			changes = append(changes, c)
		}
	}
	return changes
}

// I1, I3, I4: the order of writes, and what is left when a write fails.
func TestWrites(t *testing.T) {
	var (
		errFile    = errors.New("no space left on device")
		errRemove  = errors.New("read-only file system")
		without    = state("0-7")
		with       = state("0-3", 1)
		wrong      = state("")
		add        = func(l *ledger.Ledger) error { return l.Add(record(1, "4-7"), with) }
		addWrong   = func(l *ledger.Ledger) error { return l.Add(record(1, "4-7"), wrong) }
		addNothing = func(l *ledger.Ledger) error { return l.Add(contract.ClaimRecord{}, with) }
		pods       = record(1, "4-7")
		newCPUs    = record(1, "5-6")
		joined     = func(l *ledger.Ledger) error { return l.Update(pods, state("0-3", 1, 2)) }
		replaced   = func(l *ledger.Ledger) error { return l.Replace(newCPUs, state("0-3"), state("0-4,7", 1)) }
	)
	pods.Pods = []contract.PodRecord{{UID: uid(1001)}, {UID: uid(1002)}}
	for name, c := range map[string]struct {
		prepared bool
		fail     map[string]error
		call     func(*ledger.Ledger) error
		want     []string
		err      string
		// pool and claimed are the CPUs in the files at the end.
		pool, claimed string
	}{
		"add": {
			call: add,
			want: []string{"write node", "write claim"},
			pool: "0-3", claimed: "4-7",
		},
		"add, no record": {
			call: addNothing,
			err:  "claim record",
			pool: "0-7",
		},
		"add, no pool": {
			call: addWrong,
			err:  "both must have an id",
			pool: "0-7",
		},
		"add, the node file cannot be written": {
			fail: map[string]error{"write node": errFile},
			call: add,
			want: []string{"write node"},
			err:  "write node file: no space left on device",
			pool: "0-7",
		},
		"add, the claim file cannot be written": {
			fail: map[string]error{"write claim": errFile},
			call: add,
			want: []string{"write node", "write claim", "remove claim"},
			err:  "write claim file: no space left on device",
			pool: "0-3",
		},
		"add, the claim file can neither be written nor removed": {
			fail: map[string]error{"write claim": errFile, "remove claim": errRemove},
			call: add,
			want: []string{"write node", "write claim", "remove claim"},
			err:  "write claim file: no space left on device\nread-only file system",
			pool: "0-3",
		},
		"update": {
			prepared: true,
			call:     joined,
			want:     []string{"write claim", "write node"},
			pool:     "0-3", claimed: "4-7",
		},
		"update, no claim": {
			call: joined,
			err:  "no such file",
			pool: "0-7",
		},
		"update, no pods": {
			prepared: true,
			call: func(l *ledger.Ledger) error {
				r := pods
				r.Pods = []contract.PodRecord{{UID: "x"}}
				return l.Update(r, state("0-3", 1, 2))
			},
			err:  "claim file ",
			pool: "0-3", claimed: "4-7",
		},
		"update, no pool": {
			prepared: true,
			call:     func(l *ledger.Ledger) error { return l.Update(pods, wrong) },
			err:      "both must have an id",
			pool:     "0-3", claimed: "4-7",
		},
		"update, the claim file cannot be written": {
			prepared: true,
			fail:     map[string]error{"write claim": errFile},
			call:     joined,
			want:     []string{"write claim"},
			err:      "write claim file: no space left on device",
			pool:     "0-3", claimed: "4-7",
		},
		"update, the node file cannot be written": {
			prepared: true,
			fail:     map[string]error{"write node": errFile},
			call:     joined,
			want:     []string{"write claim", "write node"},
			err:      "write node file: no space left on device",
			pool:     "0-3", claimed: "4-7",
		},
		"replace": {
			prepared: true,
			call:     replaced,
			want:     []string{"write node", "write claim", "write node"},
			pool:     "0-4,7", claimed: "5-6",
		},
		"replace, no record": {
			prepared: true,
			call: func(l *ledger.Ledger) error {
				return l.Replace(contract.ClaimRecord{UID: uid(1)}, state("0-3"), state("0-4,7", 1))
			},
			err:  "claim record",
			pool: "0-3", claimed: "4-7",
		},
		"replace, no pool between": {
			prepared: true,
			call:     func(l *ledger.Ledger) error { return l.Replace(newCPUs, wrong, state("0-4,7", 1)) },
			err:      "both must have an id",
			pool:     "0-3", claimed: "4-7",
		},
		"replace, no pool after": {
			prepared: true,
			call:     func(l *ledger.Ledger) error { return l.Replace(newCPUs, state("0-3"), wrong) },
			err:      "both must have an id",
			pool:     "0-3", claimed: "4-7",
		},
		"replace, the claim file cannot be written": {
			prepared: true,
			fail:     map[string]error{"write claim": errFile},
			call:     replaced,
			want:     []string{"write node", "write claim"},
			err:      "write claim file: no space left on device",
			pool:     "0-3", claimed: "4-7",
		},
		"forget": {
			prepared: true,
			call:     func(l *ledger.Ledger) error { return l.Forget(uid(1)) },
			want:     []string{"remove claim"},
			pool:     "0-3",
		},
		"forget, the claim file cannot be removed": {
			prepared: true,
			fail:     map[string]error{"remove claim": errRemove},
			call:     func(l *ledger.Ledger) error { return l.Forget(uid(1)) },
			want:     []string{"remove claim"},
			err:      "its CPUs stay taken until it can be removed: read-only file system",
			pool:     "0-3", claimed: "4-7",
		},
		"the same state": {
			call: func(l *ledger.Ledger) error { return l.WriteNode(without) },
			pool: "0-7",
		},
		"a state without a pool": {
			call: func(l *ledger.Ledger) error { return l.WriteNode(wrong) },
			err:  "both must have an id",
			pool: "0-7",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDirectory(t)
			l := ledger.New(d, boot)
			require.NoError(t, l.WriteNode(without))
			if c.prepared {
				require.NoError(t, add(l))
			}
			d.calls, d.fail = nil, c.fail
			if err := c.call(l); c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
			require.Equal(t, c.want, d.changes())
			d.fail = nil
			written, ok := l.Node()
			require.True(t, ok)
			require.Equal(t, c.pool, written.Shared.CPUs.String())
			claims, err := l.Load()
			require.NoError(t, err)
			require.NoError(t, claims.Blocked())
			found, _ := claims.Find(uid(1))
			require.Equal(t, c.claimed, found.CPUs().String())
		})
	}
}

// A wrong state is refused also where no node file is.
func TestFirstStateIsChecked(t *testing.T) {
	d := newDirectory(t)
	require.ErrorContains(t, ledger.New(d, boot).WriteNode(state("")), "both must have an id")
	require.Empty(t, d.changes())
}

// Claims are sorted, so that the same claims give the same node state (I8) and each
// claim is found.
func TestClaimsAreSorted(t *testing.T) {
	d := newDirectory(t)
	d.reversed = true
	l := ledger.New(d, boot)
	for n := range 4 {
		require.NoError(t, l.Add(record(n, fmt.Sprint(n)), state("4-7")))
	}
	claims, err := l.Load()
	require.NoError(t, err)
	for n, r := range claims.Prepared {
		require.Equal(t, uid(n), r.UID)
	}
	for n, want := range []int{1, 0, 2, 3} { // in another order than before
		changed := record(want, fmt.Sprint(10+n))
		claims = claims.With(changed)
		require.Len(t, claims.Prepared, 4)
		found, ok := claims.Find(uid(want))
		require.True(t, ok)
		require.Equal(t, changed, found)
	}
	for n, r := range claims.Prepared {
		require.Equal(t, uid(n), r.UID)
	}
	_, ok := claims.Find(uid(9))
	require.False(t, ok)
}

// I4: each file that has the name of a claim file and is none blocks the node, and the
// reason says why.
func TestUnreadableClaimFiles(t *testing.T) {
	other, err := contract.EncodeClaim(func() contract.ClaimRecord { r := record(1, "4"); r.BootID = otherBoot; return r }())
	require.NoError(t, err)
	for name, c := range map[string]struct {
		file   string
		data   []byte
		fail   error
		reason string
	}{
		"no JSON":      {data: []byte("{"), reason: "not a CDI spec"},
		"another name": {file: contract.ClaimFile("x"), data: []byte("{"), reason: "the name is not that of a claim file"},
		"another boot": {data: other, reason: "it was written during another boot"},
		"a read error": {data: other, fail: errors.New("input/output error"), reason: "input/output error"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDirectory(t)
			d.fail["read claim"] = c.fail
			if c.file == "" {
				c.file = contract.ClaimFile(uid(1))
			}
			require.NoError(t, d.Directory.Write(c.file, c.data))
			l := ledger.New(d, boot)
			for range 2 {
				claims, err := l.Load()
				require.NoError(t, err)
				require.Empty(t, claims.Prepared)
				require.ErrorContains(t, claims.Blocked(), d.Path(c.file)+": "+c.reason)
			}
		})
	}
}

// Each refused claim repeats the error: it does not grow with the number of files or with their content.
func TestBlockedIsBounded(t *testing.T) {
	d := newDirectory(t)
	long := fmt.Appendf(nil, `{"cdiVersion":"%s"}`, strings.Repeat("9", 1<<12))
	for i := range 100 {
		require.NoError(t, d.Directory.Write(contract.ClaimFile(uid(i+1)), long))
	}
	claims, err := ledger.New(d, boot).Load()
	require.NoError(t, err)
	text := claims.Blocked().Error()
	require.Contains(t, text, "while 100 claim file(s) cannot be read")
	require.Contains(t, text, d.Path(contract.ClaimFile(uid(8))))
	require.Contains(t, text, "and 92 more")
	require.Less(t, len(text), 8<<10)
}

// A file that could not be read is read again, although the file is the same.
func TestReadErrorPasses(t *testing.T) {
	d := newDirectory(t)
	l := ledger.New(d, boot)
	require.NoError(t, l.Add(record(1, "4-7"), state("0-3", 1)))
	d.fail["read claim"] = errors.New("input/output error")
	claims, err := l.Load()
	require.NoError(t, err)
	require.Error(t, claims.Blocked())
	d.fail = nil
	claims, err = l.Load()
	require.NoError(t, err)
	require.NoError(t, claims.Blocked())
	require.Len(t, claims.Prepared, 1)
}

// The generation grows with each state that differs, also after the node file was lost
// and after a restart.
func TestGeneration(t *testing.T) {
	d := newDirectory(t)
	l := ledger.New(d, boot)
	write := func(pool string, want int) {
		t.Helper()
		require.NoError(t, l.WriteNode(state(pool)))
		written, ok := l.Node()
		require.True(t, ok)
		require.EqualValues(t, want, written.Generation)
	}
	write("0-7", 1)
	write("0-7", 1)
	write("0-6", 2)
	write("0-5", 3)
	require.NoError(t, d.Directory.Remove(contract.NodeFile))
	write("0-5", 4)
	l = ledger.New(d, boot)
	write("0-5", 4)
	write("0-4", 5)

	for i, damaged := range []string{"", "{}"} {
		require.NoError(t, d.Directory.Write(contract.NodeFile, []byte(damaged)))
		write("0-4", 6+i)
	}
	require.NoError(t, d.Directory.Write(contract.NodeFile, nil))
	l = ledger.New(d, boot)
	write("0-4", 1)

	// Another instance writes the file, and then one of another version, with the same state.
	require.NoError(t, ledger.New(d, boot).WriteNode(state("0-3")))
	write("0-4", 3)
	data, err := d.Directory.Read(contract.NodeFile)
	require.NoError(t, err)
	require.NoError(t, d.Directory.Write(contract.NodeFile, append(data, '\n')))
	write("0-4", 3)
	write("0-3", 4)
}

// A node file that this ledger wrote is not decoded again: each claim that is prepared writes
// the node file.
func TestOwnNodeFileIsNotDecoded(t *testing.T) {
	d := newDirectory(t)
	l := ledger.New(d, boot)
	claims := make([]int, 200)
	for i := range claims {
		claims[i] = i
	}
	states := []contract.NodeState{state("0-7", claims...), state("0-3", claims...)}
	require.NoError(t, l.WriteNode(states[0]))
	data, err := d.Directory.Read(contract.NodeFile)
	require.NoError(t, err)
	decode := testing.AllocsPerRun(5, func() {
		_, err := contract.DecodeNode(data)
		require.NoError(t, err)
	})
	encode := testing.AllocsPerRun(5, func() {
		_, err := contract.EncodeNode(states[0])
		require.NoError(t, err)
	})
	written := 0
	write := testing.AllocsPerRun(5, func() {
		written++
		require.NoError(t, l.WriteNode(states[written%2]))
	})
	// WriteNode encodes the state with the written generation and with the next one.
	require.Less(t, write, 2*encode+decode)
	read := testing.AllocsPerRun(5, func() { require.NotZero(t, l.Generation()) })
	require.Less(t, read, decode/10)
}

func TestDirectoryThatCannotBeListed(t *testing.T) {
	d := newDirectory(t)
	d.fail["list "] = errors.New("input/output error")
	_, err := ledger.New(d, boot).Load()
	require.ErrorContains(t, err, "read CDI directory: input/output error")
}

// A file that is the same is read once: each call of kubelet loads all claims.
func TestSameClaimFileIsReadOnce(t *testing.T) {
	d := newDirectory(t)
	l := ledger.New(d, boot)
	require.NoError(t, l.Add(record(1, "4-7"), state("0-3", 1)))
	d.calls = nil
	for range 3 {
		claims, err := l.Load()
		require.NoError(t, err)
		require.Len(t, claims.Prepared, 1)
	}
	require.Equal(t, []string{"list ", "read claim", "list ", "list "}, d.calls)
}

// One claim's record is read without the other claims, and again only when its file has changed.
func TestRecord(t *testing.T) {
	d := newDirectory(t)
	l := ledger.New(d, boot)
	require.NoError(t, l.Add(record(1, "4-7"), state("0-3", 1)))
	require.NoError(t, l.Add(record(2, "2-3"), state("0-1", 1, 2)))
	d.calls = nil
	for range 2 {
		r, found, err := l.Record(uid(1))
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, "4-7", r.CPUs().String())
	}
	require.Equal(t, []string{"read claim"}, d.calls)

	data, err := contract.EncodeClaim(record(1, "5-7"))
	require.NoError(t, err)
	require.NoError(t, d.Directory.Write(contract.ClaimFile(uid(1)), data))
	r, found, err := l.Record(uid(1))
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "5-7", r.CPUs().String(), "the file has changed")

	_, found, err = l.Record(uid(3))
	require.NoError(t, err)
	require.False(t, found, "absent")
	require.NoError(t, os.WriteFile(d.Path(contract.ClaimFile(uid(2))), []byte("{"), 0o600))
	_, found, err = l.Record(uid(2))
	require.NoError(t, err)
	require.False(t, found, "unreadable")
	claims, err := l.Load()
	require.NoError(t, err)
	require.Len(t, claims.Unreadable, 1)
}

// A claim gets no more than three quarters of the node file. A state that is larger than
// that and not larger than the written one is allowed: claims must be releasable.
func TestRoom(t *testing.T) {
	sized := func(t *testing.T, size int) contract.NodeState {
		s := state("0-7", 1)
		s.Generation = 1
		used, _, err := contract.NodeRoom(s)
		require.NoError(t, err)
		s.BootID += strings.Repeat("x", size-used)
		return s
	}
	_, limit, err := contract.NodeRoom(state("0-7"))
	require.NoError(t, err)
	most := limit / 4 * 3
	for name, c := range map[string]struct {
		written, size int
		refused       bool
	}{
		"the most":                    {size: most},
		"one byte more":               {size: most + 1, refused: true},
		"one byte more, as it was":    {written: most + 1, size: most + 1},
		"one byte more than it was":   {written: most + 1, size: most + 2, refused: true},
		"more, and less than it was":  {written: most + 2, size: most + 1},
		"less than the most, written": {written: most + 2, size: most},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDirectory(t)
			l := ledger.New(d, boot)
			if c.written > 0 {
				require.NoError(t, l.WriteNode(sized(t, c.written)))
			} else {
				require.NoError(t, l.WriteNode(state("0-7")))
			}
			r := record(1, "4-7")
			r.Pods = []contract.PodRecord{{UID: uid(1001)}}
			data, err := contract.EncodeClaim(r)
			require.NoError(t, err)
			for call, try := range map[string]func(contract.NodeState) error{
				"add":     func(s contract.NodeState) error { return l.Add(r, s) },
				"update":  func(s contract.NodeState) error { return l.Update(r, s) },
				"replace": func(s contract.NodeState) error { return l.Replace(r, s, s) },
			} {
				require.NoError(t, d.Directory.Write(contract.ClaimFile(uid(1)), data))
				d.calls = nil
				err := try(sized(t, c.size))
				if !c.refused {
					require.NoError(t, err, call)
					continue
				}
				require.ErrorContains(t, err,
					fmt.Sprintf("the node file would have %d bytes for 1 claims in 1 pods, and may have %d", c.size, most))
				require.Empty(t, d.changes(), call)
			}
		})
	}
}
