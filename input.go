// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"fmt"
	"sort"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry/internal/replay"
)

// input is what a stream was sent so far, as far as it is to be sent again: messages
// that are kept, and stretches that a Source gives anew; or, of a stream that answers
// request by request, those that are unanswered; or what Resume gave in their place. It
// is used under the stream's lock.
type input struct {
	kept

	length    int        // messages that were ever added
	stretches []*stretch // in order; most streams have none
	open      bool       // what is added belongs to the last stretch

	queue *replay.Queue // of what is unanswered; nil unless the stream is Acked
	loose bool          // nothing is kept any more, since Resume knows what to send
	given []any         // by Resume, for this attempt
}

// stretch is a part of the input that is not kept.
type stretch struct {
	first, end int // of the input's messages
	run        func() messages
}

// freeStretches is how many stretches are not charged.
const freeStretches = 8

// begin starts a stretch. If there is no room for that, what follows is kept, as it is
// where messages are forgotten one by one.
func (in *input) begin(run func() messages) {
	if in.queue != nil || in.loose || len(in.stretches) >= freeStretches && !in.buffer.Reserve(copyOverhead) {
		return
	}
	in.stretches = append(in.stretches, &stretch{in.length, in.length, run})
	in.open = true
}

// end ends the stretch that was begun.
func (in *input) end() { in.open = false }

// add takes a message, or says why it cannot be sent again. It has a key if the stream
// is Acked.
func (in *input) add(key string, m any) error {
	var err error
	switch {
	case in.loose:
	case in.queue != nil:
		err = in.enqueue(key, m)
	case in.open:
		in.stretches[len(in.stretches)-1].end++
	default:
		err = in.kept.add(m)
	}
	if err == nil {
		in.length++
	}
	return err
}

// refuses returns what is wrong with a key; nil if nothing is.
func (in *input) refuses(key string) error {
	switch {
	case in.queue == nil:
		return nil
	case key == "":
		return status.Error(codes.InvalidArgument,
			"grpcretry: Acked: the key of the request is empty; a request that has no answer has the key NoAnswer")
	case in.queue.Has(key):
		return status.Errorf(codes.InvalidArgument,
			"grpcretry: Acked: the key %.100q of the request is that of another, which is not answered yet", key)
	}
	return nil
}

// errAckedFull is the cause of commits by requests that are not answered.
var errAckedFull = fmt.Errorf("%w: requests without an answer are kept in memory alone", ErrBufferFull)

// enqueue keeps a message until it is answered.
func (in *input) enqueue(key string, m any) error {
	message, isProto := asProto(m)
	copies := isProto && !in.byReference
	if !copies && !in.foreign && m != nil {
		return errNotProto
	}
	size := charge(message, copies)
	if key == NoAnswer {
		key = ""
	}
	if !in.queue.Reserve(key, size) {
		return errAckedFull
	}
	if copies {
		data, err := encode(make([]byte, 0, size-copyOverhead), message)
		if err != nil {
			in.queue.Unreserve(key, size)
			return err
		}
		m = &copied{message.ProtoReflect().Type(), data}
	}
	in.queue.Add(in.length, key, size, m)
	return nil
}

// pending tells whether an attempt has something to be sent from the input.
func (in *input) pending() bool {
	switch {
	case in.loose:
		return len(in.given) > 0
	case in.queue != nil:
		return in.queue.Len() > 0
	default:
		return in.length > 0
	}
}

// replace makes the input what Resume gave.
func (in *input) replace(given []any) func() {
	closeFile := in.free()
	in.loose, in.given = true, given
	return closeFile
}

// at returns the stretch that a message is in, or nil if it is kept, and where the
// messages of its sort end.
func (in *input) at(position int) (part *stretch, end int) {
	i := sort.Search(len(in.stretches), func(i int) bool { return position < in.stretches[i].end })
	switch {
	case i == len(in.stretches):
		return nil, in.length
	case position < in.stretches[i].first:
		return nil, in.stretches[i].first
	default:
		return in.stretches[i], in.stretches[i].end
	}
}

// free forgets all messages, as kept has it.
func (in *input) free() func() {
	in.stretches, in.open, in.given = nil, false, nil
	if in.queue != nil {
		in.queue.Free()
	}
	return in.kept.free()
}

// inputReader reads an input for one attempt, from its first message.
type inputReader struct {
	position int // of all messages that were added, how many were read or are not there
	kept     keptReader
	given    []any    // what is offered instead
	queued   any      // what is unanswered is offered one by one, for it may be answered any time
	behind   int      // where that ends; 0 if there is none
	part     *stretch // that is to be read; nil for what is kept
	run      run      // of a stretch that is read
}

// fill returns how many messages next can be asked for. It needs the lock.
func (r *inputReader) fill(in *input) int {
	switch {
	case in.loose:
		n := min(len(in.given), replay.Batch)
		r.given, in.given = in.given[:n], in.given[n:]
		return n
	case in.queue != nil:
		var ok bool
		if r.queued, r.behind, ok = in.queue.Read(); ok {
			return 1
		}
		return 0
	}
	part, end := in.at(r.position)
	n := min(end-r.position, replay.Batch)
	if part == nil {
		n = min(n, r.kept.fill(&in.kept))
	}
	r.part = part
	return n
}

// next returns the next message. It is called without the lock: a Source's own
// functions take part, and the disk.
func (r *inputReader) next() (any, error) {
	if len(r.given) > 0 {
		m := r.given[0]
		r.given = r.given[1:]
		return m, nil
	}
	if r.behind > 0 {
		r.position, r.behind = r.behind, 0
		return original(r.queued)
	}
	r.position++
	if r.part != nil {
		return r.run.next(r.part)
	}
	return r.kept.next()
}

// close ends what was begun.
func (r *inputReader) close() { r.run.close() }
