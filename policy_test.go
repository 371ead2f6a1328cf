// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/seed98143e88/grpcretry"
)

// TestNewListsEveryProblem holds that one error names every invalid field with its
// value.
func TestNewListsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := grpcretry.New(
		nil,
		grpcretry.WithPolicy(grpcretry.Policy{
			MaxAttempts:    -1,
			Codes:          []codes.Code{codes.OK, codes.Unavailable, 17},
			Repeat:         9,
			Timeout:        -time.Second,
			AttemptTimeout: -2 * time.Second,
			MaxServerDelay: -3 * time.Second,
			Backoff:        grpcretry.Backoff{Max: -4 * time.Second, Multiplier: math.NaN(), Jitter: math.NaN()},
		}),
		grpcretry.WithMethodPolicy("grpcretry.test.v1.TestService/Reed", grpcretry.Policy{MaxAttempts: -7}),
		grpcretry.WithMethodPolicy("/grpcretry.test.v1.TestService/Read", grpcretry.Policy{Backoff: grpcretry.Backoff{
			Initial: 2 * time.Second, Max: time.Second, Multiplier: 0.5, Jitter: 1.5,
		}}),
		grpcretry.WithMethodPolicy("", grpcretry.Policy{}),
		grpcretry.WithMethodPolicy("/pkg.Service", grpcretry.Policy{}),
		grpcretry.WithMethodPolicy("pkg.Service/", grpcretry.Policy{}),
		grpcretry.WithMethodPolicy("pkg.Service/Method/More", grpcretry.Policy{}),
		grpcretry.WithMethodPolicy("pkg Service", grpcretry.Policy{}),
		grpcretry.WithMethodPolicy("grpcretry.test.v1.Request", grpcretry.Policy{}),
		grpcretry.WithMethodPolicy("grpcretry.test.v1", grpcretry.Policy{}),
		grpcretry.WithAttemptContext(nil),
	)
	assert.EqualError(t, err, `grpcretry: option 0 is nil
WithPolicy: MaxAttempts is -1; it must not be negative
WithPolicy: Codes[0] is OK; it must be a code from 1 to 16
WithPolicy: Codes[2] is Code(17); it must be a code from 1 to 16
WithPolicy: Repeat is Repeat(9); it must be one of the constants
WithPolicy: Timeout is -1s; it must not be negative
WithPolicy: AttemptTimeout is -2s; it must not be negative
WithPolicy: MaxServerDelay is -3s; it must not be negative
WithPolicy: Backoff.Max is -4s; it must not be negative
WithPolicy: Backoff.Multiplier is NaN; it must be a number of at least 1
WithPolicy: Backoff.Jitter is NaN; it must be a number of at most 1
WithMethodPolicy("grpcretry.test.v1.TestService/Reed"): grpcretry.test.v1.TestService has no such method; it has Download, Exchange, Put, Read, Upload, Write
WithMethodPolicy("grpcretry.test.v1.TestService/Reed"): MaxAttempts is -7; it must not be negative
WithMethodPolicy("/grpcretry.test.v1.TestService/Read"): Backoff.Initial is 2s; it must not exceed Backoff.Max of 1s
WithMethodPolicy("/grpcretry.test.v1.TestService/Read"): Backoff.Multiplier is 0.5; it must be a number of at least 1
WithMethodPolicy("/grpcretry.test.v1.TestService/Read"): Backoff.Jitter is 1.5; it must be a number of at most 1
WithMethodPolicy(""): it must have the form pkg.Service/Method or pkg.Service
WithMethodPolicy("/pkg.Service"): a service has no slash in front
WithMethodPolicy("pkg.Service/"): a service has no slash behind
WithMethodPolicy("pkg.Service/Method/More"): it must have the form pkg.Service/Method or pkg.Service
WithMethodPolicy("pkg Service"): it must have the form pkg.Service/Method or pkg.Service
WithMethodPolicy("grpcretry.test.v1.Request"): grpcretry.test.v1.Request is not a service
WithMethodPolicy("grpcretry.test.v1"): grpcretry.test.v1 is a package
WithAttemptContext: the function is nil`)
}

func TestExtremePoliciesAreValid(t *testing.T) {
	t.Parallel()
	for _, p := range []grpcretry.Policy{
		{},
		{MaxAttempts: math.MaxInt, Codes: []codes.Code{}, Timeout: math.MaxInt64, AttemptTimeout: 1, MaxServerDelay: math.MaxInt64},
		{Backoff: grpcretry.Backoff{Initial: math.MinInt64, Max: math.MaxInt64, Multiplier: math.MaxFloat64, Jitter: -math.MaxFloat64}},
		{Backoff: grpcretry.Backoff{Initial: math.MaxInt64, Max: math.MaxInt64, Multiplier: 1, Jitter: 1}},
	} {
		_, err := grpcretry.New(grpcretry.WithPolicy(p))
		assert.NoError(t, err)
	}
	for _, infinite := range []float64{math.Inf(1), math.Inf(-1)} {
		_, err := grpcretry.New(grpcretry.WithPolicy(grpcretry.Policy{Backoff: grpcretry.Backoff{Multiplier: infinite, Jitter: infinite}}))
		assert.ErrorContains(t, err, fmt.Sprintf("Backoff.Multiplier is %v", infinite))
		assert.ErrorContains(t, err, fmt.Sprintf("Backoff.Jitter is %v", infinite))
	}
}

// TestPolicyOfMethod holds the order exact, service, default, and that nothing is
// merged.
func TestPolicyOfMethod(t *testing.T) {
	t.Parallel()
	listed := []codes.Code{codes.Aborted}
	retrier, err := grpcretry.New(
		grpcretry.WithPolicy(grpcretry.Policy{MaxAttempts: 99}),
		grpcretry.WithPolicy(grpcretry.Policy{MaxAttempts: 2, Codes: listed}),
		grpcretry.WithMethodPolicy("grpcretry.test.v1.TestService", grpcretry.Policy{MaxAttempts: 5, Timeout: time.Second}),
		grpcretry.WithMethodPolicy(put, grpcretry.Policy{MaxAttempts: 7}),
		grpcretry.WithMethodPolicy("not.Linked/Anything", grpcretry.Policy{MaxAttempts: 8, Codes: []codes.Code{}}),
	)
	require.NoError(t, err)
	listed[0] = codes.NotFound // New copied it

	fallback := retrier.Policy("other.Service/Method")
	assert.Equal(t, grpcretry.Policy{
		MaxAttempts:    2,
		Codes:          []codes.Code{codes.Aborted},
		MaxServerDelay: time.Minute,
		ConnectWait:    20 * time.Second,
		Backoff:        grpcretry.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Multiplier: 2, Jitter: 0.2},
	}, fallback)
	for method, attempts := range map[string]int{
		read: 5, put: 7, put[1:]: 7, "grpcretry.test.v1.TestService": 5, "/grpcretry.test.v1.TestService/": 5,
		"not.Linked/Anything": 8, "not.Linked/Other": 2, "not.Linked": 2, "": 2, "/": 2, "//": 2, "x": 2,
	} {
		assert.Equal(t, attempts, retrier.Policy(method).MaxAttempts, method)
	}
	assert.Zero(t, retrier.Policy(put).Timeout)
	assert.Equal(t, []codes.Code{}, retrier.Policy("not.Linked/Anything").Codes, "none is not the default")

	fallback.Codes[0] = codes.NotFound
	assert.Equal(t, []codes.Code{codes.Aborted}, retrier.Policy("x").Codes, "the caller got a copy")
}

func TestMethodPolicyApplies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{},
			grpcretry.WithMethodPolicy("grpcretry.test.v1.TestService", grpcretry.Policy{MaxAttempts: 2}),
			grpcretry.WithMethodPolicy(put, grpcretry.Policy{MaxAttempts: 4}))
		r.server.Script("", busy.Forever())
		for range 2 { // the second time out of the cache
			for method, attempts := range map[string]int{read: 2, put: 4} {
				before := len(r.server.Attempts())
				_, err := r.call(t.Context(), method)
				require.ErrorIs(t, err, grpcretry.ErrExhausted)
				assert.Len(t, r.server.Attempts(), before+attempts)
			}
		}
	})
}

func TestObserverSeesTheCallsContext(t *testing.T) {
	type key struct{}
	bubble(t, func(t *testing.T) {
		var seen []any
		r := newRig(t, grpcretry.Policy{}, grpcretry.WithObserver(grpcretry.Observer{
			Attempt: func(ctx context.Context, method string, _ grpcretry.Attempt) {
				seen = append(seen, ctx.Value(key{}), method)
			},
		}))
		r.server.Script(read, busy)
		_, err := r.call(context.WithValue(t.Context(), key{}, "value"), read)
		require.NoError(t, err)
		assert.Equal(t, []any{"value", read, "value", read}, seen)
	})
}
