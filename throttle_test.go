// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
	"github.com/seed98143e88/grpcretry/testserver/rawh2"
)

// throttledConfig is what gRPC itself is given for a Throttle, beside four attempts.
func throttledConfig(t grpcretry.Throttle) string {
	return fmt.Sprintf(`{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":4,"initialBackoff":"0.001s","maxBackoff":"0.001s",`+
		`"backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}],"retryThrottling":{"maxTokens":%v,"tokenRatio":%v}}`, t.MaxTokens, t.TokenRatio)
}

// TestThrottle counts the attempts of calls against a budget: a letter a call, "f" for
// one whose server always fails, "s" for one that succeeds at once, "n" for one that
// fails with a code that is not listed, "p" for one whose server asks not to retry, and
// digits for one that fails so often before it succeeds. What gRFC A6's arithmetic
// gives, gRPC's own retry does too.
func TestThrottle(t *testing.T) {
	steps := map[rune][]testserver.Step{
		'f': {busy.Forever()},
		's': nil,
		'n': {testserver.Fail(codes.NotFound, "none").Forever()},
		'p': {busy.Pushback("-1").Forever()},
		'1': {busy},
		'2': {busy.Times(2)},
		'3': {busy.Times(3)},
	}
	for _, row := range []struct {
		throttle grpcretry.Throttle
		calls    string
		want     []int
	}{
		{grpcretry.Throttle{MaxTokens: 4, TokenRatio: 0.5}, "ffff", []int{2, 1, 1, 1}},
		{grpcretry.Throttle{MaxTokens: 10, TokenRatio: 0.1}, "ff", []int{4, 1}},
		{grpcretry.Throttle{MaxTokens: 10, TokenRatio: 0.1}, "3f", []int{4, 3}}, // 7.1, 6.1, 5.1 and no more
		{grpcretry.Throttle{MaxTokens: 10, TokenRatio: 1}, "3ssf", []int{4, 1, 1, 4}},
		{grpcretry.Throttle{MaxTokens: 10, TokenRatio: 1}, "2222", []int{3, 3, 3, 2}}, // 8+1, 7+1, 6+1, 6, 5
		{grpcretry.Throttle{MaxTokens: 1, TokenRatio: 1}, "fsf", []int{1, 1, 1}},
		{grpcretry.Throttle{MaxTokens: 2, TokenRatio: 1}, "fsf", []int{1, 1, 1}},
		{grpcretry.Throttle{MaxTokens: 3, TokenRatio: 1000}, "fsf", []int{2, 1, 2}},
		{grpcretry.Throttle{MaxTokens: 1000, TokenRatio: 0.001}, "ff", []int{4, 4}},
		{grpcretry.Throttle{MaxTokens: 4, TokenRatio: 0.001}, "nnnf", []int{1, 1, 1, 2}},
		{grpcretry.Throttle{MaxTokens: 4, TokenRatio: 0.001}, "pf", []int{1, 1}},
	} {
		t.Run(fmt.Sprintf("%v %s", row.throttle, row.calls), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, grpcretry.Policy{MaxAttempts: 4, Repeat: grpcretry.RepeatAlways}, grpcretry.WithThrottle(row.throttle))
				native := testv1.NewTestServiceClient(r.server.Dial(grpc.WithDefaultServiceConfig(throttledConfig(row.throttle))))
				for _, client := range []testv1.TestServiceClient{r, native} {
					var got []int
					for _, call := range row.calls {
						before := len(r.server.Attempts())
						r.server.Script(read, steps[call]...)
						_, err := client.Read(t.Context(), &testv1.Request{})
						attempts := len(r.server.Attempts()) - before
						assert.Equal(t, call == 's' || call < 'a' && attempts == 1+int(call-'0'), err == nil)
						got = append(got, attempts)
					}
					assert.Equal(t, row.want, got)
				}
			})
		})
	}
}

// TestThrottleSharesItsBudget holds that unary calls and streams of all policies use
// one budget, and what a call says that it refuses.
func TestThrottleSharesItsBudget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{MaxAttempts: 4}, grpcretry.WithThrottle(grpcretry.Throttle{MaxTokens: 8, TokenRatio: 1}),
			grpcretry.WithMethodPolicy(upload, grpcretry.Policy{MaxAttempts: 3}))
		r.server.Script("", busy.Forever())
		_, _, err := callUpload(t.Context(), r)
		require.ErrorIs(t, err, grpcretry.ErrExhausted)
		_, err = r.call(t.Context(), read)
		require.ErrorIs(t, err, grpcretry.ErrThrottled)
		assert.Equal(t, codes.Unavailable, status.Code(err))
		assert.EqualError(t, err, "rpc error: code = Unavailable desc = busy (1 attempt, 0s: retries are throttled)")
		_, _, err = callDownload(t.Context(), r)
		require.ErrorIs(t, err, grpcretry.ErrThrottled)
		r.server.Script("")
		for range 3 {
			_, _, err = callDownload(t.Context(), r)
			require.NoError(t, err)
			_, err = r.call(t.Context(), read)
			require.NoError(t, err)
		}
		r.server.Script(read, busy)
		_, err = r.call(t.Context(), read)
		require.NoError(t, err, "there is a budget again")
	})
}

// TestThrottleChargesServers holds that failures of this side cost nothing, nor a call
// that is sent again without being counted.
func TestThrottleChargesServers(t *testing.T) {
	t.Parallel()
	server, err := rawh2.Start()
	require.NoError(t, err)
	defer server.Close()
	retrier, err := grpcretry.New(grpcretry.WithThrottle(grpcretry.Throttle{MaxTokens: 3, TokenRatio: 0.001}),
		grpcretry.WithPolicy(grpcretry.Policy{Codes: []codes.Code{codes.Internal, codes.Unavailable}, Backoff: grpcretry.Backoff{Initial: -1}}))
	require.NoError(t, err)
	conn, err := grpc.NewClient(server.Target(), append(retrier.DialOptions(), server.DialOptions()...)...)
	require.NoError(t, err)
	defer conn.Close()
	client := testv1.NewTestServiceClient(conn)
	for range 5 {
		_, err := client.Read(t.Context(), &testv1.Request{}, grpc.UseCompressor("none of these"))
		require.Equal(t, codes.Internal, status.Code(err))
		server.Script(rawh2.Reset(http2.ErrCodeRefusedStream), rawh2.OK(nil))
		_, err = client.Read(t.Context(), &testv1.Request{})
		require.NoError(t, err)
	}
	unavailable := rawh2.Trailers("grpc-status", "14").AtHeaders()
	server.Script(unavailable, rawh2.OK(nil))
	_, err = client.Read(t.Context(), &testv1.Request{})
	require.NoError(t, err)
	server.Script(unavailable, rawh2.OK(nil))
	_, err = client.Read(t.Context(), &testv1.Request{})
	require.ErrorIs(t, err, grpcretry.ErrThrottled)
}

// TestThrottleStaysWithinItsBounds uses a budget from many goroutines.
func TestThrottleStaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	budget := grpcretry.NewBudget(grpcretry.Throttle{MaxTokens: 3, TokenRatio: 0.7})
	for _, failing := range []int{0, 2, 4} { // of 4
		var users sync.WaitGroup
		for user := range 4 {
			users.Go(func() {
				for range 10_000 {
					if user < failing {
						budget.Failed()
					} else {
						budget.Succeeded()
					}
				}
			})
		}
		users.Wait()
		tokens := budget.Tokens()
		assert.True(t, 0 <= tokens && tokens <= 3000, "%d", tokens)
		switch failing {
		case 0:
			assert.EqualValues(t, 3000, tokens)
		case 4:
			assert.Zero(t, tokens)
		}
	}
}

func TestThrottleRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		throttle grpcretry.Throttle
		err      string
	}{
		{grpcretry.Throttle{}, "grpcretry: WithThrottle: MaxTokens is 0; it must be above 0 and at most 1000\nTokenRatio is 0; it must be a number of at least 0.001"},
		{grpcretry.Throttle{MaxTokens: 1001, TokenRatio: 1}, "MaxTokens is 1001"},
		{grpcretry.Throttle{MaxTokens: math.NaN(), TokenRatio: math.NaN()}, "MaxTokens is NaN"},
		{grpcretry.Throttle{MaxTokens: 1, TokenRatio: math.Inf(1)}, "TokenRatio is +Inf"},
		{grpcretry.Throttle{MaxTokens: 1, TokenRatio: 0.0009}, "TokenRatio is 0.0009"},
	} {
		_, err := grpcretry.New(grpcretry.WithThrottle(row.throttle))
		assert.ErrorContains(t, err, row.err)
	}
	r, err := grpcretry.New()
	require.NoError(t, err)
	assert.EqualError(t, r.Update(grpcretry.WithThrottle(grpcretry.Throttle{MaxTokens: 1, TokenRatio: 1})),
		"grpcretry: WithThrottle: only policies can be updated")
}

// BenchmarkThrottle is the cost of a success with a budget that is full, and of a failure
// and a success, alone and on all processors at once.
func BenchmarkThrottle(b *testing.B) {
	for name, use := range map[string]func(grpcretry.Budget){
		"full":   grpcretry.Budget.Succeeded,
		"in use": func(budget grpcretry.Budget) { budget.Failed(); budget.Succeeded() },
	} {
		budget := grpcretry.NewBudget(grpcretry.Throttle{MaxTokens: 1000, TokenRatio: 1})
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				use(budget)
			}
		})
		b.Run(name+", contended", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					use(budget)
				}
			})
		})
	}
}
