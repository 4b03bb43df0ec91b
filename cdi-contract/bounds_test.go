// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

var boundKey = contract.Key{ClaimUID: "00000000-0000-4000-8000-000000000001"}

// parse parses a variable with the JSON text as its value.
func parse(value string) error {
	_, _, _, err := contract.ParseEnv(boundKey.EnvName()+"="+value, nil)
	return err
}

// Each bound holds for exactly the values beyond it.
func TestBounds(t *testing.T) {
	padded := func(size int) error {
		const value = `{"v":"v1","requires":[]}`
		return parse(value + strings.Repeat(" ", size-len(boundKey.EnvName())-1-len(value)))
	}
	nested := func(lists int) error {
		return parse(`{"v":"v1","requires":[],"unknown":` + strings.Repeat("[", lists) + strings.Repeat("]", lists) + `}`)
	}
	cpus := func(list string) error { _, err := contract.ParseCPUs(list); return err }
	pageSize := func(size string) error { _, err := contract.ParsePageSize(size); return err }
	limit := func(text string) error { return new(contract.Limit).UnmarshalJSON([]byte(text)) }
	name := func(name string) error { _, err := contract.ParseEnvName(contract.EnvPrefix + name); return err }
	hex := strings.Repeat("0", 12) + "4000" + "8000" + strings.Repeat("0", 12)
	node := func(size int) error {
		s := contract.NodeState{
			V: contract.Version, BootID: "b", Pods: map[string]contract.PodState{}, Ancestors: map[string]contract.Files{},
			Shared: contract.Shared{CPUs: contracttest.CPUs("0"), Mems: contracttest.NUMANodes("0")},
		}
		used, limit, err := contract.NodeRoom(s)
		require.NoError(t, err)
		s.BootID += strings.Repeat("b", limit-used+size)
		used, _, err = contract.NodeRoom(s)
		require.NoError(t, err)
		require.Equal(t, limit+size, used)
		_, err = contract.EncodeNode(s)
		return err
	}
	results := func(count int) error {
		r := contract.ClaimRecord{
			V: contract.Version, Namespace: "ns", Name: "c", UID: boundKey.ClaimUID, BootID: "b",
			Results: make([]contract.ResultRecord, count),
		}
		for i := range r.Results {
			r.Results[i] = contract.ResultRecord{Request: "r", Pool: "p", Device: "d", Decision: contract.Decision{V: contract.Version}}
		}
		return r.Validate()
	}
	for name, c := range map[string]struct {
		err  error
		want string // what the error has, empty for no error
	}{
		"variable of the largest size":    {err: padded(contract.MaxEnv)},
		"larger variable":                 {err: padded(contract.MaxEnv + 1), want: "has 65537 bytes"},
		"deepest value":                   {err: nested(32)},
		"deeper value":                    {err: nested(33), want: "nested deeper than 32"},
		"ids many times":                  {err: cpus("0-65536,0-65536")},
		"ids in high ranges":              {err: cpus("60000-65536,60000-65536")},
		"longest id":                      {err: cpus("000001")},
		"longer id":                       {err: cpus("0000001"), want: `"0000001" is not an id`},
		"no id":                           {err: cpus("1,"), want: `"" is not an id`},
		"no page of the largest unit":     {err: pageSize("0Gi"), want: "want a power of two"},
		"no page of the smallest unit":    {err: pageSize("0Ki"), want: "want a power of two"},
		"limit with a sign":               {err: limit("+5"), want: "limit +5: want bytes"},
		"variable's name":                 {err: name(hex + "_0")},
		"variable's name, shorter":        {err: name(hex[1:] + "_0"), want: "want DRA_CPUMEM_"},
		"variable's name, longer":         {err: name(hex + "0_0"), want: "want DRA_CPUMEM_"},
		"variable's name, without number": {err: name(hex), want: "want DRA_CPUMEM_"},
		"largest record":                  {err: node(0)},
		"larger record":                   {err: node(1), want: "CDI allows 262144"},
		"most results":                    {err: results(1023)},
		"more results":                    {err: results(1024), want: "1024 results, want 1 to 1023"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.want == "" {
				require.NoError(t, c.err)
				return
			}
			require.ErrorContains(t, c.err, c.want)
		})
	}
}

func TestFormatPageSize(t *testing.T) {
	for size, want := range map[int64]string{
		1 << 10: "1Ki", 64 << 10: "64Ki", 1 << 20: "1Mi", 3 << 19: "1536Ki", 2 << 20: "2Mi", 1 << 30: "1Gi", 3 << 29: "1536Mi", 16 << 30: "16Gi",
	} {
		require.Equal(t, want, contract.FormatPageSize(size))
	}
}

// A name that begins like a claim file's is one, also without the suffix (I4).
func TestClaimFileWithoutSuffix(t *testing.T) {
	uid, ours := contract.ClaimUIDOfFile(strings.TrimSuffix(contract.ClaimFile(boundKey.ClaimUID), ".json"))
	require.True(t, ours)
	require.Empty(t, uid)
}

func TestExcerptOfExactly(t *testing.T) {
	require.Equal(t, "~ a", contract.Excerpt("~ a", 3))
	require.Equal(t, "?", contract.Excerpt("\x7f", 3))
}

// Strict reading: parts of lists are checked like the whole.
func TestStrictLists(t *testing.T) {
	require.NoError(t, parse(`{"v":"v1","requires":[],"unknown":1e999}`), "unknown members are ignored, whatever they are")
	require.ErrorContains(t, parse(`{"v":"v1","requires":[null]}`), "null is not a value of the contract")
	_, err := contract.DecodeNode(nil)
	require.ErrorContains(t, err, "unexpected EOF")
	data, err := contract.EncodeClaim(claim(result("cpus", cpuDecision("1-2"))))
	require.NoError(t, err)
	file := contract.ClaimFile(claim().UID)
	_, err = contract.DecodeClaim(file, data)
	require.NoError(t, err)
	for was, is := range map[string]string{`\"request\"`: `\"Request\"`, `\"decision\":`: `\"hugetlbfs\":[],\"decision\":`} {
		require.Contains(t, string(data), was)
		_, err = contract.DecodeClaim(file, []byte(strings.Replace(string(data), was, is, 1)))
		require.Error(t, err, is)
	}
}

// Runtimes read specs as YAML: a file has printable ASCII only, and the same content.
func TestCharactersOfRecords(t *testing.T) {
	s := contract.NodeState{
		V: contract.Version, BootID: "~\x7f\u0085\ufffd\uffff\U0001f600",
		Pods: map[string]contract.PodState{}, Ancestors: map[string]contract.Files{},
		Shared: contract.Shared{CPUs: contracttest.CPUs("0"), Mems: contracttest.NUMANodes("0")},
	}
	data, err := contract.EncodeNode(s)
	require.NoError(t, err)
	for _, b := range data {
		require.True(t, b == '\n' || b >= ' ' && b <= '~', "%q", b)
	}
	got, err := contract.DecodeNode(data)
	require.NoError(t, err)
	require.Equal(t, s, got)
}

// A decision without a list of features is one with an empty list.
func TestNilRequires(t *testing.T) {
	d := contract.Decision{V: contract.Version, CPUs: contracttest.CPUs("1-2")}
	entry, err := d.Env(boundKey)
	require.NoError(t, err)
	_, got, _, err := contract.ParseEnv(entry, nil)
	require.NoError(t, err)
	require.Empty(t, got.Requires)
	with := d
	with.Requires = []string{}
	again, err := with.Env(boundKey)
	require.NoError(t, err)
	require.Equal(t, entry, again, "I8")
	data, err := contract.EncodeClaim(claim(result("cpus", d)))
	require.NoError(t, err)
	same, err := contract.EncodeClaim(claim(result("cpus", with)))
	require.NoError(t, err)
	require.Equal(t, string(data), string(same), "I8")
}

func TestDecisionFiles(t *testing.T) {
	d := contract.Decision{
		CPUs: contracttest.CPUs("1-2"), Partition: contract.PartitionRoot,
		Memory:    &contract.Memory{Min: 4096, High: contract.Max, Max: 8192},
		Hugepages: map[string]contract.Limit{"2Mi": 2 << 20},
	}
	require.Equal(t, map[string]string{
		"cpuset.cpus.exclusive": "1-2", "cpuset.cpus.partition": "root",
		"memory.min": "4096", "memory.low": "0", "memory.high": "max", "memory.max": "8192",
		"hugetlb.2MB.max": "2097152", "hugetlb.2MB.rsvd.max": "2097152",
	}, d.Files())
}

func TestFilesOfPartitionCPUs(t *testing.T) {
	for content, want := range map[string]string{"": "", "4-5": "", "5-4": "descends", "4,5": "not normalised", "max": "is not an id"} {
		err := contract.Files{contract.FileExclusive: content}.Validate()
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

// What a feature does not need, no platform lacks.
func TestNeedlessParts(t *testing.T) {
	require.Empty(t, contract.Platform{Partitions: true}.Lacks(contract.FeaturePartition), "neither runtime nor kernel")
	require.Empty(t, contract.Platform{NRIVersion: "0.7.0"}.Lacks(contract.FeatureOOMScore), "no kernel")
	require.Contains(t, contract.Announcement{Kernel: "6.12.0", NRIVersion: "0.12.0"}.Lacks(contract.FeatureOOMScore), "upgrade nri-actuator",
		"the platform can, the actuator does not announce it")
}

func TestUncleanKubepods(t *testing.T) {
	require.ErrorContains(t, contract.Announcement{V: contract.Version, Kubepods: "a//kubepods"}.Validate(), "is not a clean path")
}

// WithPods changes a file that can be read only.
func TestWithPodsRefuses(t *testing.T) {
	r := claim(result("cpus", cpuDecision("1-2")))
	data, err := contract.EncodeClaim(r)
	require.NoError(t, err)
	pods := []contract.PodRecord{{UID: boundKey.ClaimUID}}
	_, err = contract.WithPods(contract.ClaimFile(r.UID), []byte("{"), pods)
	require.ErrorContains(t, err, "not a CDI spec")
	_, err = contract.WithPods(contract.ClaimFile(r.UID), data, []contract.PodRecord{{UID: "x"}})
	require.ErrorContains(t, err, "is not an object UID")
	_, err = contract.WithPods(contract.ClaimFile(r.UID), data, []contract.PodRecord{{
		UID: boundKey.ClaimUID, Hugepages: map[string]contract.Limit{"2Mi": -1},
	}})
	require.ErrorContains(t, err, "negative")
	many := make([]contract.PodRecord, 8000)
	for i := range many {
		many[i].UID = boundKey.ClaimUID
	}
	_, err = contract.WithPods(contract.ClaimFile(r.UID), data, many)
	require.ErrorContains(t, err, "CDI allows 262144")
}

// A fault of the reader is not the actuator's death: a second actuator would start, or
// the frontend would taint the node.
func TestAnnouncementThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	f := announce(t, dir, goldenAnnouncements()["announcement"])
	defer f.Close()
	read := func(dir string) error { _, err := contract.ReadAnnouncement(dir); return err }

	err := read(filepath.Join(dir, contract.ActuatorFile)) // a file in place of the directory
	require.ErrorIs(t, err, syscall.ENOTDIR)
	require.NotErrorIs(t, err, contract.ErrActuatorDead)
	for name, number := range map[string]uintptr{"query lock of ": syscall.SYS_FCNTL, "read ": syscall.SYS_READ} {
		err := contracttest.Failing(t, number, syscall.EIO, func(fail func()) error {
			fail()
			return read(dir)
		})
		require.ErrorIs(t, err, syscall.EIO)
		require.NotErrorIs(t, err, contract.ErrActuatorDead)
		require.ErrorContains(t, err, name)
	}

	// The collector would close files that were forgotten.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	open := func() int {
		list, err := os.Open("/proc/self/fd")
		require.NoError(t, err)
		defer list.Close()
		names, err := list.Readdirnames(-1)
		require.NotErrorIs(t, err, io.EOF)
		return len(names)
	}
	const times = 50
	before := open()
	for range times {
		require.NoError(t, read(dir))
	}
	require.Less(t, open(), before+times)
}
