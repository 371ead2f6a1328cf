// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package rawh2_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver/rawh2"
)

// A bubble fails if a goroutine is left when it ends.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := rawh2.New(t, rawh2.Bufconn(), rawh2.BlackHole(1))
		srv.Script(rawh2.RefuseStream(), rawh2.Silent(), rawh2.Headers(), rawh2.Close())
		cc := srv.Dial()
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			read(ctx, cc, grpc.WaitForReady(true))
			cancel()
		}
		assert.Equal(t, []string{"2/1", "2/3", "2/5", "2/7", "3/1", "3/3"}, places(srv.Record()))
		srv.Close()
		srv.Close()
		for _, c := range srv.Record().Conns {
			assert.True(t, c.Closed)
		}
	})
}

// The client's goodbye is recorded.
func TestGoAwayOfTheClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := rawh2.New(t, rawh2.Bufconn())
		cc := srv.Dial()
		_, got := read(t.Context(), cc)
		require.Equal(t, codes.OK, got.code)
		require.NoError(t, cc.Close())
		record := srv.Await(t, func(r rawh2.Record) bool { return r.Conns[0].Closed })
		require.Len(t, record.Conns[0].GoAways, 1)
		assert.Equal(t, http2.ErrCodeNo, record.Conns[0].GoAways[0].Code)
	})
}

// In a black hole a call lasts until its deadline, to the nanosecond.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := rawh2.New(t, rawh2.Bufconn(), rawh2.BlackHole(math.MaxInt))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		_, got := read(ctx, srv.Dial())
		assert.Equal(t, 3*time.Second, time.Since(start))
		assert.Equal(t, outcome{
			codes.DeadlineExceeded,
			"context deadline exceeded while waiting for connections to become ready", false, false, false,
		}, got)
		record := srv.Record()
		assert.Equal(t, []rawh2.Conn{{}}, record.Conns)
		assert.Empty(t, record.Streams)
	})
}

// Over TCP the client connects, and never gets a word.
func TestBlackHoleOverTCP(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t, rawh2.BlackHole(1))
	ctx, cancel := context.WithCancel(withGuard(t))
	cc := srv.Dial()
	done := make(chan outcome)
	go func() {
		_, got := read(ctx, cc)
		done <- got
	}()
	srv.Await(t, func(r rawh2.Record) bool { return len(r.Conns) == 1 })
	cancel()
	assert.Equal(t, codes.Canceled, (<-done).code)
	require.NoError(t, cc.Close())
	record := srv.Await(t, func(r rawh2.Record) bool { return r.Conns[0].Closed })
	assert.Equal(t, []rawh2.Conn{{Closed: true}}, record.Conns)

	_, got := read(withGuard(t), srv.Dial())
	assert.Equal(t, codes.OK, got.code)
}

// With no stream allowed, a call waits and the server never hears of it; with
// one allowed, calls take turns.
func TestMaxConcurrentStreams(t *testing.T) {
	t.Parallel()
	for limit, want := range map[uint32]int{0: 0, 1: 1, 2: 2} {
		synctest.Test(t, func(t *testing.T) {
			srv := rawh2.New(t, rawh2.Bufconn(), rawh2.Setting(http2.SettingMaxConcurrentStreams, limit))
			srv.Always(rawh2.Silent())
			cc := srv.Dial()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			done := make(chan outcome)
			for range 2 {
				go func() {
					_, got := read(ctx, cc)
					done <- got
				}()
			}
			synctest.Wait()
			assert.Len(t, srv.Record().Streams, want)
			for range 2 {
				assert.Equal(t, codes.DeadlineExceeded, (<-done).code)
			}
		})
	}
}

// With an initial window of nothing, only headers arrive.
func TestInitialWindowOfNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := rawh2.New(t, rawh2.Bufconn(), rawh2.Setting(http2.SettingInitialWindowSize, 0))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, got := read(ctx, srv.Dial())
		assert.Equal(t, codes.DeadlineExceeded, got.code)
		assert.Empty(t, srv.Record().Streams[0].Data)
	})
}

// The server answers pings, so keepalive keeps a silent connection.
func TestPingsAreAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := rawh2.New(t, rawh2.Bufconn())
		srv.Script(rawh2.Silent())
		cc := srv.Dial(grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 10 * time.Second, Timeout: time.Second,
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		_, got := read(ctx, cc)
		assert.Equal(t, codes.DeadlineExceeded, got.code)
		assert.Equal(t, time.Hour, time.Since(start))
		assert.Len(t, srv.Record().Conns, 1)
	})
}

// A step is a value: what is made of it leaves it as it was.
func TestStepsAreImmutable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		payload := encode(t, &testv1.Response{Key: "before"})
		step := rawh2.OK(payload)
		copy(payload, "changed later")
		step.AtHeaders()
		step.Then(rawh2.Close())
		first := rawh2.Headers().Then(rawh2.Message(nil))
		_ = first.Then(rawh2.Trailers("grpc-status", "1"))
		last := first.Then(rawh2.Trailers("grpc-status", "5"))

		srv := rawh2.New(t, rawh2.Bufconn())
		srv.Script(step, step, last)
		cc := srv.Dial()
		for range 2 {
			response, got := read(t.Context(), cc)
			require.Equal(t, codes.OK, got.code)
			assert.Equal(t, "before", response.GetKey())
		}
		_, got := read(t.Context(), cc)
		assert.Equal(t, codes.NotFound, got.code)
		assert.Len(t, srv.Record().Conns, 1)
	})
}
