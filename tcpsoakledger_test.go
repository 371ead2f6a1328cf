// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"math/rand/v2"

	"github.com/seed98143e88/grpcretry"
)

// tcpCallKey is the key under which the context of a call holds it.
type tcpCallKey struct{}

// tcpObserver takes down what it is told of a call in the call.
func tcpObserver() grpcretry.Observer {
	return grpcretry.Observer{
		Attempt: func(ctx context.Context, _ string, _ grpcretry.Attempt) {
			c := ctx.Value(tcpCallKey{}).(*tcpCall)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.observed++
		},
		Commit: func(ctx context.Context, _ string, cause error) {
			ctx.Value(tcpCallKey{}).(*tcpCall).failf("committed by %v", cause)
		},
		Done: func(ctx context.Context, _ string, attempts []grpcretry.Attempt, err error) {
			c := ctx.Value(tcpCallKey{}).(*tcpCall)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.told++
			c.history, c.doneErr = attempts, err
		},
	}
}

// arrival is an attempt that reached the server's handler, whose it is until it has
// ended.
type arrival struct {
	call     *tcpCall
	previous int // as the client says
	life     int // of the server
	hangs    bool
	failsAt  int // the step at which it fails; 0 if it does not

	steps    int
	received int
	hash     hash.Hash // of what it received
	ended    bool
	err      error
}

// arrive adds an attempt. What is to become of it follows from the call's seed.
func (c *tcpCall) arrive(previous, life int) *arrival {
	random := rand.New(rand.NewPCG(c.seed, uint64(previous)))
	a := &arrival{call: c, previous: previous, life: life, hash: sha256.New()}
	a.hangs = c.timed && previous == 0 && random.IntN(2) == 0
	if random.IntN(8) == 0 {
		a.failsAt = 1 + random.IntN(len(c.pieces))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrivals = append(c.arrivals, a)
	return a
}

// end takes down how the handler ended.
func (a *arrival) end(err error) {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	a.ended, a.err = true, err
}

// check holds law 1, one ledger, for a call of which neither side will hear again:
// server, metadata and observer know of the same attempts.
func (c *tcpCall) check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	attempts, ok := grpcretry.AttemptsFromMD(c.trailer)
	if !ok {
		c.failf("trailer %v", c.trailer)
		return
	}
	c.checkArrivals(attempts)
	c.checkHistory(attempts)
	if c.got > 0 && (c.tag > int64(attempts) || c.protocol == noRecovery && c.tag != int64(attempts)) {
		c.failf("the responses are of attempt %d of %d", c.tag, attempts)
	}
	if c.err != nil {
		return
	}
	winner := c.arrival(attempts)
	switch {
	case winner == nil:
		c.failf("ended well with attempt %d, which never arrived", attempts)
	case winner.err != nil:
		c.failf("ended well with attempt %d, for which the server has %v", attempts, winner.err)
	case (c.protocol == noRecovery || c.protocol == repeated) && !bytes.Equal(winner.hash.Sum(nil), c.sum()):
		c.failf("ended well, though the server has %d of %d requests, or others", winner.received, c.requests())
	}
}

// arrival returns an attempt that arrived, by its number; nil if it did not.
func (c *tcpCall) arrival(number int) *arrival {
	for _, a := range c.arrivals {
		if a.previous == number-1 {
			return a
		}
	}
	return nil
}

// checkArrivals holds that each attempt arrived at most once, and in order, as far
// as the server can tell: of one life it starts handlers in any order.
func (c *tcpCall) checkArrivals(attempts int) {
	for i, a := range c.arrivals {
		if !a.ended {
			c.failf("attempt %d is still running", a.previous+1)
		}
		if a.previous >= attempts {
			c.failf("attempt %d arrived of %d", a.previous+1, attempts)
		}
		for _, earlier := range c.arrivals[:i] {
			if earlier.previous == a.previous || earlier.life != a.life && earlier.previous > a.previous {
				c.failf("attempt %d arrived in life %d, after attempt %d in life %d",
					a.previous+1, a.life, earlier.previous+1, earlier.life)
			}
		}
	}
}

// checkHistory holds the history against the trailer and what arrived. An attempt
// that was answered did arrive, and one that never left the client did not; this
// implies the bounds of how many arrived.
func (c *tcpCall) checkHistory(attempts int) {
	if c.told == 0 && attempts == 1 && c.err == nil && c.observed == 0 {
		return
	}
	if c.told != 1 || len(c.history) != attempts || c.observed != attempts {
		c.failf("%d attempts, %d observed; the observer was told %d times of the end, of %d attempts",
			attempts, c.observed, c.told, len(c.history))
	}
	if !errors.Is(c.doneErr, c.err) {
		c.failf("ended with %v, and for the observer with %v", c.err, c.doneErr)
	}
	if failed, ok := errors.AsType[*grpcretry.Error](c.err); ok && len(failed.Attempts) != attempts {
		c.failf("%d attempts, the error has %d", attempts, len(failed.Attempts))
	}
	for i, attempt := range c.history {
		arrived := c.arrival(attempt.Number)
		switch {
		case attempt.Number != i+1:
			c.failf("attempt %d has the number %d", i+1, attempt.Number)
		case attempt.Failure == nil:
			if i != attempts-1 || c.doneErr != nil {
				c.failf("attempt %d of %d did not fail", attempt.Number, attempts)
			}
		case attempt.Failure.Kind == grpcretry.Answered:
			if arrived == nil || !errors.Is(arrived.err, errBusy) {
				c.failf("attempt %d was answered with %v, which the server does not know", attempt.Number, attempt.Failure.Status)
			}
		case attempt.Failure.Kind != grpcretry.Lost && arrived != nil:
			c.failf("attempt %d arrived, of kind %v", attempt.Number, attempt.Failure.Kind)
		}
	}
}
