// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/systemd"
)

func TestUnit(t *testing.T) {
	for name, c := range map[string]struct{ dir, want string }{
		"container": {
			dir:  "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice/cri-containerd-id.scope",
			want: "cri-containerd-id.scope",
		},
		"guaranteed": {dir: "kubepods.slice/kubepods-podu.slice/crio-id.scope", want: "crio-id.scope"},
		"pod": {
			dir:  "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu.slice",
			want: "kubepods-besteffort-podu.slice",
		},
		"level":    {dir: "kubepods.slice/kubepods-burstable.slice", want: "kubepods-burstable.slice"},
		"kubepods": {dir: "kubepods.slice", want: "kubepods.slice"},
		"kubelet in a slice": {
			dir:  "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podu.slice",
			want: "kubelet-kubepods-podu.slice",
		},
		"service":                       {dir: "system.slice/containerd.service", want: "containerd.service"},
		"service in the root":           {dir: "init.scope", want: "init.scope"},
		"name of a kernel file":         {dir: "kubepods.slice/_memory.scope", want: "memory.scope"},
		"escaped characters":            {dir: `system.slice/a\x2db@c:d.service`, want: `a\x2db@c:d.service`},
		"cgroupfs container":            {dir: "kubepods/burstable/podu/id"},
		"cgroupfs level":                {dir: "kubepods/burstable"},
		"cgroupfs below a slice":        {dir: "kubelet.slice/kubepods/podu"},
		"a slice below a plain cgroup":  {dir: "kubepods/a.slice"},
		"a slice elsewhere":             {dir: "kubepods.slice/other.slice"},
		"a slice that skips one":        {dir: "kubepods.slice/kubepods-burstable-podu.slice"},
		"inside of a container":         {dir: "kubepods.slice/kubepods-podu.slice/crio-id.scope/container"},
		"systemd inside of a container": {dir: "kubepods.slice/kubepods-podu.slice/crio-id.scope/init.scope"},
		"empty":                         {dir: ""},
		"absolute":                      {dir: "/kubepods.slice"},
		"trailing slash":                {dir: "kubepods.slice/"},
		"no stem":                       {dir: ".slice"},
		"root slice":                    {dir: "-.slice"},
		"other type":                    {dir: "system.slice/a.mount"},
		"not a name":                    {dir: "system.slice/a b.scope"},
		"too long":                      {dir: strings.Repeat("a", 250) + ".scope"},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := systemd.Unit(c.dir)
			require.Equal(t, c.want != "", ok)
			require.Equal(t, c.want, got)
		})
	}
}

func TestProperties(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  map[string]any
		err   string
	}{
		"all": {
			files: map[string]string{"memory.min": "0", "memory.low": "4096"},
			want:  map[string]any{"MemoryMin": uint64(0), "MemoryLow": uint64(4096)},
		},
		"no quota": {
			files: map[string]string{"cpu.max": "max 100000"},
			want:  map[string]any{"CPUQuotaPerSecUSec": uint64(math.MaxUint64), "CPUQuotaPeriodUSec": uint64(100000)},
		},
		"4.5 CPUs": {
			files: map[string]string{"cpu.max": "450000 100000"},
			want:  map[string]any{"CPUQuotaPerSecUSec": uint64(4500000), "CPUQuotaPeriodUSec": uint64(100000)},
		},
		"a quota without period": {
			files: map[string]string{"cpu.max": "max"}, err: `unit property for cpu.max: "max" is not a quota and a period`,
		},
		"a quota in no time": {files: map[string]string{"cpu.max": "1000 0"}, err: "is not a quota and a period"},
		"a quota of words":   {files: map[string]string{"cpu.max": "all 100000"}, err: "is not a quota and a period"},
		"a huge quota":       {files: map[string]string{"cpu.max": "18446744073709551615 100000"}, err: "is not a quota and a period"},
		"others":             {files: map[string]string{"hugetlb.2MB.max": "0", "memory.high": "x", "cpuset.cpus": "1"}},
		"nothing":            {},
		"protection of all":  {files: map[string]string{"memory.min": "max"}, want: map[string]any{"MemoryMin": uint64(math.MaxUint64)}},
		"no amount": {
			files: map[string]string{"memory.low": "4k"},
			err:   `unit property MemoryLow for memory.low: "4k" is neither bytes nor "max"`,
		},
		"empty amount": {files: map[string]string{"memory.min": ""}, err: "neither bytes"},
		"negative":     {files: map[string]string{"memory.min": "-1"}, err: "neither bytes"},
		"too much":     {files: map[string]string{"memory.low": "18446744073709551616"}, err: "neither bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := systemd.Properties(c.files)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Len(t, got, len(c.want))
			for _, p := range got {
				require.Equal(t, c.want[p.Name], p.Value.Value(), p.Name)
			}
		})
	}
}

func FuzzProperties(f *testing.F) {
	f.Add("memory.min", "max")
	f.Add("memory.low", "18446744073709551615")
	f.Add("cpu.max", "450000 100000")
	f.Fuzz(func(t *testing.T, file, content string) {
		properties, err := systemd.Properties(map[string]string{file: content})
		if err != nil || len(properties) == 0 {
			require.Empty(t, properties)
			return
		}
		n, ok := properties[0].Value.Value().(uint64)
		require.True(t, ok)
		if file == "cpu.max" {
			require.Len(t, properties, 2)
			require.True(t, n == math.MaxUint64 || n <= math.MaxUint64/2, "no overflow")
			return
		}
		again, err := strconv.ParseUint(content, 10, 64)
		require.True(t, content == "max" && n == math.MaxUint64 || err == nil && n == again)
	})
}

func FuzzUnit(f *testing.F) {
	f.Add("kubepods.slice/kubepods-podu.slice/crio-id.scope")
	f.Add("kubepods/podu/id")
	f.Fuzz(func(t *testing.T, dir string) {
		name, ok := systemd.Unit(dir)
		require.Equal(t, ok, name != "")
		require.NotContains(t, name, "/")
		require.LessOrEqual(t, len(name), 255)
		require.True(t, !ok || strings.HasSuffix(dir, name))
	})
}
