// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/seed98143e88/grpcretry"
)

// TestWaitRule holds the waits of Jina's client: the first one exact, and not capped,
// all others random up to a cap. The figures are those that were measured on it.
func TestWaitRule(t *testing.T) {
	t.Parallel()
	p := Params{}.withDefaults()
	almost := math.Nextafter(1, 0)
	for attempt, limit := range []time.Duration{
		1: 500 * time.Millisecond, 750 * time.Millisecond, 1125 * time.Millisecond, 1687500 * time.Microsecond,
		2 * time.Second, 2 * time.Second, 2 * time.Second,
	} {
		switch attempt {
		case 0:
		case 1:
			assert.Equal(t, limit, p.wait(1, 0))
			assert.Equal(t, limit, p.wait(1, almost))
		default:
			assert.Zero(t, p.wait(attempt, 0), attempt)
			assert.Equal(t, limit/2, p.wait(attempt, 0.5), attempt)
			assert.InDelta(t, limit, p.wait(attempt, almost), 1, attempt)
		}
	}
	p.InitialBackoff = 5 * time.Second
	assert.Equal(t, 5*time.Second, p.wait(1, 0), "MaxBackoff does not cap the first wait")
	assert.Equal(t, time.Second, p.wait(2, 0.5), "but all others")
	assert.Equal(t, time.Second, p.wait(10_000, 0.5), "whatever the power is")
}

// TestGuideWaits holds the other formula.
func TestGuideWaits(t *testing.T) {
	t.Parallel()
	p := Params{GuideBackoff: true}.withDefaults()
	assert.Zero(t, p.wait(1, 0))
	assert.Equal(t, 250*time.Millisecond, p.wait(1, 0.5))
	assert.Equal(t, 375*time.Millisecond, p.wait(2, 0.5))
	p.InitialBackoff = 5 * time.Second
	assert.Equal(t, time.Second, p.wait(1, 0.5))
}

func TestNoWait(t *testing.T) {
	t.Parallel()
	for _, guide := range []bool{false, true} {
		p := Params{InitialBackoff: -1, GuideBackoff: guide}.withDefaults()
		for attempt := range 5 {
			assert.Zero(t, p.wait(attempt, 0.9))
		}
	}
}

// TestParamsProblems holds that each field at fault is named, with its value.
func TestParamsProblems(t *testing.T) {
	t.Parallel()
	bad := Params{
		MaxAttempts: -1, MaxBackoff: -time.Second, BackoffMultiplier: 0.5, Timeout: -2, ConnectWait: -3,
		ResetAfter: grpcretry.ResetAfter{Responses: -4, Quiet: -5},
	}
	const want = "params: MaxAttempts is -1; it must not be negative\n" +
		"params: MaxBackoff is -1s; it must not be negative\n" +
		"params: Timeout is -2ns; it must not be negative\n" +
		"params: ConnectWait is -3ns; it must not be negative\n" +
		"params: ResetAfter.Responses is -4; it must not be negative\n" +
		"params: ResetAfter.Quiet is -5ns; it must not be negative\n" +
		"params: BackoffMultiplier is 0.5; it must be a number of at least 1"
	require.EqualError(t, bad.problems(), want)
	_, err := DialOptions(bad)
	require.EqualError(t, err, "jina: "+want)
	_, err = ServiceConfig(bad)
	require.EqualError(t, err, "jina: "+want)
	_, err = Dial("passthrough:///x", bad)
	require.EqualError(t, err, "jina: "+want)

	for _, multiplier := range []float64{math.NaN(), math.Inf(1), -1, math.Inf(-1)} {
		assert.ErrorContains(t, Params{BackoffMultiplier: multiplier}.problems(), "params: BackoffMultiplier is ")
	}
	require.NoError(t, Params{}.problems())
	huge := Params{
		MaxAttempts: math.MaxInt, InitialBackoff: math.MaxInt64, MaxBackoff: math.MaxInt64,
		BackoffMultiplier: math.MaxFloat64, Timeout: math.MaxInt64, ConnectWait: math.MaxInt64,
	}
	require.NoError(t, huge.problems())
	assert.Positive(t, huge.wait(1000, 0.5))
	for _, usable := range []Params{huge, {MaxAttempts: 3, InitialBackoff: 5 * time.Second}, {MaxAttempts: 3, InitialBackoff: -1}} {
		_, err = DialOptions(usable)
		require.NoError(t, err)
		_, err = ServiceConfig(usable)
		require.NoError(t, err)
	}
	config, err := ServiceConfig(Params{MaxAttempts: 3, InitialBackoff: 5 * time.Second})
	require.NoError(t, err)
	assert.Contains(t, config, `"initialBackoff":"2s","maxBackoff":"2s"`, "as gRPC reads Jina's")
}

// TestPolicies holds which policy the params are.
func TestPolicies(t *testing.T) {
	t.Parallel()
	p := Params{}.unary()
	assert.Equal(t, 1, p.MaxAttempts)
	assert.Equal(t, []codes.Code{codes.Unavailable, codes.NotFound, codes.DeadlineExceeded, codes.Internal}, p.Codes)
	assert.Equal(t, grpcretry.RepeatAlways, p.Repeat)
	assert.Negative(t, p.ConnectWait, "no wait for the connection unless asked")
	assert.Zero(t, p.AttemptTimeout)

	params := Params{
		MaxAttempts: 4, Timeout: time.Second, AnyCode: true, ConnectWait: time.Minute,
		ResetAfter: grpcretry.ResetAfter{Responses: 1},
	}
	p = params.unary()
	assert.Equal(t, 4, p.MaxAttempts)
	assert.True(t, p.Retryable(grpcretry.Failure{}))
	assert.Equal(t, time.Minute, p.ConnectWait)
	assert.Equal(t, time.Second, p.AttemptTimeout)
	assert.Zero(t, p.IdleTimeout)

	p = params.stream()
	assert.Len(t, p.Codes, 4)
	assert.Nil(t, p.Retryable, "any code is for requests without streaming")
	assert.Equal(t, time.Second, p.AttemptTimeout)
	assert.Equal(t, time.Second, p.IdleTimeout)
	assert.Equal(t, params.ResetAfter, p.ResetAfter)
}

// TestServiceConfig holds the config that Jina's client gives its channel.
func TestServiceConfig(t *testing.T) {
	t.Parallel()
	config, err := ServiceConfig(Params{MaxAttempts: 4})
	require.NoError(t, err)
	assert.JSONEq(t, `{"methodConfig": [{"name": [{}], "retryPolicy": {
		"maxAttempts": 4, "initialBackoff": "0.5s", "maxBackoff": "2s", "backoffMultiplier": 1.5,
		"retryableStatusCodes": ["DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE"]}}]}`, config)
	for _, attempts := range []int{0, 1} {
		config, err = ServiceConfig(Params{MaxAttempts: attempts})
		require.NoError(t, err)
		assert.Equal(t, "{}", config)
	}
	config, err = ServiceConfig(Params{MaxAttempts: 2, InitialBackoff: 10 * time.Microsecond})
	require.NoError(t, err)
	assert.Contains(t, config, `"initialBackoff":"0.001s"`, "Jina's 1e-05s is none that gRPC takes")
	assert.Empty(t, grpcretry.CheckServiceConfig(config))
}
