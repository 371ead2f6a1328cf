// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"errors"
	"io"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// recoveries are all of them, as a stream of Exchange has them.
var recoveries = map[string]grpcretry.Recovery{
	"Skip":   grpcretry.Skip(nil),
	"Resume": grpcretry.Resume(func(any) ([]any, error) { return []any{&testv1.Request{Key: "resumed"}}, nil }),
	"Acked":  grpcretry.Acked(keyOf),
}

// TestRecoveryBufferFull: what does not fit commits the stream, which is told, or fails
// it.
func TestRecoveryBufferFull(t *testing.T) {
	for _, row := range []struct {
		name    string // of the recovery
		request int    // bytes
		key     string // of the responses
		last    int    // bytes of the third response
	}{
		{name: "Skip", last: 600},                      // there is no room for all three responses
		{name: "Resume", last: 1950},                   // nor for one that is larger than all that there is
		{name: "Acked", request: 600, key: "nobody's"}, // nor for three requests without an answer
	} {
		for _, fail := range []bool{false, true} {
			t.Run(row.name+" fails "+strconv.FormatBool(fail), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					var causes []string
					r := newRig(t, grpcretry.Policy{Repeat: grpcretry.RepeatAlways, Recovery: recoveries[row.name]},
						grpcretry.WithBuffer(grpcretry.Buffer{Total: 2000, Fail: fail}), commits(&causes))
					r.server.Script(exchange, testserver.Do(func(ss grpc.ServerStream) error {
						for _, size := range []int{600, 600, row.last} {
							if err := ss.RecvMsg(&testv1.Request{}); err != nil {
								return err
							}
							if err := ss.SendMsg(&testv1.Response{Key: row.key, Payload: make([]byte, size)}); err != nil {
								return err
							}
						}
						return status.Error(codes.Unavailable, "busy")
					}), testserver.OK())
					stream, err := r.Exchange(t.Context())
					require.NoError(t, err)
					got := 0
					for i := range 3 {
						if err = stream.Send(&testv1.Request{Key: strconv.Itoa(i), Payload: make([]byte, row.request)}); err != nil {
							break
						}
						if _, err = stream.Recv(); err != nil {
							break
						}
						got++
					}
					if fail {
						assert.Equal(t, 2, got)
						assert.Equal(t, codes.ResourceExhausted, status.Code(err))
						assert.ErrorIs(t, err, grpcretry.ErrBufferFull)
						assert.Empty(t, causes)
					} else {
						assert.Equal(t, 3, got)
						require.Len(t, causes, 1)
						assert.Contains(t, causes[0], grpcretry.ErrBufferFull.Error())
						_, err = stream.Recv()
						assert.ErrorIs(t, err, grpcretry.ErrCommitted)
						assert.ErrorIs(t, err, grpcretry.ErrBufferFull)
					}
					synctest.Wait()
					assert.Len(t, r.server.Attempts(), 1)
					assert.Zero(t, grpcretry.Buffered(r.retrier))
				})
			})
		}
	}
}

// TestResumeLargeResponse: one response is kept whatever its size.
func TestResumeLargeResponse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		large := make([]byte, 3<<20)
		r := recovering(t, grpcretry.Resume(func(last any) ([]any, error) {
			assert.Equal(t, large, last.(*testv1.Response).GetPayload())
			return []any{&testv1.Request{Key: "b"}}, nil
		}))
		r.server.Script(download, testserver.Do(func(ss grpc.ServerStream) error {
			_ = ss.SendMsg(&testv1.Response{Key: "a", Payload: large})
			return status.Error(codes.Unavailable, "busy")
		}))
		keys, _, err := callDownload(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b"}, keys)
		assert.Zero(t, grpcretry.Buffered(r.retrier))
	})
}

// TestSkipOnDisk: responses go to the disk as requests do, and come back to be compared.
func TestSkipOnDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{Repeat: grpcretry.RepeatAlways, Recovery: grpcretry.Skip(nil)},
			grpcretry.WithBuffer(grpcretry.Buffer{Memory: 4000, Disk: 1 << 20, Fail: true}))
		r.server.Handle(download, numbers(500, 300, 450))
		keys, trailer, err := callDownload(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, upTo(500), keys)
		assert.Zero(t, grpcretry.Buffered(r.retrier))
		r.assertOneLedger(t, trailer, err)
	})
}

// TestRecoveryForeignCodec: messages that are not protobuf are kept by reference, or
// commit the stream.
func TestRecoveryForeignCodec(t *testing.T) {
	for name, recovery := range recoveries {
		for _, byReference := range []bool{false, true} {
			t.Run(name+" by reference "+strconv.FormatBool(byReference), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					recovery := recovery
					text := func(m any) string { return string(*m.(*[]byte)) }
					switch name {
					case "Skip":
						recovery = grpcretry.Skip(func(had, got any) bool { return text(had) == text(got) })
					case "Resume":
						recovery = grpcretry.Resume(func(last any) ([]any, error) {
							assert.Equal(t, "a", text(last))
							b := []byte("b")
							return []any{&b}, nil
						})
					case "Acked":
						recovery = grpcretry.Acked(text)
					}
					var causes []string
					retrier, err := grpcretry.New(
						grpcretry.WithPolicy(grpcretry.Policy{Repeat: grpcretry.RepeatAlways, Recovery: recovery}),
						grpcretry.WithBuffer(grpcretry.Buffer{ByReference: byReference}), commits(&causes))
					require.NoError(t, err)
					conn := bytesServer(t, retrier, 1)
					stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, exchange, grpc.ForceCodec(bytesCodec{}))
					require.NoError(t, err)
					for _, s := range []string{"a", "b"} {
						b := []byte(s)
						require.NoError(t, stream.SendMsg(&b))
					}
					require.NoError(t, stream.CloseSend())
					var got []string
					for {
						m := new([]byte)
						if err = stream.RecvMsg(m); err != nil {
							break
						}
						got = append(got, text(m))
					}
					if byReference {
						assert.Equal(t, []string{"a", "b"}, got)
						assert.Empty(t, causes)
					} else {
						assert.Equal(t, []string{"a"}, got)
						assert.ErrorIs(t, err, grpcretry.ErrCommitted)
						assert.Equal(t, []string{"the message is no protobuf message, and Buffer.ByReference is not set"}, causes)
					}
				})
			})
		}
	}
}

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(m any) ([]byte, error) { return *m.(*[]byte), nil }
func (bytesCodec) Unmarshal(data []byte, m any) error {
	*m.(*[]byte) = append([]byte{}, data...)
	return nil
}
func (bytesCodec) Name() string { return "bytes" }

// bytesServer serves a duplex echo of bytes, whose first attempt fails after some
// responses.
func bytesServer(t *testing.T, retrier *grpcretry.Retrier, failAfter int) *grpc.ClientConn {
	t.Helper()
	listener, dial := memoryListener()
	server := grpc.NewServer(grpc.ForceServerCodec(bytesCodec{}), grpc.UnknownServiceHandler(func(_ any, ss grpc.ServerStream) error {
		for i := 0; ; i++ {
			if i == failAfter && grpcretry.PreviousAttempts(ss.Context()) == 0 {
				return status.Error(codes.Unavailable, "busy")
			}
			m := new([]byte)
			if err := ss.RecvMsg(m); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if err := ss.SendMsg(m); err != nil {
				return err
			}
		}
	}))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return dialMemory(t, dial, retrier.DialOptions()...)
}
