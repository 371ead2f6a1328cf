// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package rawh2

import (
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// The largest frame that every peer accepts.
const maxFrameBytes = 16 << 10

// stream runs one step, on its connection's goroutine.
type stream struct {
	conn        *conn
	id          uint32
	actions     []action // of the step, those still to run
	parsed      int      // bytes of the request that are whole messages
	messages    int      // how many
	headersSent bool
	ended       bool // by our END_STREAM or either side's RST_STREAM

	seen Stream // written under Server.mu by the connection's goroutine only
}

// receive notes DATA and counts the messages that are now whole.
func (s *stream) receive(data []byte) {
	s.conn.server.note(func() {
		s.seen.Frames++
		s.seen.Data = append(s.seen.Data, data...)
	})
	for {
		size := messageSize(s.seen.Data[s.parsed:])
		if size == 0 {
			return
		}
		s.parsed += size
		s.messages++
	}
}

// advance runs all actions that the request has come far enough for.
func (s *stream) advance() {
	for len(s.actions) > 0 && !s.ended && s.due(s.actions[0]) {
		next := s.actions[0]
		s.actions = s.actions[1:]
		next.run(s)
	}
}

// due reports whether the request has come far enough for an action.
func (s *stream) due(a action) bool {
	if s.seen.EndStream {
		return true
	}
	return a.after != afterEndStream && s.messages >= a.after
}

func (s *stream) writeHeaders(fields []hpack.HeaderField, end bool) {
	s.headersSent = true
	s.ended = end
	s.conn.writeHeaders(s.id, fields, end)
}

// writeData sends a payload in as many frames as it needs.
func (s *stream) writeData(payload []byte, end bool) {
	s.ended = end
	for len(payload) > maxFrameBytes {
		s.conn.writeData(s.id, payload[:maxFrameBytes], false)
		payload = payload[maxFrameBytes:]
	}
	s.conn.writeData(s.id, payload, end)
}

func (s *stream) writeReset(code http2.ErrCode) {
	s.ended = true
	s.conn.writeReset(s.id, code)
}
