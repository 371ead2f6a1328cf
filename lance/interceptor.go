// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package lance

import (
	"context"

	"google.golang.org/grpc"
)

// unary is the interceptor of unary calls, before that of the Retrier.
func (s *suite) unary(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	return invoker(s.begin(ctx, method), method, req, reply, cc, opts...)
}

// stream is the interceptor of streams, before that of the Retrier.
func (s *suite) stream(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	streamer grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return streamer(s.begin(ctx, method), desc, cc, method, opts...)
}
