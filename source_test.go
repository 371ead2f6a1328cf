// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
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

type requestSeq = iter.Seq2[*testv1.Request, error]

// keyed is a source of a message for each letter, all in one message that is used
// again and again. A "!" is an error, "^" a panic, and "#" ends the goroutine.
func keyed(letters string) requestSeq {
	return func(yield func(*testv1.Request, error) bool) {
		message := &testv1.Request{}
		for _, letter := range letters {
			switch letter {
			case '!':
				yield(nil, errBroken)
				return
			case '^':
				panic("broken") //nolint:forbidigo // what sources should not do
			case '#':
				runtime.Goexit()
			}
			message.Key = string(letter)
			if !yield(message, nil) {
				return
			}
		}
	}
}

var errBroken = errors.New("the input is broken")

// runs is a source that is other letters in each of its runs.
func runs(letters ...string) grpcretry.Source[*testv1.Request] {
	n := -1
	return grpcretry.Replayable(func() requestSeq {
		n = min(n+1, len(letters)-1)
		return keyed(letters[n])
	})
}

func once(letters string) grpcretry.Source[*testv1.Request] { return grpcretry.Once(keyed(letters)) }

// sendSources sends all sources on an upload, and returns how that and the call end.
func sendSources(ctx context.Context, c testv1.TestServiceClient, sources ...grpcretry.Source[*testv1.Request]) (answer *testv1.Response, sendErr, err error) {
	stream, err := c.Upload(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, source := range sources {
		if sendErr = grpcretry.SendAll(stream, source); sendErr != nil {
			break
		}
	}
	answer, err = stream.CloseAndRecv()
	return answer, sendErr, err
}

func received(attempts []testserver.Attempt) []string {
	all := make([]string, len(attempts))
	for i, a := range attempts {
		all[i] = strings.Join(keysOf(a.Requests), "")
	}
	return all
}

func isStart(of, whole string) bool { return strings.HasPrefix(whole, of) }

// TestSendAll holds that all attempts get the same, whatever it comes from, and that
// of what can be run again nothing is kept.
func TestSendAll(t *testing.T) {
	for name, sources := range map[string][]grpcretry.Source[*testv1.Request]{
		"once":                {once("abcdef")},
		"replayable":          {runs("abcdef")},
		"one after another":   {once("ab"), runs("cd"), runs(""), once(""), runs("e"), once("f")},
		"more when run again": {runs("abcdef", "abcdefghi")},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				policy := anyCall
				policy.MaxAttempts = 9
				r := newRig(t, policy, grpcretry.WithBuffer(grpcretry.Buffer{Fail: true}))
				r.server.Script(upload, busy, busy.Received(1), busy.Received(2), busy.Received(3), busy.Received(4), busy.Received(6))
				answer, sendErr, err := sendSources(t.Context(), r, sources...)
				require.NoError(t, sendErr)
				require.NoError(t, err)
				assert.Equal(t, "f", answer.GetKey())
				for i, got := range received(r.server.Attempts()) {
					assert.True(t, isStart(got, "abcdef"), "attempt %d got %q", i+1, got)
				}
				assert.Equal(t, "abcdef", received(r.server.Attempts())[6])
			})
		})
	}
}

func TestSendAllKeepsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall, grpcretry.WithBuffer(grpcretry.Buffer{Memory: -1, Fail: true}))
		r.server.Script(upload, busy.Received(6))
		_, sendErr, err := sendSources(t.Context(), r, runs("abcdef"))
		require.NoError(t, errors.Join(sendErr, err))

		stream, err := r.Upload(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, grpcretry.SendAll(stream, once("a")), grpcretry.ErrBufferFull)
	})
}

// TestSendAllTextMessages: what is not kept need not be protobuf.
func TestSendAllTextMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var causes []string
		r := newRig(t, anyCall, commits(&causes))
		r.server.Script(exchange, busy.Received(1))
		conn := r.server.Dial(append(r.retrier.DialOptions(), grpc.WithDefaultCallOptions(grpc.ForceCodec(textCodec{})))...)
		stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, exchange)
		require.NoError(t, err)
		require.NoError(t, grpcretry.SendAll(&grpc.GenericClientStream[string, string]{ClientStream: stream}, grpcretry.Replayable(func() iter.Seq2[*string, error] {
			return func(yield func(*string, error) bool) { yield(new("text"), nil) }
		})))
		require.NoError(t, stream.RecvMsg(new(string)))
		assert.Empty(t, causes)
		assert.Len(t, r.server.Attempts(), 2)
	})
}

// TestSendAllSourceFails holds that an error of a source ends the call.
func TestSendAllSourceFails(t *testing.T) {
	t.Run("at first", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			for _, source := range []grpcretry.Source[*testv1.Request]{once("ab!"), runs("ab!")} {
				r := newRig(t, anyCall)
				_, sendErr, err := sendSources(t.Context(), r, source)
				assert.Equal(t, errBroken, sendErr)
				assert.Equal(t, errBroken, err)
				assert.True(t, r.server.Await(t, testserver.Ended(1))[0].Cancelled)
				assert.Zero(t, grpcretry.Buffered(r.retrier))
				require.Len(t, r.journal.done, 1)
				assert.Equal(t, grpcretry.Local, r.journal.done[0].attempts[0].Failure.Kind)
			}
		})
	})
	t.Run("with a status", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, anyCall)
			refused := status.Error(codes.Unavailable, "no input")
			source := grpcretry.Once(func(yield func(*testv1.Request, error) bool) { yield(nil, refused) })
			_, sendErr, err := sendSources(t.Context(), r, source)
			assert.Equal(t, refused, sendErr)
			assert.Equal(t, refused, err)
		})
	})
	t.Run("with the end of an input", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, anyCall)
			source := grpcretry.Once(func(yield func(*testv1.Request, error) bool) { yield(nil, fmt.Errorf("line 3: %w", io.EOF)) })
			_, sendErr, err := sendSources(t.Context(), r, source)
			assert.EqualError(t, err, "rpc error: code = Unknown desc = grpcretry: SendAll: the source gave the error \"line 3: EOF\"; a source ends by returning")
			assert.Equal(t, err, sendErr)
			assert.NotErrorIs(t, err, io.EOF)
		})
	})
	t.Run("after failures", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, anyCall)
			r.server.Script(upload, busy.Received(1), busy.Received(1))
			slow := grpcretry.Once(func(yield func(*testv1.Request, error) bool) {
				for m, err := range keyed("ab!") {
					time.Sleep(time.Second)
					if !yield(m, err) {
						return
					}
				}
			})
			_, sendErr, err := sendSources(t.Context(), r, slow)
			assert.ErrorIs(t, err, errBroken)
			assert.ErrorIs(t, err, grpcretry.ErrLocal)
			assert.Equal(t, err, sendErr)
			// The second failure is met by the second Send, or by the source's error.
			assert.Regexp(t, `code = Unknown desc = the input is broken \([23] attempts, .*: failed on this side; `+
				`last failure: rpc error: code = Unavailable desc = busy\)`, err.Error())
		})
	})
	t.Run("during a wait", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			policy := anyCall
			policy.Backoff.Initial = 10 * time.Second
			policy.Backoff.Max = 10 * time.Second
			r := newRig(t, policy)
			r.server.Script(exchange, busy.Received(1))
			stream, err := r.Exchange(t.Context())
			require.NoError(t, err)
			var receiver sync.WaitGroup
			var outcome error
			receiver.Go(func() { _, outcome = stream.Recv() })
			begun := time.Now()
			sendErr := grpcretry.SendAll(stream, grpcretry.Once(func(yield func(*testv1.Request, error) bool) {
				if yield(&testv1.Request{}, nil) {
					time.Sleep(time.Second)
					yield(nil, errBroken)
				}
			}))
			receiver.Wait()
			assert.Equal(t, time.Second, time.Since(begun), "the wait of 10 s is over")
			assert.ErrorIs(t, sendErr, errBroken)
			assert.Equal(t, outcome, sendErr)
			assert.ErrorContains(t, outcome, "code = Unknown desc = the input is broken (1 attempt, ")
			assert.ErrorContains(t, outcome, "last failure: rpc error: code = Unavailable desc = busy")
			assert.Len(t, r.server.Attempts(), 1)
		})
	})
	t.Run("after a timeout that nobody noticed", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			policy := anyCall
			policy.AttemptTimeout = time.Second
			r := newRig(t, policy)
			source := grpcretry.Once(func(yield func(*testv1.Request, error) bool) {
				yield(&testv1.Request{}, nil)
				time.Sleep(2 * time.Second)
				yield(nil, errBroken)
			})
			_, sendErr, err := sendSources(t.Context(), r, source)
			assert.ErrorIs(t, err, errBroken)
			assert.Equal(t, err, sendErr)
			assert.ErrorContains(t, err, "last failure: rpc error: code = DeadlineExceeded desc = AttemptTimeout of 1s exceeded")
			assert.Equal(t, codes.DeadlineExceeded, r.journal.done[0].attempts[0].Failure.Status.Code())
		})
	})
	t.Run("with the end of its context", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, anyCall)
			_, sendErr, err := sendSources(t.Context(), r, grpcretry.Once(func(yield func(*testv1.Request, error) bool) {
				yield(nil, context.DeadlineExceeded)
			}))
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
			assert.Equal(t, err, sendErr)
		})
	})
	t.Run("used twice", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, anyCall)
			_, sendErr, _ := sendSources(t.Context(), r, once("ab"), once("c"))
			require.NoError(t, sendErr)
			source := once("ab")
			_, sendErr, err := sendSources(t.Context(), r, source, source)
			assert.ErrorContains(t, err, "grpcretry: SendAll: the source was made by Once, and was used before")
			assert.Equal(t, err, sendErr)
		})
	})
	t.Run("on a stream that is over", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, grpcretry.Policy{MaxAttempts: 1})
			r.server.Script(exchange, busy)
			stream, err := r.Exchange(t.Context())
			require.NoError(t, err)
			_, err = stream.Recv()
			assert.Equal(t, codes.Unavailable, status.Code(err))
			assert.Equal(t, errBroken, grpcretry.SendAll(stream, once("!")), "the call had another end")
			assert.NoError(t, grpcretry.SendAll(stream, once("abc")))
		})
	})
}

// TestStreamFailedHereIsNotHalfClosed holds that the server of a call which failed on
// this side does not take a part of the input for all of it, though the caller, who
// may not have looked, half-closes.
func TestStreamFailedHereIsNotHalfClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall, grpcretry.WithBuffer(grpcretry.Buffer{Memory: 100, Fail: true}))
		for range 200 {
			stream, err := r.Upload(t.Context())
			require.NoError(t, err)
			require.NoError(t, stream.Send(&testv1.Request{}))
			require.ErrorIs(t, stream.Send(&testv1.Request{}), grpcretry.ErrBufferFull)
			_, err = stream.CloseAndRecv()
			require.ErrorIs(t, err, grpcretry.ErrBufferFull)

			_, sendErr, err := sendSources(t.Context(), r, once("a!"))
			require.Equal(t, []error{errBroken, errBroken}, []error{sendErr, err})
		}
		for _, a := range r.server.Await(t, testserver.Ended(400)) {
			assert.False(t, a.HalfClosed, "%v", a)
		}
	})
}

// TestSendAllReplayFails holds that a source which does not give again what it gave
// ends the call, and that nothing false is sent.
func TestSendAllReplayFails(t *testing.T) {
	for name, row := range map[string]struct {
		again string
		code  codes.Code
		text  string
	}{
		"gives less":      {"ab", codes.DataLoss, "the source of SendAll ended after 2 messages and gave more before"},
		"gives nothing":   {"", codes.DataLoss, "the source of SendAll ended after 0 messages and gave more before"},
		"fails":           {"a!", codes.Unknown, "the input is broken"},
		"panics":          {"a^", codes.Internal, "grpcretry: the source of SendAll panicked: broken"},
		"ends goroutines": {"a#", codes.Internal, "grpcretry: the source of SendAll called runtime.Goexit"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, anyCall)
				r.server.Script(upload, busy.Received(6))
				_, sendErr, err := sendSources(t.Context(), r, runs("abcdef", row.again))
				require.NoError(t, sendErr)
				assert.Equal(t, row.code, status.Code(err))
				assert.ErrorContains(t, err, row.text)
				last := r.server.Await(t, testserver.Ended(2))[1]
				assert.True(t, last.Cancelled)
				assert.True(t, isStart(received(r.server.Attempts())[1], "ab"))
			})
		})
	}
	t.Run("is no source any more", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, anyCall)
			r.server.Script(upload, busy.Received(6))
			n := 0
			_, _, err := sendSources(t.Context(), r, grpcretry.Replayable(func() requestSeq {
				if n++; n > 1 {
					return nil
				}
				return keyed("abcdef")
			}))
			assert.ErrorContains(t, err, "the function given to Replayable returned nil")
		})
	})
}

// TestSendAllPanics: a panic of the caller's own run is the caller's own.
func TestSendAllPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := r.Upload(ctx)
		require.NoError(t, err)
		assert.PanicsWithValue(t, "broken", func() { _ = grpcretry.SendAll(stream, runs("a^")) })
		require.NoError(t, stream.Send(&testv1.Request{Key: "b"}))
		answer, err := stream.CloseAndRecv()
		require.NoError(t, err)
		assert.Equal(t, "b", answer.GetKey())
	})
}

// TestSendAllEndsRuns holds that every run of a source comes to its end.
func TestSendAllEndsRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, anyCall)
		r.server.Script(upload, busy.Received(6), testserver.Fail(codes.NotFound, "none"))
		var begun, ended atomic.Int64
		stream, err := r.Upload(t.Context())
		require.NoError(t, err)
		require.NoError(t, grpcretry.SendAll(stream, grpcretry.Replayable(func() requestSeq {
			return func(yield func(*testv1.Request, error) bool) {
				begun.Add(1)
				defer func() { ended.Add(1) }()
				keyed("abcdef")(yield)
			}
		})))
		_, err = stream.CloseAndRecv()
		assert.Equal(t, codes.NotFound, status.Code(err))
		r.server.Await(t, testserver.Ended(2))
		time.Sleep(time.Second)
		assert.EqualValues(t, 2, begun.Load())
		assert.EqualValues(t, 2, ended.Load())
	})
}
