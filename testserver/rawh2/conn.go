// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package rawh2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/metadata"
)

// The size of the hpack table that a client may use before it has seen SETTINGS.
const hpackTableBytes = 4 << 10

// conn serves one connection. One goroutine reads the frames and runs the steps
// that they make due, so that all writes are in order.
type conn struct {
	server  *Server
	number  int // from 1, among the server's connections
	net     net.Conn
	framer  *http2.Framer
	block   bytes.Buffer // the header block being encoded
	encoder *hpack.Encoder
	streams map[uint32]*stream
	last    uint32 // no stream with a higher ID is served; see GoAway
	hungUp  bool   // nothing may be written any more

	seen Conn // written under Server.mu by the connection's goroutine only
}

func newConn(server *Server, accepted net.Conn) *conn {
	c := &conn{
		server:  server,
		net:     accepted,
		framer:  http2.NewFramer(accepted, accepted),
		streams: make(map[uint32]*stream),
		last:    math.MaxUint32,
	}
	// Steps may do what a well-behaved server does not.
	c.framer.AllowIllegalWrites = true
	c.framer.ReadMetaHeaders = hpack.NewDecoder(hpackTableBytes, nil)
	for _, setting := range server.cfg.settings {
		if setting.ID == http2.SettingHeaderTableSize {
			c.framer.ReadMetaHeaders.SetAllowedMaxDynamicTableSize(setting.Val)
		}
	}
	c.encoder = hpack.NewEncoder(&c.block)
	// Without a table, the client's limit on its size needs no obeying.
	c.encoder.SetMaxDynamicTableSizeLimit(0)
	return c
}

// serve reads the connection to its end.
func (c *conn) serve() {
	defer c.server.note(func() { c.seen.Closed = true })
	defer c.net.Close()
	if c.number <= c.server.cfg.blackHoles {
		// Reading is silent, and tells when the client is gone.
		_, _ = io.Copy(io.Discard, c.net)
		return
	}
	if !c.handshake() {
		return
	}
	for {
		frame, err := c.framer.ReadFrame()
		var broken http2.StreamError
		switch {
		case errors.As(err, &broken):
			c.writeReset(broken.StreamID, broken.Code)
		case err != nil:
			return
		default:
			c.handle(frame)
		}
	}
}

// handshake reads the client's preface and greets it, if it is one.
func (c *conn) handshake() bool {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c.net, preface); err != nil || string(preface) != http2.ClientPreface {
		return false
	}
	c.server.note(func() { c.seen.Handshake = true })
	c.write(func() error { return c.framer.WriteSettings(c.server.cfg.settings...) })
	return true
}

// handle does what a frame asks for, and runs the step that it makes due.
func (c *conn) handle(frame http2.Frame) {
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			c.write(c.framer.WriteSettingsAck)
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			c.write(func() error { return c.framer.WritePing(true, f.Data) })
		}
	case *http2.MetaHeadersFrame:
		c.handleHeaders(f)
	case *http2.DataFrame:
		c.handleData(f)
	case *http2.RSTStreamFrame:
		if s := c.streams[f.StreamID]; s != nil {
			s.ended = true
			c.server.note(func() { s.seen.Reset, s.seen.ResetCode = true, f.ErrCode })
		}
	case *http2.GoAwayFrame:
		received := GoAwayFrame{LastStreamID: f.LastStreamID, Code: f.ErrCode, Debug: string(f.DebugData())}
		c.server.note(func() { c.seen.GoAways = append(c.seen.GoAways, received) })
	}
}

// handleHeaders starts a stream, or ends the request of one by its trailers.
func (c *conn) handleHeaders(f *http2.MetaHeadersFrame) {
	s := c.streams[f.StreamID]
	if s == nil {
		s = c.open(f)
	}
	if f.StreamEnded() {
		c.server.note(func() { s.seen.EndStream = true })
	}
	s.advance()
}

// open records a new stream and gives it its step.
func (c *conn) open(f *http2.MetaHeadersFrame) *stream {
	s := &stream{conn: c, id: f.StreamID}
	s.seen = Stream{Conn: c.number, ID: f.StreamID, Header: metadata.MD{}, Ignored: f.StreamID > c.last}
	for _, field := range f.Fields {
		s.seen.Header[field.Name] = append(s.seen.Header[field.Name], field.Value)
	}
	c.streams[f.StreamID] = s
	c.server.enter(s)
	return s
}

// handleData gives the credit for DATA back and records it.
func (c *conn) handleData(f *http2.DataFrame) {
	// Padding counts for flow control.
	size := f.Length
	s := c.streams[f.StreamID]
	if size > 0 {
		c.writeCredit(0, size)
		if s != nil && !s.ended && !f.StreamEnded() {
			c.writeCredit(f.StreamID, size)
		}
	}
	if s == nil {
		return
	}
	s.receive(f.Data())
	if f.StreamEnded() {
		c.server.note(func() { s.seen.EndStream = true })
	}
	s.advance()
}

// write does one write unless the connection is hung up. A write that fails
// hangs it up: what the client said before it left is still to be read, and
// reading tells when the connection is over.
func (c *conn) write(frame func() error) {
	if !c.hungUp && frame() != nil {
		c.hungUp = true
	}
}

func (c *conn) writeCredit(id, size uint32) {
	c.write(func() error { return c.framer.WriteWindowUpdate(id, size) })
}

func (c *conn) writeHeaders(id uint32, fields []hpack.HeaderField, end bool) {
	c.write(func() error {
		c.block.Reset()
		for _, field := range fields {
			if err := c.encoder.WriteField(field); err != nil {
				return err
			}
		}
		return c.framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID:      id,
			BlockFragment: c.block.Bytes(),
			EndStream:     end,
			EndHeaders:    true,
		})
	})
}

func (c *conn) writeData(id uint32, payload []byte, end bool) {
	c.write(func() error { return c.framer.WriteData(id, end, payload) })
}

func (c *conn) writeReset(id uint32, code http2.ErrCode) {
	c.write(func() error { return c.framer.WriteRSTStream(id, code) })
}

func (c *conn) writeGoAway(last uint32, code http2.ErrCode, debug []byte) {
	c.last = last
	c.write(func() error { return c.framer.WriteGoAway(last, code, debug) })
}

// writePartFrame writes the header of a DATA frame that promises more than
// follows.
func (c *conn) writePartFrame(id, promised uint32, payload []byte) {
	c.write(func() error {
		frame := binary.BigEndian.AppendUint32(nil, promised<<8|uint32(http2.FrameData))
		frame = append(frame, 0) // flags
		frame = binary.BigEndian.AppendUint32(frame, id)
		_, err := c.net.Write(append(frame, payload...))
		return err
	})
}

// hangUp closes the sending side, where there are two: TCP resets a connection
// that is closed with something unread. Reading goes on until the client closes
// its side.
func (c *conn) hangUp() {
	c.write(func() error {
		c.hungUp = true
		if half, ok := c.net.(interface{ CloseWrite() error }); ok {
			return half.CloseWrite()
		}
		return c.net.Close()
	})
}
