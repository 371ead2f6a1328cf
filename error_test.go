// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// TestUntimed holds what an error says of the time where the first attempt was not
// timed: nothing false.
func TestUntimed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := testserver.New(t)
		client := clientOf(t, server, grpcretry.Policy{Backoff: grpcretry.Backoff{Jitter: -1}})
		server.Script(read, busy.Delay(time.Minute).Forever())
		_, err := client.Read(t.Context(), &testv1.Request{})
		assert.ErrorContains(t, err, "(3 attempts, 2m0.3s from the end of the first: attempts exhausted)")
		server.Script(write, busy.Delay(time.Minute))
		_, err = client.Write(t.Context(), &testv1.Request{})
		assert.ErrorContains(t, err, "(1 attempt: the call may have run: ")
		server.Script(write, busy.Delay(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err = client.Write(ctx, &testv1.Request{})
		assert.ErrorContains(t, err, "(1 attempt, 1m0s: the call may have run: ")
	})
}

// TestErrorOfSomebodyElse holds that an Error which no call made, as tests of its
// users may, says what it can.
func TestErrorOfSomebodyElse(t *testing.T) {
	t.Parallel()
	err := error(&grpcretry.Error{Method: read, Reason: grpcretry.ErrExhausted})
	assert.EqualError(t, err, "rpc error: code = Unknown desc = no attempt failed (0 attempts, 0s from the end of the first: attempts exhausted)")
	assert.Equal(t, codes.Unknown, status.Code(err))
	assert.ErrorIs(t, err, grpcretry.ErrExhausted)
	assert.NotErrorIs(t, err, grpcretry.ErrDeadline)
	assert.Error(t, &grpcretry.Error{})
	assert.NotErrorIs(t, &grpcretry.Error{}, errors.ErrUnsupported)
}

// weary is a context that ends with an error of its own.
type weary struct {
	context.Context

	done chan struct{}
}

func (w weary) Done() <-chan struct{} { return w.done }

func (w weary) Err() error {
	select {
	case <-w.done:
		return errors.New("tired")
	default:
		return nil
	}
}

func TestContextWithItsOwnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		r.server.Script(read, busy.Forever())
		ctx := weary{t.Context(), make(chan struct{})}
		time.AfterFunc(50*time.Millisecond, func() { close(ctx.done) })
		_, err := r.call(ctx, read)
		assert.Equal(t, codes.Canceled, status.Code(err))
		assert.ErrorContains(t, err, "tired")
	})
}
