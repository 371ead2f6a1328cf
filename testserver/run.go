// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// run is one attempt on its way through its step.
type run struct {
	server *Server
	step   Step
	stream *stream
	ctx    context.Context // the transport's

	conn   *conn  // of a step that cuts
	id     uint32 // the HTTP/2 stream, if tally is set
	tally  *tally // of a step that promises bytes before it cuts
	closed bool   // the attempt's record is complete
}

// serve is the one handler behind every method.
func (s *Server) serve(_ any, ss grpc.ServerStream) error {
	ctx := ss.Context()
	name, _ := grpc.Method(ctx)
	a, step, scripted := s.begin(ctx, name)
	if fault := s.fault(); fault != nil {
		return s.end(ctx, a, internal(fault))
	}
	m, err := s.method(name)
	if err != nil {
		if !scripted {
			return s.end(ctx, a, status.Errorf(codes.Unimplemented, "testserver: %v", err))
		}
		m = unknown(name)
	}
	if step.handler != nil {
		m.serve = func(st *stream) error { return step.handler(st) }
	}
	st := s.newStream(ss, a, m, step)
	defer close(st.over)
	r := &run{server: s, step: step, stream: st, ctx: ctx}
	defer r.release()
	err = r.play()
	if r.closed {
		return err
	}
	return s.end(ctx, a, err)
}

func internal(err error) error {
	return status.Errorf(codes.Internal, "testserver: %v", err)
}

// play runs the step and returns the attempt's status.
func (r *run) play() error {
	if err := r.prepare(); err != nil {
		return err
	}
	if err := r.handle(); err != nil || r.step.end == endAnswer {
		return err
	}
	switch r.step.end {
	case endFail:
		return r.step.status.Err()
	case endHang:
		<-r.ctx.Done()
		return r.ctx.Err()
	default:
		return r.cut()
	}
}

// prepare does what comes before the handler.
func (r *run) prepare() error {
	if r.step.end == endCut || r.step.end == endReset {
		if err := r.aim(); err != nil {
			return internal(err)
		}
	}
	if err := pause(r.ctx, r.step.delay); err != nil {
		return err
	}
	if len(r.step.trailer) > 0 {
		r.stream.ServerStream.SetTrailer(r.step.trailer)
	}
	if err := r.header(); err != nil {
		return r.real(err)
	}
	if err := r.stream.prefetch(r.step.received); err != nil {
		return r.real(err)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *run) header() error {
	ss, md := r.stream.ServerStream, r.step.header
	if r.step.sendNow {
		return ss.SendHeader(md)
	}
	if len(md) > 0 {
		return ss.SetHeader(md)
	}
	return nil
}

// real keeps what says why the attempt's own context or the transport ended it,
// and makes anything else a fault of the script.
func (r *run) real(err error) error {
	if r.ctx.Err() != nil {
		return r.ctx.Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return internal(err)
}

// handle runs as much of the handler as the step asks for.
func (r *run) handle() error {
	step, st := r.step, r.stream
	var err error
	switch {
	case step.applied:
		err = st.method.serve(st)
	case step.limited && step.sent > 0:
		err = r.half()
	case step.limited || step.end != endAnswer:
		return nil
	default:
		return st.method.serve(st)
	}
	if r.ctx.Err() != nil {
		return r.ctx.Err()
	}
	if step.end == endAnswer && err != nil {
		return err
	}
	if st.sent < step.sent {
		return internal(fmt.Errorf("the step sends %d responses, the handler ended after %d with %v",
			step.sent, st.sent, status.Convert(err)))
	}
	return nil
}

// half runs the handler beside the attempt, which goes on without it as soon as
// enough responses are out.
func (r *run) half() error {
	ended := make(chan error, 1)
	r.server.loose.Go(func() { ended <- r.stream.method.serve(r.stream) })
	select {
	case <-r.stream.reached:
		return nil
	case err := <-ended:
		return err
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// aim finds the connection to cut and, if something must be out before, starts
// to watch what is written.
func (r *run) aim() error {
	c, err := connOf(r.ctx)
	if err != nil {
		return err
	}
	r.conn = c
	if !r.step.sendNow && r.step.sent == 0 {
		return nil
	}
	if r.id, err = streamOf(r.ctx); err != nil {
		return err
	}
	r.tally = c.watch(r.id)
	return nil
}

func (r *run) release() {
	if r.tally != nil {
		r.conn.unwatch(r.id)
	}
}

// cut waits until what the step promised is written, and ends the connection.
// The record is completed first: a client that has seen the end must find it.
func (r *run) cut() error {
	if r.tally != nil {
		if err := r.conn.awaitWritten(r.ctx, r.tally, 1, r.step.sent); err != nil {
			return err
		}
	}
	r.closed = true
	r.server.endCut(r.stream.attempt)
	r.conn.cut(r.step.end == endReset)
	return status.Error(codes.Unavailable, "testserver: the connection was cut")
}

// unknown stands in for a method that only a script for all methods knows.
func unknown(name string) *method {
	m := &method{name: name, clientStream: true, serverStream: true, newRequest: newEmpty, newResponse: newEmpty}
	m.serve = func(*stream) error {
		return status.Errorf(codes.Unimplemented, "testserver: method %q is in no linked or registered service", name)
	}
	return m
}
