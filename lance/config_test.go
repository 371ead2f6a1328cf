// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package lance

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// clear unsets the environment, whatever the test runs in.
func clearVariables(t *testing.T) {
	t.Helper()
	for _, variable := range []string{
		retriesVariable, connectRetriesVariable, readRetriesVariable, backoffFactorVariable, backoffJitterVariable, statusesVariable,
	} {
		t.Setenv(variable, "")
	}
}

func defaults() config {
	return config{
		limits: limits{3, 3, 3}, factor: 250 * time.Millisecond, jitter: 250 * time.Millisecond,
		statuses: []int{409, 429, 500, 502, 503, 504},
	}
}

// TestPrecedence: what is explicit beats the environment, and that the default, each
// field by itself.
func TestPrecedence(t *testing.T) {
	clearVariables(t)
	got, err := RetryConfig{}.resolve()
	require.NoError(t, err)
	assert.Equal(t, defaults(), got)

	for _, row := range []struct {
		variable, value string
		explicit        RetryConfig
		byEnvironment   func(*config)
		byExplicit      func(*config)
	}{
		{
			"LANCE_CLIENT_MAX_RETRIES", "7",
			RetryConfig{Retries: new(0)},
			func(c *config) { c.request = 7 }, func(c *config) { c.request = 0 },
		},
		{
			"LANCE_CLIENT_CONNECT_RETRIES", "0",
			RetryConfig{ConnectRetries: new(255)},
			func(c *config) { c.connect = 0 }, func(c *config) { c.connect = 255 },
		},
		{
			"LANCE_CLIENT_READ_RETRIES", "255",
			RetryConfig{ReadRetries: new(1)},
			func(c *config) { c.read = 255 }, func(c *config) { c.read = 1 },
		},
		{
			"LANCE_CLIENT_RETRY_BACKOFF_FACTOR", "0.5",
			RetryConfig{BackoffFactor: new(time.Duration(0))},
			func(c *config) { c.factor = 500 * time.Millisecond }, func(c *config) { c.factor = 0 },
		},
		{
			"LANCE_CLIENT_RETRY_BACKOFF_JITTER", "1e-3",
			RetryConfig{BackoffJitter: new(time.Hour)},
			func(c *config) { c.jitter = time.Millisecond }, func(c *config) { c.jitter = time.Hour },
		},
		{
			"LANCE_CLIENT_RETRY_STATUSES", "418, 500",
			RetryConfig{Statuses: []int{}},
			func(c *config) { c.statuses = []int{418, 500} }, func(c *config) { c.statuses = []int{} },
		},
	} {
		t.Run(row.variable, func(t *testing.T) {
			clearVariables(t)
			t.Setenv(row.variable, row.value)
			want := defaults()
			row.byEnvironment(&want)
			got, err := RetryConfig{}.resolve()
			require.NoError(t, err)
			assert.Equal(t, want, got)

			want = defaults()
			row.byExplicit(&want)
			for _, value := range []string{row.value, "garbage"} {
				t.Setenv(row.variable, value)
				got, err = row.explicit.resolve()
				require.NoError(t, err)
				assert.Equal(t, want, got, "nobody asks the environment")
			}
		})
	}
}

// TestGarbage: a variable that cannot be used is an error with its name and its value.
func TestGarbage(t *testing.T) {
	const (
		notCount    = `; it must be a number from 0 to 255`
		notSeconds  = `; it must be a decimal number of seconds from 1e-9 to 9e9, or 0`
		notStatuses = `; it must be statuses with commas between them`
	)
	for _, row := range []struct{ variable, value, message string }{
		{retriesVariable, "abc", notCount},
		{retriesVariable, "-1", notCount},
		{retriesVariable, "256", notCount},
		{retriesVariable, "3.0", notCount},
		{retriesVariable, " 3", notCount},
		{connectRetriesVariable, "99999999999999999999", notCount},
		{readRetriesVariable, "0x3", notCount},
		{backoffFactorVariable, "abc", notSeconds},
		{backoffFactorVariable, "-0.1", notSeconds},
		{backoffFactorVariable, "NaN", notSeconds},
		{backoffFactorVariable, "Inf", notSeconds},
		{backoffFactorVariable, "1e300", notSeconds},
		{backoffFactorVariable, "250ms", notSeconds},
		{backoffJitterVariable, "-Inf", notSeconds},
		{backoffFactorVariable, "0x1p-2", notSeconds},
		{backoffFactorVariable, "1_0", notSeconds},
		{backoffFactorVariable, "1e-400", notSeconds},
		{backoffFactorVariable, "9.1e9", notSeconds},
		{statusesVariable, "abc", notStatuses},
		{statusesVariable, "500,", notStatuses},
		{statusesVariable, "500;503", notStatuses},
		{statusesVariable, ",", notStatuses},
		{statusesVariable, "+500", notStatuses},
		{statusesVariable, "-500", notStatuses},
	} {
		t.Run(row.variable+"="+row.value, func(t *testing.T) {
			clearVariables(t)
			t.Setenv(row.variable, row.value)
			_, err := DialOptions(RetryConfig{})
			require.ErrorContains(t, err, "lance: "+row.variable+` is "`+row.value+`"`+row.message)
		})
	}
	for _, status := range []string{"99", "1000", "200", "399", "600", "0"} {
		clearVariables(t)
		t.Setenv(statusesVariable, "500,"+status)
		_, err := DialOptions(RetryConfig{})
		require.EqualError(t, err, "lance: "+statusesVariable+" is \"500,"+status+
			"\"; a status of a failure is from 400 to 599, which "+status+" is not")
	}
	clearVariables(t)
	_, err := DialOptions(RetryConfig{
		Retries: new(-1), ConnectRetries: new(256), ReadRetries: new(math.MinInt),
		BackoffFactor: new(-time.Nanosecond), BackoffJitter: new(time.Duration(math.MinInt64)), Statuses: []int{500, 200},
	})
	require.EqualError(t, err, "lance: RetryConfig.Retries is -1; it must be from 0 to 255\n"+
		"RetryConfig.ConnectRetries is 256; it must be from 0 to 255\n"+
		"RetryConfig.ReadRetries is -9223372036854775808; it must be from 0 to 255\n"+
		"RetryConfig.BackoffFactor is -1ns; it must not be negative\n"+
		"RetryConfig.BackoffJitter is -2562047h47m16.854775808s; it must not be negative\n"+
		"RetryConfig.Statuses[1] is 200; a status of a failure is from 400 to 599")
}

// TestSeconds: seconds are exact to the nanosecond.
func TestSeconds(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"0": 0, "0.0": 0, "1.001": 1001 * time.Millisecond, "1e-9": 1, ".25": 250 * time.Millisecond, "9e9": 9e18, "3": 3 * time.Second,
	} {
		clearVariables(t)
		t.Setenv(backoffFactorVariable, value)
		got, err := RetryConfig{}.resolve()
		require.NoError(t, err, value)
		assert.Equal(t, want, got.factor, value)
	}
}

// TestReadOnce: the environment is read when the options are made, and not again.
func TestReadOnce(t *testing.T) {
	clearVariables(t)
	t.Setenv(retriesVariable, "7")
	s, err := newSuite(RetryConfig{}, nil)
	require.NoError(t, err)
	t.Setenv(retriesVariable, "garbage")
	assert.Equal(t, 7, s.policy(true).MaxAttempts)
}

// TestConfigIsCopied: what the config was made of may change afterwards.
func TestConfigIsCopied(t *testing.T) {
	clearVariables(t)
	retries, statuses := 5, []int{500}
	got, err := RetryConfig{Retries: &retries, Statuses: statuses}.resolve()
	require.NoError(t, err)
	retries, statuses[0] = 1, 404
	assert.Equal(t, 5, got.request)
	assert.Equal(t, []int{500}, got.statuses)
}

// TestWaits: factor × 2^n and the jitter, n = 0 for the first, whatever the numbers.
func TestWaits(t *testing.T) {
	t.Parallel()
	c := defaults()
	for i, n := range []int{1, 2, 4, 8, 16} {
		want := time.Duration(n) * 250 * time.Millisecond
		assert.Equal(t, want, c.wait(i+1, 0))
		assert.Equal(t, want+125*time.Millisecond, c.wait(i+1, 0.5))
		assert.InDelta(t, want+250*time.Millisecond, c.wait(i+1, math.Nextafter(1, 0)), 1)
	}
	c.factor, c.jitter = 0, 0
	assert.Zero(t, c.wait(255, 0.9))
	c.factor = math.MaxInt64
	assert.Equal(t, time.Duration(math.MaxInt64), c.wait(1, 0))
	assert.Equal(t, time.Duration(math.MaxInt64), c.wait(255, 0.9))
	c.jitter = math.MaxInt64
	assert.Equal(t, time.Duration(math.MaxInt64), c.wait(255, 0.9))
}
