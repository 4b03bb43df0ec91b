// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
)

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *Driver) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		err := d.unprepare(ctx, claim)
		d.recorder.Unprepared(err)
		results[claim.UID] = err
	}
	return results, nil
}

func (d *Driver) unprepare(ctx context.Context, claim kubeletplugin.NamespacedObject) error {
	leave, err := d.lockDirectory()
	if err != nil {
		return err
	}
	defer leave()
	// I1: kubelet may have given this call up, asked again, and prepared the
	// claim for the next pod.
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("claim %s: the call was given up: %w", claim, err)
	}
	log := d.log.With(zap.String("claim", claim.String()), zap.String("uid", string(claim.UID)))
	uid := string(claim.UID)
	if !contract.ValidUID(uid) {
		return fmt.Errorf("claim %s: UID %q is not an object UID", claim, uid)
	}
	claims, err := d.ledger.Load()
	if err != nil {
		return err
	}
	record, known := claims.Find(uid)
	if err := d.ledger.Forget(uid); err != nil {
		log.Error("claim not released", zap.Error(err))
		return err
	}
	// Load again: the removed file may have blocked the node, and a claim file
	// that can be read only this time holds its CPUs too (I1).
	if claims, err = d.ledger.Load(); err != nil {
		return err
	}
	if claims.Blocked() != nil {
		// The pool must not grow while unreadable files hold CPUs (I1).
		// Reconcile writes the state once every file can be read.
		log.Warn("claim released; the node state waits for unreadable claim files")
		return nil
	}
	switch err := d.writeState(claims.Prepared); {
	case errors.Is(err, nodestate.ErrNoSharedPool):
		// The claim is released: kubelet need not ask again. Reconcile
		// writes the state once there is a CPU for the pool (I7).
		log.Warn("claim released; the node state waits for a CPU of the shared pool to come online", zap.Error(err))
		return nil
	case err != nil:
		return err
	}
	if known {
		log.Info("claim released", zap.Stringer("cpus", record.CPUs()))
	}
	return nil
}
