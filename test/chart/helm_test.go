// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"
)

const chartDir = "../../charts/dra-driver-cpumem"

// helmProgram returns the path of helm: $HELM, helm on the PATH, or the version that
// the test cluster builds.
var helmProgram = sync.OnceValues(func() (string, error) {
	if program := os.Getenv("HELM"); program != "" {
		return program, nil
	}
	if program, err := exec.LookPath("helm"); err == nil {
		return program, nil
	}
	build := exec.Command("go", "tool", "-n", "helm")
	build.Dir = "../cluster/programs"
	// As the cluster builds it, whose packages are compiled once then.
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-trimpath -gcflags=all=-dwarf=false")
	build.Stderr = os.Stderr
	out, err := build.Output()
	return strings.TrimSpace(string(out)), err
})

// helm runs helm with the values. They override the chart's values and the values of
// images, which have no default.
func helm(t *testing.T, values string, args ...string) (stdout string, err error) {
	t.Helper()
	program, err := helmProgram()
	require.NoError(t, err, "find or build helm")
	var out, errOut bytes.Buffer
	cmd := exec.Command(program, append(args, "--values", "testdata/images.yaml", "--values", "-")...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(values), &out, &errOut
	// The developer's kubeconfig must have no effect. The chart refuses the namespace
	// default, which helm takes without a name.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+os.DevNull, "HELM_NAMESPACE=ns")
	if err := cmd.Run(); err != nil {
		return out.String(), &helmError{err: err, text: errOut.String() + out.String()}
	}
	return out.String(), nil
}

type helmError struct {
	err  error
	text string
}

func (e *helmError) Error() string { return e.err.Error() + ": " + e.text }
func (e *helmError) Unwrap() error { return e.err }

// template renders the release r in the namespace ns.
func template(t *testing.T, values string) string {
	t.Helper()
	out, err := helm(t, values, "template", "r", chartDir, "--namespace", "ns", "--kube-version", "1.36.0")
	require.NoError(t, err)
	return out
}

// objects has the decoded objects of a rendered chart.
type objects []runtime.Object

// render renders and decodes; an unknown or duplicate field fails the test.
func render(t *testing.T, values string) objects {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionv1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme,
		networkingv1.AddToScheme, rbacv1.AddToScheme, resourcev1.AddToScheme,
	} {
		require.NoError(t, add(scheme))
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()

	var all objects
	for _, doc := range strings.Split(template(t, values), "\n---\n") {
		doc = strings.TrimPrefix(doc, "---\n")
		asJSON, err := yaml.YAMLToJSONStrict([]byte(doc))
		require.NoError(t, err, "%s", doc)
		if string(asJSON) == "null" {
			continue
		}
		if strings.Contains(doc, "apiVersion: monitoring.coreos.com/v1") || strings.Contains(doc, "apiVersion: security.openshift.io/v1") {
			u := &unstructured.Unstructured{}
			require.NoError(t, u.UnmarshalJSON(asJSON))
			all = append(all, u)
			continue
		}
		obj, _, err := decoder.Decode(asJSON, nil, nil)
		require.NoError(t, err, "%s", doc)
		all = append(all, obj)
	}
	return all
}

// of returns the objects of a type.
func of[T runtime.Object](all objects) []T {
	var found []T
	for _, o := range all {
		if typed, ok := o.(T); ok {
			found = append(found, typed)
		}
	}
	return found
}

// daemonSet returns the DaemonSet with the suffix in its name.
func daemonSet(t *testing.T, all objects, suffix string) *appsv1.DaemonSet {
	t.Helper()
	for _, ds := range of[*appsv1.DaemonSet](all) {
		if strings.HasSuffix(ds.Name, "-"+suffix) {
			return ds
		}
	}
	require.Failf(t, "missing", "no DaemonSet %s", suffix)
	return nil
}

func container(t *testing.T, pod corev1.PodSpec, name string) corev1.Container {
	t.Helper()
	for _, c := range pod.Containers {
		if c.Name == name {
			return c
		}
	}
	require.Failf(t, "missing", "no container %s", name)
	return corev1.Container{}
}
