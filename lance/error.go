// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package lance

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
)

// RetryError is the error of a call that reached one of its limits. [status.Code] and the
// like see through it to the status of the last failure, which is unchanged. Every other
// call that fails has the error of the Retrier or of gRPC, as it is, and so has a write
// that had no answer, unless that was the last of RetryConfig.Retries.
type RetryError struct {
	// RequestID is the id of the last attempt.
	RequestID string
	// Requests, Connects and Reads are the failures of each kind, and their limits. The
	// limit of Requests is that of all kinds together.
	Requests, Connects, Reads Counter
	// Cause is the Retrier's error with the history of all attempts, or gRPC's if there
	// was one.
	Cause error
}

// Counter is how many failures of a kind there were, and how many end the call.
type Counter struct{ Failures, Limit int }

func (c Counter) String() string { return fmt.Sprintf("%d/%d", c.Failures, c.Limit) }

// Error implements error.
func (e *RetryError) Error() string {
	return fmt.Sprintf("Hit retry limit for request_id=%s "+
		"(request_failures=%v, connect_failures=%v, read_failures=%v): %v",
		e.RequestID, e.Requests, e.Connects, e.Reads, e.Cause)
}

// Unwrap returns the cause.
func (e *RetryError) Unwrap() error { return e.Cause }

// GRPCStatus returns the status of the cause. It is what [status.FromError] looks for.
func (e *RetryError) GRPCStatus() *status.Status { return status.Convert(e.Cause) }

// wrap is what the Retrier makes errors with.
func wrap(ctx context.Context, _ string, reason, err error) error {
	c := callOf(ctx)
	if c == nil || !errors.Is(reason, grpcretry.ErrExhausted) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hitLimit() {
		return err
	}
	return &RetryError{
		RequestID: c.id,
		Requests:  Counter{c.failures.request, c.suite.request},
		Connects:  Counter{c.failures.connect, c.suite.connect},
		Reads:     Counter{c.failures.read, c.suite.read},
		Cause:     err,
	}
}

// hitLimit tells whether a limit of the config's is reached, and not passed, as it may be
// under a call's own policy. A write that had no answer ends at once, which is none of
// them.
func (c *call) hitLimit() bool {
	f, l := c.failures, c.suite.limits
	return f.request+f.connect+f.read == max(l.request, 1) ||
		f.connect == max(l.connect, 1) ||
		c.read && f.read == max(l.read, 1)
}
