// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package rawh2_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver/rawh2"
)

// withGuard returns a context that ends a test over TCP that would hang.
func withGuard(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func encode(t *testing.T, message proto.Message) []byte {
	t.Helper()
	encoded, err := proto.Marshal(message)
	require.NoError(t, err)
	return encoded
}

// What a client sees of a unary call: the code, the message, and whether there
// was a peer, a header and a content-type among the trailers.
type outcome struct {
	code    codes.Code
	message string
	peer    bool
	header  bool
	trailer bool
}

func read(ctx context.Context, cc *grpc.ClientConn, opts ...grpc.CallOption) (*testv1.Response, outcome) {
	var (
		from            peer.Peer
		header, trailer metadata.MD
	)
	response, err := testv1.NewTestServiceClient(cc).Read(ctx, &testv1.Request{Key: "a"},
		append(opts, grpc.Peer(&from), grpc.Header(&header), grpc.Trailer(&trailer))...)
	return response, outcome{
		code:    status.Code(err),
		message: status.Convert(err).Message(),
		peer:    from.Addr != nil,
		header:  header != nil,
		trailer: len(trailer["content-type"]) > 0,
	}
}

// places returns the connection and the ID of each stream.
func places(r rawh2.Record) []string {
	var list []string
	for _, s := range r.Streams {
		list = append(list, fmt.Sprintf("%d/%d", s.Conn, s.ID))
	}
	return list
}

func TestOKDeliversTheMessage(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t)
	srv.Script(rawh2.OK(encode(t, &testv1.Response{Key: "answer", Count: 7})))
	response, got := read(withGuard(t), srv.Dial())
	require.Equal(t, outcome{codes.OK, "", true, true, false}, got)
	assert.True(t, proto.Equal(&testv1.Response{Key: "answer", Count: 7}, response))

	stream := srv.Record().Streams[0]
	assert.True(t, stream.EndStream)
	assert.Equal(t, 1, stream.Conn)
	assert.Equal(t, uint32(1), stream.ID)
	assert.Equal(t, [][]byte{encode(t, &testv1.Request{Key: "a"})}, stream.Messages())
	assert.Equal(t, []string{testv1.TestService_Read_FullMethodName}, stream.Header.Get(":path"))
	assert.Equal(t, []string{"application/grpc"}, stream.Header.Get("content-type"))
	assert.NotEmpty(t, stream.Header.Get("grpc-timeout"))
}

// A step for each stream in order, over all connections, and then Always.
func TestScriptOrder(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t)
	srv.Script(rawh2.Trailers("grpc-status", "5"), rawh2.Close())
	srv.Script(rawh2.Trailers("grpc-status", "6"))
	ctx, cc := withGuard(t), srv.Dial()
	want := []codes.Code{codes.NotFound, codes.Unavailable, codes.AlreadyExists, codes.OK}
	for _, code := range want {
		_, got := read(ctx, cc)
		assert.Equal(t, code, got.code)
	}
	record := srv.Record()
	require.Len(t, record.Streams, len(want))
	assert.Equal(t, []string{"1/1", "1/3", "2/1", "2/3"}, places(record))
}

// All fields arrive as given: repeated, malformed, and in binary.
func TestTrailersVerbatim(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t)
	srv.Script(rawh2.Trailers("grpc-status", "14", "grpc-retry-pushback-ms", "1.5", "grpc-retry-pushback-ms", "-1",
		"a-bin", "AQI="))
	var trailer metadata.MD
	_, err := testv1.NewTestServiceClient(srv.Dial()).Read(withGuard(t), &testv1.Request{}, grpc.Trailer(&trailer))
	require.Equal(t, codes.Unavailable, status.Code(err))
	assert.Equal(t, []string{"1.5", "-1"}, trailer.Get("grpc-retry-pushback-ms"))
	assert.Equal(t, []string{"\x01\x02"}, trailer.Get("a-bin"))
}

// The grpc client says with its own header how often it tried before.
func TestHeadersOfNativeRetries(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t)
	busy := rawh2.Trailers("grpc-status", "14", "grpc-retry-pushback-ms", "0")
	srv.Script(rawh2.RefuseStream(), busy, busy)
	_, got := read(withGuard(t), srv.Dial(grpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],
		"retryPolicy":{"maxAttempts":3,"initialBackoff":"1s","maxBackoff":"1s","backoffMultiplier":1,
		"retryableStatusCodes":["UNAVAILABLE"]}}]}`)))
	require.Equal(t, codes.OK, got.code)
	var attempts []string
	for _, stream := range srv.Record().Streams {
		attempts = append(attempts, append(stream.Header.Get("grpc-previous-rpc-attempts"), "none")[0])
	}
	assert.Equal(t, []string{"none", "none", "1", "2"}, attempts)
}

// The client gives up an unanswered call by RST_STREAM.
func TestSilentUntilTheClientLeaves(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]rawh2.Step{
		"silent":         rawh2.Silent(),
		"silent by zero": {},
		"after goaway":   rawh2.GoAway(rawh2.OwnStream, http2.ErrCodeNo),
		"after headers":  rawh2.Headers(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := rawh2.New(t)
			srv.Script(step)
			ctx, cancel := context.WithCancel(withGuard(t))
			cc := srv.Dial()
			done := make(chan outcome)
			go func() {
				_, got := read(ctx, cc)
				done <- got
			}()
			srv.Await(t, func(r rawh2.Record) bool { return len(r.Streams) == 1 && r.Streams[0].EndStream })
			cancel()
			got := <-done
			assert.Equal(t, codes.Canceled, got.code)
			assert.Equal(t, "context canceled", got.message)
			stream := srv.Await(t, func(r rawh2.Record) bool { return r.Streams[0].Reset }).Streams[0]
			assert.Equal(t, http2.ErrCodeCancel, stream.ResetCode)
		})
	}
}

// A call that is refused for its headers never reaches the server.
func TestMaxHeaderListSize(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t, rawh2.Setting(http2.SettingMaxHeaderListSize, 10))
	_, got := read(withGuard(t), srv.Dial())
	assert.Equal(t, outcome{
		codes.Internal,
		"header list size to send violates the maximum size (10 bytes) set by server", false, false, false,
	}, got)
	assert.Empty(t, srv.Record().Streams)
}

// The server returns flow-control credit, so a request larger than all windows
// arrives whole.
func TestLargeRequest(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t)
	request := &testv1.Request{Payload: make([]byte, 5<<20)}
	_, err := testv1.NewTestServiceClient(srv.Dial()).Write(withGuard(t), request)
	require.NoError(t, err)
	stream := srv.Record().Streams[0]
	assert.Greater(t, stream.Frames, 300)
	require.Len(t, stream.Messages(), 1)
	assert.Len(t, stream.Messages()[0], proto.Size(request))
}

// The largest answer that a step may give.
func TestLargeAnswer(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t)
	want := &testv1.Response{Payload: make([]byte, 32<<10-100)}
	srv.Always(rawh2.OK(encode(t, want)))
	ctx, cc := withGuard(t), srv.Dial()
	// More in all than the client's window for the connection.
	for range 10 {
		response, got := read(ctx, cc)
		require.Equal(t, codes.OK, got.code)
		require.True(t, proto.Equal(want, response))
	}
}
