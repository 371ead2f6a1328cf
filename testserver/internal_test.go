// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// A cut is a clean FIN even when bytes are unread, which makes a plain close
// send RST; and what still comes does not get in.
func TestCutWithUnreadBytes(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer inner.Close()
	client, err := net.Dial("tcp", inner.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	server, err := listener{inner}.Accept()
	require.NoError(t, err)
	defer server.Close()

	_, err = client.Write([]byte("ab"))
	require.NoError(t, err)
	_, err = io.ReadFull(server, make([]byte, 1)) // so the other byte is there too
	require.NoError(t, err)
	server.(*conn).cut(false)
	_, err = client.Read(make([]byte, 1))
	assert.Equal(t, io.EOF, err)
	_, err = server.Write([]byte("c"))
	assert.ErrorIs(t, err, net.ErrClosed)

	_, err = client.Write([]byte("d"))
	require.NoError(t, err)
	require.NoError(t, client.Close())
	n, err := server.Read(make([]byte, 1))
	assert.Equal(t, io.EOF, err)
	assert.Zero(t, n)
}

// What a handler does after its attempt's end is not part of the record.
func TestRecordIsComplete(t *testing.T) {
	s := New(t)
	a, _, _ := s.begin(context.Background(), "/a/b")
	s.received(a, &testv1.Request{})
	s.endCut(a)
	s.received(a, &testv1.Request{})
	s.halfClosed(a)
	require.NoError(t, s.end(context.Background(), a, nil))
	got := s.Attempts()[0]
	assert.Len(t, got.Requests, 1)
	assert.False(t, got.HalfClosed)
	assert.Nil(t, got.Status)
}
