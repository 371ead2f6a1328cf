// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/internal/replay"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// seen is what a walk was seen to do: by the caller, the observer and the server.
type seen struct {
	created   bool // the stream was
	sent      []*testv1.Request
	closed    bool
	responses []*testv1.Response
	final     error // what the last receive returned; nil if there was none
	sendErrs  []error
	elapsed   time.Duration // until the receiver was done

	gotHeader   int // how many attempts the server knew when a header was returned; 0 for none
	gotResponse int // or the first response
	context     bool

	option   metadata.MD // grpc.Trailer
	trailer  metadata.MD // of the stream
	finished []error     // OnFinish
	early    []string    // what was not as it must be at once

	journal []grpcretry.Attempt
	done    []doneCall
	commits []error

	attempts      []testserver.Attempt
	opened, files int
	buffered      int64
}

// walker takes a walk.
type walker struct {
	*walk

	mu     sync.Mutex // seen's, whose fields two goroutines and hooks write
	seen   seen
	server *testserver.Server
	cancel context.CancelFunc
}

// take takes the walk and returns what the model cannot explain of it.
func (w *walk) take(t *testing.T) (problems []string) {
	defer func() {
		if p := recover(); p != nil {
			problems = append(problems, fmt.Sprint(p)) // a deadlock or a leak, says synctest
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		r := &walker{walk: w}
		r.run(t)
		problems = explain(w, &r.seen)
	})
	return problems
}

func (r *walker) run(t *testing.T) {
	r.server = testserver.New(t)
	r.serve()
	retrier, err := grpcretry.New(r.options()...)
	if err != nil {
		t.Fatal(err)
	}
	grpcretry.WithRandom(retrier, middle)
	grpcretry.WithFile(retrier, r.file)
	conn := r.server.Dial(append(retrier.DialOptions(), steady)...)
	if r.outage > 0 {
		time.AfterFunc(r.outage, func() {
			r.server.Stop()
			time.AfterFunc(50*time.Millisecond, func() { _ = r.server.Start() })
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.cancel = cancel
	if r.walk.cancel > 0 {
		time.AfterFunc(r.walk.cancel, cancel)
	}
	begun := time.Now()
	stream, err := conn.NewStream(ctx,
		&grpc.StreamDesc{ClientStreams: r.method != download, ServerStreams: r.method != upload},
		r.method, grpc.Trailer(&r.seen.option), grpc.OnFinish(r.finish))
	if err != nil {
		r.seen.final = err
	} else {
		r.seen.created = true
		r.use(stream)
	}
	r.seen.elapsed = time.Since(begun)
	time.Sleep(time.Second) // attempts that were cancelled have ended by then
	synctest.Wait()
	r.seen.attempts = r.server.Attempts()
	r.seen.buffered = grpcretry.Buffered(retrier)
	if stream != nil {
		r.seen.trailer = stream.Trailer()
	}
}

func (r *walker) options() []grpcretry.Option {
	p := r.policy
	p.Recovery = r.recoverBy()
	if r.hooked {
		p.Retryable = func(f grpcretry.Failure) bool { return f.Listed }
	}
	options := []grpcretry.Option{
		grpcretry.WithPolicy(p),
		grpcretry.WithBuffer(r.buffer),
		grpcretry.WithObserver(grpcretry.Observer{
			Attempt: func(_ context.Context, _ string, a grpcretry.Attempt) {
				r.note(func(s *seen) { s.journal = append(s.journal, a) })
			},
			Commit: func(_ context.Context, _ string, cause error) {
				r.note(func(s *seen) { s.commits = append(s.commits, cause) })
			},
			Done: func(_ context.Context, method string, attempts []grpcretry.Attempt, err error) {
				r.note(func(s *seen) { s.done = append(s.done, doneCall{method, attempts, err}) })
			},
		}),
	}
	if r.hooked {
		options = append(options, grpcretry.WithAttemptContext(func(ctx context.Context, n int) context.Context {
			return metadata.AppendToOutgoingContext(ctx, "x-attempt", strconv.Itoa(n))
		}))
	}
	return options
}

func (r *walker) note(f func(*seen)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.seen)
}

func (r *walker) finish(err error) {
	r.note(func(s *seen) { s.finished = append(s.finished, err) })
}

// countedFile is a spill file that is counted.
type countedFile struct {
	replay.File

	r *walker
}

func (r *walker) file() (grpcretry.File, error) {
	file, err := replay.TempFile()
	r.note(func(s *seen) { s.opened++ })
	return countedFile{file, r}, err
}

func (f countedFile) Close() error {
	f.r.note(func(s *seen) { s.files++ })
	return f.File.Close()
}

// use does with the stream what the walk says, on two goroutines.
func (r *walker) use(stream grpc.ClientStream) {
	var tasks sync.WaitGroup
	if r.method == download {
		r.sender(stream)
	} else {
		tasks.Go(func() { r.sender(stream) })
	}
	tasks.Go(func() { r.receiver(stream) })
	tasks.Wait()
}

// sender does what the walk sends. After an error it half-closes all the same, as a
// caller does who leaves all errors to the end.
func (r *walker) sender(stream grpc.ClientStream) {
	message := &testv1.Request{}
	var err error
	for _, o := range r.send {
		switch {
		case o.does == closes:
			r.note(func(s *seen) { s.closed = err == nil })
			if err := stream.CloseSend(); err != nil {
				r.note(func(s *seen) { s.early = append(s.early, "CloseSend: "+err.Error()) })
			}
			continue
		case err != nil:
			continue
		case o.does == sends:
			message = r.next(message, len(r.seen.sent), o.size)
			r.note(func(s *seen) { s.sent = append(s.sent, proto.CloneOf(message)) })
			err = stream.SendMsg(message)
		case o.does == sendsOne || o.does == sendsAll:
			err = r.sendAll(stream, o)
		default:
			r.other(stream, o)
		}
		if err != nil {
			r.note(func(s *seen) { s.sendErrs = append(s.sendErrs, err) })
		}
	}
}

// next returns the index-th message: in the memory of the last one, which is spoilt
// thereby, unless that is promised to stay.
func (r *walker) next(last *testv1.Request, index, size int) *testv1.Request {
	if r.buffer.ByReference {
		last = &testv1.Request{}
	}
	if len(last.GetPayload()) != size {
		last.Payload = make([]byte, size)
	}
	for i := range last.GetPayload() {
		last.Payload[i] = byte(index)
	}
	last.Sequence = int64(index)
	return last
}

func (r *walker) sendAll(stream grpc.ClientStream, o op) error {
	first := len(r.seen.sent)
	sequence := func(yield func(*testv1.Request, error) bool) {
		message := &testv1.Request{}
		for i := range o.n {
			message = r.next(message, first+i, o.size)
			r.note(func(s *seen) {
				if len(s.sent) == first+i {
					s.sent = append(s.sent, proto.CloneOf(message))
				}
			})
			if !yield(message, nil) {
				return
			}
		}
		if o.fails {
			yield(nil, errBroken)
		}
	}
	stub := &grpc.GenericClientStream[testv1.Request, testv1.Response]{ClientStream: stream}
	if o.does == sendsOne {
		return grpcretry.SendAll(stub, grpcretry.Once(sequence))
	}
	return grpcretry.SendAll(stub, grpcretry.Replayable(func() requestSeq { return sequence }))
}

func (r *walker) receiver(stream grpc.ClientStream) {
	for _, o := range r.receive {
		if o.does != receives {
			r.other(stream, o)
		} else if !r.receiveOne(stream) {
			return
		}
	}
	if r.drop {
		r.cancel()
		return
	}
	for r.receiveOne(stream) {
		continue
	}
}

func (r *walker) receiveOne(stream grpc.ClientStream) bool {
	m := &testv1.Response{}
	err := stream.RecvMsg(m)
	r.note(func(s *seen) {
		if err != nil {
			s.final = err
		} else {
			s.responses = append(s.responses, m)
			if s.gotResponse == 0 {
				s.gotResponse = len(r.server.Attempts())
			}
		}
		if (err != nil || r.method == upload) && len(s.finished) != 1 {
			s.early = append(s.early, fmt.Sprintf("OnFinish was called %d times when Recv returned (%v, %v)", len(s.finished), m, err))
		}
	})
	return err == nil
}

func (r *walker) other(stream grpc.ClientStream, o op) {
	switch o.does {
	case waits:
		time.Sleep(o.sleep)
	case headers:
		if md, err := stream.Header(); err == nil && md != nil {
			r.note(func(s *seen) {
				if s.gotHeader == 0 {
					s.gotHeader = len(r.server.Attempts())
				}
			})
		}
	case commitsC:
		stream.Context()
		r.note(func(s *seen) { s.context = true })
	default:
		r.note(func(s *seen) { s.early = append(s.early, fmt.Sprintf("nobody knows how to %v", o)) })
	}
}

// serve sets the server up. Each response has the number of its attempt.
func (r *walker) serve() {
	r.server.Handle(download, func(ss grpc.ServerStream) error {
		request := &testv1.Request{}
		if err := ss.RecvMsg(request); err != nil {
			return err
		}
		for i := int(request.GetSequence()); i < r.answers; i++ {
			if err := ss.SendMsg(r.answer(ss, i)); err != nil {
				return err
			}
		}
		return nil
	})
	r.server.Handle(upload, func(ss grpc.ServerStream) error {
		for n := 0; ; n++ {
			if err := ss.RecvMsg(&testv1.Request{}); errors.Is(err, io.EOF) {
				answer := r.answer(ss, 0)
				answer.Count = int64(n)
				return ss.SendMsg(answer)
			} else if err != nil {
				return err
			}
		}
	})
	r.server.Handle(exchange, func(ss grpc.ServerStream) error {
		for {
			request := &testv1.Request{}
			if err := ss.RecvMsg(request); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if err := ss.SendMsg(r.answer(ss, int(request.GetSequence()))); err != nil {
				return err
			}
		}
	})
	script := make([]testserver.Step, len(r.script))
	for i, h := range r.script {
		script[i] = h.step()
	}
	r.server.Script(r.method, script...)
}

func (r *walker) answer(ss grpc.ServerStream, index int) *testv1.Response {
	if r.slow {
		time.Sleep(time.Millisecond)
	}
	return &testv1.Response{Key: attemptKey(ss), Sequence: int64(index)}
}

func attemptKey(ss grpc.ServerStream) string {
	return strconv.Itoa(grpcretry.PreviousAttempts(ss.Context()) + 1)
}

// endEarly reads some requests, answers the first of them or none, and ends well.
func endEarly(reads int, answers bool) func(grpc.ServerStream) error {
	return func(ss grpc.ServerStream) error {
		first, read := int64(0), 0
		for ; read < reads; read++ {
			request := &testv1.Request{}
			if ss.RecvMsg(request) != nil {
				break
			}
			if read == 0 {
				first = request.GetSequence()
			}
		}
		if answers && (read > 0 || reads == 0) {
			return ss.SendMsg(&testv1.Response{Key: attemptKey(ss), Sequence: first})
		}
		return nil
	}
}
