// SPDX-License-Identifier: Apache-2.0

package claimstatus_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/claimstatus"
)

// Another program's write between the driver's read and write stays, whether or
// not entries moved.
func TestMeanwhile(t *testing.T) {
	for name, change := range map[string]func(*resourceapi.ResourceClaim){
		"another driver's entry": func(c *resourceapi.ResourceClaim) {
			c.Status.Devices = append([]resourceapi.AllocatedDeviceStatus{{Driver: "third", Pool: "p", Device: "d"}}, c.Status.Devices...)
		},
		"all entries gone": func(c *resourceapi.ResourceClaim) { c.Status.Devices = nil },
		"reserved": func(c *resourceapi.ResourceClaim) {
			c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Name: "p"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(nil)
				w, _ := writer(t, s)
				s.meanwhile = change
				want := s.claim(t).DeepCopy()
				change(want)
				w.Set([]contract.ClaimRecord{record()}, claimstatus.Report{})
				pass(time.Minute)
				require.Len(t, s.written(), 2, "a conflict, and again")
				got := s.claim(t)
				require.Equal(t, want.Status.Devices, others(got))
				require.Equal(t, want.Status.ReservedFor, got.Status.ReservedFor)
				require.Len(t, got.Status.Devices, len(want.Status.Devices)+1)
			})
		})
	}
}

// A claim that is prepared here and allocated to another node keeps only the
// other node's entries.
func TestAllocatedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(func(c *resourceapi.ResourceClaim) {
			c.Status.Allocation.Devices.Results[0].Pool = "elsewhere"
			c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: driver, Pool: "elsewhere", Device: "numa-1"}}
		})
		w, logged := writer(t, s)
		w.Set([]contract.ClaimRecord{record()}, claimstatus.Report{})
		pass(time.Hour)
		require.Empty(t, s.written())
		require.Len(t, s.claim(t).Status.Devices, 1)
		require.Zero(t, logged.Len())
	})
}

// A claim that is made anew between a read and a write gets no entries of the
// former claim.
func TestMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		w, _ := writer(t, s)
		s.meanwhile = func(c *resourceapi.ResourceClaim) { c.UID = "other" }
		w.Set([]contract.ClaimRecord{record()}, claimstatus.Report{})
		pass(time.Hour)
		require.Len(t, s.written(), 1)
		require.Equal(t, others(s.claim(t)), s.claim(t).Status.Devices)
	})
}

// The driver's entries become the wanted entries, at any place among other
// drivers' entries, which stay.
func TestEntries(t *testing.T) {
	of := func(driver, device string) resourceapi.AllocatedDeviceStatus {
		pool := "worker"
		if at, other, moved := strings.Cut(device, "@"); moved {
			device, pool = at, other
		}
		return resourceapi.AllocatedDeviceStatus{
			Driver: driver, Pool: pool, Device: device, Data: &runtime.RawExtension{Raw: []byte(`{"z":null,"a":1}`)},
		}
	}
	names := func(list []resourceapi.AllocatedDeviceStatus) []string {
		var out []string
		for _, d := range list {
			name := d.Driver + "/" + d.Device
			if d.Pool != "worker" {
				name += "@" + d.Pool
			}
			out = append(out, name)
		}
		return out
	}
	var many, all []string
	for i := range 32 {
		many = append(many, fmt.Sprint(i))
		all = append(all, fmt.Sprintf("%s/%d", driver, i))
	}
	for name, c := range map[string]struct{ before, wanted, after []string }{
		"none yet": {nil, []string{"1", "2"}, []string{driver + "/1", driver + "/2"}},
		"stale between": {
			before: []string{driver + "/3", "a/1", driver + "/4", "b/1", driver + "/5"},
			wanted: []string{"1"},
			after:  []string{"a/1", "b/1", driver + "/1"},
		},
		"changed and stale": {
			before: []string{driver + "/3", "a/1", driver + "/1", "b/1", driver + "/2"},
			wanted: []string{"1", "2", "6"},
			after:  []string{"a/1", driver + "/1", "b/1", driver + "/2", driver + "/6"},
		},
		"only stale": {[]string{"a/1", driver + "/3", "b/1"}, nil, []string{"a/1", "b/1"}},
		"another node's": {
			before: []string{driver + "/1@elsewhere", driver + "/3"},
			wanted: []string{"1"},
			after:  []string{driver + "/1@elsewhere", driver + "/1"},
		},
		"all that fit": {nil, many, all},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(func(claim *resourceapi.ResourceClaim) {
					claim.Status.Devices = nil
					for _, d := range c.before {
						driver, device, _ := strings.Cut(d, "/")
						claim.Status.Devices = append(claim.Status.Devices, of(driver, device))
					}
				})
				r := record()
				r.Results = nil
				for _, device := range c.wanted {
					r.Results = append(r.Results, contract.ResultRecord{Request: "r", Pool: "worker", Device: device})
				}
				for range 2 { // the second writer finds nothing to write
					w, logged := writer(t, s)
					w.Set([]contract.ClaimRecord{r}, claimstatus.Report{})
					pass(settled)
					require.Len(t, s.written(), 1)
					require.Equal(t, c.after, names(s.claim(t).Status.Devices))
					require.Zero(t, logged.Len())
				}
				for _, d := range s.claim(t).Status.Devices {
					require.Equal(t, d.Driver == driver && d.Pool == "worker", len(d.Conditions) == 1, d.Device)
				}
			})
		})
	}
}
