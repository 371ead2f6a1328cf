// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/jina"
)

// bubble runs a test in virtual time.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

var errBusy = status.Error(codes.Unavailable, "busy")

func TestWaitOrStop(t *testing.T) {
	t.Parallel()
	bubble(t, "waits and stops", func(t *testing.T) {
		begun := time.Now()
		require.NoError(t, jina.WaitOrStop(t.Context(), 1, errBusy, jina.Params{MaxAttempts: 3}))
		assert.Equal(t, 500*time.Millisecond, time.Since(begun))
		begun = time.Now()
		require.NoError(t, jina.WaitOrStop(t.Context(), 2, errBusy, jina.Params{MaxAttempts: 3}))
		assert.Less(t, time.Since(begun), 750*time.Millisecond)
		begun = time.Now()
		err := jina.WaitOrStop(t.Context(), 3, errBusy, jina.Params{MaxAttempts: 3})
		assert.Zero(t, time.Since(begun))
		require.EqualError(t, err, "jina: connection error: rpc error: code = Unavailable desc = busy")
		require.ErrorIs(t, err, jina.ErrConnection)
		require.ErrorIs(t, err, errBusy)
		var failed *jina.Error
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, 3, failed.Attempts())
		n, ok := grpcretry.AttemptsFromMD(failed.Trailer)
		assert.True(t, ok)
		assert.Equal(t, 3, n)
		assert.Equal(t, status.Convert(errBusy), status.Convert(err), "the status is unchanged")
	})
	bubble(t, "stops at once", func(t *testing.T) {
		invalid := status.Error(codes.InvalidArgument, "no")
		for _, row := range []struct {
			name   string
			err    error
			params jina.Params
			waits  bool
		}{
			{"the default makes one attempt", errBusy, jina.Params{}, false},
			{"not found", status.Error(codes.NotFound, ""), jina.Params{MaxAttempts: 2}, true},
			{"deadline of an attempt", status.Error(codes.DeadlineExceeded, ""), jina.Params{MaxAttempts: 2}, true},
			{"internal", status.Error(codes.Internal, ""), jina.Params{MaxAttempts: 2}, true},
			{"invalid argument", invalid, jina.Params{MaxAttempts: 2}, false},
			{"invalid argument, any code", invalid, jina.Params{MaxAttempts: 2, AnyCode: true}, true},
			{"an executor's", &jina.ExecutorError{}, jina.Params{MaxAttempts: 2, AnyCode: true}, false},
			{"without a status", errors.New("mine"), jina.Params{MaxAttempts: 2, AnyCode: true}, false},
			{"of a Post", &jina.Error{Cause: errBusy}, jina.Params{MaxAttempts: 2}, true},
		} {
			begun := time.Now()
			err := jina.WaitOrStop(t.Context(), 1, row.err, row.params)
			if row.waits {
				require.NoError(t, err, row.name)
				assert.Equal(t, 500*time.Millisecond, time.Since(begun), row.name)
				continue
			}
			require.ErrorIs(t, err, row.err, row.name)
			assert.Zero(t, time.Since(begun), row.name)
		}
		again := &jina.Error{Endpoint: "/x", Class: jina.ErrBadServerFlow, Cause: errBusy, Trailer: metadata.Pairs("a", "b")}
		stopped, ok := errors.AsType[*jina.Error](jina.WaitOrStop(t.Context(), 7, again, jina.Params{MaxAttempts: 7}))
		require.True(t, ok)
		assert.Equal(t, 7, stopped.Attempts(), "those of the loop, not of the Post")
		assert.Equal(t, []string{"b"}, stopped.Trailer.Get("a"))
		assert.Equal(t, "/x", stopped.Endpoint)
		assert.Zero(t, again.Attempts(), "it is another error")
		mine := errors.New("mine")
		assert.Equal(t, mine, jina.WaitOrStop(t.Context(), 1, mine, jina.Params{}), "as it is")
	})
	bubble(t, "the context", func(t *testing.T) {
		params := jina.Params{MaxAttempts: 3}
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, jina.WaitOrStop(ctx, 1, errBusy, params), errBusy)
		assert.Zero(t, time.Since(begun), "a wait that does not fit is not begun")

		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		err := jina.WaitOrStop(ctx, 1, errBusy, params)
		assert.Equal(t, 100*time.Millisecond, time.Since(begun))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errBusy)
		assert.Equal(t, codes.Canceled, status.Code(err))
		require.NotErrorIs(t, err, jina.ErrConnection)
		err = jina.WaitOrStop(ctx, 1, errBusy, params)
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 100*time.Millisecond, time.Since(begun))
	})
}

func TestWaitOrStopMisused(t *testing.T) {
	t.Parallel()
	err := jina.WaitOrStop(t.Context(), 0, nil, jina.Params{MaxAttempts: -1})
	require.EqualError(t, err, "jina: WaitOrStop: params: MaxAttempts is -1; it must not be negative\n"+
		"the attempt is 0; they are counted from 1\nthe error is nil, so that there is nothing to wait for")
	var none context.Context
	require.ErrorContains(t, jina.WaitOrStop(none, 1, errBusy, jina.Params{}), "the context is nil")
	err = jina.WaitOrStop(t.Context(), 0, errBusy, jina.Params{})
	require.ErrorIs(t, err, errBusy, "what went wrong is not lost")
}
