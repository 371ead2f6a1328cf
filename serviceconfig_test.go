// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// teamConfig is what a team may have today.
const teamConfig = `{
	"loadBalancingConfig": [{"round_robin": {}}],
	"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
	"methodConfig": [
		{"name": [{}], "timeout": "30s", "waitForReady": true},
		{
			"name": [{"service": "grpcretry.test.v1.TestService"}],
			"timeout": "1.5s", "maxRequestMessageBytes": 100,
			"retryPolicy": {
				"maxAttempts": 9, "initialBackoff": ".25s", "maxBackoff": "2s", "backoffMultiplier": 1.5,
				"retryableStatusCodes": ["UNAVAILABLE", "ABORTED", 0]
			}
		},
		{"name": [{"service": "grpcretry.test.v1.TestService", "method": "Write"}]}
	]
}`

// TestWithServiceConfig holds what becomes of a config: policies, a budget, and what is
// left to gRPC.
func TestWithServiceConfig(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, grpcretry.Policy{MaxAttempts: 7}, grpcretry.WithServiceConfig(teamConfig))
		p := r.retrier.Policy(read)
		assert.Equal(t, 5, p.MaxAttempts, "gRPC's own limit")
		assert.Equal(t, 1500*time.Millisecond, p.Timeout)
		assert.Equal(t, []codes.Code{codes.Unavailable, codes.Aborted}, p.Codes)
		assert.Equal(t, grpcretry.RepeatAlways, p.Repeat)
		assert.Equal(t, grpcretry.Backoff{Initial: 250 * time.Millisecond, Max: 2 * time.Second, Multiplier: 1.5, Jitter: 0.2}, p.Backoff)
		p = r.retrier.Policy(write)
		assert.Equal(t, 1, p.MaxAttempts)
		assert.Zero(t, p.Timeout, "elements are not merged")
		p = r.retrier.Policy("other.Service/Do")
		assert.Equal(t, 1, p.MaxAttempts, "the config says so of all others")
		assert.Equal(t, 30*time.Second, p.Timeout)

		r.server.Script("", busy.Forever())
		_, err := r.call(t.Context(), write)
		assert.Equal(t, codes.Unavailable, status.Code(err))
		assert.Len(t, r.server.Attempts(), 1)
		_, err = r.call(t.Context(), read)
		require.ErrorIs(t, err, grpcretry.ErrDeadline)
		assert.Len(t, r.server.Attempts(), 1+4)
		_, err = r.call(t.Context(), put)
		require.ErrorIs(t, err, grpcretry.ErrThrottled, "half of the ten tokens are gone")
		assert.Greater(t, r.server.Attempts()[4].Deadline.Sub(r.server.Attempts()[1].Start), 1400*time.Millisecond, "the timeout is the call's")
		_, err = r.Read(t.Context(), &testv1.Request{Payload: make([]byte, 200)})
		assert.Equal(t, codes.ResourceExhausted, status.Code(err), "sizes are gRPC's affair")

		require.NoError(t, r.retrier.Update(grpcretry.WithPolicy(grpcretry.Policy{MaxAttempts: 2})))
		assert.Equal(t, 1500*time.Millisecond, r.retrier.Policy(read).Timeout, "the config is still there")
		assert.Equal(t, 2, r.retrier.Policy(read).MaxAttempts)
	})
}

// TestWithServiceConfigOfTimeouts: a config that says nothing of retries sets timeouts,
// and is no reason not to retry.
func TestWithServiceConfigOfTimeouts(t *testing.T) {
	t.Parallel()
	const config = `{"methodConfig":[{"name":[{"service":"a.B","method":"C"}],"timeout":"1s"},{"name":[{}],"timeout":"9s"}]}`
	r, err := grpcretry.New(
		grpcretry.WithServiceConfig(config),
		grpcretry.WithMethodPolicy("a.B", grpcretry.Policy{MaxAttempts: 4}),
		grpcretry.WithMethodPolicy("a.D", grpcretry.Policy{Timeout: time.Minute}),
	)
	require.NoError(t, err)
	for method, want := range map[string]grpcretry.Policy{
		"a.B/C": {MaxAttempts: 4, Timeout: time.Second},
		"a.B/X": {MaxAttempts: 4, Timeout: 9 * time.Second},
		"a.D/X": {MaxAttempts: 3, Timeout: time.Minute},
		"a.E/X": {MaxAttempts: 3, Timeout: 9 * time.Second},
	} {
		p := r.Policy(method)
		assert.Equal(t, want, grpcretry.Policy{MaxAttempts: p.MaxAttempts, Timeout: p.Timeout}, method)
	}
}

// TestServiceConfigOfPolicies holds the config that policies are for other clients.
func TestServiceConfigOfPolicies(t *testing.T) {
	t.Parallel()
	const service = "grpcretry.test.v1.TestService"
	always := grpcretry.Policy{Repeat: grpcretry.RepeatAlways}
	for _, row := range []struct {
		name    string
		options []grpcretry.Option
		want    string
	}{
		{"nothing", nil, `{}`},
		{"a default", []grpcretry.Option{grpcretry.WithPolicy(always)}, `{"methodConfig":[{"name":[{}],"retryPolicy":{
			"maxAttempts":3,"initialBackoff":"0.1s","maxBackoff":"5s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}}]}`},
		{"a service by its descriptors", []grpcretry.Option{grpcretry.WithMethodPolicy(service, grpcretry.Policy{
			MaxAttempts: 8, Timeout: 1234567890, Codes: []codes.Code{codes.Unavailable, codes.Canceled, codes.ResourceExhausted, codes.Unavailable},
			Backoff: grpcretry.Backoff{Initial: 1, Max: time.Hour, Multiplier: 1e21},
		})}, `{"methodConfig":[
			{"name":[{"service":"grpcretry.test.v1.TestService","method":"Download"},{"service":"grpcretry.test.v1.TestService","method":"Put"},
				{"service":"grpcretry.test.v1.TestService","method":"Read"}],"timeout":"1.23456789s","retryPolicy":{"maxAttempts":8,"initialBackoff":"0.001s",
				"maxBackoff":"3600s","backoffMultiplier":1000000000000000000000,"retryableStatusCodes":["CANCELLED","RESOURCE_EXHAUSTED","UNAVAILABLE"]}},
			{"name":[{"service":"grpcretry.test.v1.TestService"}],"timeout":"1.23456789s"}]}`},
		{
			"a method beside a default",
			[]grpcretry.Option{grpcretry.WithPolicy(always), grpcretry.WithMethodPolicy(write, grpcretry.Policy{MaxAttempts: 1})},
			`{"methodConfig":[
			{"name":[{"service":"grpcretry.test.v1.TestService","method":"Download"},{"service":"grpcretry.test.v1.TestService","method":"Put"},
				{"service":"grpcretry.test.v1.TestService","method":"Read"}],"retryPolicy":{
				"maxAttempts":3,"initialBackoff":"0.1s","maxBackoff":"5s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}},
			{"name":[{"service":"grpcretry.test.v1.TestService","method":"Write"}]},
			{"name":[{"service":"grpcretry.test.v1.TestService"}]},
			{"name":[{}],"retryPolicy":{
				"maxAttempts":3,"initialBackoff":"0.1s","maxBackoff":"5s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}}]}`,
		},
		{"services that are not linked", []grpcretry.Option{
			grpcretry.WithMethodPolicy("a.B", always), grpcretry.WithMethodPolicy("a.C", grpcretry.Policy{}), grpcretry.WithMethodPolicy("a.D/E", always),
		}, `{"methodConfig":[
			{"name":[{"service":"a.B"}],"retryPolicy":{"maxAttempts":3,"initialBackoff":"0.1s","maxBackoff":"5s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}},
			{"name":[{"service":"a.C"}]},
			{"name":[{"service":"a.D","method":"E"}],"retryPolicy":{"maxAttempts":3,"initialBackoff":"0.1s","maxBackoff":"5s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}},
			{"name":[{"service":"a.D"}]}]}`},
		{"methods that must not be retried in services that may", []grpcretry.Option{
			grpcretry.WithMethodPolicy("a.B", always), grpcretry.WithMethodPolicy("a.B/C", grpcretry.Policy{Repeat: grpcretry.RepeatNever, Timeout: time.Second}),
			grpcretry.WithMethodPolicy(service, grpcretry.Policy{MaxAttempts: 1, Timeout: time.Second}), grpcretry.WithMethodPolicy(write, grpcretry.Policy{Timeout: time.Minute}),
		}, `{"methodConfig":[
			{"name":[{"service":"a.B","method":"C"}],"timeout":"1s"},
			{"name":[{"service":"a.B"}],"retryPolicy":{"maxAttempts":3,"initialBackoff":"0.1s","maxBackoff":"5s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}},
			{"name":[{"service":"grpcretry.test.v1.TestService","method":"Write"}],"timeout":"60s"},
			{"name":[{"service":"grpcretry.test.v1.TestService"}],"timeout":"1s"}]}`},
		{"a timeout alone", []grpcretry.Option{grpcretry.WithPolicy(grpcretry.Policy{Timeout: time.Second})}, `{"methodConfig":[{"name":[{}],"timeout":"1s"}]}`},
		{"what gRPC has no form for", []grpcretry.Option{grpcretry.WithPolicy(grpcretry.Policy{Repeat: grpcretry.RepeatAlways, AttemptTimeout: time.Second})}, `{}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r, err := grpcretry.New(row.options...)
			require.NoError(t, err)
			assert.JSONEq(t, row.want, r.ServiceConfig())
			conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(r.ServiceConfig()))
			require.NoError(t, err)
			require.NoError(t, conn.Close())
		})
	}
	assert.Equal(t, "{}", new(grpcretry.Retrier).ServiceConfig())
}

// TestServiceConfigComesBack holds that a generated config means the same again.
func TestServiceConfigComesBack(t *testing.T) {
	t.Parallel()
	p := grpcretry.Policy{
		MaxAttempts: 4, Timeout: 7 * time.Second, Codes: []codes.Code{codes.Aborted}, Repeat: grpcretry.RepeatAlways,
		Backoff: grpcretry.Backoff{Initial: 3 * time.Millisecond, Max: time.Minute, Multiplier: 1.0625},
	}
	r, err := grpcretry.New(grpcretry.WithMethodPolicy(read, p), grpcretry.WithPolicy(p))
	require.NoError(t, err)
	again, err := grpcretry.New(grpcretry.WithServiceConfig(r.ServiceConfig()))
	require.NoError(t, err)
	for _, method := range []string{read, put, download, "other.Service/Do"} {
		assert.Equal(t, r.Policy(method), again.Policy(method), method)
	}
}

// TestChannelRetryKeepsTheRest holds the config of a connection whose user has one: what
// is given to the channel has all else that was said of it.
func TestChannelRetryKeepsTheRest(t *testing.T) {
	t.Parallel()
	r, err := grpcretry.New(grpcretry.WithServiceConfig(teamConfig), grpcretry.WithMethodPolicy(write, quick),
		grpcretry.WithMethodPolicy(write, grpcretry.Policy{MaxAttempts: 6, Repeat: grpcretry.RepeatAlways, Timeout: time.Second}),
		grpcretry.WithChannelRetry(read, write))
	require.NoError(t, err)
	var got, want any
	require.NoError(t, json.Unmarshal([]byte(grpcretry.ChannelConfig(r)), &got))
	require.NoError(t, json.Unmarshal([]byte(`{
		"loadBalancingConfig": [{"round_robin": {}}],
		"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
		"methodConfig": [
			{"name": [{}], "waitForReady": true},
			{"name": [{"service": "grpcretry.test.v1.TestService"}], "maxRequestMessageBytes": 100},
			{"name": [{"service": "grpcretry.test.v1.TestService", "method": "Read"}], "timeout": "1.5s", "maxRequestMessageBytes": 100, "retryPolicy": {
				"maxAttempts": 5, "initialBackoff": "0.25s", "maxBackoff": "2s", "backoffMultiplier": 1.5, "retryableStatusCodes": ["ABORTED", "UNAVAILABLE"]}},
			{"name": [{"service": "grpcretry.test.v1.TestService", "method": "Write"}], "timeout": "1s", "retryPolicy": {
				"maxAttempts": 6, "initialBackoff": "0.1s", "maxBackoff": "5s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}
		]}`), &want))
	assert.Equal(t, want, got)
	conn, err := grpc.NewClient("passthrough:///x", append(r.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

func TestWithServiceConfigRefuses(t *testing.T) {
	t.Parallel()
	const entry = `{"methodConfig":[{"name":[{"service":"a.B"}],%s}]}`
	for text, want := range map[string]string{ //nolint:gosec // the tokens are of a retry budget
		``:   "line 1: the config is empty",
		`[]`: "it must be an object",
		fmt.Sprintf(entry, `"retryPolicy":{"maxAttempts":1}`):                  "methodConfig[0].retryPolicy.maxAttempts is 1: ",
		fmt.Sprintf(entry, `"hedgingPolicy":{"maxAttempts":3}`):                "methodConfig[0].hedgingPolicy is ",
		fmt.Sprintf(entry, `"timeout":"0s"`):                                   "methodConfig[0].timeout is \"0s\": each call fails at once",
		fmt.Sprintf(entry, `"timeout":"1s","timeout":"2s"`):                    "there twice",
		`{"retryThrottling":{"maxTokens":0,"tokenRatio":1},"methodConfig":[]}`: "retryThrottling.maxTokens is 0",
	} {
		_, err := grpcretry.New(grpcretry.WithServiceConfig(text))
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "grpcretry: WithServiceConfig: ")
	}
	_, err := grpcretry.New(grpcretry.WithServiceConfig(`{"retryThrottling":{"maxTokens":2000,"tokenRatio":1}}`))
	assert.EqualError(t, err, "grpcretry: WithServiceConfig: retryThrottling: MaxTokens is 2000; it must be above 0 and at most 1000", "gRPC does not look")
	_, err = grpcretry.New(grpcretry.WithServiceConfig(`{"methodConfig":[{"name":[{"service":"/a.B"}],"retryPolicy":{"maxAttempts":2,` +
		`"initialBackoff":"1s","maxBackoff":"1s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`))
	assert.NoError(t, err, "what never matches does no harm; the check finds it")
}

func TestWithServiceConfigOnce(t *testing.T) {
	t.Parallel()
	_, err := grpcretry.New(grpcretry.WithServiceConfig(`{}`), grpcretry.WithServiceConfig(`{}`))
	assert.EqualError(t, err, "grpcretry: WithServiceConfig: there are two of them; make one of both")
	// gRPC does not look at an element without a name.
	r, err := grpcretry.New(grpcretry.WithServiceConfig(`{"methodConfig":[{"retryPolicy":{"maxAttempts":2,"initialBackoff":"1s","maxBackoff":"1s",` +
		`"backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}},{"name":[{"service":"a.B/C"}],"timeout":"1s"},{"name":[{}],"waitForReady":true}]}`))
	require.NoError(t, err)
	assert.Equal(t, 3, r.Policy("a.B/C").MaxAttempts)
	assert.Zero(t, r.Policy("a.B/C").Timeout, "a service has no slash in it, so that this matches nothing")
	r, err = grpcretry.New(grpcretry.WithChannelRetry(read))
	require.NoError(t, err)
	assert.ErrorContains(t, r.Update(grpcretry.WithMethodPolicy(read, quick)), "the channel has the method, and its policy cannot be updated")
}
