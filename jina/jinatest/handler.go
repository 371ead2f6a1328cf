// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jinatest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry/jina"
)

// Handler is what an executor does at one of its endpoints. It gets the documents of the
// request, or those that the executor before it returned, and the parameters of the
// request, Jina's own key __results__ included. It may keep the documents, but must not
// change them; the map is its own. What it returns goes on: nil without an error means
// the documents as they came, and a list without documents means none. It must not
// change afterwards.
//
// An error is an exception of the executor: an [Exception], or anything that wraps one,
// as it says, and any other error, a gRPC status too, as a RuntimeError with its text. A
// handler that panics or ends its goroutine (as FailNow does) is a RuntimeError that says
// so. [Unreachable] is different.
//
// The context is that of the call, and ends with it. Its incoming metadata are the
// client's, and grpc.SetTrailer adds trailing metadata to the call. The handlers of
// different requests run concurrently. A handler that goes on after the end of its
// context holds up nobody but [Gateway.Close] and [Service.Wait].
type Handler func(ctx context.Context, docs []jina.Document, parameters map[string]any) ([]jina.Document, error)

// result is what became of a handler; at most one of its fields is set.
type result struct {
	docs      []jina.Document
	exception *Exception
	lost      *status.Status // the executor could not be reached
}

// invoke runs a handler. It does so on a goroutine of its own, since a handler that ends
// its goroutine would take the request's with it, and the client would wait forever.
func invoke(ctx context.Context, f Handler, docs []jina.Document, parameters map[string]any) result {
	done := make(chan result, 1)
	go func() {
		r := failed("the handler ended its goroutine, as FailNow does")
		defer func() {
			if p := recover(); p != nil {
				r = failed(fmt.Sprintf("panic: %v", p))
				r.exception.Stacks = strings.Split(strings.TrimSpace(string(debug.Stack())), "\n")
			}
			done <- r
		}()
		r = judge(f(ctx, docs, parameters))
	}()
	return <-done
}

// judge looks at what a handler returned. It calls methods of the error, which may panic.
func judge(docs []jina.Document, err error) result {
	if err == nil {
		return result{docs: docs}
	}
	if lost, ok := errors.AsType[unreachable](err); ok {
		return result{lost: lost.status}
	}
	if e, ok := errors.AsType[*Exception](err); ok {
		return result{exception: e.valid()}
	}
	return failed(err.Error())
}

func failed(text string) result {
	e := &Exception{Name: "RuntimeError", Args: []string{text}}
	return result{exception: e.valid()}
}
