// SPDX-License-Identifier: Apache-2.0

// Package kubernetes_test checks what the pages and the examples say to Kubernetes with
// Kubernetes' own code: objects as its API server takes them, and the commands of
// kubectl. It is a module of its own, because it compiles a part of Kubernetes.
package kubernetes_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/namespace"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaim"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaimtemplate"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
	"sigs.k8s.io/yaml"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/pages"
)

const root = "../.."

func read(t *testing.T) []pages.Page {
	t.Helper()
	all, err := pages.Read(root)
	require.NoError(t, err)
	return all
}

// strategies are the API server's rules for new objects, by kind. Claims have no client:
// the rules ask for a namespace only where a claim wants admin access.
var strategies = map[string]rest.RESTCreateStrategy{
	"ConfigMap": configmap.Strategy, "DaemonSet": daemonset.Strategy, "Deployment": deployment.Strategy,
	"DeviceClass": deviceclass.Strategy, "Job": job.Strategy, "Namespace": namespace.Strategy, "Pod": pod.Strategy,
	"ResourceClaim":         resourceclaim.NewStrategy(nil, nil),
	"ResourceClaimTemplate": resourceclaimtemplate.NewStrategy(nil),
	"ResourceSlice":         resourceslice.Strategy,
	"ResourceQuota":         resourcequota.Strategy, "Service": service.Strategy, "StatefulSet": statefulset.Strategy,
}

// create does what the API server does with a new object, up to the storage: it decodes
// the object strictly, sets defaults, and validates.
func create(document []byte) error {
	asJSON, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return err
	}
	codecs := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	object, kind, err := codecs.DecoderToVersion(info.StrictSerializer, runtime.InternalGroupVersioner).Decode(asJSON, nil, nil)
	if err != nil {
		return err
	}
	strategy, known := strategies[kind.Kind]
	if !known {
		return fmt.Errorf("add the strategy of %s to the test", kind.Kind)
	}
	metadata, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	if strategy.NamespaceScoped() && metadata.GetNamespace() == "" {
		metadata.SetNamespace("default")
	}
	rest.FillObjectMetaSystemFields(metadata)
	ctx := genericapirequest.WithNamespace(genericapirequest.NewContext(), metadata.GetNamespace())
	if err := rest.BeforeCreate(strategy, ctx, object); err != nil {
		return err
	}
	if err := kept(asJSON, object, *kind); err != nil {
		return err
	}
	return decodeParameters(asJSON)
}

// kept returns an error if the API server has dropped a field, as it does with fields of
// features that are off.
func kept(document []byte, object runtime.Object, kind schema.GroupVersionKind) error {
	versioned, err := legacyscheme.Scheme.ConvertToVersion(object, kind.GroupVersion())
	if err != nil {
		return err
	}
	after, err := runtime.DefaultUnstructuredConverter.ToUnstructured(versioned)
	if err != nil {
		return err
	}
	var before map[string]any
	if err := yaml.Unmarshal(document, &before); err != nil {
		return err
	}
	return keptBelow("", before, after)
}

func keptBelow(path string, before, after any) error {
	switch before := before.(type) {
	case map[string]any:
		after, _ := after.(map[string]any)
		for key, value := range before {
			_, has := after[key]
			empty := slices.Contains([]string{"<nil>", "false", "0", "", "[]", "map[]"}, fmt.Sprint(value))
			if !has && !empty && key != "apiVersion" && key != "kind" {
				return fmt.Errorf("the API server drops %s.%s", path, key)
			}
			if err := keptBelow(path+"."+key, value, after[key]); err != nil {
				return err
			}
		}
	case []any:
		after, _ := after.([]any)
		for i := range min(len(before), len(after)) {
			if err := keptBelow(fmt.Sprintf("%s[%d]", path, i), before[i], after[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// decodeParameters has the frontend decode the parameters for this driver in the object.
func decodeParameters(document []byte) error {
	var object any
	if err := yaml.Unmarshal(document, &object); err != nil {
		return err
	}
	var below func(any) error
	below = func(value any) error {
		var all []error
		switch value := value.(type) {
		case map[string]any:
			if raw, has := value["parameters"]; has && value["driver"] == "dra.cpumem" {
				asJSON, err := yaml.Marshal(raw)
				if err == nil {
					asJSON, err = yaml.YAMLToJSON(asJSON)
				}
				if err == nil {
					_, err = parameters.Decode(asJSON)
				}
				return err
			}
			for _, v := range value {
				all = append(all, below(v))
			}
		case []any:
			for _, v := range value {
				all = append(all, below(v))
			}
		}
		return errors.Join(all...)
	}
	return below(object)
}

func documents(text string) (all [][]byte, err error) {
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, document)
	}
}

// The API server takes the objects on the pages and among the examples, and the frontend
// their parameters. A part of an object is put into the example of its kind first.
func TestObjects(t *testing.T) {
	require.True(t, utilfeature.DefaultFeatureGate.Enabled(features.DRAConsumableCapacity))
	blocks, err := pages.YAML(root, read(t))
	require.NoError(t, err)
	found := map[string]int{}
	for _, b := range blocks {
		mark := b.Mark
		if part, is := strings.CutPrefix(mark, pages.Part); is {
			found["part"]++
			whole, err := insert(part, b.Text, blocks)
			if assert.NoError(t, err, b.At()) {
				assert.NoError(t, create(whole), b.At())
			}
			continue
		}
		switch mark {
		case pages.Kubelet:
			assert.NoError(t, yaml.UnmarshalStrict([]byte(b.Text), &kubeletconfig.KubeletConfiguration{}), b.At())
		case pages.Kubeadm:
			assert.NoError(t, yaml.UnmarshalStrict([]byte(b.Text), &kubeadm.ClusterConfiguration{}), b.At())
		case "":
			all, err := documents(b.Text)
			require.NoError(t, err, b.At())
			for i, document := range all {
				found["whole"]++
				assert.NoError(t, create(document), "%s, object %d", b.At(), i+1)
			}
		}
	}
	require.Positive(t, found["part"])
	require.Greater(t, found["whole"], 10)
}

var index = regexp.MustCompile(`^(\w+)(?:\[(\d+)\])?$`)

// insert returns the first example of the kind, in which part replaces the fields that it
// has. Where says "Pod: spec.containers[0]".
func insert(where, part string, blocks []pages.Block) ([]byte, error) {
	kind, path, _ := strings.Cut(where, ": ")
	var fields any
	if err := yaml.UnmarshalStrict([]byte(part), &fields); err != nil {
		return nil, err
	}
	steps := strings.Split(path, ".")
	for _, step := range slices.Backward(steps) {
		m := index.FindStringSubmatch(step)
		if m == nil {
			return nil, fmt.Errorf("path %q: %q is neither a field nor a field with an index", path, step)
		}
		if m[2] != "" {
			i, err := strconv.Atoi(m[2])
			if err != nil {
				return nil, err
			}
			fields = append(make([]any, i), fields)
		}
		fields = map[string]any{m[1]: fields}
	}
	for _, b := range blocks {
		if b.Mark != "" || filepath.Dir(b.Page) != "examples" {
			continue
		}
		all, err := documents(b.Text)
		if err != nil {
			return nil, err
		}
		for _, document := range all {
			var object map[string]any
			if err := yaml.UnmarshalStrict(document, &object); err != nil {
				return nil, err
			}
			if object["kind"] == kind {
				return yaml.Marshal(merge(object, fields))
			}
		}
	}
	return nil, fmt.Errorf("no example is a %s", kind)
}

// merge returns the value with the fields and items of over, nil items left out.
func merge(value, over any) any {
	switch over := over.(type) {
	case nil:
		return value
	case map[string]any:
		fields, is := value.(map[string]any)
		if !is {
			return over
		}
		for key, v := range over {
			fields[key] = merge(fields[key], v)
		}
		return fields
	case []any:
		items, _ := value.([]any)
		for i, v := range over {
			if i < len(items) {
				items[i] = merge(items[i], v)
			} else {
				items = append(items, v)
			}
		}
		return items
	}
	return over
}

// The checks of TestObjects refuse what the API server or the frontend would refuse.
func TestCreateRefuses(t *testing.T) {
	const claim = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: a}
spec:
  devices:
    requests:
    - name: zone
      exactly:
        deviceClassName: dra.cpumem
        selectors: [{cel: {expression: device.driver == "dra.cpumem"}}]
        capacity: {requests: {cpu: "2"}}
    config:
    - opaque:
        driver: dra.cpumem
        parameters: {apiVersion: dra.cpumem/v1alpha1, kind: ClaimParameters, cpu: {placement: spread}}
`
	require.NoError(t, create([]byte(claim)))
	for name, c := range map[string]struct{ old, by, want string }{
		"an unknown field":     {"deviceClassName", "deviceClass", `unknown field "spec.devices.requests[0].exactly.deviceClass"`},
		"a field twice":        {"      exactly:", "      name: two\n      exactly:", `key "name" already set in map`},
		"an unknown version":   {"io/v1", "io/v9", `no kind "ResourceClaim"`},
		"a bad name":           {"name: a", "name: A", "metadata.name: Invalid value"},
		"a missing field":      {"dra.cpumem\n        selectors", "\"\"\n        selectors", "deviceClassName: Required value"},
		"a bad expression":     {`device.driver ==`, `device.drivers ==`, "undefined field 'drivers'"},
		"a bad quantity":       {`"2"`, `two`, "quantities must match"},
		"an unknown parameter": {"placement", "placment", "placment"},
		"a gate that is off":   {"spec:", "status: {allocation: {devices: {}}}\nspec:", "the API server drops .status"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, claim, c.old)
			require.ErrorContains(t, create([]byte(strings.Replace(claim, c.old, c.by, 1))), c.want)
		})
	}
}
