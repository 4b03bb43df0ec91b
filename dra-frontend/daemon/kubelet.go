// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"go.uber.org/zap"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/plugin"
)

// kubeletSide completes plugin.Driver to what the helper library calls: health
// and background errors concern the daemon, not the claims.
type kubeletSide struct {
	*plugin.Driver
	log     *zap.Logger
	status  *status
	devices func() []resourceapi.Device
	pool    string
	fail    context.CancelCauseFunc

	published *publication
	metadata  metadata
}

// HandleError implements kubeletplugin.DRAPlugin.
func (k kubeletSide) HandleError(_ context.Context, err error, msg string) {
	if dropped := new(resourceslice.DroppedFieldsError); errors.As(err, &dropped) {
		k.published.dropped(dropped)
		return
	}
	k.log.Error(msg, zap.Error(err))
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		k.fail(fmt.Errorf("%s: %w", msg, err))
	}
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin. What was written
// for a claim while metadata was on goes with it when it is off, too: then the
// helper does not know of it.
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

// WatchHealthStatus implements kubeletplugin.DRAPlugin: devices are unhealthy
// while nobody would apply a decision for them, or the machine lacks what their
// claims hold. A kubelet that does not ask is none the worse.
func (k kubeletSide) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	ticker := time.NewTicker(healthInterval)
	defer ticker.Stop()
	for {
		n, changed := k.status.get()
		report := kubeletplugin.DeviceHealthReport{}
		for name, problem := range k.problems(n) {
			health := kubeletplugin.DeviceHealth{
				PoolName: k.pool, DeviceName: name, Health: kubeletplugin.HealthStatusHealthy, LastUpdated: time.Now(),
			}
			if problem != "" {
				health.Health = kubeletplugin.HealthStatusUnhealthy
				health.Message = clip(problem)
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

// problems are those of the devices that are offered and of those that claims
// are on, by name; empty for none.
func (k kubeletSide) problems(n node) map[string]string {
	problems := maps.Clone(n.unhealthy)
	if problems == nil {
		problems = make(map[string]string)
	}
	for _, d := range k.devices() {
		problems[d.Name] += ""
	}
	if n.actuator != nil {
		for name, problem := range problems {
			if problem != "" {
				problem = "; " + problem
			}
			problems[name] = n.actuator.Error() + problem
		}
	}
	return problems
}

// clip keeps a message below the 1024 characters that the API allows.
func clip(s string) string {
	if len(s) > 1000 {
		return s[:1000]
	}
	return s
}

// taints keep new pods away while claims could not be prepared here.
func taints(n node) []resourceapi.DeviceTaint {
	var out []resourceapi.DeviceTaint
	if n.actuator != nil {
		out = append(out, resourceapi.DeviceTaint{
			Key: plugin.DriverName + "/actuator", Value: "unavailable", Effect: resourceapi.DeviceTaintEffectNoSchedule,
		})
	}
	if n.blocked != nil {
		out = append(out, resourceapi.DeviceTaint{
			Key: plugin.DriverName + "/node", Value: "blocked", Effect: resourceapi.DeviceTaintEffectNoSchedule,
		})
	}
	return out
}

// Kubelet says where kubelet is and who this instance is.
type Kubelet struct {
	RootDir  string
	NodeName string
	// PodUID names the sockets of this instance, so that a new one can start
	// before the old one ends (rolling update).
	PodUID string
}

// dataDir is where the plugin's socket and lock live.
func (k Kubelet) dataDir() string { return filepath.Join(k.RootDir, "plugins", plugin.DriverName) }

func (k Kubelet) start(ctx context.Context, side kubeletSide, client kubernetes.Interface) (*kubeletplugin.Helper, error) {
	if err := os.MkdirAll(k.dataDir(), 0o750); err != nil {
		return nil, err
	}
	options := append(side.metadata.options(),
		kubeletplugin.DriverName(plugin.DriverName),
		kubeletplugin.KubeClient(client),
		// The driver itself lets one call after the other to the directory, but none
		// waits for what another one reads from the API server. What the helper
		// writes for metadata is not under the driver's lock.
		kubeletplugin.Serialize(side.metadata.on),
		kubeletplugin.NodeName(k.NodeName),
		kubeletplugin.PluginDataDirectoryPath(k.dataDir()),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(k.RootDir, "plugins_registry")),
	)
	if k.PodUID != "" {
		options = append(options, kubeletplugin.RollingUpdate(types.UID(k.PodUID)))
	}
	return kubeletplugin.Start(ctx, side, options...)
}

// registration turns the helper's registration status into a reason.
func registration(h *kubeletplugin.Helper, rootDir string) error {
	s := h.RegistrationStatus()
	switch {
	case s == nil:
		return fmt.Errorf("kubelet has not registered the driver yet: check that it watches %s", filepath.Join(rootDir, "plugins_registry"))
	case !s.PluginRegistered:
		return fmt.Errorf("kubelet refused to register the driver: %s", s.Error)
	}
	return nil
}
