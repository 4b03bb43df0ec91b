// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster/clustertest"
)

// answering answers requests for objects, by path. Other paths are not found.
func answering(objects map[string]any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		object, found := objects[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		if !found {
			object = failure(http.StatusNotFound, metav1.StatusReasonNotFound)
		}
		if status, failed := object.(metav1.Status); failed {
			w.WriteHeader(int(status.Code))
		}
		_ = json.NewEncoder(w).Encode(object)
	})
}

// serve answers requests for objects, by path, and returns a kubeconfig file for the server
// with a namespace of its own.
func serve(t *testing.T, namespace string, objects map[string]any) (kubeconfig string) {
	t.Helper()
	server := httptest.NewServer(answering(objects))
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", Namespace: namespace}
	config.CurrentContext = "c"
	kubeconfig = filepath.Join(t.TempDir(), "config")
	require.NoError(t, clientcmd.WriteToFile(*config, kubeconfig))
	return kubeconfig
}

// failure is the answer of an API server that refuses a request.
func failure(code int32, reason metav1.StatusReason) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Code: code,
	}
}

// The commands about a cluster read the API server that kubectl's flags and files name, and
// show the namespace that -n or the context names.
func TestClusterCommands(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	mine := clustertest.Allocated("mine", "a", "numa-0", `{"cpus":"0-2"}`, "cpu", "3", "memory", "1Gi")
	other := clustertest.Allocated("other", "a", "numa-0", "", "cpu", "1")
	other.Namespace = "elsewhere"
	const resources = "/apis/resource.k8s.io/v1/"
	kubeconfig := serve(t, "elsewhere", map[string]any{
		resources + "resourceslices": resourceapi.ResourceSliceList{Items: []resourceapi.ResourceSlice{
			*clustertest.Slice("a", clustertest.Zone("numa-0", "cpu", "8", "memory", "8Gi"))}},
		resources + "resourceclaims":                            resourceapi.ResourceClaimList{Items: []resourceapi.ResourceClaim{*mine, *other}},
		resources + "deviceclasses":                             resourceapi.DeviceClassList{},
		resources + "namespaces/default/resourceclaims/mine":    mine,
		resources + "namespaces/elsewhere/resourceclaims/other": other,
		"/api/v1/nodes": corev1.NodeList{Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}},
	})
	run := func(args ...string) string {
		t.Helper()
		out, err := execute(append(args, "--kubeconfig", kubeconfig)...)
		require.NoError(t, err)
		return out
	}
	refused := func(want string, args ...string) {
		t.Helper()
		_, err := execute(append(args, "--kubeconfig", kubeconfig)...)
		require.ErrorContains(t, err, want)
	}

	require.Contains(t, run("nodes"), "4")
	refused(`node "b" publishes no zones`, "nodes", "b")

	all := run("claims")
	require.Contains(t, all, "mine")
	require.Contains(t, all, "other", "claims without -n are of all namespaces, whatever the context says")
	one := run("claims", "-n", "default")
	require.Contains(t, one, "mine")
	require.NotContains(t, one, "other")

	require.Contains(t, run("why", "claim/other"), "other", "the namespace of the context")
	require.Contains(t, run("why", "claim/mine", "-n", "default"), "mine")
	refused("there is no claim mine in namespace elsewhere: name the namespace with -n", "why", "claim/mine")
	refused("there is no pod none in namespace elsewhere", "why", "none")
	refused(`"node/a": want pod/NAME or claim/NAME`, "why", "node/a")
}

// An API server that is too old, or does not serve the API, is one fault and no failed list.
func TestDoctorOfClusterWithoutAPI(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	for name, c := range map[string]struct {
		version, want string
		lists         any
	}{
		"too old":             {"v1.33.4", "mend: Kubernetes 1.34 or later", failure(http.StatusForbidden, metav1.StatusReasonForbidden)},
		"without resource/v1": {"v1.36.0", "v1.36.0, without resource.k8s.io/v1", failure(http.StatusNotFound, metav1.StatusReasonNotFound)},
	} {
		t.Run(name, func(t *testing.T) {
			const resources = "/apis/resource.k8s.io/v1/"
			kubeconfig := serve(t, "", map[string]any{
				"/version": apimachineryversion.Info{GitVersion: c.version}, "/api/v1/nodes": corev1.NodeList{},
				resources + "resourceslices": c.lists, resources + "resourceclaims": c.lists, resources + "deviceclasses": c.lists,
			})
			out, err := execute("doctor", "cluster", "--kubeconfig", kubeconfig)
			require.ErrorIs(t, err, errFaults)
			require.ErrorContains(t, err, "faults: 1")
			require.Contains(t, out, c.want)
		})
	}
}

// The exit status 0 means that the checks found no fault.
func TestDoctorOfNothing(t *testing.T) {
	for _, args := range [][]string{{"doctor"}, {"doctor", "nodes"}} {
		_, err := execute(args...)
		require.ErrorContains(t, err, "want cluster or node")
	}
}

// A command without a cluster says which file to name.
func TestNoCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "absent"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := execute("claims")
	require.ErrorContains(t, err, "name a kubeconfig file with --kubeconfig or KUBECONFIG")
	_, err = execute("claims", "--kubeconfig", serve(t, "", nil), "--context", "mistyped")
	require.ErrorContains(t, err, `context "mistyped" does not exist`)
	require.NotContains(t, err.Error(), "name a kubeconfig file", "the file is there")
}
