// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package rawh2

import (
	"slices"

	"golang.org/x/net/http2"
)

// OwnStream as the last stream ID of [GoAway] stands for the ID of the stream
// that the step is run for.
const OwnStream uint32 = 1<<32 - 1

// Silent leaves the stream open and unanswered.
func Silent() Step {
	return Step{}
}

// Reset ends the stream by RST_STREAM with the code.
func Reset(code http2.ErrCode) Step {
	return step(0, func(s *stream) {
		s.writeReset(code)
	})
}

// RefuseStream resets the stream with REFUSED_STREAM when its headers arrive,
// which promises the client that the request was not processed.
func RefuseStream() Step {
	return Reset(http2.ErrCodeRefusedStream).AtHeaders()
}

// GoAway sends a GOAWAY with the last stream ID, the code and the debug data,
// whose strings are joined. It leaves the connection open and the stream
// unanswered: let [OK] or [Close] follow. Streams with an ID above the last
// that arrive after it are recorded and otherwise ignored, and take no step.
func GoAway(lastStreamID uint32, code http2.ErrCode, debug ...string) Step {
	if lastStreamID > 1<<31-1 && lastStreamID != OwnStream {
		return faulty("GoAway: last stream ID is %d, IDs have 31 bits", lastStreamID)
	}
	var joined []byte
	for _, d := range debug {
		joined = append(joined, d...)
	}
	return step(len(joined), func(s *stream) {
		last := lastStreamID
		if last == OwnStream {
			last = s.id
		}
		s.conn.writeGoAway(last, code, joined)
	})
}

// TruncatedMessage sends the prefix of a gRPC message of the promised length in
// bytes, and of the message itself only what is given. Follow it by [EndStream]
// or [Trailers]. A promise that what is given fulfils is a fault of the script.
func TruncatedMessage(promised uint32, sent []byte) Step {
	if uint64(promised) <= uint64(len(sent)) {
		return faulty("TruncatedMessage: promised length is %d, but %d is sent", promised, len(sent))
	}
	return data(promised, sent)
}

// TruncatedFrame sends the header of a DATA frame of the promised length in
// bytes, of the frame itself only what is given, and closes the connection. A
// promise that what is given fulfils is a fault of the script.
func TruncatedFrame(promised uint32, sent []byte) Step {
	if uint64(promised) <= uint64(len(sent)) {
		return faulty("TruncatedFrame: promised length is %d, but %d is sent", promised, len(sent))
	}
	if promised >= 1<<24 {
		return faulty("TruncatedFrame: promised length is %d, 2^24 or more", promised)
	}
	sent = slices.Clone(sent)
	return step(len(sent), func(s *stream) {
		s.conn.writePartFrame(s.id, promised, sent)
	}).Then(Close())
}

// Close closes the connection once all that was sent before is on its way. On
// TCP the client sees a FIN, never a reset that would destroy what it has not
// read, and what it still sends is recorded. In memory both directions close.
func Close() Step {
	return step(0, func(s *stream) {
		s.conn.hangUp()
	})
}
