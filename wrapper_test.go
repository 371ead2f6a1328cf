// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// TestErrorWrapper: whatever a call fails with is wrapped once, with the reason, for the
// caller, the observer and grpc.OnFinish alike.
func TestErrorWrapper(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		step   testserver.Step
		policy grpcretry.Policy
		reason error
	}{
		{"exhausted", busy.Forever(), grpcretry.Policy{}, grpcretry.ErrExhausted},
		{"one attempt", busy.Forever(), grpcretry.Policy{MaxAttempts: 1}, grpcretry.ErrExhausted},
		{"not retryable", testserver.Fail(codes.NotFound, "x"), grpcretry.Policy{}, grpcretry.ErrNotRetryable},
		{"pushback", busy.Pushback("-1"), grpcretry.Policy{}, grpcretry.ErrPushback},
	} {
		for _, method := range []string{read, upload} {
			t.Run(row.name+" "+method, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					calls := 0
					var told, finished error
					retrier, err := grpcretry.New(
						grpcretry.WithPolicy(row.policy),
						grpcretry.WithErrorWrapper(func(ctx context.Context, m string, reason, err error) error {
							calls++
							assert.Equal(t, method, m)
							require.ErrorIs(t, reason, row.reason)
							return fmt.Errorf("%v: %w", ctx.Value(wrapperKey{}), err)
						}),
						grpcretry.WithObserver(grpcretry.Observer{
							Done: func(_ context.Context, _ string, _ []grpcretry.Attempt, err error) { told = err },
						}))
					require.NoError(t, err)
					server := testserver.New(t)
					server.Script(method, row.step)
					client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))
					ctx := context.WithValue(t.Context(), wrapperKey{}, "wrapped")
					finish := grpc.OnFinish(func(err error) { finished = err })
					if method == read {
						_, err = client.Read(ctx, &testv1.Request{}, finish)
					} else {
						stream, streamErr := client.Upload(ctx, finish)
						require.NoError(t, streamErr)
						_, err = stream.CloseAndRecv()
						again := stream.RecvMsg(&testv1.Response{})
						assert.Equal(t, err, again, "it is the same each time")
					}
					require.ErrorContains(t, err, "wrapped: ")
					assert.Equal(t, err, told)
					assert.Equal(t, err, finished)
					assert.Equal(t, 1, calls)
					want, _ := status.FromError(err)
					assert.Equal(t, want.Code(), status.Code(err))
				})
			})
		}
	}
}

type wrapperKey struct{}

// uncomparable is an error that cannot be compared, though its type can.
type uncomparable struct{ detail any }

func (uncomparable) Error() string { return "uncomparable" }

// TestErrorWrapperUncomparable: an interceptor's error that cannot be compared is left as
// it is.
func TestErrorWrapperUncomparable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		retrier, err := grpcretry.New(grpcretry.WithErrorWrapper(func(_ context.Context, _ string, _, err error) error {
			return fmt.Errorf("wrapped: %w", err)
		}))
		require.NoError(t, err)
		failing := func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
			return uncomparable{[]int{1}}
		}
		conn := testserver.New(t).Dial(append(retrier.DialOptions(), grpc.WithChainUnaryInterceptor(failing))...)
		_, err = testv1.NewTestServiceClient(conn).Write(t.Context(), &testv1.Request{})
		assert.ErrorContains(t, err, "uncomparable")
		assert.NotContains(t, err.Error(), "wrapped")
	})
}

// TestErrorWrapperRefused: what does not wrap the error has no effect, least of all what
// would pass for success.
func TestErrorWrapperRefused(t *testing.T) {
	t.Parallel()
	for _, result := range []error{nil, io.EOF, errors.New("mine"), status.Error(codes.OK, "")} {
		t.Run(fmt.Sprint(result), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				retrier, err := grpcretry.New(grpcretry.WithErrorWrapper(func(_ context.Context, _ string, _, err error) error {
					if errors.Is(result, io.EOF) {
						return errors.Join(io.EOF, err)
					}
					return result
				}))
				require.NoError(t, err)
				server := testserver.New(t)
				server.Script(read, testserver.Fail(codes.NotFound, "x"))
				_, err = testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...)).Read(t.Context(), &testv1.Request{})
				assert.Equal(t, status.Error(codes.NotFound, "x").Error(), err.Error())
			})
		})
	}
	_, err := grpcretry.New(grpcretry.WithErrorWrapper(nil))
	require.EqualError(t, err, "grpcretry: WithErrorWrapper: the function is nil")
	retrier, err := grpcretry.New()
	require.NoError(t, err)
	err = retrier.Update(grpcretry.WithErrorWrapper(func(_ context.Context, _ string, _, err error) error { return err }))
	require.EqualError(t, err, "grpcretry: WithErrorWrapper: only policies can be updated")
}
