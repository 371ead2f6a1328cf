// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jinatest

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
	"github.com/seed98143e88/grpcretry/testserver"
)

// guardTime is how long Close waits for handlers, which testserver does too.
const guardTime = 30 * time.Second

// Gateway is a gateway of Jina on a server of its own, whose methods it has: Dial and
// Target to reach it, Script for what goes wrong, Attempts and Await for what reached it,
// Stop and Start. Handle is not the server's, which is there as Server.Handle and goes
// before the gateway. All methods are safe for concurrent use.
//
// The services of Jina that a gateway does not have (stream_doc, snapshots and restores)
// end with UNIMPLEMENTED. All other services that are linked into the program are served
// as package testserver says. As with Jina's servers, messages may have any size, and
// clients may probe the connection every ten seconds; options may say otherwise.
type Gateway struct {
	*testserver.Server

	service *Service
	tb      testing.TB // nil without a test
}

// New starts a gateway without executors for a test, in memory unless [testserver.TCP]
// is given, and closes it in the test's cleanup. Mistakes in its use end the test through
// Fatalf. Inside a synctest bubble, tb must be the bubble's.
func New(tb testing.TB, opts ...testserver.Option) *Gateway {
	tb.Helper()
	server := testserver.New(tb, asJina(opts)...)
	if server == nil {
		return nil
	}
	g := newGateway(server)
	g.tb = tb
	tb.Cleanup(g.Close)
	return g
}

// Start starts a gateway without a test and without executors; the caller closes it. It
// fails if an option is faulty or the address cannot be listened on. After a mistake in
// its use, every call of Jina's services ends with INTERNAL and a message that names the
// mistake.
func Start(opts ...testserver.Option) (*Gateway, error) {
	server, err := testserver.Start(asJina(opts)...)
	if err != nil {
		return nil, fmt.Errorf("jinatest: %w", err)
	}
	return newGateway(server), nil
}

// asJina returns the options of a server that differs from gRPC's defaults as Jina's do:
// messages may have any size, and clients may probe their connections as often as Jina's
// do, which is every ten seconds. What the given options say wins.
func asJina(opts []testserver.Option) []testserver.Option {
	if slices.Contains(opts, nil) {
		return opts // the server says which one it is
	}
	return append([]testserver.Option{testserver.ServerOptions(
		grpc.MaxRecvMsgSize(math.MaxInt32),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)}, opts...)
}

func newGateway(server *testserver.Server) *Gateway {
	g := &Gateway{Server: server, service: NewService()}
	g.service.Register(server)
	registerMissing(server)
	return g
}

// registerMissing keeps the server from answering in its own way what a gateway does not
// know.
func registerMissing(r grpc.ServiceRegistrar) {
	jinapb.RegisterJinaSingleDocumentRequestRPCServer(r, jinapb.UnimplementedJinaSingleDocumentRequestRPCServer{})
	jinapb.RegisterJinaExecutorSnapshotServer(r, jinapb.UnimplementedJinaExecutorSnapshotServer{})
	jinapb.RegisterJinaExecutorSnapshotProgressServer(r, jinapb.UnimplementedJinaExecutorSnapshotProgressServer{})
	jinapb.RegisterJinaExecutorRestoreServer(r, jinapb.UnimplementedJinaExecutorRestoreServer{})
	jinapb.RegisterJinaExecutorRestoreProgressServer(r, jinapb.UnimplementedJinaExecutorRestoreProgressServer{})
}

// Handle is [Service.Handle], but a mistake ends the test of [New] through Fatalf.
func (g *Gateway) Handle(executor, endpoint string, f Handler) {
	err := g.service.handle(executor, endpoint, f)
	if err == nil {
		return
	}
	if g.tb != nil {
		g.tb.Helper()
		g.tb.Fatalf("jinatest: %v", err)
	}
	g.service.misuse(err)
}

// SetReady is [Service.SetReady].
func (g *Gateway) SetReady(err error) { g.service.SetReady(err) }

// Close stops the gateway for good, closes the connections that Dial made, and waits
// until every handler has returned. If one does not within 30 s, the test fails. [New]
// arranges for it.
func (g *Gateway) Close() {
	if g.tb != nil {
		g.tb.Helper()
	}
	g.Server.Close()
	guard := time.NewTimer(guardTime)
	defer guard.Stop()
	select {
	case <-g.service.idle():
	case <-guard.C:
		if g.tb != nil {
			g.tb.Errorf("jinatest: Close: handlers still run after %v", guardTime)
		}
	}
}
