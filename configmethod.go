// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// methods checks methodConfig.
func (c *configCheck) methods(at place) {
	if !at.array() {
		c.refuse(at, "it must be an array", "write [{…}]")
		return
	}
	for _, entry := range at.elements() {
		if c.full() {
			return
		}
		if entry.null() {
			c.warn(entry, "null is an entry without name, which applies to no method", "leave it out")
			continue
		}
		c.method(entry)
	}
	c.serviceStreams()
}

// method checks an entry of methodConfig.
func (c *configCheck) method(at place) {
	fields, ok := c.object(at, methodLevel)
	if !ok {
		return
	}
	names, named := fields["name"]
	named = named && !names.null()
	c.validated = named // without a name gRPC does not look at the policy
	switch {
	case !named && names.null():
		c.warn(names, "an entry whose name is null applies to no method, and is not validated",
			"write [{}] for all methods")
	case !named:
		c.warn(at, "an entry without name applies to no method, and is not validated",
			`add "name": [{}] for all methods`)
	default:
		policy, retried := fields["retryPolicy"]
		c.entryNames(names, retried && policy.object())
	}
	if wait, ok := c.optional(fields, "waitForReady"); ok && wait.text != "true" && wait.text != "false" {
		c.refuse(wait, "it must be a boolean", "write true or false without quotes")
	}
	if timeout, ok := c.optional(fields, "timeout"); ok {
		c.timeout(timeout)
	}
	for _, key := range []string{"maxRequestMessageBytes", "maxResponseMessageBytes"} {
		if size, ok := c.optional(fields, key); ok {
			c.size(size)
		}
	}
	if policy, ok := c.optional(fields, "retryPolicy"); ok {
		c.retryPolicy(policy)
	}
}

// timeout checks the timeout of a method.
func (c *configCheck) timeout(at place) {
	timeout, ok := c.duration(at)
	switch {
	case !ok:
	case timeout == 0:
		c.block(at, "each call fails at once with DEADLINE_EXCEEDED", "leave it out for no timeout")
	case timeout < 0:
		c.warn(at, "a negative timeout is ignored", "leave it out for no timeout")
	}
}

// size checks the largest size of a message.
func (c *configCheck) size(at place) {
	size, ok := c.integer(at, 64)
	switch {
	case !ok:
	case size < 0:
		c.warn(at, "no message is that small, so each call fails with RESOURCE_EXHAUSTED", "leave it out for no limit")
	case size == 0:
		c.warn(at, "each message that is not empty fails with RESOURCE_EXHAUSTED", "leave it out for no limit")
	}
}

// integer returns an integer as encoding/json reads it, which takes neither fractions
// nor exponents, be the number whole or not.
func (c *configCheck) integer(at place, bits int) (int64, bool) {
	if n, err := strconv.ParseInt(at.text, 10, bits); at.number() && err == nil {
		return n, true
	}
	meant := strings.Trim(at.text, `"`) // in quotes is how protobuf's JSON has it, and Go has not
	remedy := "write a whole number"
	f, err := strconv.ParseFloat(meant, 64)
	if err == nil && len(meant) <= maxExcerpt && f == math.Trunc(f) && math.Abs(f) < 1e15 {
		remedy = fmt.Sprintf("write %.0f", f)
	}
	reason := fmt.Sprintf("grpc-go takes only a whole number of %d bits, without quotes, point and exponent", bits)
	c.refuse(at, reason, remedy)
	return 0, false
}

// float returns a number as encoding/json reads it.
func (c *configCheck) float(at place) (float64, bool) {
	f, err := strconv.ParseFloat(at.text, 64)
	switch {
	case at.number() && err == nil:
		return f, true
	case at.number():
		c.refuse(at, "the number is too large", "write a smaller one")
	default:
		c.refuse(at, "it must be a number", "write a number without quotes")
	}
	return 0, false
}

// word returns a string.
func (c *configCheck) word(at place) (string, bool) {
	if !at.quoted() {
		c.refuse(at, "it must be a string", `write "…"`)
		return "", false
	}
	return at.string(), true
}
