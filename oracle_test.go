// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// oracleConfig and oraclePolicy say the same to gRPC's own retry and to the suite.
const oracleConfig = `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":3,"initialBackoff":"0.1s",` +
	`"maxBackoff":"5s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}}]}`

var oraclePolicy = grpcretry.Policy{Repeat: grpcretry.RepeatAlways, ConnectWait: -1}

// outcome is what server and caller saw of a call.
type outcome struct {
	attempts int
	previous []int
	code     codes.Code
}

// story is a script and how a call is made under it.
type story struct {
	name    string
	script  []testserver.Step
	stopped bool
	stream  bool // Download instead of Read
	timeout time.Duration
	payload int // bytes of the request
}

// tell runs the story over a connection with the options.
func (s story) tell(t *testing.T, opts ...grpc.DialOption) outcome {
	t.Helper()
	server := testserver.New(t)
	server.Script("", s.script...)
	if s.stopped {
		server.Stop()
	}
	timeout := time.Hour
	if s.timeout > 0 {
		timeout = s.timeout
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	client := testv1.NewTestServiceClient(server.Dial(opts...))
	var trailer metadata.MD
	request := &testv1.Request{Payload: make([]byte, s.payload)}
	var err error
	if s.stream {
		var stream grpc.ServerStreamingClient[testv1.Response]
		if stream, err = client.Download(ctx, request, grpc.Trailer(&trailer)); err == nil {
			_, _, err = receiveAll(stream)
		}
	} else {
		_, err = client.Read(ctx, request, grpc.Trailer(&trailer))
	}
	got := outcome{code: status.Code(err)}
	for _, a := range server.Attempts() {
		got.attempts++
		got.previous = append(got.previous, a.PreviousAttempts)
	}
	if n, told := grpcretry.AttemptsFromMD(trailer); told && !s.stopped {
		assert.Equal(t, got.attempts, n)
	}
	return got
}

// three runs the story through gRPC's own retry, through the suite, and through gRPC's
// own retry as the suite sets it up.
func (s story) three(t *testing.T) (native, ours, channel outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		native = s.tell(t, grpc.WithDefaultServiceConfig(oracleConfig))
	})
	for into, options := range map[*outcome][]grpcretry.Option{
		&ours:    {grpcretry.WithPolicy(oraclePolicy), grpcretry.WithBuffer(grpcretry.Buffer{Memory: 1 << 20})},
		&channel: {grpcretry.WithPolicy(grpcretry.Policy{}), grpcretry.WithChannelRetry(read, download)},
	} {
		synctest.Test(t, func(t *testing.T) {
			retrier, err := grpcretry.New(options...)
			require.NoError(t, err)
			*into = s.tell(t, retrier.DialOptions()...)
		})
	}
	return native, ours, channel
}

// TestNativeAgrees holds that the suite does what gRPC's own retry does, wherever
// that is right.
func TestNativeAgrees(t *testing.T) {
	t.Parallel()
	none := testserver.Fail(codes.NotFound, "none")
	for _, s := range []story{
		{name: "success"},
		{name: "success at the second attempt", script: []testserver.Step{busy}},
		{name: "success at the third attempt", script: []testserver.Step{busy, busy}},
		{name: "exhausted", script: []testserver.Step{busy.Forever()}},
		{name: "an unlisted code", script: []testserver.Step{none}},
		{name: "an unlisted code later", script: []testserver.Step{busy, none}},
		{name: "lost before headers", script: []testserver.Step{testserver.Cut(), busy}},
		{name: "lost after it was done", script: []testserver.Step{testserver.Cut().Applied().Forever()}},
		{name: "nobody listens", stopped: true},
		{name: "pushback", script: []testserver.Step{busy.Pushback("300"), busy.Pushback("0")}},
		{name: "pushback beyond the last attempt", script: []testserver.Step{busy, busy, busy.Pushback("0")}},
		{name: "pushback says no", script: []testserver.Step{busy.Pushback("-1")}},
		{name: "pushback is malformed", script: []testserver.Step{busy.Pushback("abc")}},
		{name: "pushback is empty", script: []testserver.Step{busy.Pushback("")}},
		{name: "pushback is repeated", script: []testserver.Step{busy.Pushback("1", "1")}},
		{name: "pushback beyond 64 bits", script: []testserver.Step{busy.Pushback("99999999999999999999")}},
		{name: "pushback with an unlisted code", script: []testserver.Step{none.Pushback("0")}},
		{name: "the deadline ends the only attempt", timeout: time.Second, script: []testserver.Step{testserver.Hang()}},
		{name: "the deadline ends a later attempt", timeout: time.Second, script: []testserver.Step{busy, testserver.Hang()}},
		{name: "the server says DEADLINE_EXCEEDED", script: []testserver.Step{testserver.Fail(codes.DeadlineExceeded, "mine")}},
		{name: "unimplemented", script: []testserver.Step{testserver.Fail(codes.Unimplemented, "no")}},
	} {
		for _, stream := range []bool{false, true} {
			s.stream = stream
			s := s
			t.Run(fmt.Sprintf("%s, stream %t", s.name, s.stream), func(t *testing.T) {
				t.Parallel()
				native, ours, channel := s.three(t)
				assert.Equal(t, native, ours)
				assert.Equal(t, native, channel)
			})
		}
	}
}

// TestNativeDiffers is the table of what gRPC's own retry does otherwise, and
// wrongly, beside what the suite does. What is left to the channel is as gRPC has it.
func TestNativeDiffers(t *testing.T) {
	t.Parallel()
	exhausted := outcome{attempts: 3, previous: []int{-1, 1, 2}, code: codes.Unavailable}
	once := outcome{attempts: 1, previous: []int{-1}, code: codes.Unavailable}
	second := outcome{attempts: 2, previous: []int{-1, 1}}
	for _, row := range []struct {
		story

		why          string
		native, ours outcome
	}{
		{
			story:  story{name: "headers before the status", script: []testserver.Step{busy.SendHeader().Forever()}},
			why:    "grpc/grpc-go#8223: a server that sets headers is never retried, though the caller has seen nothing",
			native: once, ours: exhausted,
		},
		{
			story:  story{name: "lost after headers", script: []testserver.Step{testserver.Cut().SendHeader()}},
			why:    "the same",
			native: once, ours: second,
		},
		{
			story:  story{name: "a request of 300 KiB", payload: 300 << 10, script: []testserver.Step{busy.Received(1).Forever()}},
			why:    "cockroachdb/cockroach#64565: what exceeds the buffer of 256 KiB silently loses its retries",
			native: once, ours: exhausted,
		},
		{
			story:  story{name: "a wait beyond the deadline", timeout: 50 * time.Millisecond, script: []testserver.Step{busy.Forever()}},
			why:    "it sleeps until the deadline, and then reports that instead of the server's status",
			native: outcome{attempts: 1, previous: []int{-1}, code: codes.DeadlineExceeded}, ours: once,
		},
		{
			story:  story{name: "pushback with a sign", script: []testserver.Step{busy.Pushback("+7")}},
			why:    "gRFC A6 knows no such number",
			native: second, ours: once,
		},
		{
			story:  story{name: "pushback with needless zeros", script: []testserver.Step{busy.Pushback("007")}},
			why:    "gRFC A6 forbids them",
			native: second, ours: once,
		},
		{
			story:  story{name: "pushback that overflows", script: []testserver.Step{busy.Pushback("9223372036855")}},
			why:    "292 years of milliseconds overflow to no wait at all",
			native: second, ours: once,
		},
	} {
		for _, stream := range []bool{false, true} {
			row.stream = stream
			row := row
			t.Run(fmt.Sprintf("%s, stream %t", row.name, row.stream), func(t *testing.T) {
				t.Parallel()
				native, ours, channel := row.three(t)
				assert.Equal(t, row.native, native, "gRPC's own retry has changed; %s", row.why)
				assert.Equal(t, row.ours, ours)
				assert.Equal(t, native, channel)
			})
		}
	}
}
