// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/jina/jinatest"
	"github.com/seed98143e88/grpcretry/testserver"
)

const (
	indexEndpoint  = "/index"
	searchEndpoint = "/search"
)

// gateway is a gateway that is killed when so many requests were answered, and stays away
// until a client has found nobody there.
type gateway struct {
	*jinatest.Gateway

	giveUp func() // called if it cannot come back

	mu     sync.Mutex
	killAt []int          // requests of the Post under way; what is left of it
	doomed int            // how often it is to be killed, in all
	down   bool           // killed, and not back yet
	kills  int            // in all
	missed map[string]int // attempts that found nobody, by method
	err    error          // why it did not come back
}

// startGateway starts a gateway with the index as its executor. If it cannot come back
// after a kill it calls giveUp, so that nobody waits for it.
func startGateway(x *index, giveUp func()) (*gateway, error) {
	inner, err := jinatest.Start(testserver.TCP())
	if err != nil {
		return nil, err
	}
	inner.Handle("indexer", indexEndpoint, x.handleIndex)
	inner.Handle("indexer", searchEndpoint, x.handleSearch)
	return &gateway{Gateway: inner, giveUp: giveUp, missed: map[string]int{}}, nil
}

// doom arranges that the gateway is killed after a third and after two thirds of a Post's
// requests. Where all that is left may already be answered, the Post would end without
// noticing, and so it is spared.
func (g *gateway) doom(requests int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.killAt = nil
	for _, at := range []int{requests / 3, requests * 2 / 3} {
		if at > 0 && at+prefetch <= requests {
			g.killAt = append(g.killAt, at)
			g.doomed++
		}
	}
}

// answered is told how many requests of the Post are answered.
func (g *gateway) answered(requests int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.killAt) > 0 && requests >= g.killAt[0] {
		g.killAt, g.down = g.killAt[1:], true
		g.kills++
		g.Stop()
	}
}

// observer sees the attempts that find no gateway, of which the first brings it back.
func (g *gateway) observer() grpcretry.Observer {
	return grpcretry.Observer{Attempt: func(_ context.Context, method string, attempt grpcretry.Attempt) {
		if attempt.Failure == nil || attempt.Failure.Kind != grpcretry.Connect {
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.missed[method]++
		if g.down {
			g.down = false
			if g.err = g.Start(); g.err != nil {
				g.giveUp()
			}
		}
	}}
}

// seen is what the gateway's side knows of the calls of a method.
type seen struct {
	doomed, kills, missed, arrived int
}

// seen returns what is known of a method whose calls are over.
func (g *gateway) seen(method string, before seen) seen {
	arrived := len(g.Attempts(method))
	g.mu.Lock()
	defer g.mu.Unlock()
	return seen{
		doomed:  g.doomed - before.doomed,
		kills:   g.kills - before.kills,
		missed:  g.missed[method] - before.missed,
		arrived: arrived - before.arrived,
	}
}

func (g *gateway) killed() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.kills
}

// failure returns why the gateway did not come back; nil if it did.
func (g *gateway) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

func (g *gateway) close() { g.Close() }
