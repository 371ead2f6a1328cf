// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// ErrFull means that a message finds no room.
var ErrFull = errors.New("no room")

// ErrDamaged means that the disk did not give back what it was given.
var ErrDamaged = errors.New("the spill file is damaged")

// Disk is where messages go that find no room in memory.
type Disk struct {
	Limit  int64                // bytes, of one allowance
	Create func() (File, error) // TempFile, usually
}

// File is a file that holds messages; an [os.File] is one.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// TempFile makes a file in the system's directory for temporary files. It has no
// name any more, so that nothing is left of it however the program ends, where the
// system allows that; elsewhere the name goes when the file is closed.
func TempFile() (File, error) {
	file, err := os.CreateTemp("", "grpcretry-*")
	if err != nil {
		return nil, err
	}
	if os.Remove(file.Name()) == nil {
		return file, nil
	}
	return named{file}, nil
}

// named is a file that cannot be removed while it is open.
type named struct {
	*os.File
}

func (n named) Close() error {
	return errors.Join(n.File.Close(), os.Remove(n.Name()))
}

// sumSize is what follows each message.
const sumSize = crc32.Size

// keptFrame is the largest frame whose memory is used again.
const keptFrame = 64 << 10

// sum is the check sum of a message. The offset at which its frame begins takes part,
// so that no message passes for another.
func sum(offset int64, message []byte) uint32 {
	castagnoli := crc32.MakeTable(crc32.Castagnoli) // it is there, and processors know it
	place := binary.LittleEndian.AppendUint64(make([]byte, 0, 8), uint64(offset))
	return crc32.Update(crc32.Checksum(place, castagnoli), castagnoli, message)
}

// spill is the part of a Buffer that is on the disk: frames of a message's length
// as a varint and the message, which is the framing of protodelim, and a check sum,
// which that has not, since a wrong replay is worse than none. Each is written at
// once, behind the last that was written whole.
type spill struct {
	allowance *Allowance
	file      File
	size      int64 // of all whole frames
	messages  int
	frame     []byte
}

// add writes a message.
func (s *spill) add(size int, encode func([]byte) ([]byte, error)) error {
	if int64(size)+binary.MaxVarintLen64+sumSize > s.allowance.Disk.Limit-s.allowance.disk {
		return ErrFull
	}
	frame := binary.AppendUvarint(s.frame[:0], uint64(size))
	head := len(frame)
	frame, err := encode(frame)
	if err != nil {
		return err
	}
	if len(frame)-head != size {
		return fmt.Errorf("the message has %d bytes and was to have %d", len(frame)-head, size)
	}
	frame = binary.LittleEndian.AppendUint32(frame, sum(s.size, frame[head:]))
	if s.file == nil {
		if s.file, err = s.allowance.Disk.Create(); err != nil {
			return fmt.Errorf("create a spill file: %w", err)
		}
	}
	if _, err := s.file.WriteAt(frame, s.size); err != nil {
		return fmt.Errorf("write to the spill file: %w", err)
	}
	s.size += int64(len(frame))
	s.allowance.disk += int64(len(frame))
	s.messages++
	if s.frame = nil; cap(frame) <= keptFrame {
		s.frame = frame
	}
	return nil
}
