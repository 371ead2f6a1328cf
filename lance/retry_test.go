// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package lance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/lance"
	"github.com/seed98143e88/grpcretry/testserver"
)

// TestRetries: retries are the largest number of requests, as measured on LanceDB's
// client; 0 and 1 are one. The waits are as documented, 0.25 s and doubled.
func TestRetries(t *testing.T) {
	for retries, want := range map[int][]time.Duration{
		0: {0},
		1: {0},
		2: {0, 250 * ms},
		3: {0, 250 * ms, 750 * ms},
		6: {0, 250 * ms, 750 * ms, 1750 * ms, 3750 * ms, 7750 * ms},
	} {
		for _, code := range []codes.Code{
			codes.Aborted, codes.ResourceExhausted, codes.Internal, codes.Unknown, codes.Unavailable, codes.DeadlineExceeded,
		} {
			bubble(t, fmt.Sprintf("%d, %v", retries, code), func(t *testing.T) {
				config := unjittered()
				config.Retries, config.ConnectRetries, config.ReadRetries = &retries, new(9), new(9)
				r := newRig(t, config)
				r.server.Script(read, fail(code).Forever())
				err := r.call(t.Context(), read)
				assert.Equal(t, want, r.starts())
				failed, ok := errors.AsType[*lance.RetryError](err)
				require.True(t, ok, err)
				assert.Equal(t, lance.Counter{Failures: len(want), Limit: retries}, failed.Requests)
				assert.Equal(t, status.New(code, "x").String(), status.Convert(err).String(), "the status is unchanged")
			})
		}
	}
	bubble(t, "by default", func(t *testing.T) {
		r := newRig(t, lance.RetryConfig{})
		r.server.Script(read, fail(codes.Unavailable).Forever())
		require.Error(t, r.call(t.Context(), read))
		starts := r.starts()
		require.Len(t, starts, 3)
		for i, least := range []time.Duration{250 * ms, 500 * ms} {
			wait := starts[i+1] - starts[i]
			assert.True(t, wait >= least && wait < least+250*ms, wait)
		}
	})
	bubble(t, "passes", func(t *testing.T) {
		r := newRig(t, lance.RetryConfig{})
		r.server.Script(read, fail(codes.Unavailable).Times(2))
		require.NoError(t, r.call(t.Context(), read))
		assert.Len(t, r.server.Attempts(), 3)
	})
}

// TestNotRetried: statuses that are not in the list end the call at once, with gRPC's own
// error.
func TestNotRetried(t *testing.T) {
	for _, code := range []codes.Code{
		codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.FailedPrecondition,
		codes.OutOfRange, codes.Unimplemented, codes.DataLoss, codes.Unauthenticated, codes.Canceled,
	} {
		bubble(t, code.String(), func(t *testing.T) {
			r := newRig(t, lance.RetryConfig{})
			r.server.Script(read, fail(code).Forever())
			err := r.call(t.Context(), read)
			assert.Equal(t, status.Error(code, "x").Error(), err.Error())
			assert.Len(t, r.server.Attempts(), 1)
		})
	}
}

// failing is how an attempt fails, by the counter that it is for.
type failing int

const (
	connect failing = iota // nobody is there
	request                // a status
	answer                 // none comes
)

// TestThreeCounters: a limit ends the call at so many failures of its kind, and that of
// all kinds bounds the sum. All of them back off alike.
func TestThreeCounters(t *testing.T) {
	for _, row := range []struct {
		name                    string
		retries, connects, read int
		steps                   []failing
		want                    string
	}{
		{"requests", 3, 9, 9, []failing{request, request, request}, "request_failures=3/3, connect_failures=0/9, read_failures=0/9"},
		{"connects", 9, 2, 9, []failing{connect, connect}, "request_failures=0/9, connect_failures=2/2, read_failures=0/9"},
		{"connects back off", 9, 4, 9, []failing{connect, connect, connect, connect}, "request_failures=0/9, connect_failures=4/4, read_failures=0/9"},
		{"reads", 9, 9, 2, []failing{answer, answer}, "request_failures=0/9, connect_failures=0/9, read_failures=2/2"},
		{"no reads", 9, 9, 0, []failing{answer}, "request_failures=0/9, connect_failures=0/9, read_failures=1/0"},
		{"no connects", 9, 0, 9, []failing{connect}, "request_failures=0/9, connect_failures=1/0, read_failures=0/9"},
		{"one connect", 9, 1, 9, []failing{connect}, "request_failures=0/9, connect_failures=1/1, read_failures=0/9"},
		{"none of a kind leaves others", 3, 0, 0, []failing{request, request, request}, "request_failures=3/3, connect_failures=0/0, read_failures=0/0"},
		{"the first bounds the sum", 3, 3, 3, []failing{request, answer, connect}, "request_failures=1/3, connect_failures=1/3, read_failures=1/3"},
		{"no retries bound connects", 0, 3, 3, []failing{connect}, "request_failures=0/0, connect_failures=1/3, read_failures=0/3"},
		{"mixed, by reads", 9, 9, 2, []failing{answer, request, answer}, "request_failures=1/9, connect_failures=0/9, read_failures=2/2"},
		{"mixed, by connects", 9, 2, 9, []failing{connect, request, connect}, "request_failures=1/9, connect_failures=2/2, read_failures=0/9"},
	} {
		bubble(t, row.name, func(t *testing.T) {
			config := unjittered()
			config.Retries, config.ConnectRetries, config.ReadRetries = &row.retries, &row.connects, &row.read
			var r *rig
			next := row.steps
			arrange := func() {
				r.server.Stop()
				if len(next) == 0 {
					return
				}
				step := next[0]
				if next = next[1:]; step == connect {
					return
				}
				require.NoError(t, r.server.Start())
				if step == request {
					r.server.Script(read, fail(codes.Unavailable))
				} else {
					r.server.Script(read, testserver.Hang())
				}
			}
			waits := []time.Duration{}
			r = newRig(t, config, lance.WithAttemptTimeout(time.Second), lance.WithObserver(grpcretry.Observer{
				Attempt: func(_ context.Context, _ string, a grpcretry.Attempt) {
					if arrange(); a.Wait > 0 {
						waits = append(waits, a.Wait)
					}
				},
			}))
			arrange()
			err := r.call(t.Context(), read)
			require.ErrorContains(t, err, "Hit retry limit for request_id=")
			require.ErrorContains(t, err, " ("+row.want+"): ")
			assert.Empty(t, next)
			assert.Equal(t, []time.Duration{250 * ms, 500 * ms, 1000 * ms}[:len(row.steps)-1], waits)
		})
	}
}

// TestNoWaitForConnection: unless it is asked for, a retry does not wait for the
// connection.
func TestNoWaitForConnection(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Minute} {
		bubble(t, wait.String(), func(t *testing.T) {
			var opts []lance.Option
			if wait > 0 {
				opts = append(opts, lance.WithConnectWait(wait))
			}
			r := newRig(t, unjittered(), opts...)
			r.server.Stop()
			time.AfterFunc(5*time.Second, func() { assert.NoError(t, r.server.Start()) })
			begun := time.Now()
			if err := r.call(t.Context(), write); wait == 0 {
				require.ErrorContains(t, err, "connect_failures=3/3")
				assert.Equal(t, 750*ms, time.Since(begun))
			} else {
				require.NoError(t, err)
			}
		})
	}
}
