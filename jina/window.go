// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"context"
	"sync"
)

// window bounds how many requests are under way or have responses that the caller has
// not done with, and how many bytes these requests are. It is for one goroutine that
// takes, and any number that give back.
type window struct {
	requests, bytes int // limits; 0 for none

	mu                        sync.Mutex
	takenRequests, takenBytes int
	freed                     chan struct{}
}

func newWindow(requests, bytes int) *window {
	return &window{requests: requests, bytes: bytes, freed: make(chan struct{}, 1)}
}

// take waits until there is room for a request of some bytes. One alone always has room.
func (w *window) take(ctx context.Context, bytes int) error {
	for !w.tryTake(bytes) {
		select {
		case <-w.freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (w *window) tryTake(bytes int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.takenRequests > 0 {
		if w.requests > 0 && w.takenRequests >= w.requests || w.bytes > 0 && w.takenBytes+bytes > w.bytes {
			return false
		}
	}
	w.takenRequests++
	w.takenBytes += bytes
	return true
}

// giveBack makes room.
func (w *window) giveBack(bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.takenRequests--
	w.takenBytes -= bytes
	select {
	case w.freed <- struct{}{}:
	default:
	}
}
