// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"fmt"
	"sync"
)

// owed are the requests of a stream without an answer. It is safe for concurrent use.
type owed struct {
	ids identities

	mu       sync.Mutex
	sent     int
	requests map[int]*request // by number
}

// add is called before a request is sent.
func (o *owed) add(r *request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent++
	o.requests[r.number] = r
}

// answered returns the request that a response is for.
func (o *owed) answered(id string) (*request, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	number, ours := o.ids.number(id)
	if !ours || number >= o.sent {
		return nil, fmt.Errorf("the gateway answered a request that was not sent: the request_id is %.100q", id)
	}
	r, waiting := o.requests[number]
	if !waiting {
		return nil, fmt.Errorf("the gateway answered request %d twice", number+1)
	}
	delete(o.requests, number)
	return r, nil
}

// left returns how many requests have no answer, and the first of them.
func (o *owed) left() (n int, first *request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.requests {
		if first == nil || r.number < first.number {
			first = r
		}
	}
	return len(o.requests), first
}
