// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package rawh2_test

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/seed98143e88/grpcretry/testserver/rawh2"
)

// rawClient is a client that does what no grpc client does.
type rawClient struct {
	*http2.Framer

	t    *testing.T
	conn net.Conn
}

func dialRaw(t *testing.T, srv *rawh2.Server) rawClient {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(srv.Target(), "passthrough:///"))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	return rawClient{Framer: http2.NewFramer(conn, conn), t: t, conn: conn}
}

// greet does the handshake and returns the server's settings.
func (c rawClient) greet() []http2.Setting {
	c.t.Helper()
	_, err := io.WriteString(c.conn, http2.ClientPreface)
	require.NoError(c.t, err)
	require.NoError(c.t, c.WriteSettings())
	settings, ok := c.next().(*http2.SettingsFrame)
	require.True(c.t, ok)
	var list []http2.Setting
	require.NoError(c.t, settings.ForeachSetting(func(s http2.Setting) error {
		list = append(list, s)
		return nil
	}))
	require.NoError(c.t, c.WriteSettingsAck())
	ack, ok := c.next().(*http2.SettingsFrame)
	require.True(c.t, ok)
	require.True(c.t, ack.IsAck())
	return list
}

func (c rawClient) next() http2.Frame {
	c.t.Helper()
	frame, err := c.ReadFrame()
	require.NoError(c.t, err)
	return frame
}

func block(t *testing.T, fields ...string) []byte {
	t.Helper()
	var encoded bytes.Buffer
	encoder := hpack.NewEncoder(&encoded)
	for pair := range slices.Chunk(fields, 2) {
		require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: pair[0], Value: pair[1]}))
	}
	return encoded.Bytes()
}

func (c rawClient) open(id uint32, end bool) {
	c.t.Helper()
	require.NoError(c.t, c.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: block(c.t, ":method", "POST", ":path", "/a/b", ":scheme", "http"),
		EndHeaders: true, EndStream: end,
	}))
}

func TestSettingsArriveAsGiven(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t, rawh2.Setting(http2.SettingMaxFrameSize, 1), rawh2.Setting(0xabc, 7),
		rawh2.Setting(http2.SettingHeaderTableSize, 1<<16))
	assert.Equal(t, []http2.Setting{
		{ID: http2.SettingMaxFrameSize, Val: 1}, {ID: 0xabc, Val: 7}, {ID: http2.SettingHeaderTableSize, Val: 1 << 16},
	}, dialRaw(t, srv).greet())
}

func TestPreface(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t)
	client := dialRaw(t, srv)
	_, err := io.WriteString(client.conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	_, err = client.ReadFrame()
	require.Error(t, err)
	record := srv.Await(t, func(r rawh2.Record) bool { return r.Conns[0].Closed })
	assert.Equal(t, []rawh2.Conn{{Closed: true}}, record.Conns)
}

// Credit is returned for padding too, and to the connection alone once the
// stream needs none.
func TestCredit(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t)
	srv.Script(rawh2.Silent())
	client := dialRaw(t, srv)
	client.greet()
	client.open(1, false)
	require.NoError(t, client.WriteDataPadded(1, false, []byte("abc"), make([]byte, 4)))
	credit := func() (id, size uint32) {
		update, ok := client.next().(*http2.WindowUpdateFrame)
		require.True(t, ok)
		return update.StreamID, update.Increment
	}
	// The three bytes, the padding and its length.
	for _, want := range []uint32{0, 1} {
		id, size := credit()
		assert.Equal(t, [2]uint32{want, 8}, [2]uint32{id, size})
	}
	require.NoError(t, client.WriteData(1, true, []byte("de")))
	id, size := credit()
	assert.Equal(t, [2]uint32{0, 2}, [2]uint32{id, size})
	// Nothing of its stream is known, but the bytes count.
	require.NoError(t, client.WriteData(99, true, []byte("lost")))
	id, size = credit()
	assert.Equal(t, [2]uint32{0, 4}, [2]uint32{id, size})

	require.NoError(t, client.WritePing(false, [8]byte{1}))
	ping, ok := client.next().(*http2.PingFrame)
	require.True(t, ok)
	assert.True(t, ping.IsAck())
	assert.Equal(t, [8]byte{1}, ping.Data)
	stream := srv.Record().Streams[0]
	assert.Equal(t, "abcde", string(stream.Data))
	assert.Equal(t, 2, stream.Frames)
	assert.True(t, stream.EndStream)
}

// A request may end with trailers, and its header come in several frames.
func TestContinuationAndTrailers(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t)
	srv.Script(rawh2.Reset(http2.ErrCodeInternal))
	client := dialRaw(t, srv)
	client.greet()
	header := block(t, ":method", "POST", ":path", "/a/b", ":scheme", "http", "a", "b")
	require.NoError(t, client.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: header[:3]}))
	require.NoError(t, client.WriteContinuation(1, true, header[3:]))
	require.NoError(t, client.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: block(t, "x", "y"), EndHeaders: true, EndStream: true,
	}))
	reset, ok := client.next().(*http2.RSTStreamFrame)
	require.True(t, ok)
	assert.Equal(t, http2.ErrCodeInternal, reset.ErrCode)
	record := srv.Record()
	require.Len(t, record.Streams, 1)
	assert.Equal(t, []string{"b"}, record.Streams[0].Header.Get("a"))
	assert.True(t, record.Streams[0].EndStream)
}

// A stream that a GOAWAY excludes is not served, though others still are.
func TestStreamsAboveGoAwayAreIgnored(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t)
	srv.Script(rawh2.GoAway(3, http2.ErrCodeNo), rawh2.RefuseStream(), rawh2.Reset(http2.ErrCodeInternal))
	client := dialRaw(t, srv)
	client.greet()
	client.open(1, true)
	goaway, ok := client.next().(*http2.GoAwayFrame)
	require.True(t, ok)
	assert.Equal(t, uint32(3), goaway.LastStreamID)
	client.open(5, true)
	client.open(3, false)
	reset, ok := client.next().(*http2.RSTStreamFrame)
	require.True(t, ok)
	assert.Equal(t, uint32(3), reset.StreamID)
	var ignored []bool
	for _, stream := range srv.Record().Streams {
		ignored = append(ignored, stream.Ignored)
	}
	assert.Equal(t, []bool{false, true, false}, ignored)
}

// A malformed stream ends alone, a malformed connection as a whole.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t)
	client := dialRaw(t, srv)
	client.greet()
	client.AllowIllegalWrites = true
	require.NoError(t, client.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: block(t, "UPPER", "case"), EndHeaders: true, EndStream: true,
	}))
	reset, ok := client.next().(*http2.RSTStreamFrame)
	require.True(t, ok)
	assert.Equal(t, http2.ErrCodeProtocol, reset.ErrCode)
	require.NoError(t, client.WriteContinuation(1, true, nil))
	srv.Await(t, func(r rawh2.Record) bool { return r.Conns[0].Closed })
	assert.Empty(t, srv.Record().Streams)
}

// After the server has hung up, what it reads is recorded, and nothing answered.
func TestHungUpServerStillReads(t *testing.T) {
	t.Parallel()
	srv := rawh2.New(t)
	srv.Script(rawh2.Close(), rawh2.OK(nil))
	client := dialRaw(t, srv)
	client.greet()
	client.open(1, true)
	_, err := client.ReadFrame()
	require.ErrorIs(t, err, io.EOF)
	client.open(3, true)
	require.NoError(t, client.WritePing(false, [8]byte{}))
	require.NoError(t, client.conn.Close())
	record := srv.Await(t, func(r rawh2.Record) bool { return r.Conns[0].Closed })
	assert.Len(t, record.Streams, 2)
}
