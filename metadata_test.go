// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

func TestAttemptsFromMD(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int{"0": 0, "1": 1, "42": 42, strconv.Itoa(math.MaxInt): math.MaxInt} {
		n, ok := grpcretry.AttemptsFromMD(metadata.Pairs("jina-client-attempts", value))
		assert.True(t, ok, value)
		assert.Equal(t, want, n)
	}
	for _, md := range []metadata.MD{
		nil,
		{},
		metadata.Pairs("jina-client-attempts", "1", "jina-client-attempts", "1"),
		{"jina-client-attempts": {}},
	} {
		_, ok := grpcretry.AttemptsFromMD(md)
		assert.False(t, ok, "%v", map[string][]string(md))
	}
	for _, value := range malformed {
		_, ok := grpcretry.AttemptsFromMD(metadata.Pairs("jina-client-attempts", value))
		assert.False(t, ok, "%q", value)
	}
}

// malformed are values that are no plain decimal numbers.
var malformed = []string{
	"", " ", "-1", "-0", "+7", "007", "00", "1.5", "1e3", "0x10", "abc", " 7", "7 ", "1_000", "٣", "9223372036854775808",
	"99999999999999999999999999", "\x00", "1\n",
}

// TestPushbackFromTheWire holds for each kind of value what the suite makes of it.
func TestPushbackFromTheWire(t *testing.T) {
	rows := map[string][]string{
		"two values":         {"1", "2"},
		"beyond 32 bits":     {"2147483648"},
		"the longest of all": {"2147483647"}, // but longer than MaxServerDelay
	}
	for _, value := range malformed {
		if value != "1\n" && value != "\x00" && value != " 7" && value != "7 " && value != "٣" { // not to be had over HTTP/2
			rows[strconv.Quote(value)] = []string{value}
		}
	}
	for name, values := range rows {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, grpcretry.Policy{})
				r.server.Script(read, busy.Pushback(values...))
				_, err := r.call(t.Context(), read)
				require.ErrorIs(t, err, grpcretry.ErrPushback)
				assert.Len(t, r.server.Attempts(), 1)
			})
		})
	}
}

// TestPushbackIsQuotedInPart: what comes from the wire does not swell errors.
func TestPushbackIsQuotedInPart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{})
		r.server.Script(read, busy.Pushback(strings.Repeat("x", 100_000)), busy.Pushback("1", "2", "3"))
		_, err := r.call(t.Context(), read)
		assert.ErrorContains(t, err, `grpc-retry-pushback-ms is "xxxxxxxxxxxxxxxxxxxx"`)
		assert.Less(t, len(err.Error()), 300)
		_, err = r.call(t.Context(), read)
		assert.ErrorContains(t, err, "grpc-retry-pushback-ms has 3 values")
	})
}

func TestSetPushback(t *testing.T) {
	for _, row := range []struct {
		pushback time.Duration
		wait     time.Duration
		reason   error
	}{
		{pushback: 0},
		{pushback: 1, wait: time.Millisecond},
		{pushback: 1500 * time.Microsecond, wait: 2 * time.Millisecond},
		{pushback: time.Second, wait: time.Second},
		{pushback: -1, reason: grpcretry.ErrPushback},
		{pushback: -time.Hour, reason: grpcretry.ErrPushback},
		{pushback: math.MaxInt32 * time.Millisecond, reason: grpcretry.ErrPushback},
	} {
		t.Run(row.pushback.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, grpcretry.Policy{})
				var previous []int
				r.server.Handle(read, func(stream grpc.ServerStream) error {
					previous = append(previous, grpcretry.PreviousAttempts(stream.Context()))
					if len(previous) > 1 {
						return stream.SendMsg(&testv1.Response{})
					}
					assert.NoError(t, grpcretry.SetPushback(stream.Context(), row.pushback))
					return status.Error(codes.Unavailable, "busy")
				})
				_, err := r.call(t.Context(), read)
				if row.reason != nil {
					require.ErrorIs(t, err, row.reason)
					assert.Equal(t, []int{0}, previous)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, []int{0, 1}, previous)
				assert.Equal(t, []time.Duration{0, row.wait}, r.starts())
			})
		})
	}
}

func TestSetPushbackRefuses(t *testing.T) {
	t.Parallel()
	assert.ErrorContains(t, grpcretry.SetPushback(t.Context(), math.MaxInt32*time.Millisecond+1), "596h31m23.647000001s")
	assert.ErrorContains(t, grpcretry.SetPushback(t.Context(), math.MaxInt64), "longer than 596h31m23.647s")
	assert.ErrorContains(t, grpcretry.SetPushback(t.Context(), time.Second), "set pushback of 1s: ")
}

func TestPreviousAttempts(t *testing.T) {
	t.Parallel()
	assert.Zero(t, grpcretry.PreviousAttempts(t.Context()))
	for _, value := range malformed {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("grpc-previous-rpc-attempts", value))
		assert.Zero(t, grpcretry.PreviousAttempts(ctx), "%q", value)
	}
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("grpc-previous-rpc-attempts", "3"))
	assert.Equal(t, 3, grpcretry.PreviousAttempts(ctx))
}
