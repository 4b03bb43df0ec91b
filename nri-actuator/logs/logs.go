// SPDX-License-Identifier: Apache-2.0

// Package logs carries the logger in the context. So functions with a fixed
// signature, such as NRI calls, use the daemon's logger, too.
package logs

import (
	"context"

	"go.uber.org/zap"
)

type key struct{}

// With returns a context that carries l.
func With(ctx context.Context, l *zap.Logger) context.Context {
	return context.WithValue(ctx, key{}, l)
}

// From returns the logger in ctx, or a logger that writes nothing.
func From(ctx context.Context) *zap.Logger {
	if l, ok := ctx.Value(key{}).(*zap.Logger); ok {
		return l
	}
	return zap.NewNop()
}
