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
	fatal *answer       // if it did not return
}

// errGoexit is the error of what ended its goroutine, as tests do that fail.
var errGoexit = errors.New("the input, or a hook, has called runtime.Goexit")

func (p *post) produce(send func() error) *producer {
	all := &producer{ended: make(chan struct{})}
	go func() {
		returned := false
		defer close(all.ended)
		defer func() {
			if !returned {
				fatal := p.fatal(recover())
				all.fatal = &fatal
			}
		}()
		all.err = send()
		returned = true
	}()
	return all
}

// fatal returns the answer of a goroutine that did not get on: the panic, for whoever
// ranges over the Post, or if there was none, an error.
func (p *post) fatal(panicked any) answer {
	if panicked != nil {
		return answer{panicked: panicked}
	}
	return answer{err: badInput(p.endpoint, errGoexit)}
}

// ending returns what a Post ends with whose requests all have an answer: nothing,
// unless its input failed.
func (p *post) ending(ctx context.Context, of *producer) answer {
	err, ended := of.err, ctx.Err()
	switch {
	case of.fatal != nil:
		return *of.fatal
	case err == nil:
		return answer{}
	case ended != nil && errors.Is(err, ended):
		return answer{err: newError(ctx, p.endpoint, "", nil, status.FromContextError(ended).Err())}
	}
	return answer{err: badInput(p.endpoint, fmt.Errorf("the input failed: %w", err))}
}
