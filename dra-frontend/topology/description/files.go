// SPDX-License-Identifier: Apache-2.0

package description

import "fmt"

func (t Files) file(path, format string, args ...any) {
	t[path] = fmt.Appendf(nil, format+"\n", args...)
}

func (t Files) cache(dir string, level int, kind, shared string) {
	t.file(dir+"level", "%d", level)
	t.file(dir+"type", "%s", kind)
	t.file(dir+"shared_cpu_list", "%s", shared)
}

func (t Files) hugepages(dir string, pages map[int64]int64) {
	for size, n := range pages {
		t.file(fmt.Sprintf("%s/hugepages-%dkB/nr_hugepages", dir, size>>10), "%d", n)
		t.file(fmt.Sprintf("%s/hugepages-%dkB/surplus_hugepages", dir, size>>10), "0")
	}
}
