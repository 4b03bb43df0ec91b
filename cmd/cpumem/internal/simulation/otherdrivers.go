// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/allocation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
)

// OtherDrivers are the devices of other drivers on the simulated node, and their classes.
type OtherDrivers struct {
	slices  []*resourceapi.ResourceSlice
	classes allocation.Classes
	// node has all slices of a node.
	node string
}

// ReadOtherDrivers reads a stream of YAML or JSON documents of the kinds ResourceSlice and
// DeviceClass, as kubectl get -o yaml writes them: a List of them is read as well. The
// slices stand for those of the simulated node, so all that name a node name the same.
// Slices of this driver are left out, because the simulation publishes them.
func ReadOtherDrivers(r io.Reader) (OtherDrivers, error) {
	out := OtherDrivers{classes: make(allocation.Classes)}
	stream := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for n := 1; ; n++ {
		doc, err := stream.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		var data []byte
		if err == nil {
			data, err = yaml.YAMLToJSONStrict(doc)
		}
		if err == nil && string(data) != "null" {
			err = out.add(data)
		}
		if err != nil {
			return OtherDrivers{}, fmt.Errorf("document %d: %w", n, err)
		}
	}
	if len(out.slices) == 0 {
		return OtherDrivers{}, errors.New("it has no ResourceSlice of another driver")
	}
	return out, nil
}

// Classes returns the given classes and those that were read, which win: a cluster's
// own class of this driver may differ from the chart's.
func (o OtherDrivers) Classes(chart allocation.Classes) allocation.Classes {
	out := maps.Clone(chart)
	maps.Copy(out, o.classes)
	return out
}

func (o *OtherDrivers) add(data []byte) error {
	var meta metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &meta); err != nil {
		return err
	}
	switch meta.APIVersion + " " + meta.Kind {
	case "resource.k8s.io/v1 ResourceSlice":
		slice := &resourceapi.ResourceSlice{}
		if err := strictly(data, slice); err != nil {
			return err
		}
		return o.addSlice(slice)
	case "resource.k8s.io/v1 DeviceClass":
		class := &resourceapi.DeviceClass{}
		if err := strictly(data, class); err != nil {
			return err
		}
		o.classes[class.Name] = class
		return nil
	case "v1 List", "resource.k8s.io/v1 ResourceSliceList", "resource.k8s.io/v1 DeviceClassList":
		var list struct {
			Items []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(data, &list); err != nil {
			return err
		}
		for i, item := range list.Items {
			if err := o.add(item); err != nil {
				return fmt.Errorf("items[%d]: %w", i, err)
			}
		}
		return nil
	}
	return fmt.Errorf("apiVersion %q, kind %q: want resource.k8s.io/v1 and ResourceSlice or DeviceClass",
		excerpt(meta.APIVersion), excerpt(meta.Kind))
}

func strictly(data []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(data, into)
	return errors.Join(append(strict, err)...)
}

func (o *OtherDrivers) addSlice(slice *resourceapi.ResourceSlice) error {
	if slice.Spec.Driver == kubelet.DriverName {
		return nil
	}
	if node := slice.Spec.NodeName; node != nil {
		if o.node != "" && o.node != *node {
			return fmt.Errorf("ResourceSlice %s is of node %s, another one of node %s: keep the slices of one node",
				slice.Name, excerpt(*node), excerpt(o.node))
		}
		o.node = *node
		slice.Spec.NodeName = new(nodeName)
	}
	o.slices = append(o.slices, slice)
	return nil
}
