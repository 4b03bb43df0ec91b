// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lasts is how long a fault lasts. On this cluster the runtime waits 30 s for an answer
// of the actuator, so it goes on without the actuator while the fault lasts.
const lasts = 40 * time.Second

// atOnce returns the number of containers without a claim that start at once in each
// fault: 60 with STEPS=60 or more, which an emulated node takes ten minutes for.
func atOnce() int {
	const few, many = 6, 60
	if *steps < many {
		return few
	}
	return many
}

// fault is something that goes wrong on a node while containers start there.
type fault struct {
	name string
	// begin and end are scripts of the node's shell.
	begin, end string
	// failsRuntime reports whether the runtime or kubelet ends, or cannot write its own
	// files. A container that is just being created may then fail without the driver, so
	// its pod must restart it.
	failsRuntime bool
}

// faults returns what goes wrong, one after the other.
func faults() []fault {
	const (
		// A program of the node, run where the frontend's file systems are: the
		// frontend's image has no programs.
		inFrontend = "nsenter -t $(pidof dra-frontend) -m -w/bin ./busybox "
		// The programs of the actuator's image on the node, as a second actuator.
		second = "mkdir -p /tmp/second; for program in nri-actuator cpumem-guard; do cp /proc/$first/root/$program /tmp/second/; done; " +
			"setsid /tmp/second/nri-actuator --cdi-dir=/var/run/cdi --nri-socket=/var/run/nri/nri.sock --cgroup-root=/sys/fs/cgroup" +
			" --refresh-interval=5s --guard-dir=/var/lib/dra-cpumem/bin" +
			" </dev/null >/tmp/second-actuator.log 2>&1 & echo $! >/tmp/second-actuator.pid"
		limitOfActuator = "/sys/fs/cgroup/$(cut -d: -f3 /proc/$(pidof nri-actuator)/cgroup)/memory.max"
	)
	return []fault{
		{name: "nothing", begin: "true", end: "true"},
		{name: "the actuator is stopped", begin: "kill -STOP $(pidof nri-actuator)", end: "kill -CONT $(pidof nri-actuator)"},
		{name: "the actuator is killed", begin: "kill -9 $(pidof nri-actuator)", end: "true"},
		{name: "the actuator runs out of memory", begin: "echo 1M >" + limitOfActuator, end: "true"},
		{name: "the frontend is stopped", begin: "kill -STOP $(pidof dra-frontend)", end: "kill -CONT $(pidof dra-frontend)"},
		{name: "both daemons are killed", begin: "kill -9 $(pidof nri-actuator) $(pidof dra-frontend)", end: "true"},
		{
			name:  "a second actuator takes over",
			begin: "first=$(pidof nri-actuator); " + second + "; sleep 2; kill -9 $first",
			end:   "kill -9 $(cat /tmp/second-actuator.pid)",
		},
		{
			name:         "the file system of the CDI directory is full",
			begin:        "dd if=/dev/zero of=/run/fill bs=64k; true",
			end:          "rm /run/fill",
			failsRuntime: true, // runc's state is below /run, too
		},
		{
			name: "the file system of the CDI directory has no inode left",
			begin: "mkdir /run/fill; mount -o remount,nr_inodes=$(($(df -i /run | tail -1 | awk '{print $3}') + 20)) /run; " +
				"i=0; while touch /run/fill/$i; do i=$((i + 1)); done; true",
			end:          "rm -r /run/fill; mount -o remount,nr_inodes=800k /run",
			failsRuntime: true,
		},
		{
			name:  "the CDI directory is read-only for the frontend",
			begin: inFrontend + "mount -o remount,bind,ro none /var/run/cdi",
			end:   inFrontend + "mount -o remount,bind,rw none /var/run/cdi",
		},
		{
			name:  "both daemons start, and no inotify instance is left",
			begin: "sysctl -w fs.inotify.max_user_instances=1; kill -9 $(pidof nri-actuator) $(pidof dra-frontend)",
			end:   "sysctl -w fs.inotify.max_user_instances=128",
		},
		{
			name:  "the clock jumps an hour ahead, and back",
			begin: "date -s @$(($(date +%s) + 3600))",
			end:   "date -s @$(($(date +%s) - 3600))",
		},
		{name: "the runtime is killed", begin: "service kill containerd; service start containerd", end: "true", failsRuntime: true},
		{name: "kubelet restarts", begin: "service restart kubelet", end: "true", failsRuntime: true},
	}
}

// A82: whatever goes wrong, a claim's CPUs are the claim's alone (I1), all containers
// start when the fault is over, and none fails.
func TestA82_Faults(t *testing.T) {
	longOnly(t)
	s := theSuite.on(wide)
	if !s.partitions(t) {
		t.Skip("this kernel makes no partitions: a container that starts while no actuator is there may run on all CPUs")
	}
	s.configure(t, slowNode)
	l := observers(t, s, "200ms")
	before := batch{name: "a82-before", claims: 1}
	before.start(t, l)
	before.runs(t, l)
	for i, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			b := batch{
				name: fmt.Sprintf("a82-%d", i), claims: 2, pods: 2, containers: atOnce() / 2, restarted: f.failsRuntime,
			}
			end, stop := l.during(t, f)
			// Before the pods are removed: that needs the daemons.
			defer end()
			b.start(t, l)
			took := stop()
			b.runs(t, l)
			eventually(t, "daemons ready", s.ready)
			b.report(t, l, took)
			before.runs(t, l)
			require.NoError(t, before.note(t.Context(), l))
			require.NoError(t, b.note(t.Context(), l))
			l.compare(t, b.claimless(t, l)...)
		})
	}
}

// during begins the fault. end ends it at once, if it has not ended. stop ends it when it
// has lasted, and returns how long it was.
func (l *lives) during(t *testing.T, f fault) (end func(), stop func() time.Duration) {
	t.Helper()
	began := time.Now()
	end = sync.OnceFunc(func() {
		if out, err := l.NodeExec(context.Background(), l.node, f.end); err != nil {
			t.Errorf("end of the fault: %v: %s", err, out)
		}
	})
	t.Cleanup(end)
	out, err := l.NodeExec(t.Context(), l.node, f.begin)
	require.NoError(t, err, out)
	return end, func() time.Duration {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for time.Since(began) < lasts {
			<-tick.C
		}
		end()
		return time.Since(began)
	}
}
