// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// The metadata keys of the suite.
const (
	// attemptsKey is set in the trailer that the caller sees. The name is the
	// one under which Jina's client reports the same number.
	attemptsKey = "jina-client-attempts"
	// previousAttemptsKey and pushbackKey are gRFC A6's.
	previousAttemptsKey = "grpc-previous-rpc-attempts"
	pushbackKey         = "grpc-retry-pushback-ms"
)

// maxPushback is the longest pushback there is: gRFC A6 defines the value as a
// signed 32-bit number of milliseconds.
const maxPushback = math.MaxInt32 * time.Millisecond

// AttemptsFromMD returns how many attempts the call made that the trailer
// belongs to, as the suite wrote it under "jina-client-attempts". It is false if
// the key is absent, repeated, or not a plain decimal number.
func AttemptsFromMD(md metadata.MD) (int, bool) {
	return decimal(md.Get(attemptsKey))
}

// PreviousAttempts returns, in a server's handler, how many attempts the client
// made before this one (gRFC A6, "grpc-previous-rpc-attempts"). It is 0 if the key
// is absent, as it is in a first attempt unless the client's program set it, or if
// its value is no plain decimal number.
func PreviousAttempts(ctx context.Context) int {
	attempts, _ := decimal(metadata.ValueFromIncomingContext(ctx, previousAttemptsKey))
	return attempts
}

// SetPushback makes a server's handler tell its client when to try again (gRFC
// A6, "grpc-retry-pushback-ms"): after d, rounded up to whole milliseconds, or
// never if d is negative. The client obeys only if the handler then fails with a
// status that the client retries. Call it once a handler: metadata adds up, and two
// values mean never. It returns an error if d is longer than the
// 24.8 days that the key can say, or if ctx is not a handler's.
func SetPushback(ctx context.Context, d time.Duration) error {
	if d > maxPushback {
		return fmt.Errorf("pushback of %v is longer than %v, the longest there is", d, maxPushback)
	}
	value := "-1"
	if d >= 0 {
		value = strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
	}
	if err := grpc.SetTrailer(ctx, metadata.Pairs(pushbackKey, value)); err != nil {
		return fmt.Errorf("set pushback of %v: %w", d, err)
	}
	return nil
}

// decimal reads the only value of a key as a number without sign and without
// needless zeros, the form in which gRFC A6 has them.
func decimal(values []string) (int, bool) {
	if len(values) != 1 || values[0] == "" || len(values[0]) > 1 && values[0][0] == '0' {
		return 0, false
	}
	for _, c := range []byte(values[0]) {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, err := strconv.Atoi(values[0])
	if err != nil {
		return 0, false // Atoi's own n is the nearest number that fits
	}
	return n, true
}

// demand is what a failing server asked of its clients. The zero demand is a
// server that did not ask for anything.
type demand struct {
	given bool
	delay time.Duration // meaningful if given and not stop
	stop  string        // why there must be no further attempt; empty if there may be
}

// demandOf reads the server's word from a failed answer: the pushback, or else
// the RetryInfo of its status. What cannot be understood means stop, since a
// server only speaks of retries when it has trouble.
func demandOf(st *status.Status, trailer metadata.MD) demand {
	if values := trailer[pushbackKey]; len(values) > 0 {
		return pushback(values)
	}
	if len(st.Details()) > 0 {
		return retryInfo(st)
	}
	return demand{}
}

// pushback reads the values of grpc-retry-pushback-ms. By gRFC A6 a value that is
// negative or cannot be parsed means that the client must not retry at all.
func pushback(values []string) demand {
	ms, ok := decimal(values)
	switch {
	case len(values) > 1:
		return demand{given: true, stop: fmt.Sprintf("%s has %d values", pushbackKey, len(values))}
	case !ok || ms > math.MaxInt32:
		// The value comes from the wire, so only its beginning is shown.
		return demand{given: true, stop: fmt.Sprintf("%s is %.20q", pushbackKey, values[0])}
	}
	return demand{given: true, delay: time.Duration(ms) * time.Millisecond}
}

// retryInfo reads the first google.rpc.RetryInfo among the details of a status.
func retryInfo(st *status.Status) demand {
	for _, detail := range st.Proto().GetDetails() {
		if !detail.MessageIs((*errdetails.RetryInfo)(nil)) {
			continue
		}
		var info errdetails.RetryInfo
		if err := detail.UnmarshalTo(&info); err != nil {
			return demand{given: true, stop: fmt.Sprintf("its RetryInfo cannot be read: %v", err)}
		}
		delay := info.GetRetryDelay()
		if delay == nil {
			return demand{}
		}
		if err := delay.CheckValid(); err != nil {
			return demand{given: true, stop: fmt.Sprintf("its RetryInfo is invalid: %v", err)}
		}
		// AsDuration saturates, so a delay of centuries stays a long delay.
		d := delay.AsDuration()
		if d < 0 {
			return demand{given: true, stop: fmt.Sprintf("its RetryInfo is %v", d)}
		}
		return demand{given: true, delay: d}
	}
	return demand{}
}
