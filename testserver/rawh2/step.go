// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package rawh2

import (
	"errors"
	"fmt"
	"slices"
)

// The bytes that one step may write, header fields aside. Steps are not held back by the client's
// flow control, so they stay well within the window of 65,535 bytes that a
// client gives each stream and connection at the start.
const maxStepBytes = 32 << 10

// After how many messages of the request an action runs, if not at a number.
const (
	afterHeaders   = 0
	afterEndStream = -1
)

// Step is what the server does with one stream. Steps are built by the
// functions of this package and joined by [Step.Then]. A Step is an immutable
// value: it may be used any number of times, and its methods return changed
// copies. The zero Step is [Silent].
//
// Parts of a step are skipped once the client has reset the stream, the stream
// is closed by an earlier part, or the connection has ended.
type Step struct {
	actions []action
	faults  []error
}

// action is one part of a step, run once the request has come far enough.
type action struct {
	after int // messages of the request, afterHeaders or afterEndStream
	bytes int
	run   func(s *stream)
}

func step(bytes int, run func(s *stream)) Step {
	return Step{actions: []action{{after: afterEndStream, bytes: bytes, run: run}}}
}

func faulty(format string, args ...any) Step {
	return Step{faults: []error{fmt.Errorf(format, args...)}}
}

// Then returns a step that does what s does and after it what each of the next
// steps does, on the same stream. Each part keeps its own time to act.
func (s Step) Then(next ...Step) Step {
	joined := Step{actions: slices.Clone(s.actions), faults: slices.Clone(s.faults)}
	for _, n := range next {
		joined.actions = append(joined.actions, n.actions...)
		joined.faults = append(joined.faults, n.faults...)
	}
	return joined
}

// AtHeaders returns s with all its parts acting as soon as the request's
// headers have arrived, instead of at its END_STREAM.
func (s Step) AtHeaders() Step {
	return s.at(afterHeaders)
}

// AtMessage returns s with all its parts acting as soon as the n-th message of
// the request has arrived whole, or its END_STREAM if that comes first. n is
// at least 1.
func (s Step) AtMessage(n int) Step {
	if n < 1 {
		return s.Then(faulty("AtMessage: message %d does not exist, the first is 1", n))
	}
	return s.at(n)
}

func (s Step) at(after int) Step {
	s.actions = slices.Clone(s.actions)
	for i := range s.actions {
		s.actions[i].after = after
	}
	return s
}

// fault returns what is wrong with the step, or nil.
func (s Step) fault() error {
	total := 0
	for _, a := range s.actions {
		total += a.bytes
	}
	if total > maxStepBytes {
		return errors.Join(append(slices.Clone(s.faults),
			fmt.Errorf("step sends %d bytes, the limit is %d", total, maxStepBytes))...)
	}
	return errors.Join(s.faults...)
}
