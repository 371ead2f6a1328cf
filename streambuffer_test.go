// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"crypto/sha256"
	"errors"
	"io"
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

func TestStreamBuffer(t *testing.T) {
	send := func(stream grpc.ClientStreamingClient[testv1.Request, testv1.Response], n, size int) error {
		for range n {
			if err := stream.Send(&testv1.Request{Payload: make([]byte, size)}); err != nil {
				return err
			}
		}
		return nil
	}
	t.Run("beyond Memory the call commits", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			var causes []string
			r := newRig(t, anyCall, commits(&causes), grpcretry.WithBuffer(grpcretry.Buffer{Memory: 1000}))
			r.server.Script(upload, busy.Received(3))
			stream, err := r.Upload(t.Context())
			require.NoError(t, err)
			require.NoError(t, send(stream, 3, 400))
			_, err = stream.CloseAndRecv()
			assert.ErrorIs(t, err, grpcretry.ErrCommitted)
			assert.Equal(t, codes.Unavailable, status.Code(err))
			assert.Equal(t, []string{"the replay buffer is full"}, causes)
			assert.Zero(t, grpcretry.Buffered(r.retrier))
		})
	})
	t.Run("or fails", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, anyCall, grpcretry.WithBuffer(grpcretry.Buffer{Memory: 1000, Fail: true}))
			stream, err := r.Upload(t.Context())
			require.NoError(t, err)
			err = send(stream, 3, 400)
			require.ErrorIs(t, err, grpcretry.ErrBufferFull)
			assert.Equal(t, codes.ResourceExhausted, status.Code(err))
			_, err = stream.CloseAndRecv()
			require.ErrorIs(t, err, grpcretry.ErrBufferFull)
			assert.Zero(t, grpcretry.Buffered(r.retrier))
			assert.True(t, r.server.Await(t, testserver.Ended(1))[0].Cancelled)
		})
	})
	t.Run("Total is shared", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			var causes []string
			r := newRig(t, anyCall, commits(&causes), grpcretry.WithBuffer(grpcretry.Buffer{Memory: 1000, Total: 1500}))
			first, err := r.Upload(t.Context())
			require.NoError(t, err)
			second, err := r.Upload(t.Context())
			require.NoError(t, err)
			require.NoError(t, send(first, 2, 400))
			require.NoError(t, send(second, 1, 400))
			assert.Empty(t, causes)
			require.NoError(t, send(second, 1, 400))
			assert.Len(t, causes, 1)
			_, err = first.CloseAndRecv()
			require.NoError(t, err)
			_, err = second.CloseAndRecv()
			require.NoError(t, err)
			assert.Zero(t, grpcretry.Buffered(r.retrier))
		})
	})
	t.Run("none", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, anyCall, grpcretry.WithBuffer(grpcretry.Buffer{Memory: math.MinInt64}))
			r.server.Script("", busy.Received(1).Times(2))
			_, _, err := callDownload(t.Context(), r)
			assert.ErrorIs(t, err, grpcretry.ErrCommitted)
		})
	})
	t.Run("messages that are not protobuf", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			for _, byReference := range []bool{false, true} {
				var causes []string
				r := newRig(t, anyCall, commits(&causes), grpcretry.WithBuffer(grpcretry.Buffer{ByReference: byReference}))
				conn := r.server.Dial(append(r.retrier.DialOptions(), grpc.WithDefaultCallOptions(grpc.ForceCodec(textCodec{})))...)
				stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, exchange)
				require.NoError(t, err)
				r.server.Script(exchange, busy.Received(1))
				require.NoError(t, stream.SendMsg("text"))
				err = stream.RecvMsg(new(string))
				if byReference {
					require.NoError(t, err)
					assert.Empty(t, causes)
				} else {
					require.ErrorIs(t, err, grpcretry.ErrCommitted)
					assert.Len(t, causes, 1)
				}
			}
		})
	})
	t.Run("messages that are prepared", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			var causes []string
			r := newRig(t, anyCall, commits(&causes))
			stream, err := r.Exchange(t.Context())
			require.NoError(t, err)
			prepared := &grpc.PreparedMsg{}
			// Encoding asks the stream for its context, which commits it.
			require.NoError(t, prepared.Encode(stream, &testv1.Request{Key: "a"}))
			for range 2 {
				require.NoError(t, stream.SendMsg(prepared))
				response, err := stream.Recv()
				require.NoError(t, err)
				assert.Equal(t, "a", response.GetKey())
			}
			assert.Equal(t, []string{"Context was called"}, causes)
		})
	})
	t.Run("compressed messages", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, anyCall)
			r.server.Script(upload, busy.Received(3))
			_, trailer, err := callUpload(t.Context(), r, grpc.UseCompressor(gzip.Name))
			require.NoError(t, err)
			assert.Equal(t, []string{"2"}, trailer["jina-client-attempts"])
		})
	})
	t.Run("refuses a negative Total", func(t *testing.T) {
		_, err := grpcretry.New(grpcretry.WithBuffer(grpcretry.Buffer{Total: -5}))
		assert.EqualError(t, err, "grpcretry: WithBuffer: Total is -5; it must not be negative")
	})
}

// textCodec sends strings, as empty protobuf messages for the server.
type textCodec struct{}

func (textCodec) Marshal(any) ([]byte, error)     { return nil, nil }
func (textCodec) Unmarshal(_ []byte, _ any) error { return nil }
func (textCodec) Name() string                    { return "proto" }

// TestStreamUploadBeyondTheBuffer sends 64 MiB with a bound of 1 MiB.
func TestStreamUploadBeyondTheBuffer(t *testing.T) {
	t.Parallel()
	uploadBeyond(t, 64<<20)
}

// TestSoakStreamUploadBeyondTheBuffer sends 1 GiB.
func TestSoakStreamUploadBeyondTheBuffer(t *testing.T) {
	soak(t)
	uploadBeyond(t, 1<<30)
}

// uploadBeyond sends so many bytes on a stream whose first attempt fails at once.
// The bytes charged never exceed the bound, and none are left after it is reached.
func uploadBeyond(t *testing.T, total int) {
	t.Helper()
	const bound, size = 1 << 20, 32 << 10
	sums := make(chan []byte, 1)
	listener, dial := memoryListener()
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if grpcretry.PreviousAttempts(stream.Context()) == 0 {
			return status.Error(codes.Unavailable, "busy")
		}
		hash, request := sha256.New(), &testv1.Request{}
		for {
			if err := stream.RecvMsg(request); errors.Is(err, io.EOF) {
				sums <- hash.Sum(nil)
				return stream.SendMsg(&testv1.Response{})
			} else if err != nil {
				return err
			}
			hash.Write(request.GetPayload())
		}
	}))
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	retrier, err := grpcretry.New(grpcretry.WithPolicy(noWait), grpcretry.WithBuffer(grpcretry.Buffer{Memory: bound}))
	require.NoError(t, err)
	stream, err := testv1.NewTestServiceClient(dialMemory(t, dial, retrier.DialOptions()...)).Upload(t.Context())
	require.NoError(t, err)
	want, buffer := sha256.New(), make([]byte, size)
	for i := range total / size {
		for j := range buffer {
			buffer[j] = byte(i + j)
		}
		want.Write(buffer)
		require.NoError(t, stream.Send(&testv1.Request{Payload: buffer}))
		assert.LessOrEqual(t, grpcretry.Buffered(retrier), int64(bound))
	}
	assert.Zero(t, grpcretry.Buffered(retrier), "at commit the buffer is gone")
	_, err = stream.CloseAndRecv()
	require.NoError(t, err)
	assert.Equal(t, want.Sum(nil), <-sums)
}

// TestStreamBufferHeap holds that the memory that a buffer takes is within four
// times its bound, for messages of 32 bytes and more.
func TestStreamBufferHeap(t *testing.T) { //nolint:paralleltest // measures the heap of the process
	if raceEnabled {
		t.Skip("the race detector allocates by itself")
	}
	const bound = 4 << 20
	for _, size := range []int{32, 100, 1000, 100_000} {
		for _, byReference := range []bool{false, true} {
			stream := openStub(t, grpcretry.Buffer{Memory: bound, ByReference: byReference})()
			before := heap()
			for charged := 0; ; {
				message := &testv1.Request{Payload: make([]byte, size)}
				if charged += proto.Size(message) + 64; charged >= bound {
					break
				}
				require.NoError(t, stream.SendMsg(message))
			}
			assert.Less(t, heap(), before+4*bound, "messages of %d bytes", size)
			require.NoError(t, stream.RecvMsg(nil))
			assert.Less(t, heap(), before+bound/2, "after commit")
			runtime.KeepAlive(stream)
		}
	}
}

func heap() int {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}
