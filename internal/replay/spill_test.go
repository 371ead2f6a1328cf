// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// memory is a file in memory that can be tampered with.
type memory struct {
	data   []byte
	fail   error // of the next write, half of which is done
	closed int
}

func (m *memory) WriteAt(p []byte, offset int64) (int, error) {
	n, err := len(p), m.fail
	if err != nil {
		n, m.fail = n/2, nil
	}
	if grow := int(offset) + n - len(m.data); grow > 0 {
		m.data = append(m.data, make([]byte, grow)...)
	}
	copy(m.data[offset:], p[:n])
	return n, err
}

func (m *memory) ReadAt(p []byte, offset int64) (int, error) {
	return bytes.NewReader(m.data).ReadAt(p, offset)
}

func (m *memory) Close() error {
	m.closed++
	return nil
}

// spilling returns a buffer without memory, and its file.
func spilling(limit int64) (*Buffer, *memory) {
	file := &memory{}
	return New(&Allowance{Memory: 0, Account: NewAccount(0), Disk: Disk{limit, func() (File, error) { return file, nil }}}), file
}

func spillBytes(b *Buffer, message []byte) error {
	return b.Spill(len(message), func(to []byte) ([]byte, error) { return append(to, message...), nil })
}

// readAll reads until there is nothing more, or an error.
func readAll(b *Buffer) (messages [][]byte, err error) {
	var r Reader
	for r.Fill(b) > 0 {
		m, err := r.Next()
		if err != nil {
			return messages, err
		}
		frame := m.(Frame)
		messages = append(messages, bytes.Clone(frame))
	}
	return messages, nil
}

// TestSpillFollowsMemory reads a buffer that has a part in memory and one on the
// disk, while it grows, several times.
func TestSpillFollowsMemory(t *testing.T) {
	t.Parallel()
	b := New(&Allowance{Memory: 10, Account: NewAccount(100), Disk: Disk{1 << 20, TempFile}})
	defer func() { assert.NoError(t, b.Free().Close()) }()
	var early Reader
	total := 0
	readOn := func() {
		for early.Fill(b) > 0 {
			m, err := early.Next()
			require.NoError(t, err)
			if total < 10 {
				require.Equal(t, byte(total), m)
			} else {
				require.Equal(t, Frame(bytes.Repeat([]byte{byte(total)}, total)), m)
			}
			total++
		}
	}
	for i := range 500 {
		if b.Reserve(1) {
			b.Append(byte(i))
		} else {
			require.NoError(t, spillBytes(b, bytes.Repeat([]byte{byte(i)}, i)))
		}
		if i%100 == 50 {
			readOn()
		}
	}
	readOn()
	assert.Equal(t, 500, total)
	assert.Equal(t, 500, b.Len())
	assert.EqualValues(t, 10, b.Used())
	early, total = Reader{}, 0
	readOn()
	assert.Equal(t, 500, total)
}

// TestSpillKeepsToTheDisk: what comes after a message on the disk must not overtake
// it, even if there is room in memory.
func TestSpillKeepsToTheDisk(t *testing.T) {
	t.Parallel()
	b := New(&Allowance{Memory: 10, Account: NewAccount(10), Disk: Disk{1 << 20, TempFile}})
	defer func() { assert.NoError(t, b.Free().Close()) }()
	assert.True(t, b.Reserve(1))
	b.Append(nil)
	assert.False(t, b.Reserve(10))
	require.NoError(t, spillBytes(b, make([]byte, 10)))
	assert.False(t, b.Reserve(1))
}

func TestSpillSizes(t *testing.T) {
	t.Parallel()
	b := New(&Allowance{Memory: 0, Account: NewAccount(0), Disk: Disk{math.MaxInt64, TempFile}})
	defer func() { assert.NoError(t, b.Free().Close()) }()
	sizes := []int{0, 1, 127, 128, 0, readAhead, readAhead + 1, keptFrame, 64 << 20, 5, 0}
	for i, size := range sizes {
		require.NoError(t, spillBytes(b, bytes.Repeat([]byte{byte(i)}, size)))
	}
	messages, err := readAll(b)
	require.NoError(t, err)
	require.Len(t, messages, len(sizes))
	for i, m := range messages {
		assert.Equal(t, bytes.Repeat([]byte{byte(i)}, sizes[i]), m)
	}
}

// TestSpillRefuses holds that a message that cannot be written is not there, and
// that those before and after it are.
func TestSpillRefuses(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	b, file := spilling(100)
	require.NoError(t, spillBytes(b, []byte("first")))
	assert.ErrorIs(t, spillBytes(b, make([]byte, 80)), ErrFull)
	file.fail = broken
	require.ErrorIs(t, spillBytes(b, []byte("second")), broken)
	require.ErrorIs(t, b.Spill(5, func([]byte) ([]byte, error) { return nil, broken }), broken)
	require.ErrorContains(t, b.Spill(5, func(to []byte) ([]byte, error) { return append(to, 1), nil }),
		"the message has 1 bytes and was to have 5")
	assert.Equal(t, 1, b.Len())
	require.NoError(t, spillBytes(b, []byte("third")))
	messages, err := readAll(b)
	require.NoError(t, err)
	assert.Equal(t, [][]byte{[]byte("first"), []byte("third")}, messages)
	assert.Equal(t, file, b.Free())
	assert.Nil(t, b.Free())
	assert.ErrorIs(t, spillBytes(b, nil), ErrFull, "nothing fits what was freed")
	assert.Zero(t, file.closed, "that is for who freed it")
}

func TestSpillWithoutDisk(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{0, -1, math.MinInt64} {
		b, _ := spilling(limit)
		assert.ErrorIs(t, spillBytes(b, nil), ErrFull)
		assert.Zero(t, b.Len())
	}
	// A message may take 14 bytes more.
	b, _ := spilling(114)
	assert.ErrorIs(t, spillBytes(b, make([]byte, 101)), ErrFull)
	assert.NoError(t, spillBytes(b, make([]byte, 100)))
	b = New(&Allowance{Memory: 0, Account: NewAccount(0), Disk: Disk{100, func() (File, error) { return nil, os.ErrPermission }}})
	assert.ErrorIs(t, spillBytes(b, nil), os.ErrPermission)
	assert.Nil(t, b.Free())
	b = New(&Allowance{Memory: 0, Account: NewAccount(0), Disk: Disk{100, func() (File, error) { return os.OpenFile("/dev/full", os.O_RDWR, 0) }}})
	if file, err := b.allowance.Disk.Create(); err == nil {
		require.NoError(t, file.Close())
		assert.ErrorContains(t, spillBytes(b, nil), "no space left")
		require.NoError(t, b.Free().Close())
	}
}

// TestSpillMemory holds that the memory to write a message is used again, but not for
// ever if it is much.
func TestSpillMemory(t *testing.T) {
	b, _ := spilling(math.MaxInt64)
	require.NoError(t, spillBytes(b, make([]byte, 1<<20)))
	assert.Nil(t, b.spill.frame)
	require.NoError(t, spillBytes(b, make([]byte, 100)))
	first := &b.spill.frame[0]
	require.NoError(t, spillBytes(b, make([]byte, 50)))
	assert.Same(t, first, &b.spill.frame[0])
	b.spill.frame = make([]byte, 0, keptFrame)
	require.NoError(t, spillBytes(b, make([]byte, 50)))
	assert.NotNil(t, b.spill.frame)
}

// TestSpillLength holds that a length which is damaged is not believed: there may not
// be so much memory.
func TestSpillLength(t *testing.T) {
	t.Parallel()
	b, file := spilling(math.MaxInt64)
	require.NoError(t, spillBytes(b, make([]byte, 100)))
	copy(file.data, binary.AppendUvarint(nil, 1<<40))
	_, err := readAll(b)
	assert.ErrorContains(t, err, "the spill file is damaged: the length of the message at 0: 1099511627776 bytes, beyond what was written")
	for i := range file.data {
		file.data[i] = 0xff
	}
	_, err = readAll(b)
	assert.ErrorContains(t, err, "binary: varint overflows a 64-bit integer")
}

func TestExtent(t *testing.T) {
	t.Parallel()
	e := extent{file: &memory{data: []byte("abc")}, offset: 1, end: 2}
	out := make([]byte, 2)
	n, err := e.Read(out)
	require.NoError(t, err)
	assert.Equal(t, "b", string(out[:n]))
	for range 2 {
		n, err = e.Read(out)
		assert.Zero(t, n)
		assert.Equal(t, io.EOF, err)
	}
	e.end = 3
	n, err = e.Read(out)
	require.NoError(t, err)
	assert.Equal(t, "c", string(out[:n]))
}

func TestReadingWhatWasFreed(t *testing.T) {
	t.Parallel()
	b := New(&Allowance{Memory: 0, Account: NewAccount(0), Disk: Disk{1 << 20, TempFile}})
	require.NoError(t, spillBytes(b, make([]byte, 10)))
	var r Reader
	require.Equal(t, 1, r.Fill(b))
	require.NoError(t, b.Free().Close())
	_, err := r.Next()
	assert.ErrorIs(t, err, os.ErrClosed)
	assert.Zero(t, new(Reader).Fill(b))
}

// TestTempFile holds that no name is left, and what it says if it cannot be.
func TestTempFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir)
	file, err := TempFile()
	require.NoError(t, err)
	if runtime.GOOS == "linux" {
		assert.Empty(t, entries(t, dir))
	}
	_, err = file.WriteAt([]byte("text"), 3)
	require.NoError(t, err)
	got := make([]byte, 7)
	_, err = file.ReadAt(got, 0)
	require.NoError(t, err)
	assert.Equal(t, "\x00\x00\x00text", string(got))
	require.NoError(t, file.Close())
	assert.Empty(t, entries(t, dir))

	kept, err := os.CreateTemp(dir, "")
	require.NoError(t, err)
	require.NoError(t, named{kept}.Close())
	assert.Empty(t, entries(t, dir))

	require.NoError(t, os.Remove(dir))
	_, err = TempFile()
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func entries(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	return list
}

// FuzzSpill writes messages, damages the file, and reads them: what is read must be
// what was written, up to an error that says that the file is damaged.
func FuzzSpill(f *testing.F) {
	const beyond = math.MaxUint16
	f.Add([]byte{3, 0, 5, 200, 0, 0, 1}, uint16(4), byte(1), uint16(beyond), uint16(beyond), uint16(0), uint16(0))
	f.Add([]byte{3, 0, 5}, uint16(0), byte(0), uint16(beyond), uint16(9), uint16(0), uint16(0))          // short
	f.Add([]byte{0, 1, 0, 7}, uint16(0), byte(0), uint16(0), uint16(beyond), uint16(0), uint16(0))       // zeroes
	f.Add([]byte{7, 7, 7, 7}, uint16(0), byte(0), uint16(beyond), uint16(beyond), uint16(0), uint16(12)) // a message in the place of another
	f.Add([]byte{7, 7}, uint16(12), byte(0xf0), uint16(beyond), uint16(beyond), uint16(0), uint16(0))    // a length
	f.Fuzz(func(t *testing.T, sizes []byte, at uint16, flip byte, zeroFrom, length, moveFrom, moveTo uint16) {
		b, file := spilling(math.MaxInt64)
		written := make([][]byte, len(sizes))
		for i, size := range sizes {
			written[i] = bytes.Repeat([]byte{byte(i) % 3}, int(size))
			require.NoError(t, spillBytes(b, written[i]))
		}
		original := bytes.Clone(file.data)
		if int(at) < len(file.data) {
			file.data[at] ^= flip
		}
		if moveFrom != moveTo {
			copy(file.data[min(int(moveTo), len(file.data)):], original[min(int(moveFrom), len(original)):])
		}
		clear(file.data[min(int(zeroFrom), len(file.data)):])
		if int(length) < len(file.data) {
			file.data = file.data[:length]
		}
		read, err := readAll(b)
		assert.LessOrEqual(t, len(read), len(written))
		for i, m := range read {
			require.Equal(t, written[i], m)
		}
		if bytes.Equal(original, file.data) {
			require.NoError(t, err)
		}
		if err != nil {
			assert.ErrorIs(t, err, ErrDamaged)
		} else {
			assert.Len(t, read, len(written))
		}
	})
}

// BenchmarkSpill writes and reads 64 MiB, beside a plain file that does the same.
func BenchmarkSpill(b *testing.B) {
	const messages, size = 64 << 10, 1 << 10
	message := make([]byte, size)
	b.Run("plain", func(b *testing.B) {
		b.SetBytes(messages * size)
		for b.Loop() {
			file, err := TempFile()
			require.NoError(b, err)
			for i := range messages {
				_, err := file.WriteAt(message, int64(i*size))
				require.NoError(b, err)
			}
			_, err = io.Copy(io.Discard, io.NewSectionReader(file, 0, messages*size))
			require.NoError(b, err)
			require.NoError(b, file.Close())
		}
	})
	b.Run("spill", func(b *testing.B) {
		b.SetBytes(messages * size)
		for b.Loop() {
			buffer := New(&Allowance{Memory: 0, Account: NewAccount(0), Disk: Disk{math.MaxInt64, TempFile}})
			for range messages {
				require.NoError(b, spillBytes(buffer, message))
			}
			var r Reader
			for r.Fill(buffer) > 0 {
				_, err := r.Next()
				require.NoError(b, err)
			}
			require.NoError(b, buffer.Free().Close())
		}
	})
}
