// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// sleep waits, and returns the error of the context if that ends first. It is over
// early if the connection is closed: no wait can help that.
func sleep(ctx context.Context, conn *grpc.ClientConn, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	if conn != nil {
		timed, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		for state := conn.GetState(); state != connectivity.Shutdown; state = conn.GetState() {
			if !conn.WaitForStateChange(timed, state) {
				break
			}
		}
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return ctx.Err()
}

// idleWait is how long a connection may take to begin to connect.
const idleWait = 100 * time.Millisecond

// awaitReady waits until the connection is ready for calls, which it asks it to
// become, or until the limit has passed or the context has ended. A channel that
// failed to connect refuses calls until it dials again, a second or more later:
// attempts in between would be burnt without a dial.
//
// It gives up on a channel that stays idle or becomes idle again: some balancers
// connect for a call alone, and a short idle timeout ends dials without calls.
func awaitReady(ctx context.Context, conn *grpc.ClientConn, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	awaitState(ctx, conn, func(s connectivity.State) bool { return s == connectivity.Ready })
}

// awaitResolver waits until a connection has been told by its resolver what to do.
func awaitResolver(ctx context.Context, conn *grpc.ClientConn) {
	awaitState(ctx, conn, func(s connectivity.State) bool {
		return s == connectivity.Ready || s == connectivity.TransientFailure
	})
}

// awaitState waits until the connection, which it asks to connect, is in a state that
// will do, until it is of no use, or until the context has ended.
func awaitState(ctx context.Context, conn *grpc.ClientConn, enough func(connectivity.State) bool) {
	for woken := false; ; {
		state, within := conn.GetState(), ctx
		switch {
		case enough(state) || state == connectivity.Shutdown || state == connectivity.Idle && woken:
			return
		case state == connectivity.Idle:
			woken = true
			conn.Connect()
			var done context.CancelFunc
			within, done = context.WithTimeout(ctx, idleWait)
			defer done()
		}
		if !conn.WaitForStateChange(within, state) {
			return
		}
	}
}
