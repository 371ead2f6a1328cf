// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package lance

import (
	"regexp"
	"slices"
	"strconv"

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

// madeByGRPC tells whether gRPC itself makes a code of a connection that breaks, or of a
// stream that ends without a status. Any other is a server's word, however it came.
func madeByGRPC(code codes.Code) bool {
	switch code {
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

// texts are those of others in the way: gRPC's for an answer that is not gRPC's, and for
// messages that are too large, and LanceDB's own.
func texts() []text {
	return []text{
		{pattern: regexp.MustCompile(`unexpected HTTP status code received from server: (\d{3})\b`)},
		{pattern: regexp.MustCompile(`Http error: \(request_id=[^)]*\) (\d{3})\b`)},
		{pattern: regexp.MustCompile(`(?i)message( after decompression)? larger than max`), status: tooLarge},
		{pattern: regexp.MustCompile(`grpc: message too large`), status: tooLarge},
	}
}

// statusesOf returns all statuses of HTTP that a failure has, and whether its text says
// so. Of the user's texts the first that matches says it alone; else all that the others
// find count; else those of its code.
func (s *suite) statusesOf(failed *status.Status) (all []int, said bool) {
	in := append([]string{failed.Message()}, detailTexts(failed)...)
	for _, t := range s.texts {
		if slices.ContainsFunc(in, t.pattern.MatchString) {
			return []int{t.status}, true
		}
	}
	for _, t := range s.builtIn {
		for _, one := range in {
			all = t.find(all, one)
		}
	}
	if len(all) > 0 {
		return all, true
	}
	return statusesOfCode(failed.Code()), false
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

// lists tells whether all of some statuses that a text said are to be retried, or any of
// those that a code stands for.
func (c config) lists(all []int, said bool) bool {
	listed := func(n int) bool { return slices.Contains(c.statuses, n) }
	if said {
		return !slices.ContainsFunc(all, func(n int) bool { return !listed(n) })
	}
	return slices.ContainsFunc(all, listed)
}
