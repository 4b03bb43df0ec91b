// SPDX-License-Identifier: Apache-2.0

// Package selftest compares a container with the decisions in its own
// environment. It is the program of the pod of `helm test`, after the last step
// of the flow: the pod has a claim, and no rights on the node.
package selftest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Check compares the container's cgroup with the decisions in environ, which has the
// form of os.Environ. cgroup is the cgroup's directory. Check writes a line
// for each file to out, and returns an error if a file has another content, or if
// the environment has no decision.
func Check(environ []string, cgroup fs.FS, out io.Writer) error {
	decisions := make(map[contract.Key]contract.Decision)
	for _, entry := range environ {
		key, decision, ours, err := contract.ParseEnv(entry, contract.Features())
		switch {
		case err != nil:
			return err
		case ours:
			decisions[key] = decision
		}
	}
	if len(decisions) == 0 {
		return fmt.Errorf("no variable %s… in the environment: the runtime has not injected the claim's CDI device; "+
			"is CDI on in its configuration?", contract.EnvPrefix)
	}
	decision := contract.Merge(decisions)
	want := decision.Files()
	want["cpuset.cpus.effective"] = decision.CPUs.String()
	want["cpuset.mems.effective"] = decision.Mems.String()
	maps.DeleteFunc(want, func(_, content string) bool { return content == "" })
	var wrong []string
	for _, file := range slices.Sorted(maps.Keys(want)) {
		content, err := fs.ReadFile(cgroup, file)
		got := strings.TrimSpace(string(content))
		switch {
		case err != nil:
			got = err.Error()
			fallthrough
		case got != want[file]:
			wrong = append(wrong, file)
			fmt.Fprintf(out, "wrong  %s = %s, the claim's decision is %s\n", file, got, want[file])
		default:
			fmt.Fprintf(out, "right  %s = %s\n", file, got)
		}
	}
	if len(wrong) > 0 {
		return errors.New("this container does not have what its claim promises: " + strings.Join(wrong, ", "))
	}
	return nil
}
