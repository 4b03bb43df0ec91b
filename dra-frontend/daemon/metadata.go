// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"
	metadatav1alpha1 "k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/plugin"
)

// metadata shows containers what their claims got in a file (KEP-5304). The
// helper writes it below the plugin's directory, with a CDI device of its own
// that mounts it; the contract's files are not concerned.
type metadata struct {
	on      bool
	cdiDir  string
	dataDir string
}

func (m metadata) options() []kubeletplugin.Option {
	if !m.on {
		return nil
	}
	return []kubeletplugin.Option{
		// Newest first: a reader takes the first it understands.
		kubeletplugin.EnableDeviceMetadata(true, []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion, metadatav1alpha1.SchemeGroupVersion}),
		kubeletplugin.CDIDirectory(m.cdiDir),
	}
}

// remove removes the files of a claim; its UID has been checked.
func (m metadata) remove(c kubeletplugin.NamespacedObject) error {
	files, err := filepath.Glob(filepath.Join(m.cdiDir, fmt.Sprintf("%s_metadata_%s_*.json", plugin.DriverName, c.UID)))
	if err != nil || len(files) == 0 {
		return err
	}
	// These last: they tell a retry that there is something left.
	if err := os.RemoveAll(filepath.Join(m.dataDir, "dra-device-metadata", c.Namespace+"_"+c.Name)); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
