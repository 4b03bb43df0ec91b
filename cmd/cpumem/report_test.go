// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster/clustertest"
)

const driverPods = "/api/v1/namespaces/cpumem-system/pods"

// installed are the objects of a cluster with a frontend on each of the nodes.
func installed(nodes ...string) map[string]any {
	const resources = "/apis/resource.k8s.io/v1/"
	claims := resourceapi.ResourceClaimList{Items: []resourceapi.ResourceClaim{*clustertest.Claim("one")}}
	objects := map[string]any{
		"/version":                                    apimachineryversion.Info{GitVersion: "v1.36.0"},
		resources + "resourceslices":                  resourceapi.ResourceSliceList{},
		resources + "resourceclaims":                  claims,
		resources + "deviceclasses":                   resourceapi.DeviceClassList{},
		"/api/v1/nodes":                               corev1.NodeList{},
		"/api/v1/namespaces/cpumem-system/configmaps": corev1.ConfigMapList{},
	}
	pods := corev1.PodList{}
	for _, node := range nodes {
		name := "frontend-" + node
		pods.Items = append(pods.Items, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: driverNamespace, Name: name},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "frontend"}}},
		})
		objects[driverPods+"/"+name+"/log"] = "log of " + name
	}
	objects[driverPods] = pods
	return objects
}

func configMap(name, key, text string) corev1.ConfigMap {
	return corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{key: text}}
}

// filesOf returns the files of a report.
func filesOf(t *testing.T, name string) map[string]string {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	unzipped, err := gzip.NewReader(f)
	require.NoError(t, err)
	files := make(map[string]string)
	for archive := tar.NewReader(unzipped); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		data, err := io.ReadAll(archive)
		require.NoError(t, err)
		files[strings.TrimPrefix(h.Name, "cpumem-report/")] = string(data)
	}
}

func TestReport(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	forbidden := failure(http.StatusForbidden, metav1.StatusReasonForbidden)
	for name, c := range map[string]struct {
		change map[string]any
		args   []string
		// want are parts of files, "" of files that are not there.
		want   map[string]string
		output string
	}{
		"all": {
			want: map[string]string{
				"doctor.txt": "v1.36.0", "logs/frontend-a_frontend.log": "log of frontend-a", "logs/frontend-b_frontend.log": "log of frontend-b",
				"resourceclaims.yaml": "name: one", "missing.txt": "",
			},
			output: "report.tar.gz has\n  ",
		},
		"a node": {
			args: []string{"--node", "b"},
			want: map[string]string{"logs/frontend-a_frontend.log": "", "logs/frontend-b_frontend.log": "log of frontend-b", "missing.txt": ""},
		},
		"a list that is forbidden": {
			change: map[string]any{"/api/v1/nodes": forbidden},
			want: map[string]string{
				"missing.txt": "list Nodes: ", "doctor.txt": "", "resourceclaims.yaml": "name: one", "logs/frontend-a_frontend.log": "log of",
			},
			output: "missing: list Nodes: ",
		},
		"pods that are forbidden": {
			change: map[string]any{driverPods: forbidden},
			want:   map[string]string{"missing.txt": "list the daemons' pods: ", "doctor.txt": "v1.36.0"},
			output: "missing: list the daemons' pods: ",
		},
		"a configuration that is forbidden": {
			change: map[string]any{"/api/v1/namespaces/cpumem-system/configmaps": forbidden},
			want:   map[string]string{"missing.txt": "list the frontend's configuration: ", "doctor.txt": "v1.36.0"},
			output: "missing: list the frontend's configuration: ",
		},
		"configurations of two releases": {
			change: map[string]any{"/api/v1/namespaces/cpumem-system/configmaps": corev1.ConfigMapList{Items: []corev1.ConfigMap{
				configMap("first", "config.yaml", "groupBy: socket"), configMap("second", "config.yaml", "groupBy: machine"),
				configMap("dashboard", "dashboard.json", "{}"),
			}}},
			want: map[string]string{
				"config/first.yaml": "groupBy: socket", "config/second.yaml": "groupBy: machine", "config/dashboard.yaml": "", "missing.txt": "",
			},
		},
		"a log that is forbidden": {
			change: map[string]any{driverPods + "/frontend-a/log": forbidden},
			want: map[string]string{
				"logs/frontend-a_frontend.log": "log not read: ", "logs/frontend-b_frontend.log": "log of frontend-b",
				"missing.txt": "log of frontend-a/frontend: not read: ",
			},
			output: "missing: log of frontend-a/frontend: not read: ",
		},
		"an API server that is too old": {
			change: map[string]any{"/version": apimachineryversion.Info{GitVersion: "v1.33.1"}},
			want:   map[string]string{"doctor.txt": "Kubernetes 1.34 or later", "missing.txt": ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := installed("a", "b")
			maps.Copy(objects, c.change)
			file := filepath.Join(t.TempDir(), "report.tar.gz")
			out, err := execute(append([]string{"report", "--kubeconfig", serve(t, "", objects), "-o", file}, c.args...)...)
			require.NoError(t, err)
			require.Contains(t, out, c.output)
			files := filesOf(t, file)
			for name, want := range c.want {
				require.Contains(t, files[name], want)
				_, has := files[name]
				require.Equal(t, want != "", has, name)
			}
			found, err := os.Stat(file)
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o600), found.Mode())
		})
	}
}

// The output says how many pods' logs are left out.
func TestReportOfManyNodes(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	objects := installed("a")
	pods := corev1.PodList{}
	for range 52 {
		pods.Items = append(pods.Items, corev1.Pod{Spec: corev1.PodSpec{NodeName: "a"}})
	}
	objects[driverPods] = pods
	file := filepath.Join(t.TempDir(), "report.tar.gz")
	out, err := execute("report", "--kubeconfig", serve(t, "", objects), "-o", file)
	require.NoError(t, err)
	require.Contains(t, out, "missing: logs of 2 of 52 pods: name the nodes with --node\n")
	require.Contains(t, filesOf(t, file)["missing.txt"], "logs of 2 of 52 pods")
}

// A failure leaves no file, and a file that exists is refused before anything is read.
func TestReportThatFails(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	file := filepath.Join(t.TempDir(), "report.tar.gz")
	for name, c := range map[string]struct {
		objects map[string]any
		args    []string
		want    string
	}{
		"no API server": {nil, nil, "API server: "},
		"no daemon":     {installed(), nil, "name the driver's namespace with -n, or its labels with -l"},
		"no such node":  {installed("a"), []string{"--node", "c"}, `no daemon is on node "c"`},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"report", "--kubeconfig", serve(t, "", c.objects), "-o", file}, c.args...)
			_, err := execute(args...)
			require.ErrorContains(t, err, c.want)
			require.NoFileExists(t, file)
		})
	}
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
	_, err := execute("report", "--kubeconfig", serve(t, "", nil), "-o", file)
	require.ErrorContains(t, err, "file exists: remove it, or name another file with -o")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "mine", string(data))
}

// answers is an HTTP transport that needs no network, so that time can be virtual.
type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// hanging is the body of an answer that does not end.
type hanging struct {
	context.Context
	start io.Reader
}

func (h hanging) Read(p []byte) (int, error) {
	if n, err := h.start.Read(p); err == nil {
		return n, nil
	}
	<-h.Done()
	return 0, h.Err()
}

func (hanging) Close() error { return nil }

// clusterWith returns a client of the objects, without a network. Logs are read by logs.
func clusterWith(t *testing.T, objects map[string]any, logs answers) kubernetes.Interface {
	t.Helper()
	handler := answering(objects)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://server.test", Transport: answers(
		func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/log") {
				return logs(r)
			}
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, r)
			return recorder.Result(), nil
		})})
	require.NoError(t, err)
	return client
}

// noAnswer is the log of a node whose kubelet hangs.
func noAnswer(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A kubelet that does not answer delays a report by the time for its logs.
func TestReportOfHungKubelet(t *testing.T) {
	for name, c := range map[string]struct {
		hang answers
		log  string
		want string
	}{
		"no answer": {noAnswer, "log not read: its time was over\n", "log of frontend-a/frontend: not read: its time was over"},
		"no end": {
			func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: hanging{r.Context(), strings.NewReader("start")}}, nil
			},
			"start\nlog not read to its end: its time was over\n",
			"log of frontend-a/frontend: not read to its end: its time was over",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, err := gather(t.Context(), clusterWith(t, installed("a"), c.hang), driverNamespace, "", nil)
				require.NoError(t, err)
				require.Contains(t, string(in.Logs["frontend-a/frontend"]), c.log)
				require.Len(t, in.Missing, 1)
				require.Contains(t, in.Missing[0], c.want)
			})
		})
	}
}

// Nodes that do not answer leave time for the logs of the nodes after them.
func TestReportOfDeadNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []string
		for i := range 20 {
			nodes = append(nodes, fmt.Sprintf("dead%d", i))
		}
		objects := installed(append(nodes, "living")...)
		living := answering(objects)
		var lock sync.Mutex
		reading, most := 0, 0
		count := func(n int) {
			lock.Lock()
			defer lock.Unlock()
			reading += n
			most = max(most, reading)
		}
		in, err := gather(t.Context(), clusterWith(t, objects, func(r *http.Request) (*http.Response, error) {
			count(1)
			defer count(-1)
			if !strings.Contains(r.URL.Path, "living") {
				return noAnswer(r)
			}
			recorder := httptest.NewRecorder()
			living.ServeHTTP(recorder, r)
			return recorder.Result(), nil
		}), driverNamespace, "", nil)
		require.NoError(t, err)
		require.Contains(t, string(in.Logs["frontend-living/frontend"]), "log of frontend-living")
		require.Len(t, in.Missing, 20)
		require.Equal(t, logsAtOnce, most)
	})
}

// The archive has no address of a node, which the errors of logs have.
func TestReportWithoutAddresses(t *testing.T) {
	const address = "10.0.3.17:10250"
	kubelet := failure(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	kubelet.Message = "Get \"https://" + address + "/containerLogs/x\": dial tcp " + address + ": connect: connection refused"
	nameless := failure(http.StatusBadGateway, metav1.StatusReason("\x1b[31m"+strings.Repeat("x", 1000)))
	lost := &net.OpError{Op: "read", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 3, 17), Port: 10250}, Err: io.ErrUnexpectedEOF}
	answered := func(status metav1.Status) answers {
		return func(r *http.Request) (*http.Response, error) {
			recorder := httptest.NewRecorder()
			answering(map[string]any{r.URL.Path: status}).ServeHTTP(recorder, r)
			return recorder.Result(), nil
		}
	}
	for name, c := range map[string]struct {
		logs answers
		want string
	}{
		"kubelet is away": {answered(kubelet), "not read: the API server answered InternalError (500): kubectl logs shows why"},
		"a reason of any text": {
			answered(nameless),
			"not read: the API server answered ?[31m" + strings.Repeat("x", 95) + "... (905 bytes more) (502): kubectl logs shows why",
		},
		"no connection": {
			func(*http.Request) (*http.Response, error) { return nil, lost }, "not read: the connection to the API server failed",
		},
		"the connection is lost": {
			func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(iotest.ErrReader(lost))}, nil
			},
			"not read to its end: the connection to the API server failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, err := gather(t.Context(), clusterWith(t, installed("a"), c.logs), driverNamespace, "", nil)
				require.NoError(t, err)
				require.Equal(t, "log "+c.want+"\n", strings.TrimPrefix(string(in.Logs["frontend-a/frontend"]), "\n"))
				require.Equal(t, []string{"log of frontend-a/frontend: " + c.want}, in.Missing)
			})
		})
	}
}
