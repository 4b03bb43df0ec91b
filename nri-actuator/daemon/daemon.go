// SPDX-License-Identifier: Apache-2.0

// Package daemon runs the actuator: it wires the other packages, keeps the
// connection to the runtime, watches the CDI directory and serves metrics and
// probes.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/announcement"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/guard/installation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/machine"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/nri"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/systemd"
)

// Config is the operator's configuration.
type Config struct {
	// CDIDir is the directory shared with the frontend and the runtime.
	CDIDir string
	// NRISocket is the runtime's NRI socket.
	NRISocket string
	// PluginName and PluginIndex identify the plugin to the runtime. The index
	// has two digits and orders the plugins.
	PluginName, PluginIndex string
	// CgroupRoot is the mount point of cgroup v2.
	CgroupRoot string
	// GuardDir is the directory of the guard, empty for no guard. It must have
	// the same path on the host and in the actuator's container.
	GuardDir string
	// GuardProgram is the path of the program that is installed as the guard.
	GuardProgram string
	// SystemBus is the socket of the host's D-Bus, through which systemd gets the
	// values of its units. It may be absent if systemd manages no cgroups.
	SystemBus string
	// UnitDir is systemd's directory of runtime drop-ins. It may be absent, too.
	UnitDir string
	// IRQDir, CPUDir and WorkQueueDir are the directories of the machine's files, where the
	// host's are mounted. Without a directory the node lacks the features that need it.
	IRQDir, CPUDir, WorkQueueDir string
	// ProcRoot is the mount point of procfs, with the kernel's release and the boot's id.
	ProcRoot string
	// RefreshInterval is the time between two repairs without an event.
	RefreshInterval time.Duration
}

var indexPattern = regexp.MustCompile(`^[0-9]{2}$`)

// Validate checks the configuration.
func (c Config) Validate() error {
	for name, path := range map[string]string{
		"cdi-dir": c.CDIDir, "nri-socket": c.NRISocket, "cgroup-root": c.CgroupRoot, "system-bus": c.SystemBus, "unit-dir": c.UnitDir,
		"proc-root": c.ProcRoot,
	} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("--%s: %q is not an absolute path", name, path)
		}
	}
	for name, path := range map[string]string{"irq-dir": c.IRQDir, "cpu-dir": c.CPUDir, "workqueue-dir": c.WorkQueueDir} {
		if path != "" && !filepath.IsAbs(path) {
			return fmt.Errorf("--%s: %q is not an absolute path", name, path)
		}
	}
	switch {
	case c.GuardDir != "" && (!filepath.IsAbs(c.GuardDir) || filepath.Clean(c.GuardDir) != c.GuardDir):
		return fmt.Errorf("--guard-dir: %q is not a clean absolute path", c.GuardDir)
	case c.PluginName == "":
		return errors.New("--plugin-name: must not be empty")
	case !indexPattern.MatchString(c.PluginIndex):
		return fmt.Errorf("--plugin-index: %q is not two digits", c.PluginIndex)
	case c.RefreshInterval <= 0:
		return fmt.Errorf("--refresh-interval: %s is not positive", c.RefreshInterval)
	}
	return nil
}

const (
	// heldRetry is how often a new actuator checks whether the old one has ended.
	// A check is one look at a lock.
	heldRetry = 20 * time.Millisecond
	// haltTimeout is how long a write may delay the actuator's end.
	haltTimeout  = 5 * time.Second
	minReconnect = 100 * time.Millisecond
	maxReconnect = 5 * time.Second
)

// Daemon is a running actuator.
type Daemon struct {
	config  Config
	metrics *metrics.Metrics
	mount   *cgroups.Mount
	dir     *claims.Directory
	kernel  string
	bootID  string
	// plugin is set when the actuator is the only actuator on its node.
	plugin atomic.Pointer[nri.Plugin]
}

// New returns a daemon that has announced nothing. open opens the configuration's
// cgroup root. An invalid configuration and a node without cgroup v2 are errors.
func New(config Config, open func(root string) (*cgroups.Mount, error), m *metrics.Metrics) (*Daemon, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	dir, err := cdidir.Open(config.CDIDir)
	if err != nil {
		return nil, err
	}
	kernel, err := os.ReadFile(filepath.Join(config.ProcRoot, "sys/kernel/osrelease"))
	if err != nil {
		return nil, fmt.Errorf("kernel release: %w", err)
	}
	bootID, err := os.ReadFile(filepath.Join(config.ProcRoot, "sys/kernel/random/boot_id"))
	if err != nil {
		return nil, fmt.Errorf("boot id: %w", err)
	}
	mount, err := open(config.CgroupRoot)
	if err != nil {
		return nil, err
	}
	switch _, err := mount.Read(".", "cgroup.controllers"); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.Join(fmt.Errorf("%s has no file cgroup.controllers: it is not a cgroup v2 mount, which the driver needs",
			config.CgroupRoot), mount.Close())
	case err != nil:
		return nil, errors.Join(err, mount.Close())
	}
	boot := strings.TrimSpace(string(bootID))
	return &Daemon{
		config: config, metrics: m, mount: mount,
		dir: claims.New(dir, contract.Features(), boot), kernel: strings.TrimSpace(string(kernel)), bootID: boot,
	}, nil
}

// Run works until ctx ends. A runtime that is absent or restarts is no error.
func (d *Daemon) Run(ctx context.Context) (err error) {
	closeMount := sync.OnceValue(d.mount.Close)
	defer func() { err = errors.Join(err, closeMount()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	end := sync.OnceValue(func() error {
		cancel(nil)
		return wait(ctx, &wg)
	})
	defer func() { _ = end() }()
	held, err := d.announce(ctx)
	if err != nil {
		return ended(ctx, err)
	}
	defer func() {
		// I1: the next actuator may start when this actuator gives up the announcement. Work that has not ended by then must
		// open no cgroup.
		_ = closeMount() // the first deferred call returns its error
		err = errors.Join(err, held.Close())
	}()
	// Only the actuator with the announcement writes this file.
	if err := atomicfile.RemoveStale(d.config.CDIDir, func(name string) bool { return name == machine.SavedFile }); err != nil {
		return err
	}
	bus := systemd.New(func(ctx context.Context) (systemd.Bus, error) { return systemd.Dial(ctx, d.config.SystemBus) }, d.metrics.UnitFailed)
	host := machine.New(machine.Dirs{IRQ: d.config.IRQDir, CPU: d.config.CPUDir, WorkQueue: d.config.WorkQueueDir},
		cdidir.At(d.config.CDIDir), d.bootID)
	logs.From(ctx).Info("values of the machine that can be written", zap.Strings("features", host.Features()))
	plugin := nri.New(nri.Options{Announcer: held, Options: enforce.Options{Kernel: d.kernel,
		Host:      host,
		Directory: d.dir, Mount: d.mount, Units: systemd.Systemd{Slices: bus, Dropins: systemd.NewDropins(d.config.UnitDir)},
		Metrics: d.metrics, RefreshInterval: d.config.RefreshInterval, Clock: time.Now,
	}})
	d.plugin.Store(plugin)
	changes := cdidir.At(d.config.CDIDir).Changes(cdidir.Watch{
		Renew: d.config.RefreshInterval, Concerns: concerns,
		Warn: func(text string, err error) { logs.From(ctx).Warn(text, zap.Error(err)) },
	})
	changes.Start()
	wg.Go(func() { changes.Run(ctx) })
	wg.Go(func() { bus.Run(ctx) })
	wg.Go(func() { d.keepAnnounced(ctx, plugin) })
	wg.Go(func() { cancel(d.watch(ctx, plugin, changes.C())) })
	d.stayConnected(ctx, plugin)
	if err := end(); err != nil {
		logs.From(ctx).Error("work was not ended", zap.Error(err))
		return ended(ctx, nil)
	}
	halt, stop := context.WithTimeout(context.WithoutCancel(ctx), haltTimeout)
	defer stop()
	if err := plugin.Halt(halt); err != nil {
		logs.From(ctx).Error("work was not ended", zap.Error(err))
	}
	return ended(ctx, nil)
}

// Alive returns an error if this process will not recover by itself.
func (d *Daemon) Alive() error {
	if plugin := d.plugin.Load(); plugin != nil {
		return plugin.Alive()
	}
	return nil
}

// Ready returns why an update must not go on to the next node. A runtime that does not take the actuator is no such reason:
// one node must not stop the update of all other nodes.
func (d *Daemon) Ready() error {
	if err := d.Alive(); err != nil {
		return err
	}
	if plugin := d.plugin.Load(); plugin != nil {
		return plugin.Misplaced()
	}
	return nil
}

// ServesClaims returns why containers with claims cannot be created, nil if they
// can.
func (d *Daemon) ServesClaims() error {
	if plugin := d.plugin.Load(); plugin != nil {
		return plugin.Ready()
	}
	return errors.New("starting, or waiting for another nri-actuator on this node to end")
}

// wait returns when the goroutines have ended, and an error if one of them does not
// end in time: the kernel may keep a write, or a disk or a bus hangs.
func wait(ctx context.Context, wg *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), haltTimeout)
	defer stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("work has not ended within %s: perhaps a write into a cgroup does not return; "+
			"look for blocked tasks in the kernel's log", haltTimeout)
	}
}

// ended returns the error that ended ctx, nil if ctx was cancelled on request,
// and err if ctx has not ended.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// announce installs the guard, waits until the old actuator has ended, and takes
// the announcement.
func (d *Daemon) announce(ctx context.Context) (*announcement.Announcement, error) {
	base := contract.Announcement{
		V: contract.Version, Versions: []string{contract.Version},
		PID: os.Getpid(), Started: time.Now().UTC().Truncate(time.Second),
	}
	if d.config.GuardDir != "" {
		var err error
		if base.Guard, err = installGuard(ctx, d.config); err != nil {
			return nil, err
		}
	}
	for waiting := false; ; waiting = true {
		held, err := announcement.New(d.config.CDIDir, base)
		if !errors.Is(err, announcement.ErrHeld) {
			return held, err
		}
		if !waiting {
			logs.From(ctx).Info("waiting for the other nri-actuator to end", zap.Error(err))
		}
		if !sleep(ctx, heldRetry) {
			return nil, ctx.Err()
		}
	}
}

func installGuard(ctx context.Context, config Config) (string, error) {
	path, err := installation.Install(config.GuardDir, config.GuardProgram)
	if err != nil {
		return "", err
	}
	if err := installation.Prune(config.GuardDir, path, config.CDIDir); err != nil {
		logs.From(ctx).Warn("old guards stay", zap.Error(err))
	}
	logs.From(ctx).Info("guard installed", zap.String("path", path))
	return path, nil
}

// sleep waits for d. It reports whether d passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
