// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/log"
	"k8s.io/klog/v2"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

// programs has the programs, built once for all tests.
var programs lab.Programs

func TestMain(m *testing.M) {
	// The guard asks its parent process, normally runc, for its features. Here the
	// parent is the test binary.
	if len(os.Args) == 2 && os.Args[1] == "features" {
		fmt.Println(`{"linux":{"memoryPolicy":{"modes":["MPOL_BIND","MPOL_PREFERRED","MPOL_PREFERRED_MANY",` +
			`"MPOL_INTERLEAVE","MPOL_WEIGHTED_INTERLEAVE"]}}}`)
		return
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	if err := divideChecks(); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "lab")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if programs, err = lab.Build(dir); err != nil {
		return 0, err
	}
	log.Set(silent{})
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	adaptation.SetPluginRequestTimeout(requestTimeout)
	adaptation.SetPluginRegistrationTimeout(requestTimeout)
	return m.Run(), nil
}

// requestTimeout is long, so that on a busy machine the runtime waits for the
// actuator's answer.
const requestTimeout = 5 * time.Minute

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

type silent struct{}

func (silent) Debugf(context.Context, string, ...any) {}
func (silent) Infof(context.Context, string, ...any)  {}
func (silent) Warnf(context.Context, string, ...any)  {}
func (silent) Errorf(context.Context, string, ...any) {}
