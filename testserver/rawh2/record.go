// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package rawh2

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/metadata"
)

// The prefix of a gRPC message: a flag and the length.
const prefixBytes = 5

// How long Await waits for what does not happen.
const awaitGuard = 30 * time.Second

// Record is what a server has seen since it started.
type Record struct {
	Conns   []Conn   // in the order of their acceptance
	Streams []Stream // in the order of their arrival over all connections
}

// Conn is what a server has seen of one connection.
type Conn struct {
	Handshake bool          // the client's preface has arrived; never true of a black hole
	GoAways   []GoAwayFrame // received from the client
	Closed    bool          // ended by either side
}

// GoAwayFrame is a GOAWAY received from a client.
type GoAwayFrame struct {
	LastStreamID uint32
	Code         http2.ErrCode
	Debug        string
}

// Stream is what a server has seen of one stream.
type Stream struct {
	Conn      int         // which connection, from 1: Record.Conns[Conn-1]
	ID        uint32      // on its connection
	Header    metadata.MD // request headers, pseudo-headers too; binary values as they were sent
	Ignored   bool        // arrived after a GOAWAY that excluded it
	Frames    int         // DATA frames received
	Data      []byte      // their content, padding removed
	EndStream bool        // the request is complete
	Reset     bool        // RST_STREAM received
	ResetCode http2.ErrCode
}

// Messages returns the gRPC messages in Data that have arrived whole, without
// their prefixes. Compressed messages are returned compressed.
func (s Stream) Messages() [][]byte {
	var messages [][]byte
	for rest := s.Data; ; {
		size := messageSize(rest)
		if size == 0 {
			return messages
		}
		messages = append(messages, rest[prefixBytes:size:size])
		rest = rest[size:]
	}
}

// messageSize returns the bytes that the first gRPC message in data has with
// its prefix, or 0 if it has not arrived whole.
func messageSize(data []byte) int {
	if len(data) < prefixBytes {
		return 0
	}
	length := binary.BigEndian.Uint32(data[1:])
	if uint64(len(data)-prefixBytes) < uint64(length) {
		return 0
	}
	return prefixBytes + int(length)
}

// String returns one line for each connection and stream.
func (r Record) String() string {
	var text strings.Builder
	for i, c := range r.Conns {
		fmt.Fprintf(&text, "connection %d: handshake %t, closed %t, goaways %v\n",
			i+1, c.Handshake, c.Closed, c.GoAways)
	}
	for i, s := range r.Streams {
		fmt.Fprintf(&text, "stream %d: connection %d, id %d, ignored %t, %d bytes in %d frames, end %t, ",
			i+1, s.Conn, s.ID, s.Ignored, len(s.Data), s.Frames, s.EndStream)
		// As a plain map, since metadata.MD hides its values when printed.
		fmt.Fprintf(&text, "reset %t %v, headers %v\n", s.Reset, s.ResetCode, map[string][]string(s.Header))
	}
	return text.String()
}

// Record returns a copy of what the server has seen so far. It shares nothing
// with the server that still changes, and may be called at any time.
func (s *Server) Record() Record {
	record, _ := s.snapshot()
	return record
}

// Await returns the record as soon as until says yes to it. It calls until with
// the record as it is, then after each event. If nothing satisfies until within
// 30 seconds, it fails the test with the record; like tb.Fatalf it must be
// called on the test's own goroutine.
func (s *Server) Await(tb testing.TB, until func(Record) bool) Record {
	tb.Helper()
	guard := time.NewTimer(awaitGuard)
	defer guard.Stop()
	for {
		record, changed := s.snapshot()
		if until(record) {
			return record
		}
		select {
		case <-changed:
		case <-guard.C:
			tb.Fatalf("rawh2: Await: not satisfied after %v; the record is\n%v", awaitGuard, record)
		}
	}
}

// snapshot copies the record and returns a channel that is closed when it
// changes.
func (s *Server) snapshot() (Record, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	record := Record{}
	for _, c := range s.conns {
		seen := c.seen
		seen.GoAways = slices.Clone(seen.GoAways)
		record.Conns = append(record.Conns, seen)
	}
	for _, st := range s.streams {
		seen := st.seen
		seen.Header = seen.Header.Copy()
		// What Data has now does not change; it only grows beyond.
		seen.Data = slices.Clip(seen.Data)
		record.Streams = append(record.Streams, seen)
	}
	return record, s.changed
}

// note changes the record and wakes those who wait for a change.
func (s *Server) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}
