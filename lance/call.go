// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package lance

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
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
	id       string   // of the last attempt
	made     []string // ids, for the calls around it too
	failures limits
}

// callKey is the key of a *call in its context.
type callKey struct{}

// begin returns the context of a call. The ids that the caller has given stay, but not those
// that were made for calls with whose contexts this one is made.
func (s *suite) begin(ctx context.Context, method string) context.Context {
	c := &call{suite: s, read: s.reads(method)}
	md, _ := metadata.FromOutgoingContext(ctx)
	given := md.Get(idKey)
	if outer := callOf(ctx); outer != nil {
		c.made = outer.allMade()
		given = slices.DeleteFunc(given, func(id string) bool { return slices.Contains(c.made, id) })
	}
	if c.own = len(given) == 0; c.own {
		given = []string{c.newID()}
	}
	c.id = given[len(given)-1]
	return context.WithValue(withIDs(ctx, md, given), callKey{}, c)
}

// allMade returns all ids that were made for the call, and for those around it.
func (c *call) allMade() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.made)
}

// withIDs returns the context with ids in place of those that the metadata have.
func withIDs(ctx context.Context, md metadata.MD, ids []string) context.Context {
	if len(md.Get(idKey)) == 0 {
		return metadata.AppendToOutgoingContext(ctx, idKey, ids[0])
	}
	md.Set(idKey, ids...) // it is a copy
	return metadata.NewOutgoingContext(ctx, md)
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
	c.mu.Lock()
	c.id = c.newID()
	id := c.id
	c.mu.Unlock()
	md, _ := metadata.FromOutgoingContext(ctx)
	return withIDs(ctx, md, []string{id})
}

// newID makes a random UUID. It needs the lock, once others know of the call.
func (c *call) newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	id := fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	c.made = append(c.made, id)
	return id
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
