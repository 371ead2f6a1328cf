// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// TestRecoveryPanics: a function of a Recovery that panics, or ends its goroutine, ends
// the call too: its attempt is cancelled, nothing is kept, and whoever else uses the
// stream learns of it.
func TestRecoveryPanics(t *testing.T) {
	for _, how := range []struct {
		name string
		end  func()
	}{
		{"panics", func() { panic("mine") }}, //nolint:forbidigo // which is the point
		{"exits", runtime.Goexit},
	} {
		for _, row := range []struct {
			name     string
			recovery grpcretry.Recovery
			send     bool // Send meets it, else the second Recv
			attempts int
		}{
			{"equal", grpcretry.Skip(func(any, any) bool { how.end(); return true }), false, 2},
			{"next", grpcretry.Resume(func(any) ([]any, error) { how.end(); return nil, nil }), false, 1},
			{"key of a request", grpcretry.Acked(func(m any) string {
				if keyOf(m) == "b" {
					how.end()
				}
				return keyOf(m)
			}), true, 1},
			{"key of a response", grpcretry.Acked(func(m any) string {
				if _, response := m.(*testv1.Response); response && keyOf(m) == "second" {
					how.end()
				}
				return keyOf(m)
			}), false, 1},
		} {
			t.Run(row.name+" "+how.name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := recovering(t, row.recovery)
					first := busy.Sent(1)
					if row.attempts == 1 && row.name != "next" {
						first = testserver.OK()
					}
					r.server.Script(exchange, first, testserver.OK())
					stream, err := r.Exchange(t.Context())
					require.NoError(t, err)
					require.NoError(t, stream.Send(&testv1.Request{Key: "a"}))
					_, err = stream.Recv()
					require.NoError(t, err)
					var met any
					var user sync.WaitGroup
					user.Go(func() {
						defer func() { met = recover() }()
						if row.send {
							_ = stream.Send(&testv1.Request{Key: "b"})
						} else {
							_ = stream.Send(&testv1.Request{Key: "second"})
							_, _ = stream.Recv()
						}
						met = "nothing"
					})
					user.Wait()
					if how.name == "panics" {
						assert.Equal(t, "mine", met)
					} else {
						assert.Nil(t, met)
					}
					assert.ErrorIs(t, stream.Send(&testv1.Request{Key: "c"}), io.EOF)
					_, err = stream.Recv()
					assert.Equal(t, codes.Internal, status.Code(err))
					synctest.Wait()
					attempts := r.server.Attempts()
					assert.Len(t, attempts, row.attempts)
					assert.False(t, attempts[len(attempts)-1].End.IsZero(), "law 9: it is cancelled")
					assert.Zero(t, grpcretry.Buffered(r.retrier))
				})
			})
		}
	}
}

// TestRecoveryCancelled: the caller's cancellation ends a stream wherever it is, with its
// own status, and the last real failure in the chain.
func TestRecoveryCancelled(t *testing.T) {
	for name, recovery := range recoveries {
		for _, at := range []time.Duration{1, 50 * ms, 100*ms + 1, 150 * ms, 1100 * ms} {
			t.Run(name+" "+at.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := recovering(t, recovery)
					r.server.Script(exchange, busy.Sent(1), testserver.Hang().Sent(1).Delay(10*ms), testserver.Hang())
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(at, cancel)
					stream, err := r.Exchange(ctx)
					require.NoError(t, err)
					for _, key := range []string{"a", "b"} {
						require.NoError(t, stream.Send(&testv1.Request{Key: key}))
					}
					keys, _, err := receiveAll(stream)
					assert.Equal(t, codes.Canceled, status.Code(err))
					assert.ErrorContains(t, err, "busy")
					assert.NotEmpty(t, keys)
					assert.Equal(t, at, time.Since(r.server.Attempts()[0].Start))
					synctest.Wait()
					assert.Zero(t, grpcretry.Buffered(r.retrier))
				})
			})
		}
	}
}
