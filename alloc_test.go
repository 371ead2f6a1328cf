// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// noWait retries at once, whatever the method.
var noWait = grpcretry.Policy{Backoff: grpcretry.Backoff{Initial: -1}, Repeat: grpcretry.RepeatAlways}

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

// stubCase is a call on an invoker that does nothing, so that only the suite's own
// cost is seen.
type stubCase struct {
	name     string
	failures int
	opts     []grpc.CallOption
	most     float64 // allocations
}

func stubCases() []stubCase {
	var header, trailer metadata.MD
	var p peer.Peer
	return []stubCase{
		{name: "success"},
		{name: "success,StaticMethod", opts: []grpc.CallOption{grpc.StaticMethod()}},
		{name: "success,Header,Peer", opts: []grpc.CallOption{grpc.Header(&header), grpc.Peer(&p)}},
		{name: "success,Trailer", opts: []grpc.CallOption{grpc.Trailer(&trailer)}, most: 3},
		{name: "success,Header,Trailer,Peer", opts: []grpc.CallOption{grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&p)}, most: 3},
		{name: "two failures,StaticMethod", failures: 2, opts: []grpc.CallOption{grpc.StaticMethod()}, most: 14},
	}
}

// call returns a function that makes one call through the suite.
func (c stubCase) call(tb testing.TB) func() {
	tb.Helper()
	retrier, err := grpcretry.New(
		grpcretry.WithPolicy(noWait),
		grpcretry.WithMethodPolicy(put, grpcretry.Policy{}),
		grpcretry.WithMethodPolicy("pkg.Other", grpcretry.Policy{}),
	)
	require.NoError(tb, err)
	intercept, invoker := retrier.UnaryClientInterceptor(), failing(c.failures)
	request, reply, ctx := &testv1.Request{}, &testv1.Response{}, context.Background()
	return func() {
		if err := intercept(ctx, read, request, reply, nil, invoker, c.opts...); err != nil {
			tb.Fatal(err)
		}
	}
}

// TestLaw10Allocations holds what a call may cost where gRPC costs nothing.
func TestLaw10Allocations(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts the whole process
	if raceEnabled {
		t.Skip("the race detector allocates by itself")
	}
	for _, c := range stubCases() {
		assert.LessOrEqual(t, testing.AllocsPerRun(1000, c.call(t)), c.most, c.name)
	}
}

// TestLaw10AllocationsOnAConnection compares calls on a real connection with the
// same calls without an interceptor. One allocation is gRPC's own copy of the
// trailer, three more are its copy of the header.
func TestLaw10AllocationsOnAConnection(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts the whole process
	if raceEnabled {
		t.Skip("the race detector allocates by itself")
	}
	retrier, err := grpcretry.New()
	require.NoError(t, err)
	server := testserver.New(t)
	without, with := server.Dial(), server.Dial(retrier.DialOptions()...)
	allocations := func(conn *grpc.ClientConn, opts ...grpc.CallOption) float64 {
		// As generated code does, but for its copy of the options, if there are any.
		opts = append(opts, grpc.StaticMethod())
		request, reply := &testv1.Request{}, &testv1.Response{}
		return testing.AllocsPerRun(300, func() {
			if err := conn.Invoke(t.Context(), read, request, reply, opts...); err != nil {
				t.Error(err)
			}
		})
	}
	var header metadata.MD
	for most, opts := range map[float64][]grpc.CallOption{
		1: nil,
		4: {grpc.Header(&header)},
	} {
		plain := allocations(without)
		assert.LessOrEqual(t, allocations(with, opts...), plain+most, fmt.Sprint(opts))
	}
}

func BenchmarkStub(b *testing.B) {
	for _, c := range stubCases() {
		b.Run(c.name, func(b *testing.B) {
			call := c.call(b)
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}

// thousand returns a Retrier with policies of 1,000 methods, and their names.
func thousand(tb testing.TB) (*grpcretry.Retrier, []string) {
	tb.Helper()
	methods := make([]string, 1000)
	options := make([]grpcretry.Option, len(methods))
	for i := range methods {
		methods[i] = fmt.Sprintf("/some.package.of.v1.Service%d/Method%d", i%40, i)
		options[i] = grpcretry.WithMethodPolicy(methods[i], grpcretry.Policy{MaxAttempts: 1 + i})
	}
	retrier, err := grpcretry.New(options...)
	require.NoError(tb, err)
	return retrier, methods
}

func TestLookup(t *testing.T) { //nolint:paralleltest // counts allocations
	retrier, methods := thousand(t)
	for i, method := range methods {
		require.Equal(t, 1+i, retrier.Policy(method).MaxAttempts)
	}
	if raceEnabled {
		return
	}
	i := 0
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		grpcretry.Lookup(retrier, methods[i%len(methods)])
		i++
	}))
}

// BenchmarkLookup finds the policies of 1,000 methods, one after the other.
func BenchmarkLookup(b *testing.B) {
	retrier, methods := thousand(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		grpcretry.Lookup(retrier, methods[i%len(methods)])
	}
}
