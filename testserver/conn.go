// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// listener wraps what it accepts, so that a handler can find its connection.
type listener struct {
	net.Listener
}

func (l listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{
		Conn:    raw,
		watched: map[uint32]*tally{},
		moved:   make(chan struct{}),
	}, nil
}

// conn is a server's end of a connection that can be cut, and that knows what
// has been written to it.
type conn struct {
	net.Conn

	mu      sync.Mutex
	out     frames
	watched map[uint32]*tally // by HTTP/2 stream
	moved   chan struct{}     // closed and replaced when a watched tally changes
	isCut   bool
}

// connAddr leads from a handler's peer to its connection. Addresses alone
// cannot: those of in-memory connections are all the same.
type connAddr struct {
	net.Addr

	conn *conn
}

func (c *conn) RemoteAddr() net.Addr { return connAddr{c.Conn.RemoteAddr(), c} }

func (c *conn) Write(b []byte) (int, error) {
	if c.wasCut() {
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Write(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out.write(b[:n], c.watched) {
		close(c.moved)
		c.moved = make(chan struct{})
	}
	return n, err
}

// Read, once the connection is cut, waits for the client to close its side and
// drops what still comes: new calls must not get in, and closing a TCP socket
// with unread bytes would send RST where FIN was asked for.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.wasCut() {
		return n, err
	}
	for err == nil {
		_, err = c.Conn.Read(b)
	}
	return 0, io.EOF
}

func (c *conn) wasCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isCut
}

// cut ends the connection at once: with FIN, or with RST if reset is set. An
// in-memory connection knows no RST and is closed in both cases; what was
// written before can still be read.
func (c *conn) cut(reset bool) {
	c.mu.Lock()
	c.isCut = true
	c.mu.Unlock()
	tcp, ok := c.Conn.(*net.TCPConn)
	// A connection that broke by itself meanwhile is as good as cut, so the
	// errors of these calls say nothing.
	switch {
	case !ok:
		_ = c.Close()
	case reset:
		_ = tcp.SetLinger(0)
		_ = c.Close()
	default:
		_ = tcp.CloseWrite()
	}
}

// watch starts to count what stream id writes; nothing of it may have been sent.
func (c *conn) watch(id uint32) *tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &tally{}
	c.watched[id] = t
	return t
}

func (c *conn) unwatch(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watched, id)
}

// awaitWritten blocks until so many blocks of headers and messages are written,
// or ctx has ended, which it does with the connection.
func (c *conn) awaitWritten(ctx context.Context, t *tally, headers, messages int) error {
	for {
		c.mu.Lock()
		done, moved := t.headers >= headers && t.messages >= messages, c.moved
		c.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// connOf returns the connection that a handler's call came in on.
func connOf(ctx context.Context) (*conn, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, errors.New("cannot find the connection: the context has no peer")
	}
	addr, ok := p.Addr.(connAddr)
	if !ok {
		return nil, errors.New("cannot find the connection: the credentials hide its address")
	}
	return addr.conn, nil
}

// streamOf returns the HTTP/2 stream of a handler's call, which is what tells
// its bytes from those of other calls on the same connection.
func streamOf(ctx context.Context) (uint32, error) {
	if p, ok := peer.FromContext(ctx); ok && encrypted(p) {
		return 0, errors.New("cannot see what was sent: the connection is encrypted")
	}
	// grpc has no call for this. The field is only read, and never changes
	// after the stream is made.
	v := reflect.Indirect(reflect.ValueOf(grpc.ServerTransportStreamFromContext(ctx)))
	if v.Kind() == reflect.Struct {
		if id := v.FieldByName("id"); id.Kind() == reflect.Uint32 {
			return uint32(id.Uint()), nil
		}
	}
	return 0, errors.New("cannot see what was sent: this version of grpc hides the stream's id")
}

func encrypted(p *peer.Peer) bool {
	if p.AuthInfo == nil {
		return false
	}
	info, ok := p.AuthInfo.(interface {
		GetCommonAuthInfo() credentials.CommonAuthInfo
	})
	return !ok || info.GetCommonAuthInfo().SecurityLevel != credentials.NoSecurity
}
