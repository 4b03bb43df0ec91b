// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// mount is a volume mount with its volume.
type mount struct {
	path, source string // source is the host path or the kind of volume
	readOnly     bool
}

func mounts(t *testing.T, pod corev1.PodSpec, c corev1.Container) []mount {
	t.Helper()
	sources := map[string]string{}
	for _, v := range pod.Volumes {
		require.NotContains(t, sources, v.Name, "volume listed twice")
		switch {
		case v.HostPath != nil:
			sources[v.Name] = v.HostPath.Path + " " + string(*v.HostPath.Type)
		case v.ConfigMap != nil:
			sources[v.Name] = "configmap"
		case v.Projected != nil:
			sources[v.Name] = "projected"
		default:
			require.Failf(t, "unexpected volume", "%s", v.Name)
		}
	}
	var out []mount
	for _, m := range c.VolumeMounts {
		require.Contains(t, sources, m.Name)
		out = append(out, mount{path: m.MountPath, source: sources[m.Name], readOnly: m.ReadOnly})
	}
	return out
}

var (
	frontendMounts = []mount{
		{"/etc/cpumem", "configmap", true},
		{tokenDir, "projected", true},
		{"/var/run/cdi", "/var/run/cdi DirectoryOrCreate", false},
		{"/var/lib/kubelet/plugins/dra.cpumem", "/var/lib/kubelet/plugins/dra.cpumem DirectoryOrCreate", false},
		{"/var/lib/kubelet/plugins_registry", "/var/lib/kubelet/plugins_registry Directory", false},
		{"/var/lib/kubelet/cpu_manager_state", "/var/lib/kubelet/cpu_manager_state File", true},
		{"/var/lib/kubelet/memory_manager_state", "/var/lib/kubelet/memory_manager_state File", true},
		{"/host/sys", "/sys Directory", true},
	}
	actuatorMounts = []mount{
		{"/var/run/cdi", "/var/run/cdi DirectoryOrCreate", false},
		{"/var/run/nri", "/var/run/nri DirectoryOrCreate", true},
		{"/host/cgroup", "/sys/fs/cgroup Directory", false},
		{"/run/dbus", "/run/dbus DirectoryOrCreate", true},
		{"/run/systemd/system.control", "/run/systemd/system.control DirectoryOrCreate", false},
		{"/var/lib/dra-cpumem/bin", "/var/lib/dra-cpumem/bin DirectoryOrCreate", false},
		{"/host/irq", "/proc/irq Directory", false},
		{"/host/cpu", "/sys/devices/system/cpu Directory", false},
		{"/host/workqueue", "/sys/devices/virtual/workqueue Directory", false},
	}
)

const tokenDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// A52: in both layouts, each daemon reaches exactly these parts of the host.
func TestMounts(t *testing.T) {
	t.Parallel()
	for layout, daemonSets := range layouts {
		t.Run(layout, func(t *testing.T) {
			t.Parallel()
			all := render(t, "layout: "+layout)
			require.Len(t, of[*appsv1.DaemonSet](all), len(daemonSets.names))
			pod := daemonSet(t, all, daemonSets.frontend).Spec.Template.Spec
			require.ElementsMatch(t, frontendMounts, mounts(t, pod, container(t, pod, "frontend")))
			for _, m := range container(t, pod, "frontend").VolumeMounts {
				if m.MountPath == "/host/sys" {
					require.Equal(t, corev1.RecursiveReadOnlyIfPossible, *m.RecursiveReadOnly, "cgroups lie below /sys")
				}
			}
			pod = daemonSet(t, all, daemonSets.actuator).Spec.Template.Spec
			require.ElementsMatch(t, actuatorMounts, mounts(t, pod, container(t, pod, "actuator")))
		})
	}
}

// The actuator reaches no file of the machine that the operator has switched off.
func TestMachineMounts(t *testing.T) {
	t.Parallel()
	for value, path := range map[string]string{"interrupts": "/host/irq", "cpuPower": "/host/cpu", "workQueues": "/host/workqueue"} {
		pod := daemonSet(t, render(t, "actuator: {machine: {"+value+": false}}"), "actuator").Spec.Template.Spec
		got := mounts(t, pod, container(t, pod, "actuator"))
		require.Len(t, got, len(actuatorMounts)-1)
		require.False(t, slices.ContainsFunc(got, func(m mount) bool { return m.path == path }), value)
	}
}

// A52: kubelet's configuration is mounted as a single file, and only if its path is
// set: a pod does not start on a node without the file.
func TestKubeletsConfiguration(t *testing.T) {
	t.Parallel()
	for layout, daemonSets := range layouts {
		all := render(t, "config: {kubeletConfigFile: /etc/kubernetes/kubelet.json}\nlayout: "+layout)
		pod := daemonSet(t, all, daemonSets.frontend).Spec.Template.Spec
		want := append(slices.Clone(frontendMounts), mount{"/etc/kubernetes/kubelet.json", "/etc/kubernetes/kubelet.json File", true})
		require.ElementsMatch(t, want, mounts(t, pod, container(t, pod, "frontend")))
		pod = daemonSet(t, all, daemonSets.actuator).Spec.Template.Spec
		require.ElementsMatch(t, actuatorMounts, mounts(t, pod, container(t, pod, "actuator")))
	}
}

type layoutNames struct {
	names              []string
	frontend, actuator string
}

var layouts = map[string]layoutNames{
	"separate": {names: []string{"frontend", "actuator"}, frontend: "frontend", actuator: "actuator"},
	"sidecar":  {names: []string{"node"}, frontend: "node", actuator: "node"},
}

// A52: the daemons run as root, for the ownership of files, without root's other
// rights. A pod has its own network, so that during an update two pods of a daemon
// can run on a node.
func TestPodsArePlain(t *testing.T) {
	t.Parallel()
	for layout, daemonSets := range layouts {
		all := render(t, "layout: "+layout)
		for _, name := range daemonSets.names {
			pod := daemonSet(t, all, name).Spec.Template.Spec
			require.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC)
			require.False(t, *pod.AutomountServiceAccountToken)
			require.Len(t, append(pod.InitContainers, pod.Containers...), 3-len(daemonSets.names), "one container for each daemon")
			require.Equal(t, "system-node-critical", pod.PriorityClassName)
			require.Equal(t, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, pod.Tolerations)
			for _, c := range pod.Containers {
				s := c.SecurityContext
				require.Equal(t, int64(0), *s.RunAsUser)
				require.False(t, *s.Privileged)
				require.False(t, *s.AllowPrivilegeEscalation)
				require.True(t, *s.ReadOnlyRootFilesystem)
				want := corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
				if c.Name == "actuator" {
					want.Add = []corev1.Capability{"SYS_ADMIN"}
				}
				require.Equal(t, want, *s.Capabilities)
				require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, s.SeccompProfile.Type)
				require.Equal(t, c.Name == "actuator", s.AppArmorProfile != nil, "only the actuator speaks to the host's D-Bus")
				require.Equal(t, "/healthz", c.LivenessProbe.HTTPGet.Path)
				require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path)
				require.Equal(t, intstr.FromString(c.Ports[0].Name), c.ReadinessProbe.HTTPGet.Port)
				require.LessOrEqual(t, len(c.Ports[0].Name), 15)
				require.Zero(t, c.Ports[0].HostPort)
			}
		}
	}
}

// The pods that helm makes have no right on the node: not the Job after an uninstall,
// which has a token, and not the test, which has none.
func TestPodsOfHelmHaveNoRights(t *testing.T) {
	t.Parallel()
	all := render(t, "{}")
	jobs, tests := of[*batchv1.Job](all), of[*corev1.Pod](all)
	require.Len(t, jobs, 1)
	require.Len(t, tests, 1)
	require.True(t, *jobs[0].Spec.Template.Spec.AutomountServiceAccountToken)
	require.False(t, *tests[0].Spec.AutomountServiceAccountToken)
	for _, pod := range []corev1.PodSpec{jobs[0].Spec.Template.Spec, tests[0].Spec} {
		require.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC)
		require.Empty(t, pod.Volumes)
		require.Len(t, append(pod.InitContainers, pod.Containers...), 1)
		require.Equal(t, &corev1.SecurityContext{
			RunAsUser: new(int64(65534)), RunAsGroup: new(int64(65534)), RunAsNonRoot: new(true),
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}, pod.Containers[0].SecurityContext)
	}
	all = render(t, "openshift: {createSCC: true}")
	for _, pod := range []corev1.PodSpec{of[*batchv1.Job](all)[0].Spec.Template.Spec, of[*corev1.Pod](all)[0].Spec} {
		c := pod.Containers[0].SecurityContext
		require.True(t, *c.RunAsNonRoot)
		require.Nil(t, c.RunAsUser, "OpenShift admits users of the namespace's range only")
		require.Nil(t, c.RunAsGroup)
	}
	require.Equal(t, "restricted-v2", of[*corev1.Pod](all)[0].Annotations["openshift.io/required-scc"])
}

// OpenShift's constraints admit exactly what each daemon asks for.
func TestOpenShift(t *testing.T) {
	t.Parallel()
	for layout, of := range layouts {
		for _, values := range []string{"{}", "config: {exclusivity: pool}"} {
			all := render(t, strings.TrimSuffix(values, "{}")+"\nopenshift: {createSCC: true}\nlayout: "+layout)
			for _, name := range of.names {
				ds := daemonSet(t, all, name)
				pod := ds.Spec.Template.Spec
				user := "system:serviceaccount:" + ds.Namespace + ":" + pod.ServiceAccountName
				require.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC)
				scc := constraintsFor(t, all, user)
				list := func(field string) []string {
					values, _, err := unstructured.NestedStringSlice(scc, field)
					require.NoError(t, err)
					return values
				}
				var capabilities []string
				for _, c := range pod.Containers {
					require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
					for _, capability := range c.SecurityContext.Capabilities.Add {
						capabilities = append(capabilities, string(capability))
					}
				}
				require.ElementsMatch(t, capabilities, list("allowedCapabilities"), "%s %s", layout, name)
				volumes := map[string]bool{}
				for _, v := range pod.Volumes {
					switch {
					case v.HostPath != nil:
						volumes["hostPath"] = true
					case v.ConfigMap != nil:
						volumes["configMap"] = true
					default:
						require.NotNil(t, v.Projected, v.Name)
						volumes["projected"], volumes["downwardAPI"] = true, true
					}
				}
				require.ElementsMatch(t, slices.Collect(maps.Keys(volumes)), list("volumes"), "%s %s", layout, name)
				require.Equal(t, []any{true, false, false},
					[]any{scc["allowHostDirVolumePlugin"], scc["allowPrivilegedContainer"], scc["allowHostNetwork"]})
				require.Equal(t, map[string]any{"type": "MustRunAs", "uid": int64(0)}, scc["runAsUser"])
			}
		}
	}
}

// constraintsFor returns the constraints that name the user, and no other.
func constraintsFor(t *testing.T, all objects, user string) map[string]any {
	for _, u := range of[*unstructured.Unstructured](all) {
		users, _, err := unstructured.NestedStringSlice(u.Object, "users")
		require.NoError(t, err)
		if len(users) == 1 && users[0] == user {
			return u.Object
		}
	}
	require.Fail(t, "no constraints for "+user)
	return nil
}

// The actuator's only capability is for partitions, and can be left out.
func TestNoCapabilityWithoutPartitions(t *testing.T) {
	t.Parallel()
	for _, values := range []string{"config: {exclusivity: pool}", "actuator: {repairPartitions: false}"} {
		pod := daemonSet(t, render(t, values), "actuator").Spec.Template.Spec
		require.Equal(t, corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			*container(t, pod, "actuator").SecurityContext.Capabilities, values)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	all := render(t, "{}")
	require.Equal(t, []string{
		"--config=/etc/cpumem/config.yaml", "--node-name=$(NODE_NAME)", "--pod-uid=$(POD_UID)",
		"--metrics-address=:9807", "--log-level=info",
	}, container(t, daemonSet(t, all, "frontend").Spec.Template.Spec, "frontend").Args)
	require.Equal(t, []string{
		"--cdi-dir=/var/run/cdi", "--nri-socket=/var/run/nri/nri.sock", "--cgroup-root=/host/cgroup", "--refresh-interval=30s",
		"--guard-dir=/var/lib/dra-cpumem/bin", "--metrics-address=:9808", "--log-level=info",
	}, container(t, daemonSet(t, all, "actuator").Spec.Template.Spec, "actuator").Args)

	off := render(t, "actuator: {guard: {enabled: false}}")
	pod := daemonSet(t, off, "actuator").Spec.Template.Spec
	require.NotContains(t, strings.Join(container(t, pod, "actuator").Args, " "), "guard")
	require.Len(t, mounts(t, pod, container(t, pod, "actuator")), len(actuatorMounts)-1)
}

// TestEnvironment: both daemons run few Go threads on a node of any size and keep their memory limit, and extraEnv wins.
// Server-side apply, which Helm 4 uses, refuses a name that is twice in env.
func TestEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		extra string
		// frontend and actuator are what is other than by default.
		frontend, actuator map[string]string
	}{
		"default":          {`[]`, nil, nil},
		"another variable": {`[{name: GOGC, value: "50"}]`, map[string]string{"GOGC": "50"}, map[string]string{"GOGC": "50"}},
		"another number":   {`[{name: GOMAXPROCS, value: "7"}]`, map[string]string{"GOMAXPROCS": "7"}, map[string]string{"GOMAXPROCS": "7"}},
		"another limit": {
			`[{name: GOMEMLIMIT, value: "64MiB"}]`, map[string]string{"GOMEMLIMIT": "64MiB"}, map[string]string{"GOMEMLIMIT": "64MiB"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := render(t, fmt.Sprintf("{frontend: {extraEnv: %s}, actuator: {extraEnv: %s}}", c.extra, c.extra))
			for daemon, changes := range map[string]map[string]string{"frontend": c.frontend, "actuator": c.actuator} {
				want := map[string]string{"GOMAXPROCS": map[string]string{"frontend": "4", "actuator": "2"}[daemon], "GOMEMLIMIT": "limits.memory"}
				maps.Copy(want, changes)
				got := map[string]string{}
				for _, v := range container(t, daemonSet(t, all, daemon).Spec.Template.Spec, daemon).Env {
					require.NotContains(t, got, v.Name, "twice in env")
					got[v.Name] = v.Value
					if v.ValueFrom != nil && v.ValueFrom.ResourceFieldRef != nil {
						got[v.Name] = v.ValueFrom.ResourceFieldRef.Resource
					}
				}
				delete(got, "NODE_NAME")
				delete(got, "POD_UID")
				delete(got, "RELEASE")
				require.Equal(t, want, got, daemon)
			}
		})
	}
}

// The API takes either maxSurge or maxUnavailable: old and new pods overlap unless
// maxUnavailable is set. In the sidecar layout the frontend's settings hold.
func TestUpdateStrategies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ values, daemonSet, surge, unavailable string }{
		"frontend":                {"{}", "frontend", "1", "0"},
		"actuator":                {"{}", "actuator", "1", "0"},
		"sidecar":                 {"layout: sidecar", "node", "1", "0"},
		"surge of the frontend":   {"frontend: {maxSurge: 30%}", "frontend", "30%", "0"},
		"surge of the actuator":   {"actuator: {maxSurge: 3}", "actuator", "3", "0"},
		"gap of the frontend":     {"frontend: {maxUnavailable: 2}", "frontend", "0", "2"},
		"gap of the actuator":     {"actuator: {maxUnavailable: 10%}", "actuator", "0", "10%"},
		"surge and gap":           {"actuator: {maxSurge: 3, maxUnavailable: 10%}", "actuator", "0", "10%"},
		"gap of the sidecar":      {"{layout: sidecar, frontend: {maxUnavailable: 10%}}", "node", "0", "10%"},
		"actuator's in a sidecar": {"{layout: sidecar, actuator: {maxUnavailable: 10%}}", "node", "1", "0"},
		"node by node":            {"frontend: {updateStrategy: OnDelete, maxUnavailable: 2}", "frontend", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			strategy := daemonSet(t, render(t, c.values), c.daemonSet).Spec.UpdateStrategy
			if c.surge == "" {
				require.Equal(t, appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}, strategy)
				return
			}
			require.Equal(t, appsv1.RollingUpdateDaemonSetStrategyType, strategy.Type)
			r := strategy.RollingUpdate
			require.Equal(t, []string{c.surge, c.unavailable}, []string{r.MaxSurge.String(), r.MaxUnavailable.String()})
		})
	}
}

// The frontend knows its release, so that two releases do not share a node.
func TestReleaseName(t *testing.T) {
	t.Parallel()
	for layout, daemonSets := range layouts {
		for values, want := range map[string]string{
			"":                             "ns/r-dra-driver-cpumem",
			"fullnameOverride: other":      "ns/other",
			"namespaceOverride: elsewhere": "elsewhere/r-dra-driver-cpumem",
		} {
			pod := daemonSet(t, render(t, "layout: "+layout+"\n"+values), daemonSets.frontend).Spec.Template.Spec
			require.Contains(t, container(t, pod, "frontend").Env, corev1.EnvVar{Name: "RELEASE", Value: want})
		}
	}
}

// A53: a change for one daemon leaves the other daemon's pods alone.
func TestWhatRollsWhat(t *testing.T) {
	t.Parallel()
	before := render(t, "{}")
	for name, c := range map[string]struct {
		values             string
		frontend, actuator bool
	}{
		"configuration":  {"config: {groupBy: socket}", true, false},
		"guard of specs": {"config: {guard: false}", true, false},
		"frontend image": {"frontend: {image: {tag: v2}}", true, false},
		"actuator image": {"actuator: {image: {tag: v2}}", false, true},
		"CDI directory":  {"config: {cdiDir: /run/cdi}", true, true},
		"no partitions":  {"config: {exclusivity: pool}", true, true},
		"nothing":        {"networkPolicy: {enabled: false}", false, false},
		"metrics":        {"metrics: {enabled: true, from: [{namespaceSelector: {}}]}", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := render(t, c.values)
			for daemon, rolls := range map[string]bool{"frontend": c.frontend, "actuator": c.actuator} {
				old, cur := daemonSet(t, before, daemon).Spec.Template, daemonSet(t, after, daemon).Spec.Template
				if rolls {
					require.NotEqual(t, old, cur, daemon)
				} else {
					require.Equal(t, old, cur, daemon)
				}
			}
		})
	}
}

// The selector of each DaemonSet picks its own pods only.
func TestSelectors(t *testing.T) {
	t.Parallel()
	for layout, daemonSets := range layouts {
		all := render(t, "layout: "+layout+"\ncommonLabels: {team: x}")
		for _, a := range daemonSets.names {
			for _, b := range daemonSets.names {
				matches := true
				for k, v := range daemonSet(t, all, a).Spec.Selector.MatchLabels {
					matches = matches && daemonSet(t, all, b).Spec.Template.Labels[k] == v
				}
				require.Equal(t, a == b, matches)
			}
		}
		for _, o := range all {
			m, err := meta.Accessor(o)
			require.NoError(t, err)
			require.Equal(t, "x", m.GetLabels()["team"], m.GetName())
		}
	}
}

// A75: a claim of the default class gets DRAM. Each other memory type has its own
// class.
func TestDeviceClass(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		values string
		want   map[string]string
	}{
		"default": {"{}", map[string]string{"dra.cpumem": "dram"}},
		"further": {
			values: "deviceClass: {memoryTypes: [cxl, unknown]}",
			want:   map[string]string{"dra.cpumem": "dram", "dra.cpumem-cxl": "cxl", "dra.cpumem-unknown": "unknown"},
		},
		"none": {"deviceClass: {create: false, memoryTypes: [cxl]}", map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, want := map[string]string{}, map[string]string{}
			for _, class := range of[*resourcev1.DeviceClass](render(t, c.values)) {
				require.Len(t, class.Spec.Selectors, 1)
				got[class.Name] = class.Spec.Selectors[0].CEL.Expression
			}
			for class, kind := range c.want {
				want[class] = resourceslices.ClassSelector(topology.MemoryType(kind))
			}
			require.Equal(t, want, got)
		})
	}
}

// monitored is the start of values with metrics.
const monitored = "metrics: {enabled: true, from: [{namespaceSelector: {}}]}\n"

// named returns the object of a kind that client-go does not know.
func named(t *testing.T, all objects, kind string) *unstructured.Unstructured {
	for _, u := range of[*unstructured.Unstructured](all) {
		if u.GetKind() == kind {
			return u
		}
	}
	require.Fail(t, "the chart has no "+kind)
	return nil
}

// Either monitor has the port of each container, and so has the Service.
func TestMonitorPorts(t *testing.T) {
	t.Parallel()
	for kind, endpoints := range map[string]string{"PodMonitor": "podMetricsEndpoints", "ServiceMonitor": "endpoints"} {
		for layout, daemonSets := range layouts {
			section := strings.ToLower(kind[:1]) + kind[1:]
			all := render(t, monitored+section+": {enabled: true, labels: {team: b}}\ncommonLabels: {team: x}\nlayout: "+layout)
			var ports, want []string
			var services []corev1.ServicePort
			for _, name := range daemonSets.names {
				for _, c := range daemonSet(t, all, name).Spec.Template.Spec.Containers {
					want = append(want, c.Ports[0].Name)
					services = append(services, corev1.ServicePort{
						Name: c.Ports[0].Name, Port: c.Ports[0].ContainerPort, TargetPort: intstr.FromString(c.Ports[0].Name),
					})
				}
			}
			monitor := named(t, all, kind)
			require.Equal(t, "b", monitor.GetLabels()["team"])
			list, _, err := unstructured.NestedSlice(monitor.Object, "spec", endpoints)
			require.NoError(t, err)
			for _, e := range list {
				ports = append(ports, e.(map[string]any)["port"].(string))
				require.Contains(t, fmt.Sprint(e.(map[string]any)["relabelings"]), "targetLabel:node", "alerts need the label")
			}
			require.ElementsMatch(t, want, ports)
			if kind == "ServiceMonitor" {
				service := of[*corev1.Service](all)[0]
				require.ElementsMatch(t, services, service.Spec.Ports)
				require.Equal(t, service.Spec.Selector, daemonSetSelector(t, all, daemonSets.names[0], service.Spec.Selector))
			}
		}
	}
}

// daemonSetSelector returns the labels of the DaemonSet's pods that the selector names.
func daemonSetSelector(t *testing.T, all objects, name string, selector map[string]string) map[string]string {
	labels := maps.Clone(daemonSet(t, all, name).Spec.Template.Labels)
	maps.DeleteFunc(labels, func(key, _ string) bool { _, named := selector[key]; return !named })
	return labels
}

// Each alert has the address of its runbook. A disabled alert is left out, and a name
// of no alert is refused.
func TestPrometheusRule(t *testing.T) {
	t.Parallel()
	alerts := func(values string) map[string]string {
		groups, _, err := unstructured.NestedSlice(named(t, render(t, monitored+values), "PrometheusRule").Object, "spec", "groups")
		require.NoError(t, err)
		out := make(map[string]string)
		for _, rule := range groups[0].(map[string]any)["rules"].([]any) {
			url, _, err := unstructured.NestedString(rule.(map[string]any), "annotations", "runbook_url")
			require.NoError(t, err)
			out[rule.(map[string]any)["alert"].(string)] = url
		}
		return out
	}
	all := alerts("prometheusRule: {enabled: true, runbookURL: https://example.org/runbooks}")
	require.Equal(t, "https://example.org/runbooks#cpumemclaimrefused", all["CPUMemClaimRefused"])
	fewer := alerts("prometheusRule: {enabled: true, disabled: [CPUMemClaimRefused]}")
	require.NotContains(t, fewer, "CPUMemClaimRefused")
	require.Len(t, fewer, len(all)-1)
	rules, _, err := unstructured.NestedSlice(named(t, render(t, monitored+
		"prometheusRule: {enabled: true, alertLabels: {team: x, severity: page}}"), "PrometheusRule").Object, "spec", "groups")
	require.NoError(t, err)
	for _, rule := range rules[0].(map[string]any)["rules"].([]any) {
		require.Equal(t, map[string]any{"team": "x", "severity": "page"}, rule.(map[string]any)["labels"])
	}
	_, err = helm(t, monitored+"prometheusRule: {enabled: true, disabled: [Refused]}", "template", "r", chartDir)
	require.ErrorContains(t, err, "there is no alert Refused")
}

// A51: the Job after an uninstall and the test are hooks of helm, and their objects
// are deleted.
func TestHooks(t *testing.T) {
	t.Parallel()
	hooks := map[string]int{}
	for _, o := range render(t, "{}") {
		m, err := meta.Accessor(o)
		require.NoError(t, err)
		if hook, ok := m.GetAnnotations()["helm.sh/hook"]; ok {
			hooks[hook]++
			require.Equal(t, "before-hook-creation,hook-succeeded", m.GetAnnotations()["helm.sh/hook-delete-policy"])
		}
	}
	require.Equal(t, map[string]int{"post-delete": 4, "test": 2}, hooks)

	job := of[*batchv1.Job](render(t, "frontend: {image: {tag: v7}}"))[0].Spec.Template.Spec
	require.Equal(t, "dra-cpumem/dra-frontend:v7", job.Containers[0].Image)
	require.Equal(t, []string{"cleanup"}, job.Containers[0].Args)
	require.Empty(t, job.Volumes)
}

// A release with the chart's name does not repeat it in names. Long names are cut to
// leave room for suffixes.
func TestNames(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]string{
		"r":                        "r-dra-driver-cpumem-frontend",
		"dra-driver-cpumem":        "dra-driver-cpumem-frontend",
		strings.Repeat("long", 13): strings.Repeat("long", 13)[:45] + "-frontend",
	} {
		out, err := helm(t, "{}", "template", release, chartDir, "--show-only", "templates/frontend-daemonset.yaml")
		require.NoError(t, err)
		require.Contains(t, out, "\n  name: "+want+"\n")
	}
}

// The daemons need the Pod Security level privileged for their namespace, which in
// default all users' pods would have.
func TestNamespaceDefaultIsRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--namespace", "default"}, {"--set", "namespaceOverride=default"}} {
		_, err := helm(t, "{}", append([]string{"template", "r", chartDir}, args...)...)
		require.ErrorContains(t, err, "the namespace default is refused")
	}
}

// The actuator must not have the frontend's identity.
func TestServiceAccountsDiffer(t *testing.T) {
	t.Parallel()
	const same = "frontend: {serviceAccount: {name: one, create: false}}\nactuator: {serviceAccount: {name: one, create: false}}\n"
	_, err := helm(t, same, "template", "r", chartDir)
	require.ErrorContains(t, err, "must differ")
	_, err = helm(t, same+"layout: sidecar", "template", "r", chartDir)
	require.NoError(t, err, "the pod has one account")
}

// nameOverride replaces the chart's name wherever it selects.
func TestNameOverride(t *testing.T) {
	t.Parallel()
	out, err := helm(t, "nameOverride: cpumem", "template", "r", chartDir, "--show-only", "templates/frontend-daemonset.yaml")
	require.NoError(t, err)
	require.Contains(t, out, "\n  name: r-cpumem-frontend\n")
	require.NotContains(t, out, "app.kubernetes.io/name: dra-driver-cpumem")
}

// A digest replaces the tag.
func TestDigest(t *testing.T) {
	t.Parallel()
	out, err := helm(t, "actuator: {image: {repository: r.example/a, tag: v1, digest: \""+digest+"\"}}", "template", "r", chartDir,
		"--show-only", "templates/actuator-daemonset.yaml")
	require.NoError(t, err)
	require.Contains(t, out, `image: "r.example/a@`+digest+`"`)
}

// Without rbac.create no object grants anything, and no Job runs that would need a grant.
func TestNoRoles(t *testing.T) {
	t.Parallel()
	out, err := helm(t, "rbac: {create: false}", "template", "r", chartDir)
	require.NoError(t, err)
	require.NotContains(t, out, "rbac.authorization.k8s.io")
	require.NotContains(t, out, "kind: Job")
}

// The quota admits the class of the daemons' pods, and there is none without a class.
func TestPriorityClassQuota(t *testing.T) {
	t.Parallel()
	const enabled = "priorityClassQuota: {enabled: true}\n"
	out, err := helm(t, enabled, "template", "r", chartDir)
	require.NoError(t, err)
	require.Contains(t, out, `{operator: In, scopeName: PriorityClass, values: ["system-node-critical"]}`)
	out, err = helm(t, enabled+`priorityClassName: ""`, "template", "r", chartDir)
	require.NoError(t, err)
	require.NotContains(t, out, "ResourceQuota")
}

// The chart refuses a cluster without resource.k8s.io/v1.
func TestKubeVersion(t *testing.T) {
	t.Parallel()
	_, err := helm(t, "{}", "template", "r", chartDir, "--kube-version", "1.33.9")
	require.ErrorContains(t, err, "1.34.0-0")
	// Before 1.36, a right to write the status of claims is not limited to the own
	// driver and node (A52).
	out, err := helm(t, "{}", "template", "r", chartDir, "--kube-version", "1.35.9")
	require.NoError(t, err)
	require.NotContains(t, out, "resourceclaims/status")
	out, err = helm(t, "{}", "template", "r", chartDir, "--kube-version", "1.36.0-rc.1")
	require.NoError(t, err)
	require.Contains(t, out, "resourceclaims/status")
}
