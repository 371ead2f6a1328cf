// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Package jina is a client of Jina's gateways: [Client.Post] sends documents to
// executors, with the parameters of the post method of Jina's own client, under its names
// and with its defaults.
//
//	client, err := jina.Dial("grpc://localhost:54321", jina.Params{MaxAttempts: 3})
//	...
//	for response, err := range client.Post(ctx, "/index", jina.Documents(docs...)) {
//
// The messages and services are in package jinapb, docarray's v2 messages in docarraypb,
// and a gateway for tests in package jinatest. A program that links another Go build of
// Jina's or docarray's messages cannot start, since their names are taken twice.
//
// # What is retried
//
// One layer retries each method, so that attempts never multiply: in Jina's client its
// own loop and that of its channel do, so that 3 attempts are 9, and 5 are 25.
//
//	                      Jina's client                     here
//	a request by itself   each, any code; × the channel's   each, four codes; AnyCode: any
//	a stream of a slice   all of it again, results too      what has no answer
//	a stream of others    not at all                        what has no answer
//	dry_run and the like  the channel                       the channel
//	executor errors       not at all                        not at all, either
//
// The four codes are UNAVAILABLE, NOT_FOUND, DEADLINE_EXCEEDED and INTERNAL. In a unary
// call Jina's client retries any, INVALID_ARGUMENT and UNIMPLEMENTED too; with
// [Params].AnyCode so does this one. The channel's codes are the four without NOT_FOUND.
// What a server says of when to come back, by grpc-retry-pushback-ms or
// google.rpc.RetryInfo, is obeyed.
//
// # What becomes of an error
//
//	gRPC's UNAVAILABLE, NOT_FOUND, DEADLINE_EXCEEDED   [Error], is [ErrConnection]
//	gRPC's INTERNAL                                    [Error]
//	a timeout of the gateway's own, as UNKNOWN         [Error], is [ErrBadClientInput]
//	gRPC's other codes, and a broken protocol          [Error], is [ErrBadServerFlow]
//	the input, or a parameter                          [Error], is [ErrBadClientInput]
//	the caller's own context                           [Error], is the context's
//	an executor                                        on_error, or logged, or [ExecutorError]
//	a callback                                         logged, or [CallbackError]
//
// # Where it differs from Jina's client
//
// Results are yielded also where there are callbacks, since nothing is gathered. Ordered
// results of an input that is empty, or that fails, end as they should: Jina's client
// waits forever for the first, and takes the second for one that ended well. Where a
// gateway could not pass a request on, it says so by a response without content in the
// middle of the stream, which Jina's client takes for a result; here that request is sent
// again. The parameter __results__ is refused, not replaced. A Post that ends cancels
// what is on its way, which Jina's client lets run.
package jina
