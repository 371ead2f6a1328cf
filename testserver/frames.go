// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

// An http2 frame header: 3 bytes of length, type, flags, 4 bytes of stream id.
const (
	frameHeaderLen    = 9
	frameData         = 0x0
	frameHeaders      = 0x1
	frameContinuation = 0x9
	flagEndHeaders    = 0x4
)

// The prefix of a gRPC message: a byte of flags, 4 bytes of length.
const messagePrefixLen = 5

// frames follows the HTTP/2 frames in a stream of bytes that comes in pieces of
// any size, and counts into the tallies of the streams that are watched.
type frames struct {
	header  [frameHeaderLen]byte
	have    int // bytes of header so far
	payload int // bytes of the frame's payload still to come
}

// write takes the next bytes and reports whether a watched tally changed.
func (f *frames) write(b []byte, watched map[uint32]*tally) (changed bool) {
	for len(b) > 0 {
		if f.have < frameHeaderLen {
			n := copy(f.header[f.have:], b)
			f.have += n
			b = b[n:]
			if f.have < frameHeaderLen {
				return changed
			}
			f.payload = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
		}
		n := min(f.payload, len(b))
		if t := watched[f.stream()]; t != nil && f.header[3] == frameData {
			// grpc-go never pads, so that the payload is all message.
			changed = t.data(b[:n]) || changed
		}
		f.payload -= n
		b = b[n:]
		if f.payload == 0 {
			changed = f.end(watched[f.stream()]) || changed
		}
	}
	return changed
}

// end closes a frame. A block of headers counts once its last frame is out.
func (f *frames) end(t *tally) bool {
	f.have = 0
	kind, flags := f.header[3], f.header[4]
	if t == nil || flags&flagEndHeaders == 0 || kind != frameHeaders && kind != frameContinuation {
		return false
	}
	t.headers++
	return true
}

func (f *frames) stream() uint32 {
	h := f.header[5:]
	return uint32(h[0]&0x7f)<<24 | uint32(h[1])<<16 | uint32(h[2])<<8 | uint32(h[3])
}

// tally is what one stream has sent in full: blocks of headers and messages.
type tally struct {
	headers  int
	messages int

	prefix [messagePrefixLen]byte
	have   int // bytes of prefix so far
	body   int // bytes of the message still to come
}

// data takes the next bytes of DATA and reports whether a message became whole.
func (t *tally) data(b []byte) (whole bool) {
	for len(b) > 0 {
		if t.have < messagePrefixLen {
			n := copy(t.prefix[t.have:], b)
			t.have += n
			b = b[n:]
			if t.have < messagePrefixLen {
				return whole
			}
			p := t.prefix[1:]
			t.body = int(uint32(p[0])<<24 | uint32(p[1])<<16 | uint32(p[2])<<8 | uint32(p[3]))
		}
		n := min(t.body, len(b))
		t.body -= n
		b = b[n:]
		if t.body == 0 {
			t.have = 0
			t.messages++
			whole = true
		}
	}
	return whole
}
