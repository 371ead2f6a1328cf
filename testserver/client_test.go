// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// outcome is what a client sees of a call.
type outcome struct {
	replies []*testv1.Response
	header  metadata.MD
	trailer metadata.MD
	err     error // nil for a clean end
}

// shape calls one method of TestService as a client of its kind would.
type shape struct {
	name   string
	method string
	desc   grpc.StreamDesc
}

var shapes = []shape{
	{"unary", testv1.TestService_Read_FullMethodName, grpc.StreamDesc{}},
	{"server stream", testv1.TestService_Download_FullMethodName, grpc.StreamDesc{ServerStreams: true}},
	{"client stream", testv1.TestService_Upload_FullMethodName, grpc.StreamDesc{ClientStreams: true}},
	{"bidi", testv1.TestService_Exchange_FullMethodName, grpc.StreamDesc{ServerStreams: true, ClientStreams: true}},
}

// most is n, or 1 for shapes that have but one response.
func (s shape) most(n int) int {
	if s.desc.ServerStreams {
		return n
	}
	return 1
}

// call sends the keys (the first alone, if the shape has but one request),
// half-closes, and reads to the end.
func (s shape) call(ctx context.Context, cc *grpc.ClientConn, keys ...string) outcome {
	if !s.desc.ClientStreams && !s.desc.ServerStreams {
		var o outcome
		reply := &testv1.Response{}
		o.err = cc.Invoke(ctx, s.method, &testv1.Request{Key: keys[0]}, reply, grpc.Header(&o.header), grpc.Trailer(&o.trailer))
		if o.err == nil {
			o.replies = append(o.replies, reply)
		}
		return o
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cs, err := cc.NewStream(ctx, &s.desc, s.method)
	if err != nil {
		return outcome{err: err}
	}
	if !s.desc.ClientStreams {
		keys = keys[:1]
	}
	for i, key := range keys {
		err := cs.SendMsg(&testv1.Request{Key: key, Sequence: int64(i + 1)})
		if errors.Is(err, io.EOF) {
			break // RecvMsg tells why
		}
		if err != nil {
			return outcome{err: err}
		}
	}
	if err := cs.CloseSend(); err != nil {
		return outcome{err: err}
	}
	return s.read(cs)
}

func (s shape) read(cs grpc.ClientStream) (o outcome) {
	for {
		reply := &testv1.Response{}
		err := cs.RecvMsg(reply)
		if err == nil {
			o.replies = append(o.replies, reply)
			if s.desc.ServerStreams {
				continue
			}
		} else if !errors.Is(err, io.EOF) {
			o.err = err
		}
		o.header, _ = cs.Header()
		o.trailer = cs.Trailer()
		return o
	}
}

// keysOf returns what the replies answer.
func keysOf(replies []*testv1.Response) []string {
	var keys []string
	for _, r := range replies {
		keys = append(keys, r.GetKey())
	}
	return keys
}

// fakeTB stands for a test that is expected to fail.
type fakeTB struct {
	testing.TB

	mu       sync.Mutex
	failed   string
	cleanups []func()
}

func (f *fakeTB) Helper() {}

func (f *fakeTB) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }

func (f *fakeTB) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed += fmt.Sprintf(format, args...)
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

// failure runs a test that is expected to fail, and returns what it said.
func failure(tb testing.TB, test func(tb testing.TB)) string {
	tb.Helper()
	f := &fakeTB{TB: tb}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, fn := range f.cleanups {
				fn()
			}
		}()
		test(f)
	}()
	<-done
	return f.failed
}
