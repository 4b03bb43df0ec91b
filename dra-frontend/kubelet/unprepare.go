// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
)

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin. In one call kubelet names all claims of
// a pod, except claims that another pod uses.
func (d *Driver) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := d.release(ctx, claims)
	for _, err := range results {
		d.o.Recorder.Unprepared(err)
	}
	return results, nil
}

// release removes the files of the claims, and then writes one node state: the actuator looks at
// every container for each node state. The result has every claim: nil if the claim is released. A
// claim whose file is gone has an error too if the node state could not be written.
func (d *Driver) release(ctx context.Context, objects []kubeletplugin.NamespacedObject) map[types.UID]error {
	leave, err := d.lockDirectory()
	if err != nil {
		return failAll(objects, err)
	}
	defer leave()
	// I1: kubelet may have given this call up, asked again, and prepared the
	// claims for the next pod.
	if err := givenUp(ctx); err != nil {
		return failAll(objects, err)
	}
	return d.forgetAll(objects)
}

// forgetAll does the work of release, in a section that reads and writes the directory.
func (d *Driver) forgetAll(objects []kubeletplugin.NamespacedObject) map[types.UID]error {
	results := make(map[types.UID]error, len(objects))
	before, err := d.o.Ledger.Load()
	if err != nil {
		return failAll(objects, err)
	}
	var removed []kubeletplugin.NamespacedObject
	for _, object := range objects {
		err := d.forget(object)
		if results[object.UID] = err; err == nil {
			removed = append(removed, object)
		}
	}
	if len(removed) == 0 {
		return results
	}
	if err := d.writeStateWithout(removed); err != nil {
		maps.Copy(results, failAll(removed, err))
		return results
	}
	for _, object := range removed {
		if record, known := before.Find(string(object.UID)); known {
			d.logOf(object.Namespace, object.Name, string(object.UID)).Info("claim released", zap.Stringer("cpus", record.CPUs()))
		}
	}
	return results
}

func failAll(objects []kubeletplugin.NamespacedObject, err error) map[types.UID]error {
	results := make(map[types.UID]error, len(objects))
	for _, object := range objects {
		results[object.UID] = err
	}
	return results
}

// forget removes the file of a claim.
func (d *Driver) forget(object kubeletplugin.NamespacedObject) error {
	uid := string(object.UID)
	if !contract.ValidUID(uid) {
		return fmt.Errorf("claim %s: UID %q is not an object UID", object, uid)
	}
	err := d.o.Ledger.Forget(uid)
	if err != nil {
		d.logOf(object.Namespace, object.Name, string(object.UID)).Error("claim not released", zap.Error(err))
	}
	return err
}

// writeStateWithout writes the node state after the files of the claims were removed. A node state
// that has to wait is no error: the claims are released, and kubelet need not ask again. Reconcile
// writes the node state later.
func (d *Driver) writeStateWithout(removed []kubeletplugin.NamespacedObject) error {
	// Load again: the removed files may have blocked the node, and a claim file
	// that can be read only this time holds its CPUs too (I1).
	claims, err := d.o.Ledger.Load()
	if err != nil {
		return err
	}
	log := d.o.Log.With(zap.Stringers("claims", removed))
	if blocked := claims.Blocked(); blocked != nil {
		// The pool must not grow while unreadable files hold CPUs (I1).
		log.Warn("claims released; the node state waits for unreadable claim files", zap.Error(blocked))
		return nil
	}
	err = d.writeState(claims.Prepared)
	if errors.Is(err, nodestate.ErrNoSharedPool) {
		// I7: the state waits for a CPU for the pool.
		log.Warn("claims released; the node state waits for a CPU of the shared pool to come online", zap.Error(err))
		return nil
	}
	return err
}
