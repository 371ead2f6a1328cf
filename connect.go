// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// awaitReady waits until the connection is ready for calls, which it asks it to
// become, or until the limit has passed or the context has ended. A channel that
// failed to connect refuses calls until it dials again, a second or more later:
// attempts in between would be burnt without a dial.
func awaitReady(ctx context.Context, conn *grpc.ClientConn, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready, connectivity.Shutdown:
			return
		case connectivity.Idle:
			conn.Connect()
		case connectivity.Connecting, connectivity.TransientFailure:
		}
		if !conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}
