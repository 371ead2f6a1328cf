// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package rawh2_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"

	"github.com/seed98143e88/grpcretry/testserver/rawh2"
)

// Each fault alone, on every stream, as a plain client sees it.
func TestUnaryOutcomes(t *testing.T) {
	t.Parallel()
	const (
		reset      = "stream terminated by RST_STREAM with error code: "
		unexpected = "unexpected HTTP status code received from server: "
		closing    = "closing transport due to: connection error: desc = \"error reading from server: EOF\", " +
			"received prior goaway: code: "
		html = "; transport: received unexpected content-type \"text/html\""
	)
	type row struct {
		name    string
		step    rawh2.Step
		want    outcome
		conns   int // that the client opened for the call
		streams int // that it opened: two with a transparent retry
	}
	rows := []row{{
		name:    "goaway with last stream 0",
		step:    rawh2.GoAway(0, http2.ErrCodeNo),
		want:    outcome{codes.Unavailable, "the connection is draining", true, false, false},
		conns:   2,
		streams: 2,
	}, {
		name: "goaway with own stream, then closed",
		step: rawh2.GoAway(rawh2.OwnStream, http2.ErrCodeNo, "bye", " bye").Then(rawh2.Close()),
		want: outcome{
			codes.Unavailable, closing + "NO_ERROR, debug data: \"bye bye\"", true, false, false,
		},
	}, {
		name: "goaway with a given stream, then closed",
		step: rawh2.GoAway(1, http2.ErrCodeEnhanceYourCalm, "calm").Then(rawh2.Close()),
		want: outcome{
			codes.Unavailable, closing + "ENHANCE_YOUR_CALM, debug data: \"calm\"", true, false, false,
		},
	}, {
		name: "goaway, then an answer",
		step: rawh2.GoAway(rawh2.OwnStream, http2.ErrCodeNo).Then(rawh2.OK(nil)),
		want: outcome{codes.OK, "", true, true, false},
	}, {
		name:    "refused",
		step:    rawh2.RefuseStream(),
		want:    outcome{codes.Unavailable, reset + "REFUSED_STREAM", true, false, false},
		streams: 2,
	}, {
		name: "reset after headers",
		step: rawh2.Headers().Then(rawh2.Reset(http2.ErrCodeInternal)),
		want: outcome{codes.Internal, reset + "INTERNAL_ERROR", true, true, false},
	}, {
		name: "reset after a message",
		step: rawh2.Headers().Then(rawh2.Message(nil), rawh2.Reset(http2.ErrCodeCancel)),
		want: outcome{codes.Canceled, reset + "CANCEL", true, true, false},
	}, {
		name: "closed before headers",
		step: rawh2.Close(),
		want: outcome{codes.Unavailable, "error reading from server: EOF", true, false, false},
	}, {
		name: "closed after headers",
		step: rawh2.Headers().Then(rawh2.Close()),
		want: outcome{codes.Unavailable, "error reading from server: EOF", true, true, false},
	}, {
		name: "HTTP status with a body",
		step: rawh2.HTTPStatus(503, "text/html", "<p>no ", "backend</p>"),
		want: outcome{
			codes.Unavailable, unexpected + "503 (Service Unavailable)" + html + "\ndata: \"<p>no backend</p>\"",
			true, false, false,
		},
	}, {
		name: "HTTP status without content-type",
		step: rawh2.HTTPStatus(404, ""),
		want: outcome{
			codes.Unimplemented, unexpected + "404 (Not Found); malformed header: missing HTTP content-type",
			true, false, false,
		},
	}, {
		name: "truncated frame",
		step: rawh2.Headers().Then(rawh2.TruncatedFrame(100, []byte("part"))),
		want: outcome{codes.Unavailable, "error reading from server: unexpected EOF", true, true, false},
	}, {
		name: "truncated frame before headers",
		step: rawh2.TruncatedFrame(2, []byte{0}),
		want: outcome{codes.Unavailable, "error reading from server: unexpected EOF", true, false, false},
	}, {
		name: "truncated message, then trailers",
		step: rawh2.Headers().Then(rawh2.TruncatedMessage(100, []byte("part")), rawh2.Trailers("grpc-status", "0")),
		want: outcome{codes.Internal, "unexpected EOF", true, true, false},
	}, {
		name: "truncated message, then the end",
		step: rawh2.Headers().Then(rawh2.TruncatedMessage(100, nil), rawh2.EndStream()),
		want: outcome{codes.Internal, "unexpected EOF", true, true, false},
	}, {
		name: "end without trailers",
		step: rawh2.Headers().Then(rawh2.EndStream()),
		want: outcome{codes.Internal, "server closed the stream without sending trailers", true, true, false},
	}, {
		name: "no grpc-status",
		step: rawh2.Trailers(),
		want: outcome{codes.Unknown, "", true, false, true},
	}, {
		name: "malformed grpc-status",
		step: rawh2.Trailers("grpc-status", "many"),
		want: outcome{
			codes.Unknown, "transport: malformed grpc-status: strconv.ParseInt: parsing \"many\": invalid syntax",
			true, false, false,
		},
	}, {
		name: "trailers only",
		step: rawh2.Trailers("grpc-status", "14", "grpc-message", "busy"),
		want: outcome{codes.Unavailable, "busy", true, false, true},
	}, {
		name: "headers, then trailers",
		step: rawh2.Headers("a", "b").Then(rawh2.Trailers("grpc-status", "14", "grpc-message", "busy")),
		want: outcome{codes.Unavailable, "busy", true, true, false},
	}, {
		name: "headers of another kind",
		step: rawh2.Headers(":status", "418", "content-type", "text/html").Then(rawh2.Trailers()),
		want: outcome{codes.Unknown, unexpected + "418 (I'm a teapot)" + html + "\ndata: \"\"", true, false, false},
	}, {
		name: "answered before the request is complete",
		step: rawh2.OK(nil).AtHeaders(),
		want: outcome{codes.OK, "", true, true, false},
	}}
	for code, want := range map[http2.ErrCode]codes.Code{
		http2.ErrCodeNo:                 codes.Internal,
		http2.ErrCodeProtocol:           codes.Internal,
		http2.ErrCodeInternal:           codes.Internal,
		http2.ErrCodeStreamClosed:       codes.Internal,
		http2.ErrCodeFlowControl:        codes.ResourceExhausted,
		http2.ErrCodeEnhanceYourCalm:    codes.ResourceExhausted,
		http2.ErrCodeCancel:             codes.Canceled,
		http2.ErrCodeInadequateSecurity: codes.PermissionDenied,
	} {
		rows = append(rows, row{
			name: "reset with " + code.String(),
			step: rawh2.Reset(code),
			want: outcome{want, reset + code.String(), true, false, false},
		})
	}
	for code, text := range map[int]string{
		429: "429 (Too Many Requests)",
		502: "502 (Bad Gateway)",
		503: "503 (Service Unavailable)",
		504: "504 (Gateway Timeout)",
	} {
		rows = append(rows, row{
			name: "HTTP status " + text,
			step: rawh2.HTTPStatus(code, "text/html"),
			want: outcome{codes.Unavailable, unexpected + text + html, true, false, false},
		})
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			srv := rawh2.New(t)
			srv.Always(row.step)
			_, got := read(withGuard(t), srv.Dial())
			assert.Equal(t, row.want, got)
			record := srv.Record()
			assert.Len(t, record.Conns, max(1, row.conns))
			assert.Len(t, record.Streams, max(1, row.streams))
		})
	}
}
