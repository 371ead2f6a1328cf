// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package lance_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"

	"github.com/seed98143e88/grpcretry/lance"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

const (
	read   = testv1.TestService_Read_FullMethodName   // NO_SIDE_EFFECTS
	put    = testv1.TestService_Put_FullMethodName    // IDEMPOTENT
	write  = testv1.TestService_Write_FullMethodName  // no idempotency_level
	upload = testv1.TestService_Upload_FullMethodName // IDEMPOTENT
)

// unjittered has waits that are certain.
func unjittered() lance.RetryConfig {
	return lance.RetryConfig{BackoffJitter: new(time.Duration(0))}
}

// rig is a client of a scripted server.
type rig struct {
	*testing.T

	server *testserver.Server
	client testv1.TestServiceClient
}

func newRig(t *testing.T, config lance.RetryConfig, opts ...lance.Option) *rig {
	t.Helper()
	return newRigOf(t, testserver.New(t), config, opts...)
}

// newRigOf is a rig with a certain server.
func newRigOf(t *testing.T, server *testserver.Server, config lance.RetryConfig, opts ...lance.Option) *rig {
	t.Helper()
	options, err := lance.DialOptions(config, opts...)
	require.NoError(t, err)
	// gRPC's own backoff must not come before ours.
	options = append(options, grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: ms, MaxDelay: ms}}))
	return &rig{T: t, server: server, client: testv1.NewTestServiceClient(server.Dial(options...))}
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// call calls a method, a stream with one request.
func (r *rig) call(ctx context.Context, method string, opts ...grpc.CallOption) error {
	request := &testv1.Request{Key: "a"}
	var err error
	switch method {
	case read:
		_, err = r.client.Read(ctx, request, opts...)
	case put:
		_, err = r.client.Put(ctx, request, opts...)
	case write:
		_, err = r.client.Write(ctx, request, opts...)
	default:
		var stream grpc.ClientStreamingClient[testv1.Request, testv1.Response]
		if stream, err = r.client.Upload(ctx, opts...); err != nil {
			return err
		}
		if err = stream.Send(request); err == nil || errors.Is(err, io.EOF) {
			_, err = stream.CloseAndRecv()
		}
	}
	return err
}

// starts are the times at which attempts reached the server, since the first.
func (r *rig) starts() []time.Duration {
	var starts []time.Duration
	attempts := r.server.Attempts()
	for _, a := range attempts {
		starts = append(starts, a.Start.Sub(attempts[0].Start))
	}
	return starts
}

// fail is an answer with a code.
func fail(code codes.Code) testserver.Step { return testserver.Fail(code, "x") }

const ms = time.Millisecond
