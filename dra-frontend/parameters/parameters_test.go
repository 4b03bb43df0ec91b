// SPDX-License-Identifier: Apache-2.0

package parameters_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/memoryqos"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
)

const (
	pageSize = 4096
	gi       = 1 << 30
)

// with returns parameters with the fields, which are JSON members.
func with(fields string) []byte {
	if fields != "" {
		fields = "," + fields
	}
	return []byte(`{"apiVersion":"dra.cpumem/v1alpha1","kind":"ClaimParameters"` + fields + `}`)
}

// A19: each field is wrong in turn.
func TestDecodeRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		raw  []byte
		want []string
	}{
		"no object": {[]byte(`[]`), []string{"not a JSON object"}},
		"nothing":   {nil, []string{"not a JSON object"}},
		"apiVersion": {
			raw:  []byte(`{"apiVersion":"dra.cpumem/v1","kind":"ClaimParameters"}`),
			want: []string{`"dra.cpumem/v1"`, `want "dra.cpumem/v1alpha1"`},
		},
		"kind": {
			raw:  []byte(`{"apiVersion":"dra.cpumem/v1alpha1","kind":"Claim"}`),
			want: []string{`kind "Claim"`, `"ClaimParameters"`},
		},
		"no kind": {[]byte(`{"apiVersion":"dra.cpumem/v1alpha1"}`), []string{`kind ""`}},
		"unknown field": {
			raw:  with(`"cpu":{"affinity":"packed"}`),
			want: []string{`unknown field "cpu.affinity"`, "the fields are cpu.placement, cpu.wholeCores, cpu.wholeL3, cpu.cores, cpu.isolation"},
		},
		"misspelt field": {with(`"cpu":{"placment":"packed"}`), []string{`unknown field "cpu.placment": did you mean cpu.placement?`}},
		"wrong types and values at once": {
			raw: with(`"cpu":{"placement":"x","wholeCores":1},"memory":{"limit":"1GB"}`),
			want: []string{
				"cpu.wholeCores: 1, want true or false", `cpu.placement: "x", want one of`, "memory.limit: 1GB, want a quantity above 0",
			},
		},
		"cpu.interrupts": {
			raw:  with(`"cpu":{"interrupts":"some"}`),
			want: []string{`cpu.interrupts: "some", want any, none or {device: PATTERN}`},
		},
		"cpu.interrupts, miscased":   {with(`"cpu":{"interrupts":{"Device":"eth0-*"}}`), []string{`cpu.interrupts: {"Device":"eth0-*"}, want`}},
		"cpu.interrupts, duplicate":  {with(`"cpu":{"interrupts":{"device":"a","device":"b"}}`), []string{`cpu.interrupts: {"device":"a"`}},
		"cpu.interrupts, no pattern": {with(`"cpu":{"interrupts":{}}`), []string{"cpu.interrupts: {}, want"}},
		"miscased field":             {with(`"CPU":{}`), []string{`unknown field "CPU"`}},
		"duplicate field":            {with(`"cpu":{"wholeL3":true,"wholeL3":false}`), []string{`duplicate field "cpu.wholeL3"`}},
		"cpu.placement":              {with(`"cpu":{"placement":"Packed"}`), []string{`cpu.placement: "Packed"`, `"packed" "spread"`}},
		"cpu.placement's type":       {with(`"cpu":{"placement":1}`), []string{"cpu.placement"}},
		"cpu.wholeCores":             {with(`"cpu":{"wholeCores":"yes"}`), []string{"cpu.wholeCores"}},
		"cpu.wholeL3":                {with(`"cpu":{"wholeL3":2}`), []string{"cpu.wholeL3"}},
		"cpu.cores":                  {with(`"cpu":{"cores":"big"}`), []string{`cpu.cores: "big"`, `"any" "performance" "efficiency"`}},
		"cpu.isolation": {
			raw:  with(`"cpu":{"isolation":"full"}`),
			want: []string{`cpu.isolation: "full"`, `"none" "partition" "isolated"`},
		},
		"cpu.isolation, empty":     {with(`"cpu":{"isolation":""}`), []string{`cpu.isolation: ""`}},
		"cpu.isolation's type":     {with(`"cpu":{"isolation":true}`), []string{"cpu.isolation"}},
		"memory.limit":             {with(`"memory":{"limit":"0"}`), []string{"memory.limit: 0", "above 0"}},
		"memory.limit negative":    {with(`"memory":{"limit":"-1Gi"}`), []string{"memory.limit: -1Gi"}},
		"memory.limit huge":        {with(`"memory":{"limit":"5Ei"}`), []string{"memory.limit: 5Ei", "at most 4Ei"}},
		"memory.limit no quantity": {with(`"memory":{"limit":"12GB"}`), []string{"memory.limit: 12GB", "such as 12Gi"}},
		"memory.limit without end": {with(`"memory":{"limit":"1e1000000000"}`), []string{"memory.limit: 1e1000000000"}},
		"memory.limit tiny":        {with(`"memory":{"limit":"1e-100000000"}`), []string{"memory.limit: 1e-100000000"}},
		"memory.limit no number":   {with(`"memory":{"limit":{}}`), []string{"memory.limit: {}"}},
		"memory.limit miscased":    {with(`"memory":{"limit":"Unlimited"}`), []string{"memory.limit: Unlimited", "or unlimited"}},
		"memory.throttlingFactor":  {with(`"memory":{"throttlingFactor":1.5}`), []string{"memory.throttlingFactor: 1.5", "0 < f <= 1"}},
		"memory.protection": {
			raw:  with(`"memory":{"protection":"max"}`),
			want: []string{`memory.protection: "max"`, `"auto" "min" "low" "none"`},
		},
		"memory.policy": {
			raw:  with(`"memory":{"policy":"local"}`),
			want: []string{`memory.policy: "local"`, `"bind"`, `"weightedInterleave"`},
		},
		"hugepages.limits": {
			raw:  with(`"hugepages":{"limits":"none"}`),
			want: []string{`hugepages.limits: "none"`, `"claim" "unlimited" "unchanged"`},
		},
		"too large": {with(strings.Repeat(" ", 10<<10)), []string{"want at most"}},
		"two at once": {
			raw:  with(`"cpu":{"placement":"x"},"hugepages":{"limits":"y"}`),
			want: []string{"cpu.placement", "hugepages.limits"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parameters.Decode(c.raw)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func config1(source resourceapi.AllocationConfigSource, raw []byte, requests ...string) resourceapi.DeviceAllocationConfiguration {
	return resourceapi.DeviceAllocationConfiguration{
		Source: source, Requests: requests,
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: contract.Vendor, Parameters: runtime.RawExtension{Raw: raw},
		}},
	}
}

const (
	class = resourceapi.AllocationConfigSourceClass
	claim = resourceapi.AllocationConfigSourceClaim
)

// A19: parameters of the class, of the claim, of both, two for a request, for
// subrequests.
func TestResolve(t *testing.T) {
	factor := 0.9
	driver := config.Default()
	driver.MemoryQoS.ThrottlingFactor = &factor
	defaults := parameters.Defaults(driver, pageSize)
	spread, packed := with(`"cpu":{"placement":"spread"}`), with(`"cpu":{"placement":"packed"}`)
	foreign := config1(claim, []byte("not ours"))
	foreign.Opaque.Driver = "other.driver"

	for name, c := range map[string]struct {
		request string
		configs []resourceapi.DeviceAllocationConfiguration
		want    func(*parameters.Settings)
	}{
		"none: the driver's": {"zone", nil, func(*parameters.Settings) {}},
		"another driver's":   {"zone", []resourceapi.DeviceAllocationConfiguration{foreign}, func(*parameters.Settings) {}},
		"of the class": {
			request: "zone",
			configs: []resourceapi.DeviceAllocationConfiguration{config1(class, spread)},
			want:    func(s *parameters.Settings) { s.CPU.Placement = placement.Spread },
		},
		"of the claim": {
			request: "zone",
			configs: []resourceapi.DeviceAllocationConfiguration{config1(claim, spread, "zone")},
			want:    func(s *parameters.Settings) { s.CPU.Placement = placement.Spread },
		},
		"the claim over the class": {
			request: "zone",
			configs: []resourceapi.DeviceAllocationConfiguration{config1(class, spread), config1(claim, packed)},
			want:    func(*parameters.Settings) {},
		},
		"isolation of the class, and the claim": {"zone", []resourceapi.DeviceAllocationConfiguration{
			config1(class, with(`"cpu":{"isolation":"isolated"}`)), config1(claim, with(`"cpu":{"isolation":"none"}`), "zone"),
		}, func(s *parameters.Settings) { s.Isolation = parameters.IsolationNone }},
		"isolation of the class": {
			request: "zone",
			configs: []resourceapi.DeviceAllocationConfiguration{config1(class, with(`"cpu":{"isolation":"partition"}`))},
			want:    func(s *parameters.Settings) { s.Isolation = parameters.IsolationPartition },
		},
		"in any order": {
			request: "zone",
			configs: []resourceapi.DeviceAllocationConfiguration{config1(claim, packed), config1(class, spread)},
			want:    func(*parameters.Settings) {},
		},
		"field by field": {"zone", []resourceapi.DeviceAllocationConfiguration{
			config1(class, with(`"cpu":{"placement":"spread","wholeCores":true},"memory":{"throttlingFactor":0.5},`+
				`"hugepages":{"limits":"unlimited","mount":true}`)),
			config1(claim, with(`"cpu":{"wholeCores":false,"wholeL3":true},"memory":{"limit":"12Gi","protection":"low","policy":"bind"},`+
				`"hugepages":{"mount":false}`)),
		}, func(s *parameters.Settings) {
			half := 0.5
			s.CPU = placement.Options{Placement: placement.Spread, WholeL3: true}
			s.Memory = memoryqos.Policy{Limit: 12 * gi, Factor: &half, Protection: memoryqos.Low, PageSize: pageSize}
			s.MemoryPolicy, s.Hugepages, s.HugepagesMount = contract.ModeBind, config.HugepagesUnlimited, new(false)
		}},
		"two for a request that agree": {"zone", []resourceapi.DeviceAllocationConfiguration{
			config1(claim, with(`"memory":{"limit":"1Gi"}`), "zone"),
			config1(claim, with(`"memory":{"limit":"1024Mi"},"cpu":{"placement":"spread"}`), "zone", "other"),
		}, func(s *parameters.Settings) { s.Memory.Limit = gi; s.CPU.Placement = placement.Spread }},
		"no limit": {"zone", []resourceapi.DeviceAllocationConfiguration{
			config1(class, with(`"memory":{"limit":"1Gi"}`)), config1(claim, with(`"memory":{"limit":"unlimited"}`)),
		}, func(s *parameters.Settings) { s.Memory.Limit = contract.Max }},
		"a limit over none": {"zone", []resourceapi.DeviceAllocationConfiguration{
			config1(class, with(`"memory":{"limit":"unlimited"}`)), config1(claim, with(`"memory":{"limit":"1Gi"}`)),
		}, func(s *parameters.Settings) { s.Memory.Limit = gi }},
		"the request over all requests": {
			request: "zone",
			configs: []resourceapi.DeviceAllocationConfiguration{config1(claim, spread), config1(claim, packed, "zone")},
			want:    func(*parameters.Settings) {},
		},
		"the subrequest over its request": {"zone/small", []resourceapi.DeviceAllocationConfiguration{
			config1(claim, spread, "zone/small"), config1(claim, with(`"cpu":{"placement":"packed","wholeCores":true}`), "zone"),
		}, func(s *parameters.Settings) { s.CPU = placement.Options{Placement: placement.Spread, WholeCores: true} }},
	} {
		t.Run(name, func(t *testing.T) {
			want := defaults
			c.want(&want)
			got, err := defaults.Resolve(c.request, c.configs)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	defaults := parameters.Defaults(config.Default(), pageSize)
	_, err := defaults.Resolve("zone", []resourceapi.DeviceAllocationConfiguration{
		config1(claim, with(`"cpu":{"placement":"spread"}`), "zone"), config1(claim, with(`"cpu":{"placement":"packed"}`), "zone"),
	})
	require.ErrorContains(t, err, "cpu.placement is given twice for this request, as spread and packed")

	_, err = defaults.Resolve("zone", []resourceapi.DeviceAllocationConfiguration{
		config1(claim, with(`"memory":{"limit":"unlimited"}`), "zone"), config1(claim, with(`"memory":{"limit":"1Gi"}`), "zone"),
	})
	require.ErrorContains(t, err, "memory.limit is given twice for this request, as unlimited and 1073741824")

	_, err = defaults.Resolve("zone", []resourceapi.DeviceAllocationConfiguration{
		config1(class, with(`"cpu":{"placement":"x"}`)), config1(claim, with(`"gpu":{}`), "zone"),
	})
	require.ErrorContains(t, err, `the DeviceClass's parameters for all requests: cpu.placement: "x"`)
	require.ErrorContains(t, err, `the claim's parameters for zone: unknown field "gpu": the fields are apiVersion, kind, cpu.placement`)
}

// A78: only an administrator lifts hugepage limits. Without limits a user can
// take the pages of other claims.
func TestUnlimitedHugepagesAreTheAdministrators(t *testing.T) {
	limits := func(value string) []byte { return with(`"hugepages":{"limits":"` + value + `"}`) }
	free := config.Default()
	free.Hugepages.Limits = config.HugepagesUnlimited
	for name, c := range map[string]struct {
		node    config.Config
		configs []resourceapi.DeviceAllocationConfiguration
		want    string // empty for refused
	}{
		"a claim": {
			node:    config.Default(),
			configs: []resourceapi.DeviceAllocationConfiguration{config1(claim, limits("unlimited"))},
			want:    "",
		},
		"a claim, for one request": {
			node:    config.Default(),
			configs: []resourceapi.DeviceAllocationConfiguration{config1(claim, limits("unlimited"), "zone")},
			want:    "",
		},
		"a claim of such a class": {
			node:    config.Default(),
			configs: []resourceapi.DeviceAllocationConfiguration{config1(class, limits("unlimited")), config1(claim, limits("unlimited"))},
			want:    "",
		},
		"a claim on such a node": {free, []resourceapi.DeviceAllocationConfiguration{config1(claim, limits("unlimited"))}, ""},
		"a source that is not known": {
			node:    config.Default(),
			configs: []resourceapi.DeviceAllocationConfiguration{config1("", limits("unlimited"))},
			want:    "",
		},
		"a class": {
			node:    config.Default(),
			configs: []resourceapi.DeviceAllocationConfiguration{config1(class, limits("unlimited"))},
			want:    config.HugepagesUnlimited,
		},
		"the node": {free, nil, config.HugepagesUnlimited},
		"a claim takes less": {
			node:    free,
			configs: []resourceapi.DeviceAllocationConfiguration{config1(claim, limits("claim"))},
			want:    config.HugepagesClaim,
		},
		"a claim takes what kubelet set": {
			node:    config.Default(),
			configs: []resourceapi.DeviceAllocationConfiguration{config1(claim, limits("unchanged"))},
			want:    config.HugepagesUnchanged,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := parameters.Defaults(c.node, pageSize).Resolve("zone", c.configs)
			if c.want == "" {
				require.ErrorContains(t, err, "hugepages.limits: unlimited is not a claim's to ask for")
				require.ErrorContains(t, err, "the claim's parameters for")
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, s.Hugepages)
		})
	}
}

// A node that does not protect memory refuses the wish for protection.
func TestProtectionWithoutOwner(t *testing.T) {
	c := config.Default()
	c.MemoryQoS.Owner = config.OwnerNone
	defaults := parameters.Defaults(c, pageSize)
	require.Equal(t, memoryqos.None, defaults.Memory.Protection)
	for fields, want := range map[string]string{
		`"memory":{"protection":"auto"}`:    "",
		`"memory":{"protection":"none"}`:    "",
		`"memory":{"protection":"min"}`:     `memory.protection: "min", but the driver of this node does not protect memory`,
		`"memory":{"throttlingFactor":0.5}`: "memory.throttlingFactor: 0.5, but the driver",
	} {
		s, err := defaults.Resolve("zone", []resourceapi.DeviceAllocationConfiguration{config1(claim, with(fields))})
		if want == "" {
			require.NoError(t, err)
			require.Equal(t, memoryqos.None, s.Memory.Protection)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

// A45: with kubelet as the owner of pods and ancestors, containers have the
// same values as with the driver as the owner.
func TestContainersOfOwnerKubelet(t *testing.T) {
	c := config.Default()
	c.MemoryQoS.ThrottlingFactor = new(0.5)
	want := parameters.Defaults(c, pageSize)
	c.MemoryQoS.Owner = config.OwnerKubelet
	got := parameters.Defaults(c, pageSize)
	require.Equal(t, want, got)
	require.Equal(t, memoryqos.Auto, got.Memory.Protection)
	got, err := got.Resolve("zone", []resourceapi.DeviceAllocationConfiguration{
		config1(claim, with(`"memory":{"protection":"min","throttlingFactor":0.75}`)),
	})
	require.NoError(t, err)
	require.Equal(t, memoryqos.Min, got.Memory.Protection)
	require.Equal(t, 0.75, *got.Memory.Factor)
}

// I2: a claim cannot break cores on a node that offers whole cores.
func TestWholeCoresOfTheNodeStand(t *testing.T) {
	c := config.Default()
	c.CPU.WholeCores = true
	s, err := parameters.Defaults(c, pageSize).Resolve("zone", []resourceapi.DeviceAllocationConfiguration{
		config1(claim, with(`"cpu":{"wholeCores":false}`)),
	})
	require.NoError(t, err)
	require.True(t, s.CPU.WholeCores)
}

func TestExclusivityOfTheNode(t *testing.T) {
	c := config.Default()
	require.Equal(t, config.ExclusivityAuto, parameters.Defaults(c, pageSize).Exclusivity)
	require.Empty(t, parameters.Defaults(c, pageSize).Isolation, "the node's exclusivity decides")
	c.Exclusivity = config.ExclusivityPool
	require.Equal(t, config.ExclusivityPool, parameters.Defaults(c, pageSize).Exclusivity)
}

func TestLimits(t *testing.T) {
	amounts := map[string]int64{"2Mi": 4 << 20}
	for limits, want := range map[string]map[string]contract.Limit{
		config.HugepagesClaim:     {"2Mi": 4 << 20},
		config.HugepagesUnlimited: {"2Mi": contract.Max},
		config.HugepagesUnchanged: nil,
	} {
		c := config.Default()
		c.Hugepages.Limits = limits
		s := parameters.Defaults(c, pageSize)
		require.Equal(t, want, s.Limits(amounts), limits)
		require.Nil(t, s.Limits(nil))
	}
}

func TestRecord(t *testing.T) {
	s, err := parameters.Defaults(config.Default(), pageSize).Resolve("zone", []resourceapi.DeviceAllocationConfiguration{
		config1(claim, with(`"cpu":{"cores":"performance","interrupts":{"device":"eth0-*"},"wakeupLatency":"20us","maxFrequency":"2.4GHz"},`+
			`"memory":{"limit":"1Gi","throttlingFactor":0.25,"policy":"preferred"}`)),
	})
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"cpu.placement": "packed", "cpu.wholeCores": "false", "cpu.wholeL3": "false", "cpu.cores": "performance",
		"memory.limit": "1073741824", "memory.throttlingFactor": "0.25", "memory.protection": "auto", "memory.policy": "preferred",
		"hugepages.limits": "claim", "cpu.interrupts": "device eth0-*", "cpu.wakeupLatency": "20us", "cpu.maxFrequency": "2400MHz",
	}, s.Record(contract.Decision{CPUs: contracttest.CPUs("0"), Mems: contracttest.NUMANodes("0"), Memory: &contract.Memory{}}, true))
	require.Empty(t, s.Record(contract.Decision{}, false))
	// The record has the decision's isolation, not the parameter.
	for kind, want := range map[string]string{"": "", contract.PartitionRoot: "partition", contract.PartitionIsolated: "isolated"} {
		require.Equal(t, want, s.Record(contract.Decision{CPUs: contracttest.CPUs("0"), Partition: kind}, false)["cpu.isolation"])
	}

	s, err = s.Resolve("zone", []resourceapi.DeviceAllocationConfiguration{config1(claim, with(`"memory":{"limit":"unlimited"}`))})
	require.NoError(t, err)
	require.Equal(t, "unlimited", s.Record(contract.Decision{Memory: &contract.Memory{}}, false)["memory.limit"])
}

// The merge does not depend on the order of the sources.
func TestResolveLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var configs []resourceapi.DeviceAllocationConfiguration
		for range rapid.IntRange(0, 4).Draw(t, "configs") {
			var members []string
			if rapid.Bool().Draw(t, "wholeCores") {
				members = append(members, fmt.Sprintf(`"wholeCores":%v`, rapid.Bool().Draw(t, "value")))
			}
			if rapid.Bool().Draw(t, "placement") {
				members = append(members, fmt.Sprintf(`"placement":%q`, rapid.SampledFrom([]string{"packed", "spread"}).Draw(t, "value")))
			}
			configs = append(configs, config1(
				rapid.SampledFrom([]resourceapi.AllocationConfigSource{class, claim}).Draw(t, "source"),
				with(`"cpu":{`+strings.Join(members, ",")+`}`),
				rapid.SampledFrom([][]string{nil, {"zone"}, {"zone/small"}}).Draw(t, "requests")...,
			))
		}
		defaults := parameters.Defaults(config.Default(), pageSize)
		a, errA := defaults.Resolve("zone/small", configs)
		b, errB := defaults.Resolve("zone/small", rapid.Permutation(configs).Draw(t, "order"))
		require.Equal(t, errA == nil, errB == nil)
		if errA == nil {
			require.Equal(t, a, b)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(with(""))
	f.Add(with(`"cpu":{"placement":"spread","wholeCores":true,"wholeL3":false,"cores":"any","isolation":"isolated"},` +
		`"memory":{"limit":"12Gi","throttlingFactor":0.9,"protection":"auto","policy":"bind"},` +
		`"hugepages":{"limits":"claim","mount":false}`))
	f.Add([]byte(`{"apiVersion":1}`))
	f.Add(with(`"memory":{"limit":"1e1000000000"}`))
	f.Add(with(`"memory":{"limit":1e-100000000}`))
	f.Add(with(`"memory":{"limit":"unlimited"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := parameters.Decode(raw)
		if err != nil {
			require.LessOrEqual(t, len(err.Error()), 2100)
			return
		}
		if p.Memory.Limit == nil || *p.Memory.Limit != parameters.Unlimited {
			// Users write the limit that is none as a word.
			written, err := json.Marshal(p)
			require.NoError(t, err)
			again, err := parameters.Decode(written)
			require.NoError(t, err)
			require.Equal(t, p, again)
		}
		if l := p.Memory.Limit; l != nil {
			require.Positive(t, int64(*l))
			require.True(t, *l == parameters.Unlimited || *l <= 4<<60)
		}
		if f := p.Memory.ThrottlingFactor; f != nil {
			require.True(t, *f > 0 && *f <= 1)
		}
	})
}

// Errors are bounded although they quote the parameters.
func TestErrorsAreBounded(t *testing.T) {
	for name, member := range map[string]string{
		"a long value":         `"cpu":{"placement":"` + strings.Repeat(`\u0001`, 1500) + `"}`,
		"a long unknown field": `"` + strings.Repeat("x", 9<<10) + `":1`,
		"many unknown fields":  strings.TrimSuffix(strings.Repeat(`"a":1,`, 1500), ","),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parameters.Decode([]byte(`{"apiVersion":"dra.cpumem/v1alpha1","kind":"ClaimParameters",` + member + `}`))
			require.Error(t, err)
			require.LessOrEqual(t, len(err.Error()), 2100)
		})
	}
}

// Errors have no character of the parameters that a terminal or a message of protobuf takes for something else.
func TestErrorsArePrintable(t *testing.T) {
	for name, c := range map[string]struct{ member, err string }{
		"no UTF-8":      {"\"memory\":{\"limit\":\"\xff\"}", "?, want a quantity"},
		"right to left": {"\"cpu\":{\"wakeupLatency\":\"\u202e1\"}", "?1, want 0 to 1s"},
		"a field":       {"\"\u202ecpu\":1", "?cpu"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parameters.Decode([]byte(`{"apiVersion":"dra.cpumem/v1alpha1","kind":"ClaimParameters",` + c.member + `}`))
			require.ErrorContains(t, err, c.err)
			for line := range strings.SplitSeq(err.Error(), "\n") {
				require.Equal(t, contract.Excerpt(line, len(line)), line)
			}
		})
	}
}

// A claim may have many parameters, each for many requests. The error about all of
// them is as short as the error about one.
func TestErrorOfManyParametersIsBounded(t *testing.T) {
	var configs []resourceapi.DeviceAllocationConfiguration
	for i := range resourceapi.DeviceConfigMaxSize {
		var requests []string
		for j := range resourceapi.DeviceRequestsMaxSize {
			requests = append(requests, fmt.Sprintf("%060d/%060d", i, j))
		}
		configs = append(configs, config1(claim, with(`"`+strings.Repeat("x", 9<<10)+`":1`), requests...))
	}
	_, err := parameters.Defaults(config.Default(), pageSize).Resolve("zone", configs)
	require.ErrorContains(t, err, "the claim's parameters for 0000")
	require.LessOrEqual(t, len(err.Error()), 2100)
}
