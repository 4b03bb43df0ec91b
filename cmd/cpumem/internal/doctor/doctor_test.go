// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster/clustertest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/doctor"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/inspect"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

const mounts = `1 0 8:1 / / rw - ext4 /dev/vda rw
2 1 0:20 / /run rw - tmpfs tmpfs rw
3 1 0:21 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
`

// node returns a node on which all is well.
func node() doctor.Machine {
	return doctor.Machine{
		Root: fstest.MapFS{
			"proc/sys/kernel/osrelease":        file("6.12.9\n"),
			"proc/sys/kernel/random/boot_id":   file("boot\n"),
			"proc/self/mountinfo":              file(mounts),
			"sys/fs/cgroup/cgroup.controllers": file("cpuset cpu io memory hugetlb pids"),
			"k/cpu_manager_state":              file(`{"policyName":"none"}`),
			"k/memory_manager_state":           file(`{"policyName":"None"}`),
			"k/config.yaml":                    file("kind: KubeletConfiguration\nfeatureGates: {DRAConsumableCapacity: true}\n"),
			"run/nri/nri.sock":                 {Mode: fs.ModeSocket},
		},
		Kubelet: "/k", KubeletConfig: "/k/config.yaml", NRISocket: "/run/nri/nri.sock", CDIDir: "/run/cdi",
		Directory: inspect.Directory{
			Claims: []contract.ClaimRecord{{UID: "u", BootID: "boot"}},
			Node:   &contract.NodeState{Generation: 7},
			Actuator: &contract.Announcement{
				Connected: true, Runtime: "containerd", RuntimeVersion: "v2.3", Versions: []string{contract.Version}, Generation: 7,
				Guard: "/g", Features: []string{contract.FeaturePartition},
			},
		},
	}
}

// The actuator's texts come bounded and printable to the terminal.
func TestTextsOfTheActuator(t *testing.T) {
	const hostile, shown = "/\x1b[31m", "/?[31m"
	long := strings.Repeat("x", 400)
	for name, tc := range map[string]struct {
		change func(*contract.Announcement)
		want   string
	}{
		"runtime": {
			func(a *contract.Announcement) { a.Runtime = hostile + long },
			"connected to " + shown + long[:294] + "... (106 bytes more) v2.3",
		},
		"version": {func(a *contract.Announcement) { a.RuntimeVersion = hostile }, "connected to containerd " + shown},
		"guard":   {func(a *contract.Announcement) { a.Guard = hostile }, shown},
	} {
		t.Run(name, func(t *testing.T) {
			n := node()
			tc.change(n.Directory.Actuator)
			found := func(c doctor.Check) bool { return c.Found == tc.want }
			require.True(t, slices.ContainsFunc(doctor.Node(n), found))
		})
	}
}

func TestHealthyNode(t *testing.T) {
	checks := doctor.Node(node())
	var out strings.Builder
	require.NoError(t, doctor.Table(&out, checks))
	require.Len(t, checks, 13)
	for _, c := range checks {
		require.Equal(t, doctor.OK, c.State, out.String())
		require.Empty(t, c.Mend)
	}
	require.Contains(t, out.String(), "/run/cdi on tmpfs\n")
}

// forRoot is a file system with a file that only root may read.
type forRoot struct {
	fs.FS
	name string
}

func (f forRoot) Open(name string) (fs.File, error) {
	if name == f.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f.FS.Open(name)
}

// A file of kubelet may be named from the working directory.
func TestKubeletConfigOfTheWorkingDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("config.yaml", []byte("kind: KubeletConfiguration\nfeatureGates: {DRAConsumableCapacity: true}\n"), 0o600))
	for _, name := range []string{"config.yaml", "./config.yaml"} {
		t.Run(name, func(t *testing.T) {
			m := node()
			m.Root, m.KubeletConfig = os.DirFS("/"), name
			checks := doctor.Node(m)
			i := slices.IndexFunc(checks, func(c doctor.Check) bool { return strings.HasPrefix(c.Name, "feature gate") })
			require.Equal(t, doctor.OK, checks[i].State, checks[i].Found)
		})
	}
}

// Each thing that is wrong is found, with what mends it, and nothing else is.
func TestUnwellNode(t *testing.T) {
	with := func(name, text string) func(*doctor.Machine) {
		return func(m *doctor.Machine) {
			files := maps.Clone(m.Root.(fstest.MapFS))
			files[name] = file(text)
			m.Root = files
		}
	}
	without := func(name string) func(*doctor.Machine) {
		return func(m *doctor.Machine) {
			files := maps.Clone(m.Root.(fstest.MapFS))
			delete(files, name)
			m.Root = files
		}
	}
	denied := func(name string) func(*doctor.Machine) {
		return func(m *doctor.Machine) { m.Root = forRoot{m.Root, name} }
	}
	for name, tc := range map[string]struct {
		change func(*doctor.Machine)
		state  doctor.State
		want   string
	}{
		"kernel for pools": {
			change: with("proc/sys/kernel/osrelease", "6.1.0-9-amd64"),
			state:  doctor.Warning,
			want:   "Linux 6.7 or later makes cpuset partitions",
		},
		"kernel of old":    {with("proc/sys/kernel/osrelease", "5.4.0"), doctor.Warning, "Linux 5.9 or later"},
		"no kernel":        {without("proc/sys/kernel/osrelease"), doctor.Unknown, "osrelease"},
		"a strange kernel": {with("proc/sys/kernel/osrelease", "next"), doctor.Unknown, "next"},
		"cgroup v1": {
			change: with("proc/self/mountinfo", "1 0 8:1 / /run rw - tmpfs tmpfs rw\n"),
			state:  doctor.Fault,
			want:   "/sys/fs/cgroup is not cgroup v2",
		},
		"no hugetlb":          {with("sys/fs/cgroup/cgroup.controllers", "cpuset memory"), doctor.Fault, "missing: hugetlb"},
		"no controllers":      {without("sys/fs/cgroup/cgroup.controllers"), doctor.Unknown, "cgroup.controllers"},
		"static CPU manager":  {with("k/cpu_manager_state", `{"policyName":"static"}`), doctor.Fault, `cpuManagerPolicy "static"`},
		"no state of kubelet": {without("k/cpu_manager_state"), doctor.Unknown, "cpu_manager_state is not visible"},
		"gate off": {
			change: with("k/config.yaml", "kind: KubeletConfiguration\nfeatureGates: {DRAConsumableCapacity: false}\n"),
			state:  doctor.Fault,
			want:   "restart kubelet",
		},
		"no file of kubelet": {
			change: without("k/config.yaml"), state: doctor.Fault, want: "name kubelet's configuration file with --kubelet-config",
		},
		"no such kind": {
			change: with("k/config.yaml", "kind: Pod\n"), state: doctor.Fault,
			want: `/k/config.yaml: it is of kind "Pod", not a KubeletConfiguration`,
		},
		"kubelet's configuration for root only": {denied("k/config.yaml"), doctor.Unknown, "permission deniedrun as root"},
		"kubelet's state for root only":         {denied("k/cpu_manager_state"), doctor.Unknown, "permission deniedrun as root"},
		"NRI for root only":                     {denied("run/nri/nri.sock"), doctor.Unknown, "permission deniedrun as root"},
		"CDI directory for root only": {
			change: func(m *doctor.Machine) { m.Err = fs.ErrPermission }, state: doctor.Unknown, want: "permission deniedrun as root",
		},
		"gate not looked for": {func(m *doctor.Machine) { m.KubeletConfig = "" }, doctor.Unknown, "--kubelet-config"},
		"no NRI":              {without("run/nri/nri.sock"), doctor.Fault, "switch NRI on in the runtime"},
		"no NRI in the frontend's container": {
			change: func(m *doctor.Machine) {
				without("run/nri/nri.sock")(m)
				with("sys/fs/cgroup/cgroup.type", "domain\n")(m)
			},
			state: doctor.Unknown,
			want:  "run it on the node",
		},
		"a file for NRI": {with("run/nri/nri.sock", ""), doctor.Fault, "is no socket"},
		"irqbalance": {
			change: with("sys/fs/cgroup/system.slice/irqbalance.service/cgroup.events", "populated 1\nfrozen 0\n"),
			state:  doctor.Warning,
			want:   "give it the claimable CPUs as IRQBALANCE_BANNED_CPULIST",
		},
		"CDI on a disk": {
			change: func(m *doctor.Machine) { m.CDIDir = "/etc/cdi" },
			state:  doctor.Warning,
			want:   "/etc/cdi is on ext4, which a reboot does not empty",
		},
		"not connected": {
			func(m *doctor.Machine) {
				m.Directory.Actuator.Connected, m.Directory.Actuator.Disconnected = false, "no\x1b"
				m.Directory.Problems = []error{inspect.ErrNotConnected}
			},
			doctor.Fault, "not connected to the runtime: no?",
		},
		"versions": {
			change: func(m *doctor.Machine) { m.Directory.Actuator.Versions = []string{"9"} },
			state:  doctor.Fault,
			want:   "upgrade the older daemon",
		},
		"no guard": {func(m *doctor.Machine) { m.Directory.Actuator.Guard = "" }, doctor.Warning, "actuator.guard.enabled: true"},
		"no partition": {
			change: func(m *doctor.Machine) { m.Directory.Actuator.Features = nil },
			state:  doctor.Warning,
			want:   "host processes may run on claimed CPUs",
		},
		"behind": {
			change: func(m *doctor.Machine) { m.Directory.Actuator.Generation = 6 },
			state:  doctor.Warning,
			want:   "generation 7 is written, 6 is applied",
		},
		"stale claims": {
			change: func(m *doctor.Machine) {
				with("proc/sys/kernel/random/boot_id", "later")(m)
				m.Directory.Problems = []error{fmt.Errorf("%w: claim u", inspect.ErrOtherBoot)}
			},
			state: doctor.Fault,
			want:  "1 of 1 claims were prepared before the last boot",
		},
		"a node state of another boot": {
			change: func(m *doctor.Machine) {
				m.Directory.Problems = []error{fmt.Errorf("%w: claim u", inspect.ErrOtherBoot)}
			},
			state: doctor.Fault,
			want:  "claim urun cpumem explain; docs/how-to/troubleshooting.md has the messages",
		},
		"an actuator that has ended": {
			change: func(m *doctor.Machine) {
				with("run/cdi/"+contract.ActuatorFile, "{}")(m)
				m.Directory.Actuator, m.Directory.Problems = nil, []error{contract.ErrActuatorDead}
			},
			state: doctor.Fault,
			want:  "it has ended",
		},
		"an actuator that does not start": {
			change: func(m *doctor.Machine) {
				m.Directory.Actuator, m.Directory.Problems = nil, []error{contract.ErrActuatorDead}
			},
			state: doctor.Fault,
			want:  "it is not running",
		},
		"nothing but the file of an actuator that has ended": {
			change: func(m *doctor.Machine) {
				with("run/cdi/"+contract.ActuatorFile, "{}")(m)
				m.Directory = inspect.Directory{Problems: []error{contract.ErrActuatorDead}}
			},
			state: doctor.Fault,
			want:  "it has ended",
		},
		"nothing is written": {
			change: func(m *doctor.Machine) {
				m.Directory = inspect.Directory{Problems: []error{fs.ErrNotExist, contract.ErrActuatorDead}}
			},
			state: doctor.Unknown,
			want:  "the driver is not installed, or its daemons do not start",
		},
		"gate by default": {
			change: with("k/config.yaml", "kind: KubeletConfiguration\n"), state: doctor.Unknown,
			want: "on by default from Kubernetes 1.36",
		},
		"only a corrupt file": {
			change: func(m *doctor.Machine) { m.Directory = inspect.Directory{Problems: []error{fs.ErrInvalid}} },
			state:  doctor.Fault, want: "invalid argument",
		},
		"problem": {func(m *doctor.Machine) { m.Directory.Problems = []error{fs.ErrInvalid} }, doctor.Fault, "invalid argument"},
		"files for root only": {
			change: func(m *doctor.Machine) {
				m.Directory = inspect.Directory{Problems: []error{fs.ErrPermission, fmt.Errorf("node: %w", fs.ErrPermission)}}
			},
			state: doctor.Unknown,
			want:  "2 files of the CDI directory cannot be read: permission deniedrun as root",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := node()
			tc.change(&m)
			var out strings.Builder
			found := 0
			checks := doctor.Node(m)
			require.NoError(t, doctor.Table(&out, checks))
			for _, c := range checks {
				if c.State != doctor.OK {
					require.Equal(t, tc.state, c.State, c.Found)
					require.Contains(t, c.Found+c.Mend, tc.want)
					found++
				}
			}
			require.Equal(t, 1, found, out.String())
			require.Equal(t, tc.state == doctor.Fault, doctor.Faults(checks) == 1)
		})
	}
}

// Before the installation nothing of the daemons is a fault.
func TestNodeBeforeInstallation(t *testing.T) {
	for name, change := range map[string]func(*doctor.Machine){
		"no directory":    func(m *doctor.Machine) { m.Err = fs.ErrNotExist },
		"empty directory": func(m *doctor.Machine) { m.Directory = inspect.Directory{Problems: []error{fs.ErrNotExist}} },
	} {
		t.Run(name, func(t *testing.T) {
			m := node()
			change(&m)
			require.Zero(t, doctor.Faults(doctor.Node(m)))
		})
	}
}

func server() doctor.Server {
	ready := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	return doctor.Server{Version: "v1.36.2", Objects: cluster.Objects{
		Nodes:   []*corev1.Node{ready},
		Classes: []*resourceapi.DeviceClass{{ObjectMeta: metav1.ObjectMeta{Name: "dra.cpumem"}}},
		Slices: []*resourceapi.ResourceSlice{
			clustertest.Slice("a", clustertest.Zone("numa-0", "cpu", "4"), clustertest.Zone("numa-1", "cpu", "4")),
		},
		Claims: []*resourceapi.ResourceClaim{clustertest.Allocated("one", "a", "numa-0", `{"cpus":"1"}`, "cpu", "1")},
	}}
}

func TestHealthyCluster(t *testing.T) {
	checks := doctor.Cluster(server())
	require.Len(t, checks, 5)
	for _, c := range checks {
		require.Equal(t, doctor.OK, c.State, c)
	}
}

// A claim with two requests is one claim.
func TestClaimsAreCounted(t *testing.T) {
	s := server()
	allocation := s.Objects.Claims[0].Status.Allocation
	second := *allocation.Devices.Results[0].DeepCopy()
	second.Request, second.Device = "second", "numa-1"
	allocation.Devices.Results = append(allocation.Devices.Results, second)
	for _, c := range doctor.Cluster(s) {
		if c.Name == "claims" {
			require.Equal(t, "1 allocated", c.Found)
			return
		}
	}
	require.Fail(t, "no check of claims")
}

// Before Kubernetes 1.36 the frontend may not write the status of claims.
func TestClaimsWithoutStatus(t *testing.T) {
	const version = "v1.35.2"
	for name, tc := range map[string]struct {
		change func(*doctor.Server)
		want   doctor.Check
	}{
		"no status": {
			change: func(s *doctor.Server) { s.Version, s.Objects.Claims[0].Status.Devices = version, nil },
			want: doctor.Check{
				Name: "claims", State: doctor.Unknown, Found: "1 allocated: the status of claims is written from Kubernetes 1.36 on",
			},
		},
		"a right of your own": {
			change: func(s *doctor.Server) { s.Version = version },
			want:   doctor.Check{Name: "claims", State: doctor.OK, Found: "1 allocated"},
		},
		"no claim": {
			change: func(s *doctor.Server) { s.Version, s.Objects.Claims = version, nil },
			want:   doctor.Check{Name: "claims", State: doctor.OK, Found: "0 allocated"},
		},
		"its pod has not started": {
			change: func(s *doctor.Server) { s.Objects.Claims[0].Status.Devices = nil },
			want:   doctor.Check{Name: "claims", State: doctor.OK, Found: "1 allocated"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := server()
			tc.change(&s)
			require.Contains(t, doctor.Cluster(s), tc.want)
		})
	}
}

func TestUnwellCluster(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*doctor.Server)
		state  doctor.State
		want   string
	}{
		"too old":  {func(s *doctor.Server) { s.Version = "v1.33.4" }, doctor.Fault, "Kubernetes 1.34 or later"},
		"no API":   {func(s *doctor.Server) { s.WithoutAPI = true }, doctor.Fault, "v1.36.2, without resource.k8s.io/v1"},
		"gate":     {func(s *doctor.Server) { s.Version = "v1.35.0" }, doctor.Warning, "DRAConsumableCapacity is off by default here"},
		"strange":  {func(s *doctor.Server) { s.Version = "main" }, doctor.Unknown, "main"},
		"no class": {func(s *doctor.Server) { s.Objects.Classes = nil }, doctor.Warning, "deviceClass.create: true"},
		"gate off": {
			change: func(s *doctor.Server) { s.Objects.Slices[0].Spec.Devices[0].AllowMultipleAllocations = nil },
			state:  doctor.Fault,
			want:   "off: the zones were published without it",
		},
		"slices": {
			change: func(s *doctor.Server) { s.Objects.Slices[0].Spec.Pool.ResourceSliceCount = 2 },
			state:  doctor.Fault,
			want:   "a (1 of 2 ResourceSlices are there)",
		},
		"a node less": {func(s *doctor.Server) {
			n := s.Objects.Nodes[0].DeepCopy()
			n.Name = "b"
			s.Objects.Nodes = append(s.Objects.Nodes, n)
		}, doctor.Warning, "2 zones of 1 nodes, none of b"},
		"not ready": {func(s *doctor.Server) { s.Objects.Nodes[0].Status.Conditions = nil }, doctor.OK, ""},
		"taints": {func(s *doctor.Server) {
			for i := range s.Objects.Slices[0].Spec.Devices {
				s.Objects.Slices[0].Spec.Devices[i].Taints = []resourceapi.DeviceTaint{{Key: "dra.cpumem/x", Value: "y", Effect: "NoSchedule"}}
			}
		}, doctor.Fault, "dra.cpumem/x=y:NoSchedule on a"},
		"a taint that only informs": {func(s *doctor.Server) {
			s.Objects.Slices[0].Spec.Devices[0].Taints = []resourceapi.DeviceTaint{{Key: "dra.cpumem/x", Effect: "None"}}
		}, doctor.OK, ""},
		"claim": {func(s *doctor.Server) {
			s.Objects.Claims[0].Status.Devices[0].Conditions[0].Status = metav1.ConditionFalse
		}, doctor.Warning, "cpumem why claim/one -n default"},
	} {
		t.Run(name, func(t *testing.T) {
			s := server()
			tc.change(&s)
			checks := doctor.Cluster(s)
			found := 0
			for _, c := range checks {
				if c.State != doctor.OK {
					require.Equal(t, tc.state, c.State, c.Found)
					require.Contains(t, c.Found+c.Mend, tc.want)
					found++
				}
			}
			require.Equal(t, tc.state != doctor.OK, found == 1)
			if name == "too old" || name == "no API" {
				require.Len(t, checks, 1, "the API server has no objects to check")
			}
		})
	}
	s := server()
	s.Objects.Slices = nil
	require.Equal(t, 1, doctor.Faults(doctor.Cluster(s)))
	s.Objects.Classes = nil
	require.Zero(t, doctor.Faults(doctor.Cluster(s)), "before the installation")
	s = server()
	s.Objects.Slices[0].Spec.Devices = nil
	for _, c := range doctor.Cluster(s) {
		require.False(t, strings.HasPrefix(c.Name, "feature gate") && c.State == doctor.OK, "no zone shows the gate")
	}
}
