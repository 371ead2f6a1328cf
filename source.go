// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"errors"
	"io"
	"iter"
	"reflect"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// messages is one run of a source.
type messages = iter.Seq2[any, error]

// Source is a stretch of a stream's input, for [SendAll]. It is made by [Replayable]
// or [Once]. M is what the stream's Send method takes.
type Source[M any] struct {
	run   func() iter.Seq2[M, error]
	again bool
}

// Replayable returns a source that can be run again: a slice, a query, a file that is
// opened anew. open is called for each run, on a goroutine of the suite's if the run
// is a replay, and possibly while an earlier run still goes on. Each run must give
// the same messages as the first. A replay that gives fewer ends the call with
// DATA_LOSS; what it gives beyond the first is not asked for.
//
// Nothing of what is sent is kept, so the input may be of any length. Messages may be
// of any type, and may be reused by the source.
func Replayable[M any](open func() iter.Seq2[M, error]) Source[M] {
	return Source[M]{run: open, again: true}
}

// Once returns a source that can be run but once: a channel, a request body. What it
// gives is kept as what the stream's Send method is given; see [Buffer]. It is for one
// [SendAll].
func Once[M any](sequence iter.Seq2[M, error]) Source[M] {
	if sequence == nil {
		return Source[M]{}
	}
	var used atomic.Bool
	return Source[M]{run: func() iter.Seq2[M, error] {
		if used.Swap(true) {
			return failing[M](errUsed)
		}
		return sequence
	}}
}

// What sources are used for that cannot be.
var (
	errUsed  = status.Error(codes.Internal, "grpcretry: SendAll: the source was made by Once, and was used before")
	errNoRun = status.Error(codes.Internal, "grpcretry: SendAll: the function given to Replayable returned nil")
)

// failing is a sequence of an error.
func failing[M any](err error) iter.Seq2[M, error] {
	return func(yield func(M, error) bool) {
		var none M
		yield(none, err)
	}
}

// Sender is a stream as a stub makes it, that sends messages of one type.
type Sender[M any] interface {
	grpc.ClientStream
	Send(message M) error
}

// SendAll sends what a source gives on a stream. It does not half-close, so that
// other messages may come before and after. Like the stream's Send method, it must
// not be called while another call of it, or of Send, is under way. It returns when the
// source has ended or the stream has; a source that waits for something is not woken.
//
// An error that the source gives ends the call, and is SendAll's and the stream's: the
// attempt is cancelled, and the server does not take a part of the input for all of it.
// Its code is UNKNOWN if it has no status of its own. If the server had ended the call,
// or a retry was under way, the last failure is in the chain. A stream that ends before
// the source does is no error here; its Recv or CloseAndRecv knows the outcome.
//
// On a stream without a [Retrier], or of a call with [Disable], SendAll just sends, and
// keeps no server from taking a part of the input for all: after an error the caller
// must cancel the call, and not half-close. If an interceptor that was given before the
// Retrier's replaces the stream, or the stub's code has streams of its own making, as it
// had before gRPC had [grpc.GenericClientStream], a Replayable source is run once and
// kept as if it were [Once], since nobody knows what is done to messages in between.
func SendAll[M any](stream Sender[M], source Source[M]) error {
	switch {
	case stream == nil:
		return errors.New("grpcretry: SendAll: the stream is nil")
	case source.run == nil:
		return errors.New("grpcretry: SendAll: the source is nothing; give Replayable or Once a function")
	}
	return sendAll(stream, source.again, func() messages {
		run := source.run()
		if run == nil {
			run = failing[M](errNoRun)
		}
		return func(yield func(any, error) bool) {
			for m, err := range run {
				if !yield(m, err) {
					return
				}
			}
		}
	})
}

func sendAll(stream grpc.ClientStream, again bool, run func() messages) error {
	s, direct := streamOf(stream)
	if s != nil && direct && again {
		s.beginStretch(run)
		defer s.endStretch()
	}
	for m, err := range run() {
		if err != nil {
			return giveUp(s, err)
		}
		if err := stream.SendMsg(m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
	return nil
}

// giveUp ends the call with an error of its source's.
func giveUp(s *stream, err error) error {
	if passesForEnd(err) {
		err = status.Errorf(codes.Unknown,
			"grpcretry: SendAll: the source gave the error %q; a source ends by returning", err)
	}
	if s == nil {
		return err
	}
	return s.abort(err)
}

// streamOf returns the suite's stream that a stub's stream is made of, or nil. It is
// direct if what is sent on one is what is sent on the other: if nothing but gRPC's own
// generic stream, which has no behaviour of its own, is between them.
func streamOf(from grpc.ClientStream) (s *stream, direct bool) {
	const deepest = 100 // a stream that embeds itself must not keep us
	direct = true
	for range deepest {
		if s, ours := from.(*stream); ours {
			return s, direct
		}
		v := reflect.Indirect(reflect.ValueOf(from))
		if v.Kind() != reflect.Struct {
			return nil, false
		}
		direct = direct && generic(v.Type())
		if from = embedded(v); from == nil {
			return nil, false
		}
	}
	return nil, false
}

// embedded returns the stream that a struct embeds; nil if there is none to be seen.
func embedded(v reflect.Value) grpc.ClientStream {
	for i := range v.NumField() {
		if field := v.Field(i); v.Type().Field(i).Anonymous && field.CanInterface() {
			if inner, ok := reflect.TypeAssert[grpc.ClientStream](field); ok {
				return inner
			}
		}
	}
	return nil
}

// generic tells whether a type is gRPC's own stream of messages of certain types, as
// generated code returns it.
func generic(t reflect.Type) bool {
	return t.PkgPath() == reflect.TypeFor[grpc.ClientStream]().PkgPath() &&
		strings.HasPrefix(t.Name(), "GenericClientStream[")
}

// run is a run of a stretch beside that of the caller's own.
type run struct {
	of    *stretch
	given int
	pull  func() (any, error, bool)
	stop  func()
}

// next returns the next message of a stretch, from its beginning if another was read
// before. A panic of the source has no caller here that it could go to, so it becomes
// an error.
func (r *run) next(of *stretch) (m any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Errorf(codes.Internal, "grpcretry: the source of SendAll panicked: %v", p)
		}
	}()
	if r.of != of {
		r.close()
		r.of, r.given = of, 0
		r.pull, r.stop = iter.Pull2(of.run())
	}
	m, err, more := r.pull()
	if !more {
		return nil, status.Errorf(codes.DataLoss,
			"grpcretry: cannot replay: the source of SendAll ended after %d messages and gave more before", r.given)
	}
	r.given++
	return m, err
}

// close ends the run.
func (r *run) close() {
	defer func() { _ = recover() }() // of what nobody asks for any more
	if r.stop != nil {
		r.stop()
	}
}
