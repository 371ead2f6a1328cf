// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// TestSkip: all is sent again, and the caller gets each response once.
func TestSkip(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Skip(nil))
		r.server.Handle(download, numbers(10, 4, 6))
		keys, trailer, err := callDownload(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, upTo(10), keys)
		assert.Equal(t, []time.Duration{0, 100 * ms, 300 * ms}, r.starts())
		assert.Zero(t, grpcretry.Buffered(r.retrier))
		r.assertOneLedger(t, trailer, err)
	})
}

// TestSkipFailsBetween: an attempt that fails while its responses are dropped is
// followed by another, which drops them all.
func TestSkipFailsBetween(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Skip(nil), func(p *grpcretry.Policy) { p.MaxAttempts = 5 })
		r.server.Handle(download, numbers(10, 7, 3, 7, 0))
		keys, trailer, err := callDownload(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, upTo(10), keys)
		r.assertOneLedger(t, trailer, err)
	})
}

// TestSkipDuplex: requests that were sent before and after the failure are sent again,
// and the half-close.
func TestSkipDuplex(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := recovering(t, grpcretry.Skip(nil))
		r.server.Script(exchange, busy.Sent(2), testserver.OK())
		stream, err := r.Exchange(t.Context())
		require.NoError(t, err)
		for _, key := range []string{"a", "b", "c"} {
			require.NoError(t, stream.Send(&testv1.Request{Key: key}))
		}
		for _, key := range []string{"a", "b", "c"} {
			response, err := stream.Recv()
			require.NoError(t, err)
			assert.Equal(t, key, response.GetKey())
		}
		require.NoError(t, stream.Send(&testv1.Request{Key: "d"}))
		require.NoError(t, stream.CloseSend())
		keys, trailer, err := receiveAll(stream)
		require.NoError(t, err)
		assert.Equal(t, []string{"d"}, keys)
		last := r.server.Attempts()[1]
		assert.Equal(t, []string{"a", "b", "c", "d"}, keysOf(last.Requests))
		assert.True(t, last.HalfClosed)
		r.assertOneLedger(t, trailer, err)
	})
}

// TestSkipDiffers: a replay that is not the same ends the call, at its position.
func TestSkipDiffers(t *testing.T) {
	for _, row := range []struct {
		name  string
		equal func(had, got any) bool
		serve func(grpc.ServerStream) error
		text  string
	}{
		{
			name: "another response",
			serve: func(ss grpc.ServerStream) error {
				_ = ss.SendMsg(&testv1.Response{Key: "0"})
				return ss.SendMsg(&testv1.Response{Key: "x"})
			},
			text: "grpcretry: Skip: response 2 of attempt 2 is not the one that the caller has",
		},
		{
			name:  "fewer responses",
			serve: func(ss grpc.ServerStream) error { return ss.SendMsg(&testv1.Response{Key: "0"}) },
			text:  "grpcretry: Skip: attempt 2 ended well after 1 responses, and the caller has 3",
		},
		{name: "none", serve: func(grpc.ServerStream) error { return nil }, text: "grpcretry: Skip: attempt 2 ended well after 0 responses, and the caller has 3"},
		{
			name:  "by the caller's word",
			equal: func(_, got any) bool { return got.(*testv1.Response).GetKey() != "2" },
			serve: numbers(3),
			text:  "grpcretry: Skip: response 3 of attempt 2 is not the one that the caller has",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := recovering(t, grpcretry.Skip(row.equal))
				fails := func(ss grpc.ServerStream) error {
					for _, key := range upTo(3) {
						_ = ss.SendMsg(&testv1.Response{Key: key})
					}
					return status.Error(codes.Unavailable, "busy")
				}
				r.server.Script(download, testserver.Do(fails), testserver.Do(row.serve))
				keys, trailer, err := callDownload(t.Context(), r)
				assert.Equal(t, upTo(3), keys)
				assert.Equal(t, codes.DataLoss, status.Code(err))
				assert.ErrorIs(t, err, grpcretry.ErrNotRetryable)
				assert.Equal(t, row.text, status.Convert(err).Message())
				assert.ErrorContains(t, err, "busy", "law 4: the last real failure is in the chain")
				assert.Zero(t, grpcretry.Buffered(r.retrier))
				r.assertOneLedger(t, trailer, err)
			})
		})
	}
}
