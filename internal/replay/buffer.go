// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Package replay keeps the input of a stream, so that it can be sent again. It
// knows nothing of gRPC.
package replay

import "sync/atomic"

// Account bounds the bytes that many buffers hold together. It is safe for
// concurrent use.
type Account struct {
	limit int64
	used  atomic.Int64
}

// NewAccount returns an account of limit bytes.
func NewAccount(limit int64) *Account {
	return &Account{limit: limit}
}

// Used returns the bytes that are held now.
func (a *Account) Used() int64 { return a.used.Load() }

// reserve takes n bytes; false if there are not so many.
func (a *Account) reserve(n int64) bool {
	for {
		used := a.used.Load()
		if n > a.limit-used {
			return false
		}
		if a.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Sizes of the pieces that a Buffer grows by: most streams are short, and what
// grows by doubling holds up to twice what it needs.
const (
	firstPiece = 8
	piece      = 128
)

// Buffer is a list of messages that grows at its end and is read from anywhere.
// It is used by one goroutine at a time, and made by New.
type Buffer struct {
	limit   int64
	account *Account
	used    int64
	pieces  [][]any
	first   [firstPiece]any
	length  int
}

// New returns a buffer for at most limit bytes, which are also taken from the
// account.
func New(limit int64, account *Account) *Buffer {
	return &Buffer{limit: limit, account: account}
}

// Len returns how many messages were appended.
func (b *Buffer) Len() int { return b.length }

// Used returns the bytes that are held now.
func (b *Buffer) Used() int64 { return b.used }

// Reserve takes the bytes of a message that is to be appended; false if the buffer
// is full.
func (b *Buffer) Reserve(size int64) bool {
	if size > b.limit-b.used || !b.account.reserve(size) {
		return false
	}
	b.used += size
	return true
}

// Append adds a message whose bytes were reserved.
func (b *Buffer) Append(m any) {
	if b.length < firstPiece {
		b.first[b.length] = m
		b.length++
		return
	}
	last := len(b.pieces) - 1
	if last < 0 || len(b.pieces[last]) == piece {
		b.pieces = append(b.pieces, make([]any, 0, piece))
		last++
	}
	b.pieces[last] = append(b.pieces[last], m)
	b.length++
}

// Read copies messages from position from on into out, and returns how many.
func (b *Buffer) Read(from int, out []any) int {
	n := 0
	for ; n < len(out) && from+n < b.length; n++ {
		out[n] = b.at(from + n)
	}
	return n
}

func (b *Buffer) at(i int) any {
	if i < firstPiece {
		return b.first[i]
	}
	i -= firstPiece
	return b.pieces[i/piece][i%piece]
}

// Free gives all bytes back and forgets the messages. Nothing fits from then on.
func (b *Buffer) Free() {
	b.account.used.Add(-b.used)
	*b = Buffer{account: b.account}
}
