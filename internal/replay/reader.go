// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// Batch is the largest number of messages that a Reader offers at a time.
const Batch = 64

// readAhead is how much of the disk is read at a time.
const readAhead = 64 << 10

// Frame is a message that comes from the disk, encoded as it went there.
type Frame []byte

// Reader reads a Buffer's messages in order, from the first. It is used by one
// goroutine at a time; the zero Reader is ready.
//
// While it reads, the Buffer may grow, or be freed: then Next fails where it reads
// from the disk.
type Reader struct {
	at int // messages that were read

	memory [Batch]any
	read   int // of memory

	disk   extent
	stream *bufio.Reader // of disk
	frame  []byte
}

// Fill looks what there is, and returns how many messages Next can be asked for.
func (r *Reader) Fill(b *Buffer) int {
	n := b.read(r.at, r.memory[:])
	if r.read = 0; n == 0 && b.spill != nil {
		n = min(b.Len()-r.at, Batch)
		r.disk.file, r.disk.end = b.spill.file, b.spill.size
	}
	return n
}

// Next returns a message that Fill has offered. A Frame is valid until the next
// call. After an error there is nothing more to be read.
func (r *Reader) Next() (any, error) {
	r.at++
	if r.disk.file != nil {
		return r.next()
	}
	m := r.memory[r.read]
	r.read++
	return m, nil
}

// next reads a message from the disk.
func (r *Reader) next() (Frame, error) {
	if r.stream == nil {
		r.stream = bufio.NewReaderSize(&r.disk, readAhead)
	}
	begin := r.disk.offset - int64(r.stream.Buffered())
	size, err := binary.ReadUvarint(r.stream)
	if err == nil && size > uint64(r.disk.end-begin) {
		err = fmt.Errorf("%d bytes, beyond what was written", size)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the length of the message at %d: %w", ErrDamaged, begin, err)
	}
	whole := int(size) + sumSize
	r.frame = slices.Grow(r.frame[:0], whole)[:whole]
	if _, err := io.ReadFull(r.stream, r.frame); err != nil {
		return nil, fmt.Errorf("%w: a message of %d bytes at %d: %w", ErrDamaged, size, begin, err)
	}
	message := r.frame[:size]
	if binary.LittleEndian.Uint32(r.frame[size:]) != sum(begin, message) {
		return nil, fmt.Errorf("%w: the check sum of the message at %d differs", ErrDamaged, begin)
	}
	return message, nil
}

// extent is the part of a file that has been written. It may grow behind a reader
// that has come to its end.
type extent struct {
	file        File
	offset, end int64
}

// Read implements [io.Reader].
func (e *extent) Read(p []byte) (int, error) {
	p = p[:min(int64(len(p)), e.end-e.offset)]
	if len(p) == 0 {
		return 0, io.EOF
	}
	n, err := e.file.ReadAt(p, e.offset)
	e.offset += int64(n)
	return n, err
}
