// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
)

// maxCallAttempts is the most attempts that gRPC makes by itself, unless a channel has
// grpc.WithMaxCallAttempts.
const maxCallAttempts = 5

// retryPolicy checks a retryPolicy, all of whose fields are required.
func (c *configCheck) retryPolicy(at place) {
	fields, ok := c.object(at, retryLevel)
	if !ok {
		return
	}
	if attempts, ok := c.required(at, fields, "maxAttempts"); ok {
		c.maxAttempts(attempts)
	}
	initial, hasInitial := c.backoff(at, fields, "initialBackoff")
	longest, hasLongest := c.backoff(at, fields, "maxBackoff")
	if hasInitial && hasLongest && initial > longest {
		c.warn(fields["initialBackoff"], fmt.Sprintf("it is over maxBackoff, so that each wait is %v", longest),
			"write no more than "+fields["maxBackoff"].text)
	}
	if multiplier, ok := c.required(at, fields, "backoffMultiplier"); ok {
		if m, ok := c.float(multiplier); ok && m <= 0 {
			c.invalid(multiplier, "it must be greater than 0", "write 2, or 1 for waits that stay as they are")
		} else if ok && m < 1 {
			c.warn(multiplier, "below 1 it makes each wait shorter than the one before", "write 2")
		}
	}
	if list, ok := c.required(at, fields, "retryableStatusCodes"); ok {
		c.codes(list)
	}
}

// required returns a field that has a value, and reports if there is none.
func (c *configCheck) required(at place, fields map[string]place, key string) (field place, ok bool) {
	field, ok = fields[key]
	switch {
	case !ok:
		c.invalid(at.absent(key), "it is missing, and each field of a retryPolicy is required", "add it")
	case field.null():
		c.invalid(field, "null counts as missing, and each field of a retryPolicy is required", "give it a value")
		return field, false
	}
	return field, ok
}

func (c *configCheck) maxAttempts(at place) {
	attempts, ok := c.integer(at, strconv.IntSize)
	switch {
	case !ok:
	case attempts < 2:
		c.invalid(at, "it must be 2 or more", "write 2 to 5, or leave out retryPolicy for no retry")
	case attempts > maxCallAttempts:
		c.warn(at, "gRPC makes 5 attempts at most", "write 5, or give the channel grpc.WithMaxCallAttempts too")
	}
}

// backoff returns a wait of a policy.
func (c *configCheck) backoff(at place, fields map[string]place, key string) (time.Duration, bool) {
	field, ok := fields[key]
	if ok && field.null() { // unlike other fields, a duration is asked to read it
		c.refuse(field, "null is no duration", `write seconds, like "0.1s"`)
		return 0, false
	}
	if field, ok = c.required(at, fields, key); !ok {
		return 0, false
	}
	wait, ok := c.duration(field)
	if ok && wait <= 0 {
		c.invalid(field, "it must be longer than 0", `write "0.001s" for next to no wait`)
		return 0, false
	}
	return wait, ok
}

// codes checks retryableStatusCodes.
func (c *configCheck) codes(at place) {
	if !at.array() {
		c.refuse(at, "it must be an array", `write ["UNAVAILABLE"]`)
		return
	}
	empty := true
	for _, element := range at.elements() {
		if c.full() {
			return
		}
		empty = false
		c.code(element)
	}
	if empty {
		c.invalid(at, "a policy that retries no code is not valid", `write ["UNAVAILABLE"], or leave out retryPolicy`)
	}
}

// code checks one code, which grpc-go takes as it is written in capitals or by number.
func (c *configCheck) code(at place) {
	var code codes.Code
	switch err := code.UnmarshalJSON([]byte(at.text)); {
	case err != nil:
		remedy := "write " + list(codeNames(), "or")
		if name := meantCode(at); name != "" {
			remedy = fmt.Sprintf("write %q", name)
		}
		c.refuse(at, "grpc-go knows no such code; it takes names in capitals only", remedy)
	case at.null():
		c.warn(at, "null is read as OK, which is never retried", "leave it out")
	case code == codes.OK:
		c.warn(at, "OK is never retried", "leave it out")
	case at.number():
		c.warn(at, "not every implementation of gRPC takes codes by number", fmt.Sprintf("write %q", codeNames()[code-1]))
	}
}

// codeNames are the names of codes in service configs, from 1.
func codeNames() []string {
	var names []string
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		var name strings.Builder
		for i, r := range code.String() {
			if i > 0 && unicode.IsUpper(r) {
				name.WriteByte('_')
			}
			name.WriteRune(unicode.ToUpper(r))
		}
		names = append(names, strings.Replace(name.String(), "CANCELED", "CANCELLED", 1))
	}
	return names
}

// meantCode guesses a code that is misspelt or in another notation.
func meantCode(at place) string {
	if !at.quoted() || len(at.text) > maxExcerpt {
		return ""
	}
	said := at.string()
	if n, err := strconv.Atoi(said); err == nil && n >= 1 && n <= int(codes.Unauthenticated) {
		return codeNames()[n-1]
	}
	bare := strings.NewReplacer("_", "", "-", "", " ", "")
	for _, name := range codeNames() {
		if strings.EqualFold(bare.Replace(said), bare.Replace(name)) {
			return name
		}
	}
	return nearest(said, codeNames())
}

// throttling checks retryThrottling, whose values gRPC looks at if there is a
// methodConfig.
func (c *configCheck) throttling(at place, validated bool) {
	c.validated = validated
	if !validated {
		c.warn(at, "without methodConfig nothing is retried that it could throttle, and it is not validated",
			"leave it out, or add a methodConfig with a retryPolicy")
	}
	fields, ok := c.object(at, throttlingLevel)
	if !ok {
		return
	}
	if tokens, n, ok := c.tokens(at, fields, "maxTokens"); ok {
		switch {
		case n <= 0 || n > 1000:
			c.invalid(tokens, "it must be greater than 0 and at most 1000", "write 10")
		case n != math.Trunc(n):
			c.warn(tokens, "grpc-go alone takes a number that is not whole", "write a whole number")
		}
	}
	if ratio, n, ok := c.tokens(at, fields, "tokenRatio"); ok {
		switch {
		case n <= 0:
			c.invalid(ratio, "it must be greater than 0", "write 0.1")
		case n != math.Round(n*1000)/1000:
			c.warn(ratio, "grpc-go alone goes by more than 3 decimals", "write 3 decimals at most")
		}
	}
}

// tokens returns a number of retryThrottling.
func (c *configCheck) tokens(at place, fields map[string]place, key string) (field place, n float64, ok bool) {
	field, ok = fields[key]
	switch {
	case !ok:
		c.invalid(at.absent(key), "it is missing, and both fields of retryThrottling are required", "add it")
	case field.null():
		c.invalid(field, "null counts as missing, and both fields of retryThrottling are required", "give it a value")
		ok = false
	default:
		n, ok = c.float(field)
	}
	return field, n, ok
}
