// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// faultyFile is a spill file that fails as it is told.
type faultyFile struct {
	*os.File

	writes, failAt int   // fails the failAt-th write, from 1
	readFault      error // of every read
	cut            bool  // loses its last byte before the first read
}

func (f *faultyFile) WriteAt(p []byte, offset int64) (int, error) {
	if f.writes++; f.writes == f.failAt {
		n, err := f.File.WriteAt(p[:len(p)/2], offset)
		return n, errors.Join(err, errors.New("disk full"))
	}
	return f.File.WriteAt(p, offset)
}

func (f *faultyFile) ReadAt(p []byte, offset int64) (int, error) {
	if f.readFault != nil {
		return 0, f.readFault
	}
	if f.cut {
		info, err := f.Stat()
		if err != nil {
			return 0, err
		}
		f.cut = false
		if err := f.Truncate(info.Size() - 1); err != nil {
			return 0, err
		}
	}
	return f.File.ReadAt(p, offset)
}

// spillRig returns a rig whose streams keep but a message or two in memory, and what
// its observer is told of commits.
func spillRig(t *testing.T, b grpcretry.Buffer, file *faultyFile) (*rig, *[]string) {
	t.Helper()
	causes := &[]string{}
	if b.Memory == 0 {
		b.Memory = 150
	}
	if b.Disk == 0 {
		b.Disk = 1 << 20
	}
	r := newRig(t, anyCall, commits(causes), grpcretry.WithBuffer(b))
	if file != nil {
		grpcretry.WithFile(r.retrier, func() (grpcretry.File, error) {
			f, err := os.CreateTemp(t.TempDir(), "")
			file.File = f
			return file, err
		})
	}
	return r, causes
}

// sendTen sends ten messages on an upload, and returns how it ends.
func sendTen(t *testing.T, r *rig) (*testv1.Response, error) {
	t.Helper()
	stream, err := r.Upload(t.Context())
	require.NoError(t, err)
	message := &testv1.Request{Payload: make([]byte, 20)}
	for i := range 10 {
		message.Key = strconv.Itoa(i)
		if i%2 == 0 {
			message.Sequence = int64(i)
		}
		if err := stream.Send(proto.CloneOf(message)); err != nil {
			return nil, err
		}
	}
	return stream.CloseAndRecv()
}

var tenKeys = []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}

func TestSpillReplays(t *testing.T) {
	for name, b := range map[string]grpcretry.Buffer{
		"after memory":            {},
		"by reference":            {ByReference: true},
		"without memory":          {Memory: -1},
		"where others have Total": {Memory: 1 << 20, Total: 100},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, causes := spillRig(t, b, nil)
				r.server.Script(upload, busy.Received(5), busy.Received(10), busy)
				policy := anyCall
				policy.MaxAttempts = 4
				require.NoError(t, r.retrier.Update(grpcretry.WithPolicy(policy)))
				answer, err := sendTen(t, r)
				require.NoError(t, err)
				assert.Equal(t, "9", answer.GetKey())
				assert.Empty(t, *causes)
				attempts := r.server.Attempts()
				require.Len(t, attempts, 4)
				assert.Equal(t, tenKeys, keysOf(attempts[3].Requests))
				for i, m := range attempts[3].Requests {
					assert.Len(t, m.(*testv1.Request).GetPayload(), 20)
					assert.EqualValues(t, i-i%2, m.(*testv1.Request).GetSequence())
				}
				assert.Zero(t, grpcretry.Buffered(r.retrier))
			})
		})
	}
}

// TestSpillFaults holds what becomes of calls whose disk does not take their input:
// they commit, or fail if the buffer says so.
func TestSpillFaults(t *testing.T) {
	gone := func() (grpcretry.File, error) { return nil, os.ErrNotExist }
	for name, row := range map[string]struct {
		failAt int
		create func() (grpcretry.File, error)
		disk   int64
		cause  string
	}{
		"directory removed": {create: gone, cause: "the replay buffer is full: create a spill file: file does not exist"},
		"first write fails": {failAt: 1, cause: "the replay buffer is full: write to the spill file: disk full"},
		"later write fails": {failAt: 5, cause: "the replay buffer is full: write to the spill file: disk full"},
		"beyond Disk":       {disk: 150, cause: "the replay buffer is full"},
		"nothing fits Disk": {disk: 1, cause: "the replay buffer is full"},
	} {
		for _, fail := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", Fail"}[fail], func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					file := &faultyFile{failAt: row.failAt}
					r, causes := spillRig(t, grpcretry.Buffer{Disk: row.disk, Fail: fail}, file)
					if row.create != nil {
						grpcretry.WithFile(r.retrier, row.create)
					}
					answer, err := sendTen(t, r)
					if fail {
						require.ErrorIs(t, err, grpcretry.ErrBufferFull)
						assert.Equal(t, codes.ResourceExhausted, status.Code(err))
						assert.Contains(t, status.Convert(err).Message(), row.cause+", with Buffer.Memory of 150, Disk of ")
						assert.Empty(t, *causes)
						return
					}
					require.NoError(t, err)
					assert.Equal(t, "9", answer.GetKey())
					assert.Equal(t, []string{row.cause}, *causes)
					assert.Equal(t, tenKeys, keysOf(r.server.Attempts()[0].Requests))
					if file.File != nil {
						require.ErrorIs(t, file.Close(), os.ErrClosed, "the file was given back")
					}
				})
			})
		}
	}
}

// TestStreamOfOneAttemptNeedsNoBuffer: where there is no replay to give up, a buffer
// that is full is nobody's business.
func TestStreamOfOneAttemptNeedsNoBuffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, causes := spillRig(t, grpcretry.Buffer{Memory: -1, Fail: true}, nil)
		grpcretry.WithFile(r.retrier, func() (grpcretry.File, error) { return nil, os.ErrNotExist })
		require.NoError(t, r.retrier.Update(grpcretry.WithPolicy(grpcretry.Policy{MaxAttempts: 1})))
		_, err := sendTen(t, r)
		require.NoError(t, err)
		assert.Empty(t, *causes)
	})
}

// TestCommittedSaysWhy holds that the error of a stream that could not be replayed says
// what its input had against it.
func TestCommittedSaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, _ := spillRig(t, grpcretry.Buffer{Disk: 1}, nil)
		r.server.Script(upload, busy.Received(10))
		_, err := sendTen(t, r)
		require.ErrorIs(t, err, grpcretry.ErrCommitted)
		require.ErrorIs(t, err, grpcretry.ErrBufferFull)
		assert.ErrorContains(t, err, "the stream is committed and cannot be replayed: the replay buffer is full)")
	})
}

// TestSpillDamaged holds that a file that does not give back what was written ends
// the call, and never sends anything else.
func TestSpillDamaged(t *testing.T) {
	for name, row := range map[string]struct {
		file  *faultyFile
		cause string
	}{
		"unreadable": {&faultyFile{readFault: errors.New("input/output error")}, "input/output error"},
		"short":      {&faultyFile{cut: true}, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, _ := spillRig(t, grpcretry.Buffer{}, row.file)
				r.server.Script(upload, busy.Received(10))
				_, err := sendTen(t, r)
				require.ErrorIs(t, err, grpcretry.ErrLocal)
				assert.Equal(t, codes.DataLoss, status.Code(err))
				assert.ErrorContains(t, err, "grpcretry: cannot replay: the spill file is damaged: ")
				assert.ErrorContains(t, err, row.cause)
				assert.ErrorContains(t, err, "last failure: rpc error: code = Unavailable desc = busy")
				replayed := r.server.Await(t, testserver.Ended(2))[1]
				assert.True(t, replayed.Cancelled)
				for i, key := range keysOf(replayed.Requests) {
					assert.Equal(t, tenKeys[:9][i], key)
				}
				require.ErrorIs(t, row.file.Close(), os.ErrClosed)
			})
		})
	}
}

// TestSpillOneType holds that the disk takes messages of one type alone.
func TestSpillOneType(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, causes := spillRig(t, grpcretry.Buffer{Memory: -1}, nil)
		conn := r.server.Dial(r.retrier.DialOptions()...)
		stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, exchange)
		require.NoError(t, err)
		require.NoError(t, stream.SendMsg(&testv1.Request{Key: "a"}))
		require.NoError(t, stream.SendMsg(wrapperspb.String("a")))
		assert.Equal(t, []string{"the replay buffer is full: the message is of another type than those on the disk"}, *causes)
		for range 2 {
			response := &testv1.Response{}
			require.NoError(t, stream.RecvMsg(response))
			assert.Equal(t, "a", response.GetKey())
		}
	})
}

func TestSpillRefusesANegativeDisk(t *testing.T) {
	t.Parallel()
	_, err := grpcretry.New(grpcretry.WithBuffer(grpcretry.Buffer{Disk: -1, Total: -2}))
	assert.EqualError(t, err, "grpcretry: WithBuffer: Disk is -1; it must not be negative\n"+
		"WithBuffer: Total is -2; it must not be negative")
}

// TestSpillGivesBack holds that no file is left open, and no name of one, by streams
// of every fate.
func TestSpillGivesBack(t *testing.T) { //nolint:paralleltest // counts the files of the process
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	const descriptors = "/proc/self/fd"
	open := func() int {
		list, err := os.ReadDir(descriptors)
		if err != nil {
			t.Skip("the open files of a process cannot be counted here")
		}
		return len(list)
	}
	before := open()
	connect := plainStreams(t, func(stream grpc.ServerStream, previous int) error {
		for range 10 {
			if err := stream.RecvMsg(&testv1.Request{}); err != nil {
				return err
			}
		}
		if previous < 2 {
			return status.Error(codes.Unavailable, "busy")
		}
		return stream.SendMsg(&testv1.Response{})
	}, grpcretry.WithBuffer(grpcretry.Buffer{Memory: -1, Disk: 1 << 20}))
	client := testv1.NewTestServiceClient(connect(noWait))
	for way := range 40 {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := client.Upload(ctx)
		require.NoError(t, err)
		for range 1 + way%12 {
			if stream.Send(&testv1.Request{}) != nil {
				break
			}
		}
		if way%4 > 0 && way%12 >= 9 {
			_, err = stream.CloseAndRecv()
			require.NoError(t, err)
		}
		cancel()
	}
	for range 10_000 { // the last calls are still on their way out
		if open() == before {
			break
		}
		runtime.Gosched()
	}
	assert.Equal(t, before, open())
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, list)
}

// TestSpillReplaysMuch replays 64 MiB from the disk.
func TestSpillReplaysMuch(t *testing.T) {
	t.Parallel()
	replayFromDisk(t, 64<<20)
}

// TestSoakSpill replays 2 GiB.
func TestSoakSpill(t *testing.T) {
	soak(t)
	replayFromDisk(t, 2<<30)
}

// replayFromDisk sends so many bytes, fails, and compares what the replay brings.
func replayFromDisk(t *testing.T, total int) {
	t.Helper()
	const size = 256 << 10
	sums := make(chan []byte, 1)
	connect := plainStreams(t, func(stream grpc.ServerStream, previous int) error {
		hash, request := sha256.New(), &testv1.Request{}
		for {
			err := stream.RecvMsg(request)
			switch {
			case errors.Is(err, io.EOF) && previous == 0:
				return status.Error(codes.Unavailable, "busy")
			case errors.Is(err, io.EOF):
				sums <- hash.Sum(nil)
				return stream.SendMsg(&testv1.Response{})
			case err != nil:
				return err
			case previous > 0:
				hash.Write(request.GetPayload())
			}
		}
	}, grpcretry.WithBuffer(grpcretry.Buffer{Memory: 1 << 20, Disk: 4 << 30, Fail: true}))
	stream, err := testv1.NewTestServiceClient(connect(noWait)).Upload(t.Context())
	require.NoError(t, err)
	want, payload := sha256.New(), make([]byte, size)
	for i := range total / size {
		for j := 0; j < size; j += 8 {
			binary.LittleEndian.PutUint64(payload[j:], uint64(i*size+j)*0x9e3779b97f4a7c15)
		}
		want.Write(payload)
		require.NoError(t, stream.Send(&testv1.Request{Payload: payload}))
	}
	_, err = stream.CloseAndRecv()
	require.NoError(t, err)
	assert.Equal(t, want.Sum(nil), <-sums)
	attempts, _ := grpcretry.AttemptsFromMD(stream.Trailer())
	assert.Equal(t, 2, attempts)
}
