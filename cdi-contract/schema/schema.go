// SPDX-License-Identifier: Apache-2.0

// Package schema has the JSON Schemas of the contract's records, for tests and
// for other programs that read the files. test/generate generates
// the schemas from the Go types. The daemons do not use them: the decoders of
// package contract are stricter.
package schema

import "embed"

// Files holds <record>.schema.json for decision, claim, node and announcement.
//
//go:embed *.schema.json
var Files embed.FS
