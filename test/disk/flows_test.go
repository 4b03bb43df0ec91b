// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/instances"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/announcement"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/guard/installation"
)

const (
	earlier = "a0000000-0000-4000-8000-000000000001"
	podUID  = "a0000000-0000-4000-8000-000000000002"
	program = "/bin/true"
)

var (
	claimFile = contract.ClaimFile("c0000000-0000-4000-8000-000000000001")
	base      = contract.Announcement{V: contract.Version, Versions: []string{contract.Version}, PID: 1}
)

func claimDir(root string) ledger.ClaimDir {
	return ledger.NewClaimDir(cdidir.At(filepath.Join(root, "d")), filepath.Join(root, "kubelet", "at.json"), "boot")
}

func located(root string) string {
	return fmt.Sprintf(`{"bootID":"boot","cdiDir":%q}`, filepath.Join(root, "d"))
}

// flow is a flow of a daemon that writes files which survive a reboot.
type flow struct {
	// before returns the files before the flow, below the directory root.
	before func(root string) Files
	do     func(root string) error
	// want returns the operations. If it is nil, only what a restart finds is checked.
	want func(root string) []Operation
	// restart returns an error unless the writer starts on what a power loss leaves. It is
	// nil where package explore restarts the daemon.
	restart func(root string) error
}

var flows = map[string]flow{
	"a file is written": {
		before: nothing,
		do:     func(root string) error { return atomicfile.Write(filepath.Join(root, "d"), "a", []byte("new"), 0o600) },
		want:   func(string) []Operation { return Replacement("d/a", "new") },
	},
	"a file is replaced": {
		before: old,
		do:     func(root string) error { return atomicfile.Write(filepath.Join(root, "d"), "a", []byte("new"), 0o600) },
		want:   func(string) []Operation { return Replacement("d/a", "new") },
	},
	"a file is removed": {
		before: old,
		do:     func(root string) error { return atomicfile.Remove(filepath.Join(root, "d"), "a") },
		want:   func(string) []Operation { return Removal("d/a") },
	},
	"the first claim file is written": {
		before: nothing,
		do:     func(root string) error { return claimDir(root).Write(claimFile, []byte("{}")) },
		want: func(root string) []Operation {
			return append(Replacement("kubelet/at.json", located(root)), Replacement("d/"+claimFile, "{}")...)
		},
	},
	"the last claim file is removed": {
		before: func(root string) Files { return Files{"d/" + claimFile: "{}", "kubelet/at.json": located(root)} },
		do:     func(root string) error { return claimDir(root).Remove(claimFile) },
		want:   func(string) []Operation { return append(Removal("d/"+claimFile), Removal("kubelet/at.json")...) },
	},
	"the actuator announces itself": {before: nothing, do: announce, restart: announce},
	"the actuator ends": {
		before: nothing,
		do: func(root string) error {
			held, err := announcement.New(filepath.Join(root, "d"), base)
			if err != nil {
				return err
			}
			return held.Close()
		},
		restart: announce,
	},
	"the guard is installed": {before: nothing, do: install, restart: install},
	"an instance of the frontend joins": {
		before: func(string) Files { return Files{"d/ledger.lock": "", "d/instances": earlier + "\n"} }, do: join, restart: join,
	},
}

func nothing(string) Files { return Files{} }
func old(string) Files     { return Files{"d/a": "old"} }

// announce announces an actuator, which must seem dead before and alive after that.
func announce(root string) error {
	dir := filepath.Join(root, "d")
	if _, err := contract.ReadAnnouncement(dir); !errors.Is(err, contract.ErrActuatorDead) {
		return fmt.Errorf("the actuator that was there seems to live: %w", err)
	}
	held, err := announcement.New(dir, base)
	if err != nil {
		return err
	}
	if err := held.Set(func(a *contract.Announcement) { a.Generation = 1 }); err != nil {
		return err
	}
	_, err = contract.ReadAnnouncement(dir)
	runtime.KeepAlive(held)
	return err
}

func install(root string) error {
	path, err := installation.Install(filepath.Join(root, "d"), program)
	if err != nil {
		return err
	}
	installed, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	self, err := os.ReadFile(program)
	if err == nil && !bytes.Equal(installed, self) {
		err = errors.New("the guard is not the program")
	}
	return err
}

func join(root string) error {
	if _, err := instances.Open(filepath.Join(root, "d"), instances.Identity{PodUID: podUID}); err != nil {
		return err
	}
	order, err := os.ReadFile(filepath.Join(root, "d", "instances"))
	if err == nil && string(order) != earlier+"\n"+podUID+"\n" {
		err = fmt.Errorf("the order of instances is %q", order)
	}
	return err
}

// place makes the directories of a flow with these files.
func place(t *testing.T, root string, files Files) {
	for _, dir := range []string{"d", "kubelet"} {
		require.NoError(t, os.RemoveAll(filepath.Join(root, dir)))
		require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(content), 0o600))
	}
}

// The operations of each flow, from its system calls, and a restart on all that a power
// loss can leave at each of them (I4).
func TestFlows(t *testing.T) {
	for name, flow := range flows {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			before := flow.before(root)
			place(t, root, before)
			operations := trace(t, root, func() error { return flow.do(root) })
			require.NotEmpty(t, operations)
			if flow.want != nil {
				require.Equal(t, flow.want(root), operations)
			}
			d := New(before)
			for i, o := range operations {
				d.Do(o)
				for _, left := range d.AfterPowerLoss() {
					if flow.restart != nil {
						place(t, root, left)
						require.NoError(t, flow.restart(root), "%v leave %q", operations[:i+1], left)
					}
				}
			}
			require.Equal(t, []Files{d.Now()}, d.AfterPowerLoss(), "what a flow has done is durable")
		})
	}
}
