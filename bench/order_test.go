// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// TestOrder holds what the documentation says of the order of options: an
// interceptor before the suite's sees one call, one after it each attempt, and a
// stats handler, as otelgrpc is one, each attempt wherever it stands.
func TestOrder(t *testing.T) {
	t.Parallel()
	for _, otelFirst := range []bool{true, false} {
		server := testserver.New(t)
		server.Script(testv1.TestService_Read_FullMethodName, testserver.Fail(codes.Unavailable, "busy").Times(2))
		retrier, err := grpcretry.New(grpcretry.WithPolicy(grpcretry.Policy{Backoff: grpcretry.Backoff{Initial: -1}}))
		require.NoError(t, err)

		spans := tracetest.NewSpanRecorder()
		provider := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
		otel := grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(provider)))
		var outer, inner []error
		options := []grpc.DialOption{logging(&outer)}
		if otelFirst {
			options = append(options, otel)
		}
		options = append(append(options, retrier.DialOptions()...), logging(&inner))
		if !otelFirst {
			options = append(options, otel)
		}

		ctx, span := provider.Tracer("test").Start(t.Context(), "caller")
		_, err = testv1.NewTestServiceClient(server.Dial(options...)).Read(ctx, &testv1.Request{})
		span.End()
		require.NoError(t, err)
		assert.Len(t, outer, 1)
		assert.NoError(t, outer[0])
		assert.Len(t, inner, attempts)
		attemptSpans := spans.Ended()[:len(spans.Ended())-1] // the caller's own is last
		require.Len(t, attemptSpans, attempts)
		for _, attempt := range attemptSpans {
			assert.Equal(t, span.SpanContext().SpanID(), attempt.Parent().SpanID(), "attempts are siblings under the caller's span")
		}
	}
}

// logging is an interceptor that notes how calls end.
func logging(to *[]error) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoker(ctx, method, req, reply, cc, opts...)
		*to = append(*to, err)
		return err
	})
}
