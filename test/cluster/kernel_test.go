// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A kernel in one package has no parts. A kernel in several packages needs linux-base-RELEASE, too: it has modules.builtin.
func TestKernelParts(t *testing.T) {
	for depends, want := range map[string][]string{
		"linux-image-6.12.95\n  Depends: kmod\n  Depends: linux-base\n |Depends: initramfs-tools\n": nil,
		"linux-image-7.3.4\n  PreDepends: linux-base\n  Depends: linux-base-7.3.4\n" +
			"  Depends: linux-binary-7.3.4\n  Depends: linux-modules-7.3.4\n  Suggests: linux-doc-7.3\n": {
			"linux-base-7.3.4", "linux-binary-7.3.4", "linux-modules-7.3.4",
		},
	} {
		var parts []string
		for _, match := range kernelParts.FindAllStringSubmatch(depends, -1) {
			parts = append(parts, match[1])
		}
		require.Equal(t, want, parts, depends)
	}
}
