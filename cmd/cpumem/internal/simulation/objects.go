// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/allocation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// Objects are the pods to simulate, in order, with all objects that they refer
// to.
type Objects struct {
	pods    []*corev1.Pod
	claims  map[key]*resourceapi.ResourceClaim
	classes allocation.Classes
	// skipped are the kinds of the file that are not simulated.
	skipped map[string]int
}

// Skipped returns a text for each kind of the file that is not simulated, as "2 of kind
// Service (v1)".
func (o Objects) Skipped() []string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(o.skipped)) {
		out = append(out, fmt.Sprintf("%d of kind %s", o.skipped[kind], kind))
	}
	return out
}

// Pods returns the pods in their order.
func (o Objects) Pods() []*corev1.Pod { return o.pods }

// Classes returns the DeviceClasses by name.
func (o Objects) Classes() []*resourceapi.DeviceClass {
	var out []*resourceapi.DeviceClass
	for _, name := range slices.Sorted(maps.Keys(o.classes)) {
		out = append(out, o.classes[name])
	}
	return out
}

type key struct{ namespace, name string }

// Read reads a stream of YAML documents of the kinds ResourceClaim,
// ResourceClaimTemplate, DeviceClass, Pod and Deployment. Unknown fields and
// references to missing objects are errors, and so are other kinds that have pods. All
// other kinds are skipped.
//
// Every replica of a Deployment is a pod. A claim or a template that no pod
// refers to gets a pod of its own, with one container that uses the whole
// claim. A class of the stream replaces the class of the same name in classes.
func Read(r io.Reader, classes allocation.Classes) (Objects, error) {
	docs := documents{
		classes: maps.Clone(classes), known: make(map[string]bool), referred: make(map[string]bool), skipped: make(map[string]int),
	}
	stream := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for n := 1; ; n++ {
		doc, err := stream.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = docs.add(doc)
		}
		if err != nil {
			return Objects{}, fmt.Errorf("document %d: %w", n, err)
		}
	}
	return docs.objects()
}

// ChartClasses returns the DeviceClasses that the chart can make, by name.
func ChartClasses() allocation.Classes {
	out := make(allocation.Classes)
	for name, kind := range map[string]topology.MemoryType{
		"": topology.MemoryDRAM, "-hbm": topology.MemoryHBM, "-cxl": topology.MemoryCXL, "-unknown": topology.MemoryUnknown,
	} {
		name = kubelet.DriverName + name
		out[name] = &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: resourceslices.ClassSelector(kind)}}},
		}}
	}
	return out
}

// simulated returns the kinds that are simulated, with their versions.
func simulated() map[string]string {
	return map[string]string{
		kindClaim: "resource.k8s.io/v1", kindTemplate: "resource.k8s.io/v1", "DeviceClass": "resource.k8s.io/v1",
		"Pod": "v1", "Deployment": "apps/v1",
	}
}

// maxName bounds a name of the input in a message, in bytes.
const maxName = 100

func excerpt(name string) string { return contract.Excerpt(name, maxName) }

// documents are the objects as they were read, in order.
type documents struct {
	ordered []any
	classes allocation.Classes
	// known and referred have objects as "kind namespace/name".
	known, referred map[string]bool
	// skipped counts the objects of other kinds, by kind.
	skipped map[string]int
}

// add reads one document. An empty document is skipped.
func (d *documents) add(doc []byte) error {
	data, err := yaml.YAMLToJSONStrict(doc)
	if err != nil || string(data) == "null" {
		return err
	}
	var meta metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &meta); err != nil {
		return err
	}
	switch meta.APIVersion + " " + meta.Kind {
	case "resource.k8s.io/v1 ResourceClaim":
		return add[resourceapi.ResourceClaim](d, data)
	case "resource.k8s.io/v1 ResourceClaimTemplate":
		return add[resourceapi.ResourceClaimTemplate](d, data)
	case "resource.k8s.io/v1 DeviceClass":
		return add[resourceapi.DeviceClass](d, data)
	case "v1 Pod":
		return add[corev1.Pod](d, data)
	case "apps/v1 Deployment":
		return add[appsv1.Deployment](d, data)
	}
	if version := simulated()[meta.Kind]; version != "" {
		return fmt.Errorf("apiVersion %q, kind %q: want apiVersion %s", excerpt(meta.APIVersion), meta.Kind, version)
	}
	if meta.Kind == "" || meta.APIVersion == "" {
		return fmt.Errorf("apiVersion %q, kind %q: want both", excerpt(meta.APIVersion), excerpt(meta.Kind))
	}
	if slices.Contains([]string{"List", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"}, meta.Kind) {
		// Its pods would be missing in the result.
		return fmt.Errorf("kind %s is not simulated: write its pods as kind Pod, or as a Deployment of as many replicas", meta.Kind)
	}
	d.skipped[excerpt(fmt.Sprintf("%s (%s)", meta.Kind, meta.APIVersion))]++
	return nil
}

// add reads the object that the data is. T is the type, O its pointer.
func add[T any, O interface {
	*T
	metav1.Object
}](d *documents, data []byte) error {
	object := O(new(T))
	strict, err := kjson.UnmarshalStrict(data, object)
	if err = errors.Join(append(strict, err)...); err != nil {
		return err
	}
	kind := kindOf(object)
	name := object.GetName()
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("%s: metadata.name %q: %s", kind, name, problems[0])
	}
	if class, is := any(object).(*resourceapi.DeviceClass); is {
		d.classes[name] = class
	} else {
		if object.GetNamespace() == "" {
			object.SetNamespace(metav1.NamespaceDefault)
		}
		if problems := validation.IsDNS1123Label(object.GetNamespace()); len(problems) > 0 {
			return fmt.Errorf("%s %s: metadata.namespace %q: %s", kind, name, object.GetNamespace(), problems[0])
		}
		d.ordered = append(d.ordered, object)
	}
	id := identity(kind, object.GetNamespace(), name)
	if d.known[id] {
		return fmt.Errorf("%s is there twice", id)
	}
	d.known[id] = true
	return d.refer(object)
}

const (
	kindClaim    = "ResourceClaim"
	kindTemplate = "ResourceClaimTemplate"
)

func kindOf(object any) string {
	switch object.(type) {
	case *resourceapi.ResourceClaim:
		return kindClaim
	case *resourceapi.ResourceClaimTemplate:
		return kindTemplate
	case *resourceapi.DeviceClass:
		return "DeviceClass"
	case *appsv1.Deployment:
		return "Deployment"
	}
	return "Pod"
}

func identity(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

// refer notes the claims and templates that a pod refers to.
func (d *documents) refer(object metav1.Object) error {
	var spec *corev1.PodSpec
	switch o := object.(type) {
	case *corev1.Pod:
		spec = &o.Spec
	case *appsv1.Deployment:
		spec = &o.Spec.Template.Spec
		if r := o.Spec.Replicas; r != nil && (*r < 0 || *r > maxReplicas) {
			return fmt.Errorf("%s: spec.replicas %d, want 0 to %d", identity(kindOf(object), o.Namespace, o.Name), *r, maxReplicas)
		}
	default:
		return nil
	}
	if err := checkClaims(spec); err != nil {
		return fmt.Errorf("%s: %w", identity(kindOf(object), object.GetNamespace(), object.GetName()), err)
	}
	for _, c := range spec.ResourceClaims {
		if c.ResourceClaimName != nil {
			d.referred[identity(kindClaim, object.GetNamespace(), *c.ResourceClaimName)] = true
		} else {
			d.referred[identity(kindTemplate, object.GetNamespace(), *c.ResourceClaimTemplateName)] = true
		}
	}
	return nil
}

// checkClaims refuses references that the API server refuses and a simulation
// would ignore.
func checkClaims(spec *corev1.PodSpec) error {
	entries := make(map[string]bool)
	for i, c := range spec.ResourceClaims {
		if problems := validation.IsDNS1123Label(c.Name); len(problems) > 0 {
			return fmt.Errorf("resourceClaims[%d].name %q: %s", i, c.Name, problems[0])
		}
		if entries[c.Name] {
			return fmt.Errorf("resourceClaims[%d].name %q is there twice", i, c.Name)
		}
		if (c.ResourceClaimName == nil) == (c.ResourceClaimTemplateName == nil) {
			return fmt.Errorf("resourceClaims[%d] %s: want either resourceClaimName or resourceClaimTemplateName", i, c.Name)
		}
		entries[c.Name] = true
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for _, c := range containers {
			for _, ref := range c.Resources.Claims {
				if !entries[ref.Name] {
					return fmt.Errorf("container %s: resources.claims names %q, which is not in the pod's resourceClaims", c.Name, ref.Name)
				}
			}
		}
	}
	return nil
}
