// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
)

// claimPolicy returns the policy about claims. It has the functions that the oldest API
// server takes in new expressions: the functions of Kubernetes 1.33.
func claimPolicy(t *testing.T, values string) policy {
	env, err := environment.MustBaseEnvSet(version.MajorMinor(1, 33)).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Variable("object", cel.DynType), cel.Variable("request", cel.DynType), cel.Variable("variables", cel.DynType),
		},
	})
	require.NoError(t, err)
	for _, p := range of[*admissionv1.ValidatingAdmissionPolicy](render(t, values)) {
		if strings.HasSuffix(p.Name, "-claims") {
			return policy{t: t, env: env.NewExpressionsEnv(), programs: make(map[string]cel.Program), ValidatingAdmissionPolicy: p}
		}
	}
	require.Fail(t, "the chart has no policy about claims")
	return policy{}
}

// refusals returns the messages of the refused validations for an object that is
// written.
func (p policy) refusals(resource, object string) []string {
	var decoded map[string]any
	data, err := yaml.YAMLToJSONStrict([]byte(object))
	require.NoError(p.t, err)
	// Whole numbers are integers, as at the API server.
	require.NoError(p.t, json.Unmarshal(data, &decoded))
	in := map[string]any{
		"object":  decoded,
		"request": map[string]any{"resource": map[string]any{"resource": resource}},
	}
	variables := map[string]any{}
	in["variables"] = variables
	for _, v := range p.Spec.Variables {
		variables[v.Name] = p.eval(v.Expression, in)
	}
	var messages []string
	for _, v := range p.Spec.Validations {
		// An expression that fails refuses nothing (failurePolicy), and a message's is
		// replaced by the message.
		if result, err := p.tryEval(v.Expression, in); err != nil || result == true {
			continue
		}
		message := v.Message
		if v.MessageExpression != "" {
			if text, err := p.tryEval(v.MessageExpression, in); err == nil && text != "" {
				message = text.(string)
			}
		}
		messages = append(messages, message)
	}
	return messages
}

// A19: what the frontend would refuse when a pod starts is refused when it is written,
// and nothing else is.
func TestClaimPolicy(t *testing.T) {
	t.Parallel()
	p := claimPolicy(t, "deviceClass: {memoryTypes: [cxl]}\nclaimPolicy: {classes: [mine]}")
	require.Equal(t, admissionv1.Ignore, *p.Spec.FailurePolicy)
	// asks returns a claim with a request, asksFor a claim for a capacity of the class.
	asks := func(request string) string { return "spec: {devices: {requests: [{name: zone, " + request + "}]}}" }
	asksFor := func(class, capacity string) string {
		return asks("exactly: {deviceClassName: " + class + ", capacity: {requests: " + capacity + "}}")
	}
	config := func(parameters string) string {
		return "config: [{opaque: {driver: dra.cpumem, parameters: " +
			"{apiVersion: dra.cpumem/v1alpha1, kind: ClaimParameters, " + parameters + "}}}]"
	}
	with := func(parameters string) string {
		return strings.TrimSuffix(asksFor("dra.cpumem", `{cpu: "1", memory: 1Gi}`), "}}") + ", " + config(parameters) + "}}"
	}
	// alternatives returns a claim for 2Gi, 4Gi or another driver's device, with parameters
	// for the requests of each name, or without a name for all.
	alternatives := func(namesAndParameters ...string) string {
		var configs []string
		for c := range slices.Chunk(namesAndParameters, 2) {
			one := strings.TrimSuffix(strings.TrimPrefix(config(c[1]), "config: ["), "]")
			configs = append(configs, strings.Replace(one, "{", "{requests: ["+c[0]+"], ", 1))
		}
		return "spec: {devices: {requests: [{name: zone, firstAvailable: [" +
			"{name: small, deviceClassName: dra.cpumem, capacity: {requests: {memory: 2Gi}}}, " +
			"{name: large, deviceClassName: dra.cpumem, capacity: {requests: {memory: 4Gi}}}, " +
			"{name: other, deviceClassName: gpu, capacity: {requests: {memory: 8Gi}}}" +
			"]}], config: [" + strings.Join(configs, ", ") + "]}}"
	}
	check := func(resource string, cases map[string][2]string) {
		for name, c := range cases {
			t.Run(resource+"/"+name, func(t *testing.T) {
				p := p
				p.t = t
				got := strings.Join(p.refusals(resource, c[0]), "; ")
				if c[1] == "" {
					require.Empty(t, got)
				}
				require.Regexp(t, c[1], got)
			})
		}
	}
	// Each object with the messages of its refusal, none for one that is right.
	check("resourceclaims", map[string][2]string{
		"right":          {asksFor("dra.cpumem", `{cpu: "2", memory: 1Gi, hugepages_2Mi: 4Mi}`), ""},
		"another driver": {asksFor("gpu", `{"gpu.example/memory": "500m"}`), ""},
		"CPU parameters": {with(`cpu: {placement: spread, wholeCores: true, isolation: none}`), ""},
		"memory parameters": {
			with(`memory: {limit: 2Gi, throttlingFactor: 0.9, protection: low, policy: bind}, hugepages: {limits: claim, mount: false}`), "",
		},
		"limit as a number":     {with(`memory: {limit: 1073741824}`), ""},
		"unlimited":             {with(`memory: {limit: unlimited}`), ""},
		"factor one":            {with(`memory: {throttlingFactor: 1}`), ""},
		"a misspelt capacity":   {asksFor("dra.cpumem", `{cpu: "1", hugepages-2Mi: 2Mi}`), "^capacity.requests: no zone has hugepages-2Mi; want"},
		"class of another kind": {asksFor("dra.cpumem-cxl", `{cpu: "1", cpus: "1"}`), "^capacity.requests: no zone has cpus; "},
		"own class":             {asksFor("mine", `{cpu: 500m}`), "whole number of CPUs"},
		"half a CPU":            {asksFor("dra.cpumem", `{cpu: 1500m}`), "^capacity.requests.cpu: want a whole number of CPUs"},
		"nothing":               {asksFor("dra.cpumem", `{cpu: "0"}`), "^capacity.requests: want an amount above 0"},
		"nothing named":         {asksFor("dra.cpumem", `{}`), "^capacity.requests: want an amount above 0"},
		"no capacity":           {asks("exactly: {deviceClassName: dra.cpumem}"), "^capacity.requests: want an amount above 0"},
		"admin access": {
			asks(`exactly: {deviceClassName: dra.cpumem, adminAccess: true, capacity: {requests: {cpu: "1"}}}`), "^adminAccess: ",
		},
		"an alternative": {
			asks("firstAvailable: [{name: a, deviceClassName: gpu}, " +
				"{name: b, deviceClassName: dra.cpumem, capacity: {requests: {cpu: 100m}}}]"), "whole number of CPUs",
		},
		"an unknown field":  {with(`cpus: {}`), "^parameters: unknown field cpus, want apiVersion, kind, cpu, memory, hugepages$"},
		"a miscased field":  {with(`cpu: {WholeCores: true}`), "^cpu: unknown field WholeCores, want placement"},
		"a long field":      {with(strings.Repeat("a", 300) + `: 1`), "unknown field a{40}, want"},
		"an unknown value":  {with(`cpu: {placement: wide}`), "^cpu.placement: want packed, spread$"},
		"no boolean":        {with(`hugepages: {mount: "yes"}`), "^hugepages.mount: want true or false$"},
		"no group":          {with(`memory: 1`), "^memory: want an object with no other fields than limit"},
		"a list":            {with(`memory: []`), "^memory: want an object with no other fields than limit"},
		"nulls":             {with(`cpu: null, memory: {limit: null, throttlingFactor: null}, hugepages: {mount: null, limits: null}`), ""},
		"an object":         {with(`memory: {limit: {}}`), "^memory.limit: want a quantity"},
		"too large a limit": {with(`memory: {limit: 5Ei}`), "^memory.limit: want a quantity above 0 and at most 4Ei"},
		"a long exponent":   {with(`memory: {limit: "1e100000000"}`), "^memory.limit: want a quantity"},
		"two configurations": {
			strings.Replace(with(`cpus: 1`), "config: [", strings.TrimSuffix(config(`disk: 1`), "]")+", ", 1),
			"^parameters: unknown field disk, cpus, want apiVersion",
		},
		"a limit for the request": {
			strings.Replace(with(`memory: {limit: 512Mi}`), "config: [", "config: [{requests: [zone], "+
				strings.TrimPrefix(strings.TrimSuffix(config(`memory: {limit: 8Gi}`), "]"), "config: [{")+", ", 1), "",
		},
		"a limit for another request": {
			strings.Replace(with(`memory: {limit: 512Mi}`), "config: [", "config: [{requests: [other], "+
				strings.TrimPrefix(strings.TrimSuffix(config(`memory: {limit: 8Gi}`), "]"), "config: [{")+", ", 1), "^memory.limit is below",
		},
		"a limit below an alternative":                   {alternatives(`zone`, `memory: {limit: 3Gi}`), "^memory.limit is below"},
		"a limit for all below an alternative":           {alternatives(``, `memory: {limit: 3Gi}`), "^memory.limit is below"},
		"a limit above all alternatives":                 {alternatives(``, `memory: {limit: 4Gi}`), ""},
		"a limit for another alternative":                {alternatives(`zone/small`, `memory: {limit: 3Gi}`), ""},
		"a limit below its alternative":                  {alternatives(`zone/large`, `memory: {limit: 3Gi}`), "^memory.limit is below"},
		"a limit below another driver's alternative":     {alternatives(`zone/other`, `memory: {limit: 3Gi}`), ""},
		"a limit for all, and a better for each request": {alternatives(``, `memory: {limit: 1Gi}`, `zone`, `memory: {limit: 4Gi}`), ""},
		"a limit for the request, and a better for the large alternative": {
			alternatives(`zone`, `memory: {limit: 3Gi}`, `zone/large`, `memory: {limit: 4Gi}`), "",
		},
		"a better limit for the small alternative only": {
			alternatives(`zone`, `memory: {limit: 3Gi}`, `zone/small`, `memory: {limit: 4Gi}`), "^memory.limit is below",
		},
		"misspelt in an alternative": {
			asks("firstAvailable: [{name: b, deviceClassName: dra.cpumem, capacity: {requests: {cpus: \"1\"}}}]"),
			"^capacity.requests: want cpu, memory or hugepages_SIZE such as hugepages_2Mi; no zone has another capacity$",
		},
		"no limit":              {with(`memory: {limit: lots}`), "^memory.limit: want a quantity"},
		"limit below the claim": {with(`memory: {limit: 512Mi}`), "^memory.limit is below the claimed memory"},
		"limit of 0":            {with(`memory: {limit: 0}`), "^memory.limit: want a quantity.*; memory.limit is below"},
		"factor of 0":           {with(`memory: {throttlingFactor: 0}`), "^memory.throttlingFactor: want a number above 0 and at most 1$"},
		"unlimited hugepages":   {with(`hugepages: {limits: unlimited}`), "^hugepages.limits: unlimited is not a claim's to ask for"},
		"two faults":            {with(`cpu: {placement: wide}, hugepages: {limits: none}`), "^cpu.placement: .*; hugepages.limits: "},
		"another version":       {strings.ReplaceAll(with(`cpu: {}`), "v1alpha1", "v9"), "want apiVersion dra.cpumem/v1alpha1"},
	})
	check("resourceclaimtemplates", map[string][2]string{
		"right":      {"spec: {" + asksFor("dra.cpumem", `{cpu: "1"}`) + "}", ""},
		"half a CPU": {"spec: {" + asksFor("dra.cpumem", `{cpu: 1500m}`) + "}", "whole number of CPUs"},
	})
	check("deviceclasses", map[string][2]string{
		"unlimited hugepages": {"spec: {" + config(`hugepages: {limits: unlimited}`) + "}", ""},
		"an unknown value":    {"spec: {" + config(`cpu: {cores: big}`) + "}", "^cpu.cores: want any, performance, efficiency$"},
		"another driver":      {"spec: {config: [{opaque: {driver: gpu, parameters: {cpu: 1}}}]}", ""},
		"selectors only":      {"spec: {selectors: []}", ""},
	})
}

// The policy and the frontend refuse the same parameters: the policy is generated from
// the frontend's types.
func TestClaimPolicyAgreesWithTheFrontend(t *testing.T) {
	t.Parallel()
	p := claimPolicy(t, "{}")
	fields := map[string][]string{
		"cpu": {"placement", "wholeCores", "wholeL3", "cores", "isolation", "Placement", "interrupts", "quota",
			"wakeupLatency", "governor", "minFrequency", "maxFrequency", "housekeeping"},
		"memory":    {"limit", "throttlingFactor", "protection", "policy", "max"},
		"hugepages": {"limits", "mount"},
		"disk":      {"size"},
	}
	values := []any{
		true, false, int64(0), int64(1), int64(4096), 0.5, 1.5, "", "1Gi", "0", "1.5Gi", "-1Gi", "lots", "unlimited", "claim", "none", "auto",
		"low", "packed", "spread", "any", "performance", "partition", "isolated", "bind", "interleave", "true", "1e3",
		"keep", "20us", "1s", "2s", "1000ms", "2.4GHz", "0.8GHz", "0GHz", "100GHz", "99999.5MHz", "schedutil",
		map[string]any{"device": "eth0-*"}, map[string]any{"device": "a/b"}, map[string]any{"device": int64(1)},
		map[string]any{"device": "a", "queue": "b"}, map[string]any{"device": nil}, map[string]any{"device": ""},
		nil, "5Ei", "4Ei", "1e100000000", []any{}, map[string]any{},
	}
	rapid.Check(t, func(t *rapid.T) {
		given := map[string]any{"apiVersion": parameters.APIVersion, "kind": parameters.Kind}
		for _, group := range slices.Sorted(maps.Keys(fields)) {
			if rapid.IntRange(0, 3).Draw(t, group+" given") != 0 {
				continue
			}
			of := map[string]any{}
			for _, field := range fields[group] {
				if rapid.IntRange(0, 2).Draw(t, field+" given") == 0 {
					of[field] = rapid.SampledFrom(values).Draw(t, field)
				}
			}
			given[group] = of
		}
		raw, err := json.Marshal(given)
		require.NoError(t, err)
		_, wrong := parameters.Decode(raw)
		object, err := json.Marshal(map[string]any{"spec": map[string]any{"devices": map[string]any{"config": []any{
			map[string]any{"opaque": map[string]any{"driver": "dra.cpumem", "parameters": given}},
		}}}})
		require.NoError(t, err)
		// A DeviceClass may have what the decoder takes; a claim may not have all of it.
		refused := p.refusals("deviceclasses", string(object))
		require.Equal(t, wrong != nil, len(refused) > 0, "%s: the frontend says %v, the policy %q", raw, wrong, refused)
	})
}
