// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Package jinatest is a gateway of Jina in the process, with executors that are Go
// functions, for tests and examples of Jina's clients. It is a [testserver.Server]
// too: scripts say what goes wrong, and records tell what reached it.
//
//	gateway := jinatest.New(t)
//	gateway.Handle("encoder", "/index", func(_ context.Context, docs []jina.Document, _ map[string]any) (
//		[]jina.Document, error) {
//		return docs[:1], nil
//	})
//	gateway.Script(jinapb.JinaRPC_Call_FullMethodName, testserver.Fail(codes.Unavailable, "busy"))
//	client := jinapb.NewJinaRPCClient(gateway.Dial())
//
// # What a request meets
//
// It goes through the executors in the order in which they were first given to Handle.
// An executor whose name does not match header.target_executor is left out: that is a
// regular expression of Go's, which must match from the beginning of the name, though
// not to its end. One that has neither the endpoint of the header nor the default
// endpoint "" passes the request on as it is. What one executor returns is what the next
// one gets.
//
// The answer has the header and the parameters of the request, with the status SUCCESS,
// the route that the request took, and the documents of the last executor. If no
// executor handles the request, they are the request's, and nobody has looked at them.
// The header's timeout is not obeyed.
//
// # What goes wrong
//
// A [Handler] that returns an error, panics, or ends its goroutine is what an exception
// is to Jina: the RPC ends with OK, the answer's header says ERROR and has the exception,
// the executors after it are left out, and the trailing metadata has the key is-error.
// The documents of the answer are then those that the executor was given. Two things are
// exceptions without a handler: documents that an executor cannot read, and a
// target_executor that is no regular expression.
//
// An executor whose handler returns [Unreachable] could not be reached, which ends the
// RPC with a status.
//
// What is wrong below that, with RPCs and connections, is up to the scripts.
//
// # Time and place
//
// All of it works inside a bubble of testing/synctest, and over TCP; see package
// testserver. Programs without a test use [Start]. [Service] is the gateway without its
// server: what scripts and records cost is not paid, and nothing is kept.
package jinatest
