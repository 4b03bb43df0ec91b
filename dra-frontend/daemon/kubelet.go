// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
)

// kubeletSide implements the helper library's interface: claims go to
// kubelet.Driver, health and background errors to the daemon.
type kubeletSide struct {
	*kubelet.Driver
	log    *zap.Logger
	status *status
	pool   string
	fail   context.CancelCauseFunc

	published *sliceMonitor
	metadata  metadata
}

// HandleError implements kubeletplugin.DRAPlugin. An error that the helper does
// not retry ends this instance.
func (k kubeletSide) HandleError(_ context.Context, err error, msg string) {
	if dropped := new(resourceslice.DroppedFieldsError); errors.As(err, &dropped) {
		k.published.noteDropped(dropped)
		return
	}
	k.log.Error(msg, zap.Error(err))
	switch {
	case isLateHealth(err): // kubelet gets the next report
	case errors.Is(err, kubeletplugin.ErrRecoverable):
		k.published.notWritten(err)
	default:
		k.fail(fmt.Errorf("%s: %w", msg, err))
	}
}

// isLateHealth reports whether the helper complains about a late health report, as after a
// pause of the whole machine. The helper wraps ErrRecoverable itself in this error. An error
// of publishing does not have ErrRecoverable in its chain: its method Is reports that it is ErrRecoverable.
// The helper has no other recoverable errors.
func isLateHealth(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if err == kubeletplugin.ErrRecoverable { //nolint:errorlint // errors.Is also finds errors of publishing
			return true
		}
	}
	return false
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin. With metadata off
// the helper does not remove metadata files, so this method removes the files of
// claims that were prepared with metadata on.
func (k kubeletSide) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results, err := k.Driver.UnprepareResourceClaims(ctx, claims)
	if err != nil || k.metadata.on {
		return results, err
	}
	for _, c := range claims {
		if results[c.UID] == nil {
			results[c.UID] = k.metadata.remove(c)
		}
	}
	return results, nil
}

// healthInterval is well below the 30 s after which kubelet calls a device's
// health unknown.
const healthInterval = 10 * time.Second

// maxMessage, with what [contract.Excerpt] adds, is below the 1024 bytes that the API
// allows.
const maxMessage = 960

// WatchHealthStatus implements kubeletplugin.DRAPlugin. A device is unhealthy
// while no actuator applies decisions, or while the machine lacks a part of the
// device's claims. Kubelet may leave the reports unread.
func (k kubeletSide) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	ticker := time.NewTicker(healthInterval)
	defer ticker.Stop()
	for {
		now, changed := k.status.get()
		report := kubeletplugin.DeviceHealthReport{}
		for name, problem := range now.problems {
			health := kubeletplugin.DeviceHealth{
				PoolName: k.pool, DeviceName: name, Health: kubeletplugin.HealthStatusHealthy, LastUpdated: time.Now(),
			}
			if problem != "" {
				health.Health = kubeletplugin.HealthStatusUnhealthy
				health.Message = contract.Excerpt(problem, maxMessage)
			}
			report.Devices = append(report.Devices, health)
		}
		select {
		case <-ctx.Done():
			return nil
		case reports <- report:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticker.C:
		}
	}
}

// Kubelet has kubelet's root directory, the node's name and this instance's pod.
type Kubelet struct {
	RootDir  string
	NodeName string
	// PodUID names the sockets of this instance, so that in a rolling update
	// two instances can run. Empty outside of a pod.
	PodUID string
}

// dataDir is the directory of the plugin's socket and locks.
func (k Kubelet) dataDir() string { return filepath.Join(k.RootDir, "plugins", kubelet.DriverName) }

// serve registers this instance with kubelet, which may call it at once.
func (d *Daemon) serve(ctx context.Context, fail context.CancelCauseFunc) (*kubeletplugin.Helper, error) {
	side := kubeletSide{
		Driver: d.driver, log: d.o.Log, status: d.status, pool: d.o.Kubelet.NodeName, fail: fail,
		published: d.published, metadata: d.o.metadata(),
	}
	options := append(side.metadata.options(),
		kubeletplugin.DriverName(kubelet.DriverName),
		kubeletplugin.KubeClient(d.o.Client),
		// The driver serializes access to the CDI directory itself, and calls read
		// from the API server in parallel. The helper's metadata files are outside
		// of the driver's lock.
		kubeletplugin.Serialize(side.metadata.on),
		kubeletplugin.NodeName(d.o.Kubelet.NodeName),
		kubeletplugin.PluginDataDirectoryPath(d.o.Kubelet.dataDir()),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(d.o.Kubelet.RootDir, "plugins_registry")),
		kubeletplugin.GRPCInterceptor(d.registration.intercept),
	)
	if d.o.Kubelet.PodUID != "" {
		options = append(options, kubeletplugin.RollingUpdate(types.UID(d.o.Kubelet.PodUID)))
	}
	helper, err := kubeletplugin.Start(ctx, side, options...)
	d.helper.Store(helper)
	return helper, err
}

// withdraw ends the registration by serve. The helper may be nil.
func (d *Daemon) withdraw(helper *kubeletplugin.Helper) {
	helper.Stop()
	d.helper.Store(nil)
	d.registration.last.Store(nil)
}

// registration has kubelet's last answer about this instance. The helper has
// the answer too, but writes and reads it without a lock.
type registration struct {
	rootDir string
	last    atomic.Pointer[registerapi.RegistrationStatus]
}

// intercept stores the registration status of kubelet's calls.
func (r *registration) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if s, is := request.(*registerapi.RegistrationStatus); is {
		r.last.Store(s)
	}
	return handle(ctx, request)
}

// missing returns why kubelet does not call this instance, nil if kubelet does.
func (r *registration) missing() error {
	s := r.last.Load()
	switch {
	case s == nil:
		return fmt.Errorf("kubelet has not registered the driver yet: check that it watches %s",
			filepath.Join(r.rootDir, "plugins_registry"))
	case !s.PluginRegistered:
		return fmt.Errorf("kubelet refused to register the driver: %s", s.Error)
	}
	return nil
}
