// SPDX-License-Identifier: Apache-2.0

// Command pcidriver is a second DRA driver for the end-to-end tests, beside which claims are aligned. It publishes the
// PCI devices of its node that no driver of the kernel takes, one device each, with the standard attributes that the
// drivers of network cards and accelerators publish. A container with a claim gets the PCI address as PCI_DEVICE.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const (
	driverName = "pci.example.com"
	pluginDir  = kubeletplugin.KubeletPluginsDir + "/" + driverName
	cdiDir     = "/var/run/cdi"
	pciDir     = "/sys/bus/pci/devices"
	// edu is QEMU's device for lessons.
	eduVendor, eduDevice = "0x1234", "0x11e8"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	if err := run(ctx, os.Getenv("NODE_NAME")); err != nil {
		fmt.Fprintln(os.Stderr, "pcidriver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, node string) error {
	devices, addresses, err := find()
	if err != nil {
		return err
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(pluginDir, 0o750); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	helper, err := kubeletplugin.Start(ctx, &driver{addresses: addresses, fail: fail},
		kubeletplugin.DriverName(driverName), kubeletplugin.NodeName(node), kubeletplugin.KubeClient(client),
		kubeletplugin.HealthService(false))
	if err != nil {
		return err
	}
	defer helper.Stop()
	pools := map[string]resourceslice.Pool{node: {Slices: []resourceslice.Slice{{Devices: devices}}}}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: pools}); err != nil {
		return err
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// find returns the devices, and the PCI address of each.
func find() ([]resourceapi.Device, map[string]string, error) {
	entries, err := os.ReadDir(pciDir)
	if err != nil {
		return nil, nil, err
	}
	var devices []resourceapi.Device
	addresses := make(map[string]string)
	for _, e := range entries {
		vendor, err := os.ReadFile(filepath.Join(pciDir, e.Name(), "vendor"))
		if err != nil {
			return nil, nil, err
		}
		id, err := os.ReadFile(filepath.Join(pciDir, e.Name(), "device"))
		if err != nil {
			return nil, nil, err
		}
		if strings.TrimSpace(string(vendor)) != eduVendor || strings.TrimSpace(string(id)) != eduDevice {
			continue
		}
		root, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(e.Name())
		if err != nil {
			return nil, nil, err
		}
		numa, err := deviceattribute.GetNUMANodeAttributeByPCIBusID(e.Name(), deviceattribute.ScalarAttribute)
		if err != nil {
			return nil, nil, err
		}
		name := "pci-" + strings.NewReplacer(":", "-", ".", "-").Replace(e.Name())
		addresses[name] = e.Name()
		devices = append(devices, resourceapi.Device{
			Name:       name,
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{root.Name: root.Value, numa.Name: numa.Value},
		})
	}
	return devices, addresses, nil
}

// driver gives the containers of a claim the addresses of its devices.
type driver struct {
	addresses map[string]string // by the device's name
	fail      context.CancelCauseFunc
}

func (d *driver) PrepareResourceClaims(
	_ context.Context, claims []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	out := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for _, c := range claims {
		out[c.UID] = d.prepare(c)
	}
	return out, nil
}

func (d *driver) prepare(claim *resourceapi.ResourceClaim) (result kubeletplugin.PrepareResult) {
	var env []string
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver != driverName {
			continue
		}
		env = append(env, "PCI_DEVICE="+d.addresses[r.Device])
		result.Devices = append(result.Devices, kubeletplugin.Device{
			Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device,
			CDIDeviceIDs: []string{driverName + "/claim=" + string(claim.UID)},
		})
	}
	data, err := json.Marshal(map[string]any{
		"cdiVersion": "0.6.0", "kind": driverName + "/claim",
		"devices": []any{map[string]any{"name": claim.UID, "containerEdits": map[string]any{"env": env}}},
	})
	if err == nil {
		err = os.WriteFile(specFile(claim.UID), data, 0o644)
	}
	result.Err = err
	return result
}

func (d *driver) UnprepareResourceClaims(
	_ context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	out := make(map[types.UID]error, len(claims))
	for _, c := range claims {
		if err := os.Remove(specFile(c.UID)); !errors.Is(err, fs.ErrNotExist) {
			out[c.UID] = err
		} else {
			out[c.UID] = nil
		}
	}
	return out, nil
}

func specFile(uid types.UID) string { return filepath.Join(cdiDir, driverName+"-"+string(uid)+".json") }

// WatchHealthStatus is not called: the health service is off.
func (*driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return nil
}

func (d *driver) HandleError(_ context.Context, err error, msg string) {
	if errors.Is(err, kubeletplugin.ErrRecoverable) {
		fmt.Fprintf(os.Stderr, "pcidriver: %s: %v\n", msg, err)
		return
	}
	d.fail(fmt.Errorf("%s: %w", msg, err))
}
