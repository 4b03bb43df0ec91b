// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metadatav1alpha1 "k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
)

// metadata shows containers their claims' devices in a file (KEP-5304). The
// helper writes the file below the plugin's directory, and a CDI spec that
// mounts the file. The contract's files have no part in this.
type metadata struct {
	on      bool
	cdiDir  string
	dataDir string
}

func (o Options) metadata() metadata {
	return metadata{on: o.Config.DeviceMetadata, cdiDir: o.Config.CDIDir, dataDir: o.Kubelet.dataDir()}
}

func (m metadata) options() []kubeletplugin.Option {
	if !m.on {
		return nil
	}
	return []kubeletplugin.Option{
		// Newest first: readers take the first version that they understand.
		kubeletplugin.EnableDeviceMetadata(true, []schema.GroupVersion{
			metadatav1beta1.SchemeGroupVersion, metadatav1alpha1.SchemeGroupVersion,
		}),
		kubeletplugin.CDIDirectory(m.cdiDir),
	}
}

// specs returns the paths of the CDI specs that mount the claim's metadata, one
// for each request with metadata. The caller has checked the UID.
func (m metadata) specs(uid types.UID) ([]string, error) {
	return filepath.Glob(filepath.Join(m.cdiDir, fmt.Sprintf("%s_metadata_%s_*.json", kubelet.DriverName, uid)))
}

// update rewrites the metadata of a claim that is decided anew. A claim that was
// prepared with metadata off has no file to rewrite. With metadata off, existing
// files keep their contents: only the helper can write them.
func (m metadata) update(
	ctx context.Context, helper *kubeletplugin.Helper, claim *resourceapi.ResourceClaim, devices []kubeletplugin.Device,
) error {
	if specs, err := m.specs(claim.UID); !m.on || err != nil || len(specs) == 0 {
		return err
	}
	if helper == nil {
		return errors.New("device metadata cannot be written before kubelet has registered this instance")
	}
	byRequest := make(map[string][]kubeletplugin.Device)
	for _, d := range devices {
		for _, r := range d.Requests {
			byRequest[r] = append(byRequest[r], d)
		}
	}
	for _, request := range slices.Sorted(maps.Keys(byRequest)) {
		if err := helper.UpdateRequestMetadata(ctx, claim.Namespace, claim.Name, claim.UID, request, byRequest[request]); err != nil {
			return fmt.Errorf("write device metadata: %w", err)
		}
	}
	return nil
}

// remove removes the metadata files of a claim. The caller has checked the UID.
// The helper names the directory by the claim's name, so a later claim of the same
// name has the same directory: the directory stays while a CDI spec of the later
// claim mounts a file of it.
func (m metadata) remove(c kubeletplugin.NamespacedObject) error {
	files, err := m.specs(c.UID)
	if err != nil || len(files) == 0 {
		return err
	}
	// The specs go last: by them a retry finds the claim's files.
	dir := filepath.Join(m.dataDir, "dra-device-metadata", c.Namespace+"_"+c.Name)
	mounted, err := m.mounted(dir, files)
	if err != nil {
		return err
	}
	if !mounted {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// mounted reports whether a CDI spec other than those of own mounts a file of the
// directory.
func (m metadata) mounted(dir string, own []string) (bool, error) {
	all, err := m.specs("*")
	if err != nil {
		return false, err
	}
	for _, f := range all {
		if slices.Contains(own, f) {
			continue
		}
		spec, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		if strings.Contains(string(spec), dir+string(filepath.Separator)) {
			return true, nil
		}
	}
	return false, nil
}
