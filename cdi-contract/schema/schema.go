// SPDX-License-Identifier: Apache-2.0

// Package schema carries the JSON Schemas of the contract's records, for tests
// and for people who read the files with other tools. The schemas are
// generated from the Go types; see test/contract/schemagen. The daemons do not
// use them: the decoders of package contract are stricter.
package schema

import "embed"

// Files holds <record>.schema.json for decision, claim, node and announcement.
//
//go:embed *.schema.json
var Files embed.FS
