// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/failsafegrpc"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/retry"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/seed98143e88/grpcretry"
)

// contender is one way to retry calls.
type contender struct {
	name  string
	unary grpc.UnaryClientInterceptor // nil where gRPC does it, or nobody
	dial  []grpc.DialOption
}

const (
	attempts = 3
	// attemptTimeout is long enough to end no attempt: its own cost is measured.
	attemptTimeout = time.Minute
)

// contenders returns all of them, with the same policy: three attempts, UNAVAILABLE,
// no waits.
func contenders(tb testing.TB, timeout bool) []contender {
	tb.Helper()
	policy := grpcretry.Policy{
		MaxAttempts: attempts,
		Backoff:     grpcretry.Backoff{Initial: -1},
		Repeat:      grpcretry.RepeatAlways,
	}
	middleware := []retry.CallOption{retry.WithMax(attempts), retry.WithCodes(codes.Unavailable), retry.WithBackoff(atOnce)}
	if timeout {
		policy.AttemptTimeout = attemptTimeout
		middleware = append(middleware, retry.WithPerRetryTimeout(attemptTimeout))
	}
	retrier, err := grpcretry.New(grpcretry.WithPolicy(policy))
	require.NoError(tb, err)
	list := []contender{
		{name: "none"},
		{name: "grpcretry", unary: retrier.UnaryClientInterceptor(), dial: retrier.DialOptions()},
		interceptor("middleware", retry.UnaryClientInterceptor(middleware...)),
	}
	if !timeout { // neither of the others has one that the server sees
		list = append(list,
			interceptor("failsafe", failsafegrpc.NewUnaryClientInterceptor(failsafegrpc.NewRetryPolicyBuilder[any]().Build())),
			contender{name: "native", dial: []grpc.DialOption{grpc.WithDefaultServiceConfig(nativeConfig)}},
		)
	}
	return list
}

// interceptor is a library that is nothing but an interceptor, with gRPC's own
// retry off as for the suite.
func interceptor(name string, unary grpc.UnaryClientInterceptor) contender {
	return contender{name: name, unary: unary, dial: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(unary), grpc.WithDisableRetry(),
	}}
}

// nativeConfig is the same policy for gRPC's own retry, which must wait; it does so
// for a nanosecond.
const nativeConfig = `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":3,"initialBackoff":"0.000000001s",` +
	`"maxBackoff":"0.000000001s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`

func atOnce(context.Context, uint) time.Duration { return 0 }
