// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
)

// A50: the chart passes lint in both layouts.
func TestLint(t *testing.T) {
	t.Parallel()
	for _, values := range []string{"{}", "layout: sidecar"} {
		out, err := helm(t, values, "lint", "--strict", chartDir)
		require.NoError(t, err)
		require.Contains(t, out, "0 chart(s) failed")
	}
}

// flipped has an allowed value, other than the default, for each value of the chart.
var flipped = map[string]string{
	"layout": `sidecar`, "fullnameOverride": `other`, "namespaceOverride": `elsewhere`, "commonLabels": `{team: x}`,
	"imagePullSecrets": `[{name: pull}]`, "priorityClassName": `""`, "nameOverride": `other`,
	"priorityClassQuota.enabled": `true`, "rbac.create": `false`,

	"config.groupBy": `socket`, "config.reservedCPUs": `"0,4-5"`, "config.managedCPUs": `"1-3"`,
	"config.reservedMemory": `{"0": 512Mi, "1": 68719476736}`, "config.reservedHugepages": `{"0": {2Mi: 2000000}}`,
	"config.memoryTypes": `[dram]`, "config.offerIsolcpus": `true`, "config.exclusivity": `partition`,
	"config.sharedPool.mode": `fixed`, "config.sharedPool.minCPUs": `2`, "config.memoryQoS.owner": `kubelet`,
	"config.memoryQoS.throttlingFactor": `0.9`, "config.memoryQoS.oomScore": `keep`,
	"config.memoryQoS.protection": `low`, "config.hugepages.limits": `unlimited`, "config.cpu.wholeCores": `true`,
	"config.cpu.placement": `spread`, "config.cpu.interrupts": `none`, "config.cpu.housekeeping": `none`, "config.cpu.quota": `none`,
	"actuator.machine.interrupts": `false`, "actuator.machine.workQueues": `false`, "actuator.machine.cpuPower": `false`,
	"config.numaNodeForm": `list`, "config.publishPCIeRoots": `true`,
	"config.nodeAllocatable": `true`, "config.deviceMetadata": `true`, "config.guard": `false`,
	"config.guardWait": `1m5s`, "config.refreshInterval": `1m30s`, "config.cdiDir": `/run/cdi`,
	"config.kubeletRootDir": `/var/snap/microk8s/common/var/lib/kubelet`, "config.kubeletConfigFile": `/etc/kubernetes/kubelet.json`,
	"config.sysfsRoot": `/sys`, "config.procRoot": `/host/proc`,

	"frontend.image.repository": `registry.example:5000/a/b`, "frontend.image.tag": `v9`, "frontend.image.pullPolicy": `Always`,
	"frontend.logLevel": `debug`, "frontend.metricsPort": `1234`, "frontend.checkKubeletPolicies": `false`,
	"frontend.updateStrategy": `OnDelete`, "actuator.updateStrategy": `OnDelete`,
	"frontend.maxSurge": `10%`, "frontend.maxUnavailable": `2`,
	"frontend.resources.requests": `{cpu: 20m}`, "frontend.resources.limits": `{cpu: 1}`,
	"frontend.nodeSelector": `{pool: a}`, "frontend.affinity": affinity, "frontend.tolerations": `[]`,
	"frontend.image.digest": digest, "frontend.serviceAccount.create": `false`, "frontend.serviceAccount.name": `own`,
	"frontend.serviceAccount.annotations": `{a: b}`, "frontend.extraArgs": `[--log-level=debug]`,
	"frontend.extraEnv": `[{name: GOGC, value: "50"}]`, "frontend.extraVolumes": `[{name: extra, emptyDir: {}}]`,
	"frontend.extraVolumeMounts": `[{name: extra, mountPath: /extra}]`,
	"frontend.podLabels":         `{a: b}`, "frontend.podAnnotations": `{a: b}`, "frontend.seLinuxOptions": `{type: spc_t}`,

	"actuator.image.repository": `registry.example:5000/a/b`,
	"actuator.image.tag":        `v9@sha256:` + strings.Repeat("0a", 32), "actuator.image.pullPolicy": `Never`,
	"actuator.logLevel": `error`, "actuator.metricsPort": `1234`, "actuator.nriSocket": `/run/crio/nri/nri.sock`,
	"actuator.unitDir": `/run/systemd/other`, "openshift.createSCC": `true`,
	"actuator.systemBus": `/run/bus/system`, "actuator.repairPartitions": `false`,
	"actuator.missingPluginAnnotation": `tolerate-missing-plugins.noderesource.dev`,
	"actuator.guard.enabled":           `false`, "actuator.guard.dir": `/opt/cpumem`, "actuator.maxSurge": `25%`,
	"actuator.maxUnavailable":     `25%`,
	"actuator.resources.requests": `{cpu: 20m}`, "actuator.resources.limits": `{cpu: 1}`,
	"actuator.nodeSelector": `{pool: a}`, "actuator.affinity": affinity, "actuator.tolerations": `[]`,
	"actuator.image.digest": digest, "actuator.serviceAccount.create": `false`, "actuator.serviceAccount.name": `own`,
	"actuator.serviceAccount.annotations": `{a: b}`, "actuator.extraArgs": `[--log-level=debug]`, "actuator.pluginIndex": `"10"`,
	"actuator.extraEnv": `[{name: GOGC, value: "50"}]`, "actuator.extraVolumes": `[{name: extra, emptyDir: {}}]`,
	"actuator.extraVolumeMounts": `[{name: extra, mountPath: /extra}]`,
	"actuator.podLabels":         `{a: b}`, "actuator.podAnnotations": `{a: b}`, "actuator.seLinuxOptions": `{type: spc_t}`,

	"deviceClass.create": `false`, "deviceClass.memoryTypes": `[cxl]`, "admissionPolicy.enabled": `false`,
	"podClaims.enabled": `true`, "claimPolicy.enabled": `false`, "claimPolicy.classes": `[mine]`,
	"metrics.enabled": `true`, "metrics.from": `[{ipBlock: {cidr: 10.0.0.0/8}}]`, "networkPolicy.enabled": `false`,
	"podMonitor.enabled": `true`, "podMonitor.interval": `15s`, "podMonitor.labels": `{release: prometheus}`,
	"serviceMonitor.enabled": `true`, "serviceMonitor.interval": `15s`, "serviceMonitor.labels": `{release: prometheus}`,
	"prometheusRule.enabled": `true`, "prometheusRule.disabled": `[CPUMemDisplacedClaims]`,
	"prometheusRule.runbookURL": `https://runbooks.example`, "prometheusRule.labels": `{release: prometheus}`,
	"prometheusRule.alertLabels": `{team: x}`,
	"dashboard.enabled":          `true`, "dashboard.labels": `{board: "yes"}`, "dashboard.annotations": `{folder: dra}`,
	"cleanup.enabled": `false`, "cleanup.tolerations": `[]`,
	"cleanup.resources.requests": `{cpu: 20m}`, "cleanup.resources.limits": `{memory: 64Mi}`,
	"test.resources.requests": `{cpu: 2}`,
	"test.enabled":            `false`, "test.tolerations": `[{operator: Exists}]`,
}

// monitoring are sections of values that need metrics.enabled.
var monitoring = []string{"podMonitor", "serviceMonitor", "prometheusRule"}

var digest = "sha256:" + strings.Repeat("0b", 32)

const affinity = `{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: ` +
	`{nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}`

// everybody is a network policy's peer that selects all pods.
var everybody = map[string]any{"namespaceSelector": map[string]any{}}

// nested returns the YAML text of a value at a path such as a.b.c.
func nested(path, value string) string {
	keys := strings.Split(path, ".")
	var b strings.Builder
	for i, k := range keys[:len(keys)-1] {
		fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", i), k)
	}
	fmt.Fprintf(&b, "%s%s: %s\n", strings.Repeat("  ", len(keys)-1), keys[len(keys)-1], value)
	return b.String()
}

// A50: each value can be rendered and decoded, and changes the result. So no value is
// without effect, and each condition of the templates is tried both ways.
func TestEveryValueCounts(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, leaves(t), slices.Collect(maps.Keys(flipped)), "every value needs an entry in the table")
	plain := make(map[string]objects) // by the values without the flipped one: most entries of the table share them
	for _, base := range []string{"separate", "sidecar"} {
		for path, value := range flipped {
			values := map[string]any{"layout": base}
			section, key, _ := strings.Cut(path, ".")
			switch {
			case section == "dashboard" || slices.Contains(monitoring, section):
				// The other values of a section count if it is enabled.
				values[section] = map[string]any{"enabled": key != "enabled"}
				values["metrics"] = map[string]any{"enabled": true, "from": []any{everybody}}
			case path == "metrics.enabled":
				values["metrics"] = map[string]any{"from": []any{everybody}}
			case path == "metrics.from":
				values["metrics"] = map[string]any{"enabled": true, "from": []any{everybody}}
			case path == "config.sharedPool.mode":
				values["config"] = map[string]any{"managedCPUs": "1-3"}
			case strings.HasSuffix(path, ".serviceAccount.create"):
				values[section] = map[string]any{"serviceAccount": map[string]any{"name": "own"}}
			case path == "config.offerIsolcpus":
				values["config"] = map[string]any{"exclusivity": "pool"}
			}
			without, err := yaml.Marshal(values)
			require.NoError(t, err)
			before, known := plain[string(without)]
			if !known {
				before = render(t, string(without))
				plain[string(without)] = before
			}
			t.Run(base+"/"+path, func(t *testing.T) {
				t.Parallel()
				data, err := yaml.Marshal(merge(values, parsed(t, nested(path, value))))
				require.NoError(t, err)
				after := render(t, string(data))
				switch {
				case path == "layout" && base == value:
				case base == "sidecar" && sidecarIgnores[path]:
					require.Equal(t, before, after)
				default:
					require.NotEqual(t, before, after)
				}
			})
		}
	}
}

// sidecarIgnores has the actuator's pod settings that the frontend's settings replace
// in the sidecar layout.
var sidecarIgnores = map[string]bool{
	"actuator.nodeSelector": true, "actuator.affinity": true, "actuator.tolerations": true,
	"actuator.podLabels": true, "actuator.podAnnotations": true, "actuator.updateStrategy": true,
	"actuator.maxSurge": true, "actuator.maxUnavailable": true,
	"actuator.serviceAccount.create": true, "actuator.serviceAccount.name": true, "actuator.serviceAccount.annotations": true,
}

func merge(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	for k, v := range b {
		am, aok := out[k].(map[string]any)
		if bm, bok := v.(map[string]any); aok && bok {
			out[k] = merge(am, bm)
		} else {
			out[k] = v
		}
	}
	return out
}

func parsed(t *testing.T, values string) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, yaml.UnmarshalStrict([]byte(values), &out))
	return out
}

func chartValues(t *testing.T, path string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return parsed(t, string(data))
}

// leaves returns the paths in values.yaml, down to the entries of flipped.
func leaves(t *testing.T) []string {
	t.Helper()
	values := chartValues(t, filepath.Join(chartDir, "values.yaml"))
	var out []string
	var walk func(prefix string, m map[string]any)
	walk = func(prefix string, m map[string]any) {
		for k, v := range m {
			path := prefix + k
			_, whole := flipped[path]
			if sub, ok := v.(map[string]any); ok && len(sub) > 0 && !whole {
				walk(path+".", sub)
			} else {
				out = append(out, path)
			}
		}
	}
	walk("", values)
	return out
}

// A50: the schema refuses values that the daemons or an API server would refuse, and
// unclear values.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	schema, defaults := valuesSchema(t), chartValues(t, filepath.Join(chartDir, "values.yaml"))
	require.NoError(t, schema.Validate(document(t, defaults)), "what is refused below is refused for its value")
	for path, bad := range map[string][]string{
		"unknown":                           {`1`},
		"layout":                            {`both`, `null`},
		"fullnameOverride":                  {`Upper`, `has.dot`, strings.Repeat("a", 46)},
		"namespaceOverride":                 {`a/b`},
		"commonLabels":                      {`{a: 1}`, `{app.kubernetes.io/name: x}`, `{a: "no blanks"}`},
		"imagePullSecrets":                  {`[pull]`, `[{name: ""}]`},
		"config.unknown":                    {`1`},
		"config.groupby":                    {`socket`},
		"config.groupBy":                    {`numa`, `NUMANode`, `null`},
		"config.reservedCPUs":               {`-1`, `1.5`, `"0-"`, `"a"`, `"0, 1"`},
		"config.managedCPUs":                {`[0]`, `"1--2"`},
		"config.reservedMemory":             {`512Mi`, `{node0: 1Gi}`, `{"00": 1Gi}`, `{"0": -1}`, `{"0": 1GB}`},
		"config.reservedHugepages":          {`{"0": 8}`, `{"0": {2M: 8}}`, `{"0": {2Mi: -1}}`, `{"0": {2Mi: 1.5}}`, `{"0": {2Mi: "8"}}`},
		"config.memoryTypes":                {`[]`, `[pmem]`, `dram`, `[cxl, cxl]`, `null`},
		"config.offerIsolcpus":              {`"true"`, `"0-3"`},
		"config.exclusivity":                {`kernel`, `Auto`, `true`, `null`},
		"config.sharedPool.minCPUs":         {`0`, `"1"`, `1.5`},
		"config.sharedPool.mode":            {`static`, `null`},
		"config.memoryQoS.owner":            {`me`, `null`},
		"config.memoryQoS.throttlingFactor": {`0`, `1.1`, `"1.1"`, `"0.0"`, `".9.1"`, `-0.5`},
		"config.memoryQoS.protection":       {`max`},
		"config.hugepages.limits":           {`true`},
		"config.cpu.wholeCores":             {`"true"`},
		"config.cpu.placement":              {`Packed`},
		"config.nodeAllocatable":            {`"true"`},
		"config.numaNodeForm":               {`lists`, `[list]`, `null`},
		"config.publishPCIeRoots":           {`"true"`},
		"config.deviceMetadata":             {`1`},
		"config.guard":                      {`"on"`},
		"config.guardWait":                  {`20`, `"20"`, `-1s`, `500ms`, `1m31s`, `91s`, `2m`, `null`},
		"config.refreshInterval":            {`30`, `"30"`, `30 s`, `-1s`, `500ms`, `0s`},
		"config.cdiDir":                     {`run/cdi`, `/run/cdi/`, `/run/../cdi`, `/`, `"/run/c di"`},
		"config.kubeletRootDir":             {`/` + strings.Repeat("k", 42)},
		"config.kubeletConfigFile":          {`kubelet.json`, `/etc/../kubelet.json`, `/`, `null`},
		"frontend.image":                    {`a/b:v1`},
		"frontend.image.repository":         {`a/b:v1`, `A/b`},
		"frontend.image.tag":                {`1.0`, `"a b"`},
		"frontend.image.pullPolicy":         {`Sometimes`},
		"frontend.logLevel":                 {`verbose`},
		"frontend.metricsPort":              {`0`, `70000`, `"9807"`},
		"frontend.resources":                {`{request: {cpu: 1}}`},
		"frontend.tolerations":              {`{operator: Exists}`, `[{op: Exists}]`},
		"frontend.affinity":                 {`{nodeaffinity: {}}`},
		"frontend.nodeSelector":             {`{a: true}`},
		"frontend.privileged":               {`true`},
		"actuator.nriSocket":                {`nri.sock`, `/nri.sock`, `unix:///run/nri.sock`},
		"actuator.systemBus":                {``, `bus`, `/bus`},
		"actuator.missingPluginAnnotation":  {`a/b`, `A.b`, `true`},
		"actuator.guard":                    {`true`},
		"actuator.guard.dir":                {`""`, `bin`},
		"actuator.maxSurge":                 {`0`, `0%`, `101%`, `some`, `null`},
		"actuator.maxUnavailable":           {`0%`, `101%`, `some`, `-1`},
		"frontend.maxSurge":                 {`0`, `"1"`},
		"frontend.updateStrategy":           {`Recreate`, `null`},
		"frontend.serviceAccount":           {`{create: false}`, `{create: false, name: ""}`},
		"cleanup.resources":                 {`{request: {cpu: 1}}`},
		"prometheusRule.alertLabels":        {`{my-team: x}`, `{team: 1}`, `null`},
		"frontend.maxUnavailable":           {`"0"`, `1.5`},
		"actuator.seLinuxOptions":           {`{kind: spc_t}`},
		"metrics.enabled":                   {`"on"`},
		"metrics.from":                      {`{}`, `[{}]`, `[{selector: {}}]`, `[monitoring]`},
		"networkPolicy.enabled":             {`null`, `1`},
		"podMonitor.interval":               {`15`, `soon`},
		"serviceMonitor.interval":           {`15`},
		"claimPolicy.classes":               {`[Mine]`, `mine`, `null`},
		"prometheusRule.disabled":           {`CPUMemClaimRefused`},
		"prometheusRule.runbookURL":         {`1`},
		"dashboard.annotations":             {`{folder: 1}`},
		"dashboard.labels":                  {`null`},
		"prometheusRule.labels":             {`null`},
		"cleanup.enabled":                   {`"no"`},
		"deviceClass.memoryTypes":           {`[dram]`, `cxl`, `[cxl, cxl]`, `[CXL]`},
	} {
		for _, value := range bad {
			t.Run(path+"="+value, func(t *testing.T) {
				t.Parallel()
				if value == "null" || value == "" { // helm removes the default
					_, err := helm(t, nested(path, value), "template", "r", chartDir)
					require.ErrorContains(t, err, schemaError)
					return
				}
				require.Error(t, schema.Validate(document(t, merge(defaults, parsed(t, nested(path, value))))))
			})
		}
	}
}

// A value that the schema refuses is refused by helm.
func TestHelmReadsTheSchema(t *testing.T) {
	t.Parallel()
	_, err := helm(t, "unknown: 1", "template", "r", chartDir)
	require.ErrorContains(t, err, schemaError)
}

const schemaError = "specifications of the schema"

func valuesSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	require.NoError(t, err)
	file, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("values", file))
	schema, err := compiler.Compile("values")
	require.NoError(t, err)
	return schema
}

// document returns the values as a JSON document of the schema's library.
func document(t *testing.T, values map[string]any) any {
	t.Helper()
	data, err := json.Marshal(values)
	require.NoError(t, err)
	out, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	require.NoError(t, err)
	return out
}

// Helm's --set makes a number of "0", and text of 0.9. Both arrive in the daemons' files.
func TestNumbersOfSet(t *testing.T) {
	t.Parallel()
	out, err := helm(t, "{}", "template", "r", chartDir, "--set", "config.reservedCPUs=0", "--set", `config.managedCPUs=0\,2-3`,
		"--set", "config.memoryQoS.throttlingFactor=0.9", "--set", "config.reservedMemory.0=1Gi", "--set", "config.reservedMemory.1=1073741824",
		"--set", "config.reservedHugepages.0.2Mi=8", "--set", "actuator.pluginIndex=91")
	require.NoError(t, err)
	require.Contains(t, out, "- --plugin-index=91\n")
	_, file, _ := strings.Cut(out, "  config.yaml: |\n")
	file, _, _ = strings.Cut(file, "\n---")
	c, err := config.Parse([]byte(file))
	require.NoError(t, err, file)
	require.Equal(t, []string{"0", "0,2-3"}, []string{c.ReservedCPUs, c.ManagedCPUs})
	require.InDelta(t, 0.9, *c.MemoryQoS.ThrottlingFactor, 1e-9)
	for node, memory := range c.ReservedMemory {
		require.EqualValues(t, 1<<30, memory.Value(), "node %v", node)
	}
	require.Len(t, c.ReservedMemory, 2)
	require.Equal(t, `map[0:map[2Mi:8]]`, fmt.Sprint(c.ReservedHugepages))
}

// Both daemons of a sidecar pod listen in the same network, so their ports differ.
func TestSidecarRefusesEqualPorts(t *testing.T) {
	t.Parallel()
	ports := "frontend: {metricsPort: 99}\nactuator: {metricsPort: 99}\n"
	render(t, ports)
	_, err := helm(t, "layout: sidecar\n"+ports, "template", "r", chartDir)
	require.ErrorContains(t, err, "must differ")
}

// The chart refuses values of which each alone is right and which do not go together.
func TestRefusedTogether(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ values, want string }{
		"fixed pool without managed CPUs": {"config: {sharedPool: {mode: fixed}}", "needs config.managedCPUs"},
		"isolcpus in partitions":          {"config: {offerIsolcpus: true}", "needs config.exclusivity: pool"},
		"interrupts that no actuator may move": {
			"config: {cpu: {interrupts: none}}\nactuator: {machine: {interrupts: false}}", "needs actuator.machine.interrupts",
		},
		"work queues that no actuator may move": {
			"config: {cpu: {housekeeping: none}}\nactuator: {machine: {workQueues: false}}", "needs actuator.machine.workQueues",
		},
		"one port twice in a Service": {
			"serviceMonitor: {enabled: true}\nmetrics: {enabled: true}\nfrontend: {metricsPort: 99}\nactuator: {metricsPort: 99}", "must differ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := helm(t, c.values, "template", "r", chartDir)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// Kubernetes takes names that YAML reads as numbers or booleans.
func TestNamesOfDigits(t *testing.T) {
	t.Parallel()
	all := render(t, "nameOverride: \"1\"\nnamespaceOverride: \"2\"\npriorityClassName: \"3\"")
	ds := daemonSet(t, all, "frontend")
	require.Equal(t, "2", ds.Namespace)
	require.Equal(t, "1", ds.Spec.Selector.MatchLabels["app.kubernetes.io/name"])
	require.Equal(t, "3", ds.Spec.Template.Spec.PriorityClassName)
}

func configOf(t *testing.T, all objects) string {
	t.Helper()
	maps := of[*corev1.ConfigMap](all)
	require.Len(t, maps, 1)
	return maps[0].Data["config.yaml"]
}

// A50, A56: the daemon takes the rendered configuration. The chart's defaults are the
// daemon's, except sysfsRoot.
func TestConfigIsTheDaemons(t *testing.T) {
	t.Parallel()
	got, err := config.Parse([]byte(configOf(t, render(t, "{}"))))
	require.NoError(t, err)
	require.Empty(t, got.ReservedMemory)
	require.Empty(t, got.ReservedHugepages)
	got.ReservedMemory, got.ReservedHugepages = nil, nil
	want := config.Default()
	want.SysfsRoot = "/host/sys"
	require.Equal(t, want, got)

	for path, value := range flipped {
		if strings.HasPrefix(path, "config.") {
			t.Run(path, func(t *testing.T) {
				t.Parallel()
				values := nested(path, value)
				switch path { // values that need a second value
				case "config.sharedPool.mode":
					values = `config: {managedCPUs: "1-3", sharedPool: {mode: fixed}}`
				case "config.offerIsolcpus":
					values = `config: {offerIsolcpus: true, exclusivity: pool}`
				}
				_, err := config.Parse([]byte(configOf(t, render(t, values))))
				require.NoError(t, err)
			})
		}
	}
}

// A53: a frontend refuses unknown keys, so an older frontend must get no newer key from
// this chart. The rendered file leaves out newer keys with their default value.
func TestConfigLeavesOutDefaults(t *testing.T) {
	t.Parallel()
	parse := func(text string) map[string]any {
		var file map[string]any
		require.NoError(t, yaml.UnmarshalStrict([]byte(text), &file))
		return file
	}
	want := map[string]any{"sysfsRoot": "/host/sys"}
	require.Equal(t, want, parse(configOf(t, render(t, "{}"))))
	require.Equal(t, want, parse(configOf(t, render(t,
		`config: {reservedMemory: {}, memoryTypes: [dram, hbm, cxl], guardWait: 20s, sharedPool: {minCPUs: 1}, nodeAllocatable: false}`))))
	want["guard"] = false
	want["memoryQoS"] = map[string]any{"oomScore": "keep"}
	want["reservedMemory"] = map[string]any{"0": 0.0}
	require.Equal(t, want, parse(configOf(t, render(t,
		`config: {guard: false, reservedMemory: {"0": 0}, memoryQoS: {owner: driver, oomScore: keep}}`))))
}

// A53: an older actuator gets no newer flags for default values.
func TestActuatorLeavesOutDefaults(t *testing.T) {
	t.Parallel()
	args := func(values string) string {
		return strings.Join(container(t, daemonSet(t, render(t, values), "actuator").Spec.Template.Spec, "actuator").Args, " ")
	}
	require.NotContains(t, args("{}"), "--system-bus")
	require.Contains(t, args("actuator: {systemBus: /run/bus/system}"), "--system-bus=/run/bus/system")
}
