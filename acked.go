// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

// acknowledging is Acked at work. What it keeps is in the input.
type acknowledging struct {
	s *stream
}

// received implements recoverer.
func (r *acknowledging) received(a *streamAttempt, m any) bool {
	key := r.s.keyOf(m)
	r.s.mu.Lock()
	defer r.s.unlock()
	goesOn, mine := r.s.goesOn(a)
	if goesOn {
		r.s.input.queue.Remove(key)
		r.s.take(a)
	}
	return mine
}

// keyOf asks for the key of a message. It is called without the lock.
func (s *stream) keyOf(m any) (key string) {
	s.foreign(func() { key = s.rule.Recovery.key(m) })
	return key
}

// ended implements recoverer.
func (*acknowledging) ended(*streamAttempt) error { return nil }

// prepare implements recoverer.
func (*acknowledging) prepare() error { return nil }

// adopted implements recoverer.
func (r *acknowledging) adopted() { r.s.input.queue.Rewind() }

// pumped implements recoverer.
func (*acknowledging) pumped() {}

// free implements recoverer.
func (*acknowledging) free() func() { return nil }
