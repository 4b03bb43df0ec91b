// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"io/fs"
	"strconv"
	"testing/fstest"
)

// texts is a file system of texts by file name.
type texts map[string]string

func (t texts) Open(name string) (fs.File, error) {
	m := fstest.MapFS{}
	if text, ok := t[name]; ok {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m.Open(name)
}

func values(files map[string]int64) fs.FS {
	out := texts{}
	for name, value := range files {
		out[name] = strconv.FormatInt(value, 10) + "\n"
	}
	return out
}
