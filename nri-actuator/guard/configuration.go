// SPDX-License-Identifier: Apache-2.0

package guard

import specs "github.com/opencontainers/runtime-spec/specs-go"

// configuration is the part of a container's config.json that the guard compares ([specs.Spec]). The rest of the
// file is long, and to decode it takes longer than all that the guard does with this part. The OCI runtime has decoded the
// whole file before it runs the guard.
type configuration struct {
	Process *process `json:"process"`
	Linux   *linux   `json:"linux"`
	Hooks   *hooks   `json:"hooks"`
}

type process struct {
	Env         []string `json:"env"`
	OOMScoreAdj *int     `json:"oomScoreAdj"`
}

type linux struct {
	CgroupsPath  string                   `json:"cgroupsPath"`
	Resources    *resources               `json:"resources"`
	MemoryPolicy *specs.LinuxMemoryPolicy `json:"memoryPolicy"`
}

type resources struct {
	CPU     *cpu              `json:"cpu"`
	Unified map[string]string `json:"unified"`
}

type cpu struct {
	Cpus string `json:"cpus"`
	Mems string `json:"mems"`
}

type hooks struct {
	CreateRuntime []specs.Hook `json:"createRuntime"`
}
