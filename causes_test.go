// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
	"github.com/seed98143e88/grpcretry/testserver/rawh2"
)

// causes are all the ways to fail.
func causes() []cause {
	second := grpcretry.Policy{AttemptTimeout: time.Second}
	list := []cause{
		// Nothing left the client.
		{name: "nobody listens", dial: stopped, kind: grpcretry.Connect, code: codes.Unavailable, message: "the server is stopped"},
		{name: "nobody listens on the TCP port", dial: closedPort, tcp: true, kind: grpcretry.Connect, code: codes.Unavailable, message: "connection refused"},
		{name: "nobody listens, WaitForReady, the attempt times out", dial: stopped, policy: second, call: option(grpc.WaitForReady(true)), kind: grpcretry.Connect, code: codes.DeadlineExceeded, message: "latest balancer error: "},
		{name: "the server never answers the handshake, the attempt times out", dial: raw(rawh2.OK(nil), rawh2.BlackHole(math.MaxInt)), policy: second, kind: grpcretry.Connect, code: codes.DeadlineExceeded, message: "while waiting for connections to become ready"},
		{name: "the resolver reports an error", dial: resolved(func(r *manual.Resolver) {
			r.BuildCallback = func(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) {
				cc.ReportError(errors.New("no such host"))
			}
		}), kind: grpcretry.Connect, code: codes.Unavailable, message: "no such host"},
		{name: "the resolver is silent, the attempt times out", dial: resolved(func(*manual.Resolver) {}), policy: second, kind: grpcretry.Connect, code: codes.DeadlineExceeded, message: "context deadline exceeded"},
		{name: "the server allows no streams, the attempt times out", dial: raw(rawh2.OK(nil), rawh2.Setting(http2.SettingMaxConcurrentStreams, 0)), policy: second, kind: grpcretry.Connect, code: codes.DeadlineExceeded, message: "context deadline exceeded"},
		{name: "credentials fail with UNAVAILABLE", dial: healthy, call: option(grpc.PerRPCCredentials(token{status.Error(codes.Unavailable, "no token now")})), kind: grpcretry.Connect, code: codes.Unavailable, message: "no token now"},
		{name: "the server refuses the stream (RST_STREAM REFUSED_STREAM)", dial: raw(rawh2.Reset(http2.ErrCodeRefusedStream)), kind: grpcretry.Connect, code: codes.Unavailable, message: "REFUSED_STREAM"},
		{name: "GOAWAY that excludes the stream", dial: raw(rawh2.GoAway(0, http2.ErrCodeNo).Then(rawh2.Close())), kind: grpcretry.Connect, code: codes.Unavailable, messages: []string{"the connection is draining", "the stream is rejected because server is draining the connection"}},

		// The server answered.
		{name: "the server says UNAVAILABLE", dial: scripted(busy), kind: grpcretry.Answered, code: codes.Unavailable, message: "busy"},
		{name: "the server says UNAVAILABLE after headers, with a trailer", dial: scripted(busy.SendHeader().Trailer("t", "1")), kind: grpcretry.Answered, code: codes.Unavailable, message: "busy"},
		{name: "the server says DEADLINE_EXCEEDED", dial: scripted(testserver.Fail(codes.DeadlineExceeded, "mine")), kind: grpcretry.Answered, code: codes.DeadlineExceeded, message: "mine"},
		{name: "the server says CANCELLED", dial: scripted(testserver.Fail(codes.Canceled, "mine")), kind: grpcretry.Answered, code: codes.Canceled, message: "mine"},
		{name: "the server says a code that does not exist", dial: scripted(testserver.Fail(99, "odd")), kind: grpcretry.Answered, code: 99, message: "odd"},
		{name: "the server finds the request too large", dial: scripted(testserver.OK(), testserver.ServerOptions(grpc.MaxRecvMsgSize(1))), kind: grpcretry.Answered, code: codes.ResourceExhausted, message: "grpc: received message larger than max"},
		{name: "the method is not implemented", dial: unimplemented, kind: grpcretry.Answered, code: codes.Unimplemented, message: "unknown service"},

		// No answer came.
		{name: "the server says UNAVAILABLE after headers, without a trailer", dial: scripted(busy.SendHeader()), kind: grpcretry.Lost, code: codes.Unavailable, message: "busy"},
		{name: "the connection is closed before headers", dial: scripted(testserver.Cut()), kind: grpcretry.Lost, code: codes.Unavailable, message: "error reading from server: EOF"},
		{name: "the connection is closed after headers", dial: scripted(testserver.Cut().SendHeader()), kind: grpcretry.Lost, code: codes.Unavailable, message: "error reading from server: EOF"},
		{name: "the connection is closed after the response", dial: scripted(testserver.Cut().Sent(1)), kind: grpcretry.Lost, code: codes.Unavailable, message: "error reading from server: EOF"},
		{name: "the connection is closed in mid-response", dial: raw(rawh2.Headers().Then(rawh2.TruncatedFrame(100, []byte("abc")))), kind: grpcretry.Lost, code: codes.Unavailable, message: "error reading from server: unexpected EOF"},
		{name: "the TCP connection is closed (FIN)", dial: scripted(testserver.Cut(), testserver.TCP()), tcp: true, kind: grpcretry.Lost, code: codes.Unavailable, message: "error reading from server: EOF"},
		{name: "the TCP connection is reset (RST)", dial: scripted(testserver.Reset(), testserver.TCP()), tcp: true, kind: grpcretry.Lost, code: codes.Unavailable, messages: []string{"connection reset by peer", "error reading from server: EOF"}},
		{name: "the TCP connection is reset after headers", dial: scripted(testserver.Reset().SendHeader(), testserver.TCP()), tcp: true, kind: grpcretry.Lost, code: codes.Unavailable, messages: []string{"connection reset by peer", "error reading from server: EOF"}},
		{name: "the server stops", dial: stopping, kind: grpcretry.Lost, code: codes.Unavailable, message: "error reading from server: EOF"},
		{name: "keepalive gets no answer", dial: silenced, kind: grpcretry.Lost, code: codes.Unavailable, message: "keepalive ping failed to receive ACK within timeout"},
		{name: "the attempt times out at the server", dial: scripted(testserver.Hang()), policy: second, kind: grpcretry.Lost, code: codes.DeadlineExceeded, messages: []string{"context deadline exceeded", "RST_STREAM"}},
		{name: "GOAWAY that includes the stream, then the end", dial: raw(rawh2.GoAway(rawh2.OwnStream, http2.ErrCodeNo).Then(rawh2.Close())), kind: grpcretry.Lost, code: codes.Unavailable, message: "closing transport due to: "},
		{name: "the answer breaks off", dial: raw(rawh2.Headers().Then(rawh2.TruncatedMessage(10, []byte("abc")), rawh2.EndStream())), kind: grpcretry.Lost, code: codes.Internal, message: "unexpected EOF"},
		{name: "the server's headers are too large", dial: with(raw(rawh2.Headers("h", strings.Repeat("x", 150)).Then(rawh2.Trailers("grpc-status", "0"))), grpc.WithMaxHeaderListSize(200)), kind: grpcretry.Lost, code: codes.Internal, message: "peer header list size exceeded limit"},

		// Made on this side.
		{name: "metadata with a bad key", dial: healthy, call: func(t *testing.T, conn *grpc.ClientConn, method string) error {
			t.Helper()
			return invoke(metadata.AppendToOutgoingContext(t.Context(), "bad key", "v"), conn, method)
		}, kind: grpcretry.Local, code: codes.Internal, message: "header key \"bad key\" contains illegal characters"},
		{name: "metadata larger than the server allows", dial: with(raw(rawh2.OK(nil), rawh2.Setting(http2.SettingMaxHeaderListSize, 300))), call: func(t *testing.T, conn *grpc.ClientConn, method string) error {
			t.Helper()
			return invoke(metadata.AppendToOutgoingContext(t.Context(), "k", strings.Repeat("v", 300)), conn, method, grpc.WaitForReady(true))
		}, kind: grpcretry.Local, code: codes.Internal, message: "header list size to send violates the maximum size"},
		{name: "an unknown compressor", dial: healthy, call: option(grpc.UseCompressor("none such")), kind: grpcretry.Local, code: codes.Internal, message: "Compressor is not installed"},
		{name: "credentials fail", dial: healthy, call: option(grpc.PerRPCCredentials(token{errors.New("no token")})), kind: grpcretry.Local, code: codes.Internal, message: "per-RPC creds failed due to error: no token"},
		{name: "credentials fail with INVALID_ARGUMENT", dial: healthy, call: option(grpc.PerRPCCredentials(token{status.Error(codes.InvalidArgument, "bad scope")})), kind: grpcretry.Local, code: codes.Internal, message: "bad scope"},
		{name: "the connection was closed by the caller", dial: func(t *testing.T, opts ...grpc.DialOption) *grpc.ClientConn {
			t.Helper()
			conn := healthy(t, opts...)
			require.NoError(t, conn.Close())
			return conn
		}, kind: grpcretry.Local, code: codes.Canceled, message: "grpc: the client connection is closing"},
		{name: "the request is too large to send", dial: healthy, call: option(grpc.MaxCallSendMsgSize(1)), kind: grpcretry.Local, code: codes.ResourceExhausted, message: "trying to send message larger than max"},
		{name: "the request cannot be encoded", dial: healthy, call: func(t *testing.T, conn *grpc.ClientConn, method string) error {
			t.Helper()
			return conn.Invoke(t.Context(), method, unencodable, &testv1.Response{})
		}, kind: grpcretry.Local, code: codes.Internal, message: "grpc: error while marshaling"},
		{name: "the response is too large to receive", dial: healthy, call: option(grpc.MaxCallRecvMsgSize(1)), kind: grpcretry.Local, code: codes.ResourceExhausted, message: "grpc: received message larger than max"},
		{name: "the response is too large, and a trailer follows", dial: scripted(testserver.OK().Trailer("a", "b")), call: option(grpc.MaxCallRecvMsgSize(1)), kind: grpcretry.Local, code: codes.ResourceExhausted, message: "grpc: received message larger than max"},
		{name: "the response cannot be decoded", dial: raw(rawh2.OK([]byte{0x0a, 0xff})), kind: grpcretry.Local, code: codes.Internal, message: "grpc: failed to unmarshal the received message"},
		{name: "no response came with OK", dial: raw(rawh2.Headers().Then(rawh2.Trailers("grpc-status", "0"))), kind: grpcretry.Local, code: codes.Internal, message: "cardinality violation: received no response message"},

		// The caller ended the call.
		{name: "the caller's deadline passes before a connection is there", dial: stopped, call: within(time.Second, grpc.WaitForReady(true)), kind: grpcretry.Local, code: codes.DeadlineExceeded, message: "latest balancer error: "},
		{name: "the caller's deadline passes at the server", dial: scripted(testserver.Hang()), call: within(time.Second), kind: 0, code: codes.DeadlineExceeded, messages: []string{"context deadline exceeded", "RST_STREAM"}},
		{name: "the caller's context has ended before", dial: healthy, call: func(t *testing.T, conn *grpc.ClientConn, method string) error {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return invoke(ctx, conn, method)
		}, kind: grpcretry.Local, code: codes.Canceled, message: "context canceled"},
		{name: "the caller cancels", dial: scripted(testserver.Hang()), call: func(t *testing.T, conn *grpc.ClientConn, method string) error {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			return invoke(ctx, conn, method)
		}, kind: grpcretry.Lost, code: codes.Canceled, message: "context canceled"},
		{name: "the caller closes the connection", dial: scripted(testserver.Hang()), call: func(t *testing.T, conn *grpc.ClientConn, method string) error {
			t.Helper()
			time.AfterFunc(time.Second, func() { _ = conn.Close() })
			return invoke(t.Context(), conn, method)
		}, kind: grpcretry.Lost, code: codes.Canceled, message: "grpc: the client connection is closing"},
	}
	for _, reset := range []struct {
		code http2.ErrCode
		want codes.Code
	}{
		{http2.ErrCodeNo, codes.Internal},
		{http2.ErrCodeProtocol, codes.Internal},
		{http2.ErrCodeInternal, codes.Internal},
		{http2.ErrCodeFlowControl, codes.ResourceExhausted},
		{http2.ErrCodeSettingsTimeout, codes.Internal},
		{http2.ErrCodeStreamClosed, codes.Internal},
		{http2.ErrCodeFrameSize, codes.Internal},
		{http2.ErrCodeCancel, codes.Canceled},
		{http2.ErrCodeCompression, codes.Internal},
		{http2.ErrCodeConnect, codes.Internal},
		{http2.ErrCodeEnhanceYourCalm, codes.ResourceExhausted},
		{http2.ErrCodeInadequateSecurity, codes.PermissionDenied},
		{http2.ErrCodeHTTP11Required, codes.Internal},
	} {
		list = append(list, cause{name: "RST_STREAM " + reset.code.String(), dial: raw(rawh2.Reset(reset.code)), kind: grpcretry.Lost, code: reset.want, message: "stream terminated by RST_STREAM with error code: " + reset.code.String()})
	}
	for _, proxy := range []struct {
		status int
		want   codes.Code
	}{
		{400, codes.Internal},
		{401, codes.Unauthenticated},
		{403, codes.PermissionDenied},
		{404, codes.Unimplemented},
		{429, codes.Unavailable},
		{500, codes.Unknown},
		{502, codes.Unavailable},
		{503, codes.Unavailable},
		{504, codes.Unavailable},
	} {
		list = append(list, cause{name: fmt.Sprintf("a proxy answers HTTP %d", proxy.status), dial: raw(rawh2.HTTPStatus(proxy.status, "text/html", "<p>sorry</p>")), kind: grpcretry.Lost, code: proxy.want, message: fmt.Sprintf("unexpected HTTP status code received from server: %d", proxy.status)})
	}
	return list
}
