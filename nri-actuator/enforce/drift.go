// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"time"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// drift are the contents that other programs wrote over this driver's, by
// directory and file.
type drift map[string]map[string]foreignContent

type foreignContent struct {
	content string
	kind    tree.Kind
	seen    time.Time
}

// note notes what a step found, and reports whether it is new.
func (d drift) note(s tree.Step, now time.Time) (news bool) {
	if d[s.Dir] == nil {
		d[s.Dir] = make(map[string]foreignContent)
	}
	news = d[s.Dir][s.File].content != s.Found
	d[s.Dir][s.File] = foreignContent{content: s.Found, kind: s.Kind, seen: now}
	return news
}

// prune forgets the contents of cgroups and files that nothing is desired of.
func (d drift) prune(desired map[string]tree.Cgroup) {
	for dir, files := range d {
		for file := range files {
			partition := file == contract.FilePartition && desired[dir].Kind == tree.Partitioned
			if desired[dir].Files[file] == "" && !partition {
				delete(files, file)
			}
		}
		if len(files) == 0 {
			delete(d, dir)
		}
	}
}

// since returns the contents in pods and levels that were seen at the time then
// or later, by the key of the directory, and forgets older contents. The files of a
// partition are left out: an invalid partition has its own entry in the announcement.
func (d drift) since(then time.Time, key func(dir string) string) map[string]contract.Files {
	var out map[string]contract.Files
	for dir, files := range d {
		for file, found := range files {
			if found.kind > tree.Pod || file == contract.FileExclusive {
				continue
			}
			if found.seen.Before(then) {
				delete(files, file)
				continue
			}
			if out == nil {
				out = make(map[string]contract.Files)
			}
			if out[key(dir)] == nil {
				out[key(dir)] = make(contract.Files)
			}
			out[key(dir)][file] = found.content
		}
	}
	return out
}
