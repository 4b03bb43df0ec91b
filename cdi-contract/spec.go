// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

const (
	// annotationVersion and annotationRecord are in the file only: runtimes do
	// not read CDI annotations (CDI spec, "annotations").
	annotationVersion = Vendor + "/contract"
	annotationRecord  = Vendor + "/record"

	// maxAnnotations is the limit of the CDI specification: bytes of all names
	// and values.
	maxAnnotations = 256 << 10
	maxRecord      = maxAnnotations - len(annotationVersion) - len(Version) - len(annotationRecord)
)

// encodeSpec returns a CDI spec with the record as an annotation. The bytes
// depend on the arguments only (I8).
func encodeSpec(kind string, record any, devices []specs.Device) ([]byte, error) {
	rec, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("record of %s: %w", kind, err)
	}
	spec := specs.Spec{
		Kind: kind,
		Annotations: map[string]string{
			annotationVersion: Version,
			annotationRecord:  escapeJSON(rec),
		},
		Devices: devices,
	}
	size := 0
	for k, v := range spec.Annotations {
		size += len(k) + len(v)
	}
	if size > maxAnnotations {
		return nil, fmt.Errorf("record of %s: %d bytes of annotations, CDI allows %d", kind, size, maxAnnotations)
	}
	// The lowest version that allows the content, so that old runtimes accept
	// the file.
	if spec.Version, err = specs.MinimumRequiredVersion(&spec); err != nil {
		return nil, fmt.Errorf("spec of %s: %w", kind, err)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(spec); err != nil {
		return nil, fmt.Errorf("spec of %s: %w", kind, err)
	}
	return b.Bytes(), nil
}

// escapeJSON escapes every character beyond printable ASCII in a JSON text.
// Runtimes read specs as YAML. YAML refuses control characters and more that
// JSON allows: with such a character in a name runtimes could not read the file.
func escapeJSON(text []byte) string {
	var b strings.Builder
	for _, r := range string(text) {
		switch {
		case r < 0x7f:
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	return b.String()
}

// decodeSpec decodes a spec of the given kind and of every contract version.
func decodeSpec(kind string, data []byte) (*specs.Spec, error) {
	var spec specs.Spec
	if err := decodeStrict(data, &spec); err != nil {
		return nil, fmt.Errorf("not a CDI spec: %w", err)
	}
	if spec.Kind != kind {
		return nil, fmt.Errorf("CDI spec has kind %q, want %q", spec.Kind, kind)
	}
	return &spec, nil
}

// decodeRecord decodes the record in a spec of the given kind.
func decodeRecord(kind string, data []byte, record any) (*specs.Spec, error) {
	spec, err := decodeSpec(kind, data)
	if err != nil {
		return nil, err
	}
	if err := checkVersion("file", spec.Annotations[annotationVersion]); err != nil {
		return nil, err
	}
	text, ok := spec.Annotations[annotationRecord]
	if !ok {
		return nil, fmt.Errorf("annotation %q is missing", annotationRecord)
	}
	if err := decodeStrict([]byte(text), record); err != nil {
		return nil, fmt.Errorf("annotation %q: %w", annotationRecord, err)
	}
	return spec, nil
}

// inertDevice returns the one device of a file that is for no container: CDI
// wants at least one device with non-empty edits.
func inertDevice(name string) []specs.Device {
	return []specs.Device{{
		Name:           name,
		ContainerEdits: specs.ContainerEdits{Env: []string{"DRACPUMEM_INERT=" + name}},
	}}
}
