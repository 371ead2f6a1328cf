// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package lance

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RetryConfig is LanceDB's. Every field is optional: nil means what the environment says,
// and if that says nothing, the default. An environment variable that is empty says
// nothing.
type RetryConfig struct {
	// Retries is how many failures of all kinds end the call, so that it is the largest
	// number of attempts: 3 are 3 attempts, 0 and 1 are one. The environment has it as
	// LANCE_CLIENT_MAX_RETRIES. The default is 3, and 255 is the most.
	Retries *int

	// ConnectRetries is how many failures to reach the server end the call, within
	// Retries; 0 and 1 are one. The environment has it as LANCE_CLIENT_CONNECT_RETRIES.
	// The default is 3, and 255 is the most.
	ConnectRetries *int

	// ReadRetries is how many attempts without an answer end the call, within Retries; 0
	// and 1 are one: connections that broke, attempts that took too long, and proxies
	// that answered. Of a write the first one ends the call. The environment has it as
	// LANCE_CLIENT_READ_RETRIES. The default is 3, and 255 is the most.
	ReadRetries *int

	// BackoffFactor is the wait after the first failure; it doubles with each. The
	// environment has it as LANCE_CLIENT_RETRY_BACKOFF_FACTOR, in seconds. The default is
	// 250 ms.
	BackoffFactor *time.Duration

	// BackoffJitter is what a wait is longer by at most, at random. The environment has
	// it as LANCE_CLIENT_RETRY_BACKOFF_JITTER, in seconds. The default is 250 ms.
	BackoffJitter *time.Duration

	// Statuses are the statuses of HTTP that are retried, from 400 to 599; the
	// documentation of the package has the codes of gRPC that they stand for. One that no
	// code stands for is found in texts alone. Nil means what the environment says, and
	// empty none. The environment has them as LANCE_CLIENT_RETRY_STATUSES, with commas
	// between them. The default is 409, 429, 500, 502, 503 and 504.
	Statuses []int
}

// Environment variables.
const (
	retriesVariable        = "LANCE_CLIENT_MAX_RETRIES"
	connectRetriesVariable = "LANCE_CLIENT_CONNECT_RETRIES"
	readRetriesVariable    = "LANCE_CLIENT_READ_RETRIES"
	backoffFactorVariable  = "LANCE_CLIENT_RETRY_BACKOFF_FACTOR"
	backoffJitterVariable  = "LANCE_CLIENT_RETRY_BACKOFF_JITTER"
	statusesVariable       = "LANCE_CLIENT_RETRY_STATUSES"
)

// Defaults of [RetryConfig].
const (
	defaultRetries = 3
	defaultBackoff = 250 * time.Millisecond
	mostRetries    = math.MaxUint8 // LanceDB counts in as many bits
)

func defaultStatuses() []int { return []int{409, 429, 500, 502, 503, 504} }

// limits are the numbers of failures that end a call.
type limits struct{ request, connect, read int }

// config is a RetryConfig in which everything is said.
type config struct {
	limits

	factor, jitter time.Duration
	statuses       []int
}

// resolve reads the environment for what the config does not say. The error names every
// field or variable at fault, with its value.
func (c RetryConfig) resolve() (config, error) {
	var problems []error
	note := func(err error) {
		problems = append(problems, err)
	}
	resolved := config{
		limits: limits{
			request: count("Retries", c.Retries, retriesVariable, note),
			connect: count("ConnectRetries", c.ConnectRetries, connectRetriesVariable, note),
			read:    count("ReadRetries", c.ReadRetries, readRetriesVariable, note),
		},
		factor:   length("BackoffFactor", c.BackoffFactor, backoffFactorVariable, note),
		jitter:   length("BackoffJitter", c.BackoffJitter, backoffJitterVariable, note),
		statuses: slices.Clone(c.Statuses),
	}
	if c.Statuses == nil {
		var err error
		resolved.statuses, err = parseStatuses(os.Getenv(statusesVariable))
		note(err)
	}
	for i, status := range c.Statuses {
		if status < lowestStatus || status > highestStatus {
			note(fmt.Errorf("RetryConfig.Statuses[%d] is %d; a status of a failure is from %d to %d",
				i, status, lowestStatus, highestStatus))
			break // of many one is enough
		}
	}
	if err := errors.Join(problems...); err != nil {
		return config{}, err
	}
	return resolved, nil
}

// count returns a number of retries.
func count(field string, explicit *int, variable string, note func(error)) int {
	switch value := os.Getenv(variable); {
	case explicit != nil && (*explicit < 0 || *explicit > mostRetries):
		note(fmt.Errorf("RetryConfig.%s is %d; it must be from 0 to %d", field, *explicit, mostRetries))
	case explicit != nil:
		return *explicit
	case value != "":
		n, err := strconv.ParseUint(value, 10, 8)
		if err != nil {
			note(fmt.Errorf("%s is %.100q; it must be a number from 0 to %d", variable, value, mostRetries))
		}
		return int(n)
	}
	return defaultRetries
}

// length returns a time.
func length(field string, explicit *time.Duration, variable string, note func(error)) time.Duration {
	switch value := os.Getenv(variable); {
	case explicit != nil && *explicit < 0:
		note(fmt.Errorf("RetryConfig.%s is %v; it must not be negative", field, *explicit))
	case explicit != nil:
		return *explicit
	case value != "":
		d, ok := parseSeconds(value)
		if !ok {
			note(fmt.Errorf("%s is %.100q; it must be a decimal number of seconds from 1e-9 to 9e9, or 0", variable, value))
		}
		return d
	}
	return defaultBackoff
}

// parseSeconds reads a decimal number of seconds.
func parseSeconds(value string) (time.Duration, bool) {
	const most = 9e9
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil || strings.ContainsAny(value, "xX_") || !(seconds >= 0 && seconds <= most) {
		return 0, false
	}
	mantissa, _, _ := strings.Cut(strings.ToLower(value), "e")
	d := time.Duration(math.Round(seconds * float64(time.Second)))
	return d, d > 0 || !strings.ContainsAny(mantissa, "123456789")
}

// parseStatuses reads statuses with commas between them.
func parseStatuses(value string) ([]int, error) {
	if value == "" {
		return defaultStatuses(), nil
	}
	var statuses []int
	for part := range strings.SplitSeq(value, ",") {
		status, err := strconv.ParseUint(strings.Trim(part, " "), 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%s is %.100q; it must be statuses with commas between them, which %.20q is none of",
				statusesVariable, value, part)
		}
		if status < lowestStatus || status > highestStatus {
			return nil, fmt.Errorf("%s is %.100q; a status of a failure is from %d to %d, which %d is not",
				statusesVariable, value, lowestStatus, highestStatus, status)
		}
		statuses = append(statuses, int(status))
	}
	return statuses, nil
}

// wait returns how long to wait after so many failures, at least one, for a random
// number in [0, 1).
func (c config) wait(failures int, random float64) time.Duration {
	wait := float64(c.factor)*math.Pow(2, float64(failures-1)) + random*float64(c.jitter)
	if wait >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(wait)
}
