// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package lance

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"

	"google.golang.org/grpc/metadata"

	"github.com/seed98143e88/grpcretry"
)

// idKey is the metadata key of a request's id.
const idKey = "x-request-id"

// call is one call: its id, and how its attempts failed. A stream may be used by two
// goroutines at a time.
type call struct {
	suite *suite
	read  bool
	own   bool // its id was made for it

	mu       sync.Mutex
	id       string // of the last attempt
	failures limits
}

// callKey is the key of a *call in its context.
type callKey struct{}

// begin returns the context of a call. The ids that the caller has given stay, but not one
// that was made for another call, with whose context this one is made.
func (s *suite) begin(ctx context.Context, method string) context.Context {
	c := &call{suite: s, read: s.reads(method)}
	md, _ := metadata.FromOutgoingContext(ctx)
	given := md.Get(idKey)
	outer := callOf(ctx)
	if len(given) > 0 && !(outer != nil && outer.made(given)) {
		c.id = given[len(given)-1]
		return context.WithValue(ctx, callKey{}, c)
	}
	c.own, c.id = true, newID()
	return context.WithValue(withID(ctx, md, c.id), callKey{}, c)
}

// withID returns the context with an id in place of those that the metadata have.
func withID(ctx context.Context, md metadata.MD, id string) context.Context {
	if len(md.Get(idKey)) == 0 {
		return metadata.AppendToOutgoingContext(ctx, idKey, id)
	}
	md.Set(idKey, id) // it is a copy
	return metadata.NewOutgoingContext(ctx, md)
}

// made tells whether ids are one that was made for the call.
func (c *call) made(ids []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own && len(ids) == 1 && ids[0] == c.id
}

// callOf returns the call that a context is of; nil if it is of none.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// attemptContext gives each further attempt of a write an id of its own.
func attemptContext(ctx context.Context, attempt int) context.Context {
	c := callOf(ctx)
	if c == nil || attempt == 1 || c.read || !c.own {
		return ctx
	}
	id := newID()
	c.mu.Lock()
	c.id = id
	c.mu.Unlock()
	md, _ := metadata.FromOutgoingContext(ctx)
	return withID(ctx, md, id)
}

// newID returns a random UUID.
func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// failed counts a failure of an attempt.
func (c *call) failed(f *grpcretry.Failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f.Kind {
	case grpcretry.Connect:
		c.failures.connect++
	case grpcretry.Answered:
		c.failures.request++
	case grpcretry.Lost:
		c.failures.read++
	case grpcretry.Local:
	}
}

// observed returns the caller's observer, which counts failures too.
func (s *suite) observed() grpcretry.Observer {
	o, told := s.observer, s.observer.Attempt
	o.Attempt = func(ctx context.Context, method string, a grpcretry.Attempt) {
		if c := callOf(ctx); c != nil && a.Failure != nil {
			c.failed(a.Failure)
		}
		if told != nil {
			told(ctx, method, a)
		}
	}
	return o
}
