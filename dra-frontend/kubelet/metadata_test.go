// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

func TestMetadata(t *testing.T) {
	for name, c := range map[string]struct {
		result contract.ResultRecord
		want   string
	}{
		"cpu": {
			result: contract.ResultRecord{Consumed: map[string]string{"cpu": "2", "memory": "0"},
				Decision: contract.Decision{CPUs: contracttest.CPUs("2,6")}},
			want: `{"cpuset":{"string":"2,6"},"cpu":{"int":2}}`,
		},
		"all": {
			result: contract.ResultRecord{
				Consumed: map[string]string{"cpu": "1", "memory": "1Gi", "hugepages_2Mi": "4Mi"},
				Decision: contract.Decision{CPUs: contracttest.CPUs("3"), Mems: contracttest.NUMANodes("1")},
			},
			want: `{"cpuset":{"string":"3"},"mems":{"string":"1"},` +
				`"cpu":{"int":1},"memory":{"int":1073741824},"hugepages_2Mi":{"int":4194304}}`,
		},
		"nothing": {contract.ResultRecord{}, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := json.Marshal(metadata(c.result).Attributes)
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(data))
		})
	}
}
