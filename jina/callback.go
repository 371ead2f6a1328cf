// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// callback is a function that is told of responses, and the option that it is from.
type callback struct {
	name string
	f    func(*Response) error
}

// tell tells the callbacks of a response, and returns why the Post ends with it, if it
// does.
func (p *post) tell(ctx context.Context, r *Response) error {
	failure := r.Err()
	switch {
	case failure == nil:
		if err := p.call(ctx, p.onDone, r); err != nil {
			return err
		}
	case p.onError.f != nil:
		if err := p.call(ctx, p.onError, r); err != nil {
			return err
		}
	case p.continueOnError:
		p.log(ctx, failure, r)
	default:
		return failure
	}
	return p.call(ctx, p.onAlways, r)
}

// call calls a callback, if there is one.
func (p *post) call(ctx context.Context, c callback, r *Response) error {
	if c.f == nil {
		return nil
	}
	failure := c.guarded(r)
	if failure == nil {
		return nil
	}
	failure.Endpoint = p.endpoint
	if p.continueOnError {
		p.log(ctx, failure, r)
		return nil
	}
	return failure
}

// guarded calls the callback, and returns how it failed, if it did.
func (c callback) guarded(r *Response) (failure *CallbackError) {
	defer func() {
		if p := recover(); p != nil {
			failure = &CallbackError{Callback: c.name, Cause: fmt.Errorf("panic: %v", p), Stack: debug.Stack()}
			if err, isError := p.(error); isError {
				failure.Cause = fmt.Errorf("panic: %w", err)
			}
		}
	}()
	if err := c.f(r); err != nil {
		return &CallbackError{Callback: c.name, Cause: err}
	}
	return nil
}

// log tells of an error after which the Post goes on.
func (p *post) log(ctx context.Context, err error, r *Response) {
	attributes := []slog.Attr{
		slog.String("endpoint", p.endpoint),
		slog.String("request_id", r.RequestID()),
		slog.Any("error", err),
	}
	if failed, ok := errors.AsType[*ExecutorError](err); ok {
		attributes = append(attributes, slog.String("executor", failed.Executor), slog.String("exception", failed.Name))
	}
	p.logger.LogAttrs(ctx, slog.LevelError, "jina: continuing on error", attributes...)
}
