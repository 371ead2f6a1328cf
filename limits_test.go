// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// TestLimitsByKind holds that each kind's limit counts its own failures alone, and
// that none of them exceeds MaxAttempts.
func TestLimitsByKind(t *testing.T) {
	t.Parallel()
	cut := testserver.Cut()
	for _, row := range []struct {
		name     string
		policy   grpcretry.Policy
		script   []testserver.Step
		attempts int
		message  string // of the error; empty for success
	}{
		{"answered", grpcretry.Policy{MaxAttempts: 9, MaxAnswered: 2}, []testserver.Step{busy.Forever()}, 2, "2 of kind answered"},
		{"lost", grpcretry.Policy{MaxAttempts: 9, MaxLost: 3}, []testserver.Step{cut.Forever()}, 3, "3 of kind lost"},
		{"each for itself", grpcretry.Policy{MaxAttempts: 9, MaxLost: 2, MaxAnswered: 2}, []testserver.Step{busy, cut}, 3, ""},
		{"the second of one", grpcretry.Policy{MaxAttempts: 9, MaxLost: 2, MaxAnswered: 3}, []testserver.Step{busy, cut, busy, cut}, 4, "2 of kind lost"},
		{"not of another", grpcretry.Policy{MaxAttempts: 5, MaxConnect: 1, MaxLost: 1}, []testserver.Step{busy.Times(4)}, 5, ""},
		{"within MaxAttempts", grpcretry.Policy{MaxAnswered: 9}, []testserver.Step{busy.Forever()}, 3, "attempts exhausted)"},
		{"one is as good as none", grpcretry.Policy{MaxAnswered: 1}, []testserver.Step{busy.Forever()}, 1, "desc = busy"},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, row.policy)
				r.server.Script(read, row.script...)
				_, err := r.call(t.Context(), read)
				assert.Len(t, r.server.Attempts(), row.attempts)
				if row.message == "" {
					require.NoError(t, err)
					return
				}
				assert.ErrorContains(t, err, row.message)
				assert.Equal(t, row.attempts > 1, func() bool {
					_, wrapped := err.(*grpcretry.Error) //nolint:errorlint // is it wrapped at all?
					return wrapped
				}())
			})
		})
	}
	t.Run("connect", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{MaxAttempts: 9, MaxConnect: 2, ConnectWait: -1})
			r.server.Stop()
			_, err := r.call(t.Context(), read)
			assert.ErrorContains(t, err, "(2 attempts, 100ms: attempts exhausted: 2 of kind connect)")
		})
	})
}

func TestUpdate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{MaxAttempts: 2}, grpcretry.WithMethodPolicy(put, grpcretry.Policy{MaxAttempts: 4}))
		r.server.Script("", busy.Forever())
		attempts := func(method string) int {
			before := len(r.server.Attempts())
			_, err := r.call(t.Context(), method)
			assert.Equal(t, codes.Unavailable, status.Code(err))
			return len(r.server.Attempts()) - before
		}
		assert.Equal(t, []int{2, 4}, []int{attempts(read), attempts(put)})
		require.NoError(t, r.retrier.Update(grpcretry.WithPolicy(grpcretry.Policy{MaxAttempts: 5})))
		assert.Equal(t, []int{5, 5}, []int{attempts(read), attempts(put)}, "all policies are replaced")
		require.NoError(t, r.retrier.Update())
		assert.Equal(t, []int{3, 3}, []int{attempts(read), attempts(put)}, "by the default too")

		err := r.retrier.Update(
			grpcretry.WithPolicy(grpcretry.Policy{MaxAttempts: 7}),
			grpcretry.WithMethodPolicy(put, grpcretry.Policy{MaxLost: -1}),
			grpcretry.WithObserver(grpcretry.Observer{}),
			grpcretry.WithAttemptContext(func(ctx context.Context, _ int) context.Context { return ctx }),
		)
		assert.EqualError(t, err, `grpcretry: WithMethodPolicy("`+put+`"): MaxLost is -1; it must not be negative
WithObserver: only policies can be updated
WithAttemptContext: only policies can be updated`)
		assert.Equal(t, []int{3, 3}, []int{attempts(read), attempts(put)}, "nothing is changed if anything is wrong")
	})
}

// TestUpdateUnderLoad changes policies while calls run. Every call must have as
// many attempts as one of the policies says: none sees half of each.
func TestUpdateUnderLoad(t *testing.T) {
	t.Parallel()
	server := testserver.New(t)
	server.Script(read, busy.Forever())
	policies := []grpcretry.Policy{
		{MaxAttempts: 2, Backoff: grpcretry.Backoff{Initial: -1}},
		{MaxAttempts: 4, Backoff: grpcretry.Backoff{Initial: -1}},
	}
	retrier, err := grpcretry.New(grpcretry.WithPolicy(policies[0]))
	require.NoError(t, err)
	client := testv1.NewTestServiceClient(server.Dial(retrier.DialOptions()...))
	var callers sync.WaitGroup
	stop := make(chan struct{})
	var updater sync.WaitGroup
	updater.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				assert.NoError(t, retrier.Update(grpcretry.WithPolicy(policies[i%2])))
			}
		}
	})
	for range 4 {
		callers.Go(func() {
			for range 100 {
				var trailer metadata.MD
				_, err := client.Read(t.Context(), &testv1.Request{}, grpc.Trailer(&trailer))
				assert.ErrorIs(t, err, grpcretry.ErrExhausted)
				attempts, _ := grpcretry.AttemptsFromMD(trailer)
				assert.Contains(t, []int{2, 4}, attempts)
			}
		})
	}
	callers.Wait()
	close(stop)
	updater.Wait()
}
