// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package rawh2_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver/rawh2"
)

// The messages before the fault all arrive, whatever the fault is.
func TestFaultAfterMessages(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		fault rawh2.Step
		code  codes.Code
	}{
		"reset":           {rawh2.Reset(http2.ErrCodeCancel), codes.Canceled},
		"closed":          {rawh2.Close(), codes.Unavailable},
		"truncated frame": {rawh2.TruncatedFrame(1<<24-1, []byte{0}), codes.Unavailable},
		"truncated message": {
			rawh2.TruncatedMessage(2, []byte{0}).Then(rawh2.Trailers("grpc-status", "0")), codes.Internal,
		},
		"status": {rawh2.Trailers("grpc-status", "8"), codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := rawh2.New(t)
			sent := []*testv1.Response{{Sequence: 1}, {Sequence: 2, Payload: make([]byte, 20<<10)}, {Sequence: 3}}
			step := rawh2.Headers()
			for _, message := range sent {
				step = step.Then(rawh2.Message(encode(t, message)))
			}
			srv.Script(step.Then(row.fault))
			stream, err := testv1.NewTestServiceClient(srv.Dial()).Download(withGuard(t), &testv1.Request{})
			require.NoError(t, err)
			for _, want := range sent {
				got, err := stream.Recv()
				require.NoError(t, err)
				assert.Equal(t, want.GetSequence(), got.GetSequence())
			}
			_, err = stream.Recv()
			assert.Equal(t, row.code, status.Code(err))
		})
	}
}

// Each part of a step waits for its own part of the request.
func TestPartsActAsTheRequestComes(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t)
	srv.Script(rawh2.Headers("a", "b").AtHeaders().Then(
		rawh2.Message(encode(t, &testv1.Response{Sequence: 2})).AtMessage(2),
		rawh2.Trailers("grpc-status", "9"),
	))
	stream, err := testv1.NewTestServiceClient(srv.Dial()).Exchange(withGuard(t))
	require.NoError(t, err)
	header, err := stream.Header()
	require.NoError(t, err)
	assert.Equal(t, []string{"b"}, header.Get("a"))
	require.NoError(t, stream.Send(&testv1.Request{}))
	require.NoError(t, stream.Send(&testv1.Request{Sequence: 2}))
	response, err := stream.Recv()
	require.NoError(t, err)
	assert.Equal(t, int64(2), response.GetSequence())
	record := srv.Record()
	assert.Len(t, record.Streams[0].Messages(), 2)
	assert.False(t, record.Streams[0].EndStream)

	require.NoError(t, stream.CloseSend())
	_, err = stream.Recv()
	assert.Equal(t, codes.FailedPrecondition, status.Code(err))
}

// A request that ends before the message that a part waits for lets it act.
func TestAtMessageThatNeverComes(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t)
	srv.Script(rawh2.OK(nil).AtMessage(5))
	_, got := read(withGuard(t), srv.Dial())
	assert.Equal(t, codes.OK, got.code)
}

// A reset in the middle of an upload is seen by the sender without a receive.
func TestResetOfAnUpload(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t)
	srv.Script(rawh2.Reset(http2.ErrCodeEnhanceYourCalm).AtMessage(1))
	stream, err := testv1.NewTestServiceClient(srv.Dial()).Upload(withGuard(t))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&testv1.Request{Payload: make([]byte, 1000)}))
	srv.Await(t, func(r rawh2.Record) bool { return len(r.Streams) == 1 && len(r.Streams[0].Messages()) == 1 })
	_, err = stream.CloseAndRecv()
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Contains(t, status.Convert(err).Message(), "ENHANCE_YOUR_CALM")
}

// A GOAWAY lets the streams up to its ID end, and sends later ones elsewhere.
func TestGoAwayKeepsOlderStreams(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t)
	srv.Script(
		rawh2.Headers().AtHeaders().Then(rawh2.Message(nil), rawh2.Trailers("grpc-status", "0")),
		rawh2.GoAway(1, http2.ErrCodeNo),
	)
	ctx, cc := withGuard(t), srv.Dial()
	older, err := testv1.NewTestServiceClient(cc).Upload(ctx)
	require.NoError(t, err)
	_, err = older.Header()
	require.NoError(t, err)
	// Excluded by the GOAWAY that it causes, and sent again on a new connection.
	_, got := read(ctx, cc)
	require.Equal(t, codes.OK, got.code)
	_, err = older.CloseAndRecv()
	require.NoError(t, err)
	assert.Equal(t, []string{"1/1", "1/3", "2/1"}, places(srv.Record()))
}
