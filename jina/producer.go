// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/status"
)

// producer is the goroutine that draws a Post's input and sends it.
type producer struct {
	ended chan struct{} // closed when it has
	err   error         // of the input, or of the context; for after that
}

// errGoexit is the error of an input that ended its goroutine, as tests do that fail.
var errGoexit = errors.New("the input called runtime.Goexit")

func produce(send func() error) *producer {
	p := &producer{ended: make(chan struct{}), err: errGoexit}
	go func() {
		defer close(p.ended)
		p.err = send()
	}()
	return p
}

// ending returns what a Post ends with whose requests all have an answer: nothing,
// unless its input failed.
func (p *post) ending(ctx context.Context, err error) answer {
	switch ended := ctx.Err(); {
	case err == nil:
		return answer{}
	case ended != nil && errors.Is(err, ended):
		return answer{err: newError(ctx, p.endpoint, "", nil, status.FromContextError(ended).Err())}
	}
	cause := fmt.Errorf("the input failed: %w", err)
	return answer{err: &Error{Endpoint: p.endpoint, Class: ErrBadClientInput, Cause: cause}}
}
