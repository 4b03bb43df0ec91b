// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"sync/atomic"
	"time"
)

// lock orders the runtime's calls and the frontend's changes. A caller waits
// for it no longer than its context lasts: the kernel can keep a write, and so
// the lock, for minutes.
type lock struct {
	token chan struct{}
	clock func() time.Time
	// since is when the holder took the lock, in nanoseconds, 0 without a holder.
	since atomic.Int64
}

func newLock(clock func() time.Time) *lock {
	return &lock{token: make(chan struct{}, 1), clock: clock}
}

// acquire takes the lock, or returns the context's error if the context ends
// first.
func (l *lock) acquire(ctx context.Context) error {
	select {
	case l.token <- struct{}{}:
		l.since.Store(l.clock().UnixNano())
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *lock) release() {
	l.since.Store(0)
	<-l.token
}

// held returns how long the present holder has had the lock, 0 without a
// holder.
func (l *lock) held() time.Duration {
	since := l.since.Load()
	if since == 0 {
		return 0
	}
	return l.clock().Sub(time.Unix(0, since))
}
