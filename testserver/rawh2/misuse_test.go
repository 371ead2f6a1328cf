// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package rawh2_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver/rawh2"
)

// fakeTB stands in for the test whose failure is tested.
type fakeTB struct {
	testing.TB

	cleanups []func()
	failure  string
}

func (*fakeTB) Helper() {}

func (f *fakeTB) Cleanup(cleanup func()) { f.cleanups = append(f.cleanups, cleanup) }

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failure returns the message that a function fails its test with, if any.
func failure(run func(tb testing.TB)) string {
	tb := &fakeTB{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(tb)
	}()
	<-done
	for _, cleanup := range slices.Backward(tb.cleanups) {
		cleanup()
	}
	return tb.failure
}

// Without a test to fail, a fault becomes the answer to all calls.
func TestFaultWithoutTest(t *testing.T) {
	t.Parallel()
	for want, misuse := range map[string]func(srv *rawh2.Server) *grpc.ClientConn{
		"rawh2: Script: step 1: HTTPStatus: status is 99, not between 100 and 599\n" +
			"Headers: field \"a\" has no value": func(srv *rawh2.Server) *grpc.ClientConn {
			srv.Script(rawh2.HTTPStatus(99, "text/html").Then(rawh2.Headers("a")))
			return srv.Dial()
		},
		"rawh2: Dial: grpc: the provided default service config is invalid: unexpected end of JSON input": func(
			srv *rawh2.Server,
		) *grpc.ClientConn {
			return srv.Dial(grpc.WithDefaultServiceConfig("{"))
		},
	} {
		srv, err := rawh2.Start()
		require.NoError(t, err)
		defer srv.Close()
		cc := misuse(srv)
		for range 2 {
			_, got := read(withGuard(t), cc)
			assert.Equal(t, outcome{codes.Internal, want, true, false, true}, got)
		}
	}
}

// Dialling a closed server is a fault; the connection is closed.
func TestDialAfterClose(t *testing.T) {
	t.Parallel()
	srv, err := rawh2.Start(rawh2.Bufconn())
	require.NoError(t, err)
	srv.Close()
	_, got := read(withGuard(t), srv.Dial())
	assert.Equal(t, outcome{codes.Canceled, "grpc: the client connection is closing", false, false, false}, got)
	assert.Equal(t, "rawh2: Dial: the server is closed", failure(func(tb testing.TB) {
		srv := rawh2.New(tb)
		srv.Close()
		srv.Dial()
	}))
}

func TestStartRefusesBadOptions(t *testing.T) {
	t.Parallel()
	_, err := rawh2.Start(rawh2.BlackHole(-1))
	require.EqualError(t, err, "rawh2: Start: BlackHole: number of connections is negative: -1")
	_, err = rawh2.Start(rawh2.Bufconn(), nil)
	require.EqualError(t, err, "rawh2: Start: option 2 is nil")
}

// Misuse fails the test with what was wrong, and where.
func TestMisuseFailsTheTest(t *testing.T) {
	t.Parallel()
	large := string(make([]byte, 20000))
	for want, step := range map[string]rawh2.Step{
		"Headers: field \"a\" has no value":                         rawh2.Headers("a"),
		"Trailers: field with value \"0\" has no name":              rawh2.Trailers("", "0"),
		"Trailers: fields have 20036 bytes, the limit is 16384":     rawh2.Trailers("long", large),
		"HTTPStatus: status is 600, not between 100 and 599":        rawh2.HTTPStatus(600, ""),
		"HTTPStatus: fields have 20086 bytes, the limit is 16384":   rawh2.HTTPStatus(200, large),
		"AtMessage: message 0 does not exist, the first is 1":       rawh2.OK(nil).AtMessage(0),
		"step sends 40000 bytes, the limit is 32768":                rawh2.HTTPStatus(200, "", large, large),
		"GoAway: last stream ID is 2147483648, IDs have 31 bits":    rawh2.GoAway(1<<31, http2.ErrCodeNo),
		"TruncatedMessage: promised length is 1, but 1 is sent":     rawh2.TruncatedMessage(1, []byte{0}),
		"TruncatedFrame: promised length is 1, but 1 is sent":       rawh2.TruncatedFrame(1, []byte{0}),
		"TruncatedFrame: promised length is 16777216, 2^24 or more": rawh2.TruncatedFrame(1<<24, nil),
	} {
		assert.Equal(t, "rawh2: Script: step 2: "+want, failure(func(tb testing.TB) {
			rawh2.New(tb).Script(rawh2.OK(nil), step)
		}))
		assert.Equal(t, "rawh2: Always: "+want, failure(func(tb testing.TB) {
			rawh2.New(tb).Always(step)
		}))
	}
	assert.Equal(t, "rawh2: New: option 1 is nil", failure(func(tb testing.TB) { rawh2.New(tb, nil) }))
	assert.Contains(t, failure(func(tb testing.TB) {
		rawh2.New(tb).Dial(grpc.WithDefaultServiceConfig("{"))
	}), "rawh2: Dial: grpc: the provided default service config is invalid")
	assert.Empty(t, failure(func(tb testing.TB) {
		rawh2.New(tb).Dial(grpc.WithTransportCredentials(insecure.NewCredentials()))
	}))
}

// What never happens is waited for 30 seconds, and the record printed.
func TestAwaitGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := rawh2.New(t, rawh2.Bufconn())
		_, got := read(t.Context(), srv.Dial())
		require.Equal(t, codes.OK, got.code)
		start := time.Now()
		message := failure(func(tb testing.TB) {
			srv.Await(tb, func(r rawh2.Record) bool { return len(r.Streams) == 2 })
		})
		assert.Equal(t, 30*time.Second, time.Since(start))
		assert.Contains(t, message, "rawh2: Await: not satisfied after 30s; the record is\n"+
			"connection 1: handshake true, closed false")
		assert.Contains(t, message, testv1.TestService_Read_FullMethodName)
	})
}
