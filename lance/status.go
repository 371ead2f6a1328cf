// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package lance

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The statuses of HTTP that are failures.
const (
	lowestStatus  = 400
	highestStatus = 599
)

// Statuses that are told apart.
const (
	timedOut = 408
	tooLarge = 413
	canceled = 499
)

// mayHaveRun tells whether a status may follow an execution: one of the server's own
// failures, of waiting for it, or of an answer that is too large to be sent.
func mayHaveRun(status int) bool {
	return status >= 500 || status == timedOut || status == tooLarge || status == canceled
}

// statusesOfCode returns the statuses of HTTP that a code of gRPC stands for: those of
// google.rpc.Code, and 502, which has no code of its own. ALREADY_EXISTS and DATA_LOSS,
// which are 409 and 500 there, have none here, since no repetition mends them.
func statusesOfCode(code codes.Code) []int {
	switch code {
	case codes.Canceled:
		return []int{canceled}
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange:
		return []int{400}
	case codes.Unauthenticated:
		return []int{401}
	case codes.PermissionDenied:
		return []int{403}
	case codes.NotFound:
		return []int{404}
	case codes.Aborted:
		return []int{409}
	case codes.ResourceExhausted:
		return []int{429}
	case codes.Internal, codes.Unknown:
		return []int{500}
	case codes.Unimplemented:
		return []int{501}
	case codes.Unavailable:
		return []int{503, 502}
	case codes.DeadlineExceeded:
		return []int{504}
	default:
		return nil
	}
}

// madeByGRPC tells whether gRPC itself may have made a status: of a connection that broke,
// or a stream that was reset or ended without one. Any other is a server's word, however
// it came.
func madeByGRPC(s *status.Status) bool {
	if strings.Contains(s.Message(), "stream terminated by RST_STREAM") {
		return true
	}
	switch s.Code() {
	case codes.Unavailable, codes.Internal, codes.Unknown, codes.Canceled, codes.DeadlineExceeded:
		return true
	default:
		return false
	}
}

// text says which status a failure has whose message or details match.
type text struct {
	pattern *regexp.Regexp
	status  int // 0 if the pattern's first group has it
}

// texts are those of others in the way: gRPC's for an answer that is not gRPC's, LanceDB's
// own, and those by which servers and clients of gRPC say that a message is too large:
// the C core's and Go's, Java's, .NET's, Node.js's, Connect's and Rust's.
func texts() []text {
	return []text{
		{pattern: regexp.MustCompile(`unexpected HTTP status code received from server: (\d{3})\b`)},
		{pattern: regexp.MustCompile(`Http error: \(request_id=[^)]*\) (\d{3})\b`)},
		{regexp.MustCompile(`(?i)message( after decompression)? larger than max`), tooLarge},
		{regexp.MustCompile(`grpc: message too large`), tooLarge},
		{regexp.MustCompile(`(?i)message exceeds maximum size`), tooLarge},
		{regexp.MustCompile(`(?i)message exceeds the maximum configured message size`), tooLarge},
		{regexp.MustCompile(`(?i)send message with a size larger than`), tooLarge},
		{regexp.MustCompile(`(?i)message size \d+ exceeds sendMaxBytes`), tooLarge},
		{regexp.MustCompile(`(?i)body with more than 4GB`), tooLarge},
	}
}

// find appends the statuses that a text says.
func (t text) find(all []int, in string) []int {
	for _, found := range t.pattern.FindAllStringSubmatch(in, -1) {
		n := t.status
		if n == 0 {
			n, _ = strconv.Atoi(found[1]) // three digits
		}
		all = append(all, n)
	}
	return all
}

// meaning is what a failure says in statuses of HTTP.
type meaning struct {
	statuses []int
	by       source
	partial  bool // it says more than was looked at
}

// source is what says it.
type source int

const (
	byCode source = iota
	byText
	byUser
)

// meaningOf reads a failure. Of the user's texts the first that matches says it alone;
// else all that the others find count; else the statuses of its code.
func (s *suite) meaningOf(failed *status.Status) meaning {
	details, partial := detailTexts(failed)
	in := append([]string{failed.Message()}, details...)
	for _, t := range s.texts {
		if slices.ContainsFunc(in, t.pattern.MatchString) {
			return meaning{[]int{t.status}, byUser, partial}
		}
	}
	var all []int
	for _, t := range s.builtIn {
		for _, one := range in {
			all = t.find(all, one)
		}
	}
	if len(all) > 0 {
		return meaning{all, byText, partial}
	}
	return meaning{statusesOfCode(failed.Code()), byCode, partial}
}

// mayHaveRun tells whether what failed so may have been done. A text that is not the
// user's can make it worse than the code, but no better.
func (m meaning) mayHaveRun(code codes.Code) bool {
	if m.by == byUser {
		return slices.ContainsFunc(m.statuses, mayHaveRun)
	}
	return m.partial || code == codes.DataLoss ||
		slices.ContainsFunc(m.statuses, mayHaveRun) || slices.ContainsFunc(statusesOfCode(code), mayHaveRun)
}

// lists tells whether all statuses that a text says are to be retried, or any of those
// that a code stands for.
func (c config) lists(m meaning) bool {
	listed := func(n int) bool { return slices.Contains(c.statuses, n) }
	if m.by == byCode {
		return slices.ContainsFunc(m.statuses, listed)
	}
	return !slices.ContainsFunc(m.statuses, func(n int) bool { return !listed(n) })
}
