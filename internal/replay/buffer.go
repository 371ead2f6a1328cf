// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Package replay keeps the input of a stream, so that it can be sent again: in
// memory, and beyond that in a file. It knows nothing of gRPC.
package replay

// Sizes of the pieces that a Buffer grows by: most streams are short, and what
// grows by doubling holds up to twice what it needs.
const (
	firstPiece = 8
	piece      = 128
)

// Buffer is a list of messages that grows at its end and is read by Readers. All
// its methods, and Reader.Fill, are for one goroutine at a time. It is made by New.
type Buffer struct {
	allowance *Allowance // nil once it is freed
	used      int64
	pieces    [][]any
	first     [firstPiece]any
	length    int    // of what is in memory
	spill     *spill // nil until something went there
}

// New returns a buffer that takes memory from the allowance, and beyond that the disk.
func New(allowance *Allowance) *Buffer {
	return &Buffer{allowance: allowance}
}

// Len returns how many messages were added.
func (b *Buffer) Len() int {
	if b.spill != nil {
		return b.length + b.spill.messages
	}
	return b.length
}

// Used returns the bytes of memory that are held now.
func (b *Buffer) Used() int64 { return b.used }

// Reserve takes the memory of a message that is to be appended; false if there is
// none left, or if messages were to go to the disk before.
func (b *Buffer) Reserve(size int64) bool {
	if b.spill != nil || b.allowance == nil || !b.allowance.reserve(size) {
		return false
	}
	b.used += size
	return true
}

// Append adds a message whose memory was reserved.
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

// Spill adds a message of size bytes, which encode appends to what it is given, to
// what is on the disk. If it fails nothing was added.
func (b *Buffer) Spill(size int, encode func([]byte) ([]byte, error)) error {
	if b.allowance == nil {
		return ErrFull
	}
	if b.spill == nil {
		b.spill = &spill{allowance: b.allowance}
	}
	return b.spill.add(size, encode)
}

// read copies messages in memory from position from on into out, and returns how
// many.
func (b *Buffer) read(from int, out []any) int {
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

// Free gives all memory back and forgets the messages. Nothing fits from then on. It
// returns the file on the disk, if there is one, which the caller closes: that may
// take its time, and reading from it fails from then on.
func (b *Buffer) Free() File {
	var file File
	if b.spill != nil {
		file = b.spill.file
		b.allowance.disk -= b.spill.size
	}
	if b.allowance != nil {
		b.allowance.release(b.used)
	}
	*b = Buffer{}
	return file
}
