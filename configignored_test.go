// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/testserver"
)

// serviceEntry is a config with one entry of methodConfig for what name says.
func serviceEntry(name, fields string) string {
	return `{"methodConfig":[{"name":` + name + `,` + fields + `}]}`
}

// TestIgnoredByGRPC shows that channels ignore or misread what the check says that they
// do: each call meets a server that is busy, and would be made three times if all of its
// config were in effect.
func TestIgnoredByGRPC(t *testing.T) {
	t.Parallel()
	const test = "grpcretry.test.v1.TestService"
	once := outcome{attempts: 1, previous: []int{-1}, code: codes.Unavailable}
	five := outcome{attempts: 5, previous: []int{-1, 1, 2, 3, 4}, code: codes.Unavailable}
	three := outcome{attempts: 3, previous: []int{-1, 1, 2}, code: codes.Unavailable}
	for name, row := range map[string]struct {
		config string
		want   outcome
	}{
		"a config of nothing":       {config: "null", want: once},
		"an unknown key":            {config: configEntry(`"retry_policy":` + configPolicy()[len(`"retryPolicy":`):]), want: once},
		"outside methodConfig":      {config: `{` + configPolicy() + `}`, want: once},
		"hedging":                   {config: configEntry(`"hedgingPolicy":{"maxAttempts":3}`), want: once},
		"hedging beside retry":      {config: configEntry(`"hedgingPolicy":{"maxAttempts":5},` + configPolicy()), want: three},
		"other letter case":         {config: configEntry(`"RETRYPOLICY":` + configPolicy()[len(`"retryPolicy":`):]), want: three},
		"a key twice":               {config: configEntry(configPolicy() + `,"retryPolicy":null`), want: once},
		"merged of a key twice":     {config: configEntry(configPolicy("maxAttempts", "5") + `,"retryPolicy":{"maxAttempts":3}`), want: three},
		"no name":                   {config: `{"methodConfig":[{` + configPolicy() + `}]}`, want: once},
		"name is null":              {config: serviceEntry(`null`, configPolicy()), want: once},
		"an empty name":             {config: serviceEntry(`[]`, configPolicy()), want: once},
		"a name of null":            {config: serviceEntry(`[null]`, configPolicy()), want: three},
		"a policy of null":          {config: configEntry(`"retryPolicy":null`), want: once},
		"a slash in front":          {config: serviceEntry(`[{"service":"/`+test+`"}]`, configPolicy()), want: once},
		"the method in the service": {config: serviceEntry(`[{"service":"`+test+`/Read"}]`, configPolicy()), want: once},
		"a slash before the method": {config: serviceEntry(`[{"service":"`+test+`","method":"/Read"}]`, configPolicy()), want: once},
		"a package":                 {config: serviceEntry(`[{"service":"grpcretry.test.v1"}]`, configPolicy()), want: once},
		"a pattern":                 {config: serviceEntry(`[{"service":"*"}]`, configPolicy()), want: once},
		"space around":              {config: serviceEntry(`[{"service":"`+test+` "}]`, configPolicy()), want: once},
		"service in letter case":    {config: serviceEntry(`[{"service":"grpcretry.test.v1.testservice"}]`, configPolicy()), want: once},
		"method in letter case":     {config: serviceEntry(`[{"service":"`+test+`","method":"read"}]`, configPolicy()), want: once},
		"more than five":            {config: configWith("maxAttempts", "9"), want: five},
		"the code OK":               {config: configWith("retryableStatusCodes", `["OK"]`), want: once},
		"a code of null":            {config: configWith("retryableStatusCodes", `[null]`), want: once},
		"a code by number":          {config: configWith("retryableStatusCodes", `[14]`), want: three},
		"a negative timeout":        {config: configEntry(`"timeout":"-1s",` + configPolicy()), want: three},
		"a timeout of zero":         {config: configEntry(`"timeout":"0s",` + configPolicy()), want: outcome{code: codes.DeadlineExceeded}},
		"a timeout in another form": {config: configEntry(`"timeout":".5s",` + configPolicy()), want: three},
		"a negative size":           {config: configEntry(`"maxRequestMessageBytes":-1,` + configPolicy()), want: outcome{code: codes.ResourceExhausted}},
		"throttling that is not validated": {
			config: `{"retryThrottling":{"maxTokens":-1,"tokenRatio":-1}}`, want: once,
		},
		"an unknown balancer": {config: `{"loadBalancingPolicy":"none",` + configWith()[1:], want: three},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NotEmpty(t, grpcretry.CheckServiceConfig(row.config))
			synctest.Test(t, func(t *testing.T) {
				s := story{script: []testserver.Step{busy.Forever()}}
				got := s.tell(t, grpc.WithDefaultServiceConfig(row.config))
				if row.want.attempts == 0 {
					got.attempts, got.previous = 0, nil // whether it reaches the server is a race
				}
				assert.Equal(t, row.want, got)
			})
		})
	}
}

// TestMisreadWaits shows what becomes of waits that a config sets in a strange way.
func TestMisreadWaits(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		config   string
		from, to time.Duration
	}{
		"initialBackoff over maxBackoff": {
			configWith("initialBackoff", `"100s"`, "maxBackoff", `"1s"`), 1600 * time.Millisecond, 2400 * time.Millisecond,
		},
		"backoffMultiplier below 1": {
			configWith("initialBackoff", `"1s"`, "backoffMultiplier", "0.1"), 880 * time.Millisecond, 1320 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Len(t, grpcretry.CheckServiceConfig(row.config), 1)
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				s := story{script: []testserver.Step{busy.Forever()}}
				assert.Equal(t, 3, s.tell(t, grpc.WithDefaultServiceConfig(row.config)).attempts)
				took := time.Since(began)
				assert.GreaterOrEqual(t, took, row.from)
				assert.LessOrEqual(t, took, row.to)
			})
		})
	}
}
