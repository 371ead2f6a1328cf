// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// failing returns an invoker that fails the given number of times, then succeeds,
// and starts over.
func failing(failures int) grpc.UnaryInvoker {
	unavailable := status.Error(codes.Unavailable, "busy")
	made := 0
	return func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		if made++; made%(failures+1) != 0 {
			return unavailable
		}
		return nil
	}
}

// BenchmarkStub measures what a library adds to a call that costs nothing.
func BenchmarkStub(b *testing.B) {
	var header, trailer metadata.MD
	var p peer.Peer
	static := grpc.StaticMethod() // as generated code passes it
	outgoing := metadata.AppendToOutgoingContext(context.Background(), "tenant", "a")
	cancelable, cancel := context.WithCancel(outgoing)
	defer cancel()
	for _, c := range []struct {
		name     string
		ctx      context.Context
		failures int
		timeout  bool
		opts     []grpc.CallOption
	}{
		{name: "success"},
		{name: "success,StaticMethod", opts: []grpc.CallOption{static}},
		{name: "success,Header+Trailer+Peer", opts: []grpc.CallOption{grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&p)}},
		{name: "success,attempt timeout", timeout: true, opts: []grpc.CallOption{static}},
		{name: "two failures", failures: 2, opts: []grpc.CallOption{static}},
		{name: "two failures,metadata", ctx: cancelable, failures: 2, opts: []grpc.CallOption{static}},
		{name: "all fail", failures: 1 << 62, opts: []grpc.CallOption{static}},
	} {
		ctx := c.ctx
		if ctx == nil {
			ctx = context.Background()
		}
		for _, lib := range contenders(b, c.timeout) {
			invoker, request, reply := failing(c.failures), &testv1.Request{}, &testv1.Response{}
			call := func() error {
				return invoker(ctx, testv1.TestService_Read_FullMethodName, request, reply, nil, c.opts...)
			}
			switch {
			case lib.unary != nil:
				call = func() error {
					return lib.unary(ctx, testv1.TestService_Read_FullMethodName, request, reply, nil, invoker, c.opts...)
				}
			case lib.name != "none":
				continue
			}
			b.Run(c.name+"/lib="+lib.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_ = call()
				}
			})
		}
	}
}
