// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"strconv"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/retry"
)

// ReadClaim returns the server's claim object.
func (a *API) ReadClaim(name string) *resourceapi.ResourceClaim {
	c, err := a.Client.ResourceV1().ResourceClaims(namespace).Get(a.t.Context(), name, metav1.GetOptions{})
	require.NoError(a.t, err)
	return c
}

// UpdateClaim changes a claim's status. It may change the allocation, as the
// scheduler does.
func (a *API) UpdateClaim(name string, change func(*resourceapi.ResourceClaim)) {
	require.NoError(a.t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		c := a.ReadClaim(name)
		change(c)
		_, err := a.Client.ResourceV1().ResourceClaims(namespace).UpdateStatus(a.t.Context(), c, metav1.UpdateOptions{})
		return err
	}))
}

func (a *API) deleteClaim(name string) {
	require.NoError(a.t, a.Client.ResourceV1().ResourceClaims(namespace).Delete(a.t.Context(), name, metav1.DeleteOptions{}))
}

// writeClaim adds two behaviours of the server that the fake clientset lacks:
// claims have versions, and a patch, which only the driver sends, must not change
// any byte of the allocation's opaque parameters.
func (a *API) writeClaim(action ktesting.Action) (bool, kruntime.Object, error) {
	switch write := action.(type) {
	case ktesting.CreateActionImpl:
		write.Object.(*resourceapi.ResourceClaim).ResourceVersion = a.version()
	case ktesting.UpdateActionImpl:
		c := write.Object.(*resourceapi.ResourceClaim)
		before, err := a.stored(action, c.Name)
		if err == nil && c.ResourceVersion != before.ResourceVersion {
			err = conflict(action, c.Name)
		}
		if err != nil {
			return true, nil, err
		}
		c.ResourceVersion = a.version()
	case ktesting.PatchActionImpl:
		c, err := a.patchClaim(write)
		return true, c, err
	}
	return false, nil, nil
}

// patchClaim applies a patch, and undoes it if the server would refuse it.
func (a *API) patchClaim(patch ktesting.PatchActionImpl) (*resourceapi.ResourceClaim, error) {
	tracker := a.Client.Tracker()
	before, err := a.stored(patch, patch.Name)
	if err != nil {
		return nil, err
	}
	if _, _, err := ktesting.ObjectReaction(tracker)(patch); err != nil {
		return nil, err
	}
	after, err := a.stored(patch, patch.Name)
	if err != nil {
		return nil, err
	}
	switch {
	case after.ResourceVersion != before.ResourceVersion || after.UID != before.UID:
		err = conflict(patch, patch.Name)
	case !equality.Semantic.DeepEqual(after.Status.Allocation, before.Status.Allocation):
		err = apierrors.NewForbidden(patch.Resource.GroupResource(), patch.Name,
			errors.New("the allocation is not the driver's to change"))
	default:
		after.ResourceVersion = a.version()
		return after, tracker.Update(patch.Resource, after, namespace)
	}
	return nil, errors.Join(err, tracker.Update(patch.Resource, before, namespace))
}

func (a *API) version() string { return strconv.FormatInt(a.versions.Add(1), 10) }

// stored returns a copy of the stored claim.
func (a *API) stored(action ktesting.Action, name string) (*resourceapi.ResourceClaim, error) {
	c, err := a.Client.Tracker().Get(action.GetResource(), namespace, name)
	if err != nil {
		return nil, err
	}
	return c.(*resourceapi.ResourceClaim).DeepCopy(), nil
}

func conflict(action ktesting.Action, name string) error {
	return apierrors.NewConflict(action.GetResource().GroupResource(), name, errors.New("the object has been modified"))
}
