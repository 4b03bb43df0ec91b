// SPDX-License-Identifier: Apache-2.0

package claimstatus_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

// unsorted has a client's parameters: the server's own encoding would have each
// member at another place.
const unsorted = `{"kind":"K","apiVersion":"v1","cpu":{"placement":"packed","isolation":"none"},"big":1.50e3}`

// server is an API server with one claim. It keeps the patches and counts the
// reads.
type server struct {
	*fake.Clientset
	patches []string
	reads   int
	mu      sync.Mutex
	err     error // the error of the next writes
	drop    bool  // writes change nothing
	// meanwhile is another program's write, between the driver's read and write.
	meanwhile func(*resourceapi.ResourceClaim)
}

func (s *server) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func newServer(change func(*resourceapi.ResourceClaim)) *server {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: uid}}
	id := types.UID(share)
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{
			{Request: "r", Driver: driver, Pool: "worker", Device: "numa-1", ShareID: &id},
		},
		Config: []resourceapi.DeviceAllocationConfiguration{{
			Source: resourceapi.AllocationConfigSourceClaim,
			DeviceConfiguration: resourceapi.DeviceConfiguration{
				Opaque: &resourceapi.OpaqueDeviceConfiguration{
					Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(unsorted)},
				},
			},
		}},
	}}
	c.ResourceVersion = "1"
	c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
		Driver: "other", Pool: "p", Device: "d", Data: &runtime.RawExtension{Raw: []byte(`{"z":null,"a":1}`)},
	}}
	if change != nil {
		change(c)
	}
	s := &server{Clientset: fake.NewClientset(c)}
	s.PrependReactor("*", "resourceclaims", func(a ktesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		patch, ok := a.(ktesting.PatchAction)
		if !ok {
			s.reads++
			return false, nil, nil
		}
		s.patches = append(s.patches, a.GetSubresource()+" "+string(patch.GetPatchType())+" "+string(patch.GetPatch()))
		if s.drop {
			c, err := s.get(a.GetResource())
			return true, c, err
		}
		if s.err != nil {
			return true, nil, s.err
		}
		c, err := s.write(a)
		return true, c, err
	})
	return s
}

func (s *server) get(r schema.GroupVersionResource) (*resourceapi.ResourceClaim, error) {
	c, err := s.Tracker().Get(r, "ns", "c")
	if err != nil {
		return nil, err
	}
	return c.(*resourceapi.ResourceClaim).DeepCopy(), nil
}

// write writes, then undoes the write and returns an error if the driver may not
// write it or the version is outdated. An API server checks the same.
func (s *server) write(a ktesting.Action) (*resourceapi.ResourceClaim, error) {
	before, err := s.get(a.GetResource())
	if err != nil {
		return nil, err
	}
	if s.meanwhile != nil {
		s.meanwhile(before)
		before.ResourceVersion += "1"
		s.meanwhile = nil
		if err := s.Tracker().Update(a.GetResource(), before, "ns"); err != nil {
			return nil, err
		}
	}
	if _, _, err := ktesting.ObjectReaction(s.Tracker())(a); err != nil {
		return nil, err
	}
	after, err := s.get(a.GetResource())
	if err != nil {
		return nil, err
	}
	if after.UID != before.UID || after.ResourceVersion != before.ResourceVersion {
		err = apierrors.NewConflict(a.GetResource().GroupResource(), "c", errors.New("the object has been modified"))
	} else if !equality.Semantic.DeepEqual(before.Status.Allocation, after.Status.Allocation) ||
		!equality.Semantic.DeepEqual(others(before), others(after)) {
		err = apierrors.NewInvalid(resourceapi.SchemeGroupVersion.WithKind("ResourceClaim").GroupKind(), "c",
			field.ErrorList{field.Forbidden(field.NewPath("status"), "written by others")})
	} else {
		before, after.ResourceVersion = after, before.ResourceVersion+"1"
	}
	return before, errors.Join(err, s.Tracker().Update(a.GetResource(), before, "ns"))
}

// others returns the entries of other drivers.
func others(c *resourceapi.ResourceClaim) []resourceapi.AllocatedDeviceStatus {
	var out []resourceapi.AllocatedDeviceStatus
	for _, d := range c.Status.Devices {
		if d.Driver != driver {
			out = append(out, d)
		}
	}
	return out
}

// written returns the patches so far, those refused as well.
func (s *server) written() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.patches)
}

// asked returns the number of reads so far.
func (s *server) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *server) claim(t *testing.T) *resourceapi.ResourceClaim {
	t.Helper()
	c, err := s.Tracker().Get(resourceapi.SchemeGroupVersion.WithResource("resourceclaims"), "ns", "c")
	require.NoError(t, err)
	return c.(*resourceapi.ResourceClaim)
}

func (s *server) own(t *testing.T) resourceapi.AllocatedDeviceStatus {
	t.Helper()
	require.Len(t, s.claim(t).Status.Devices, 2, "the other driver's entry stays")
	return s.claim(t).Status.Devices[1]
}
