// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Package lance retries calls of gRPC as LanceDB's client retries requests of HTTP: by a
// [RetryConfig] with three limits, for failures of all kinds, to connect, and without an
// answer.
//
//	options, err := lance.DialOptions(lance.RetryConfig{Retries: new(5)})
//	...
//	conn, err := grpc.NewClient(target, append(options, creds)...)
//
// # Statuses and codes
//
// Statuses of HTTP stand for codes of gRPC, and the other way round:
//
//	400  INVALID_ARGUMENT, FAILED_PRECONDITION, OUT_OF_RANGE
//	401  UNAUTHENTICATED
//	403  PERMISSION_DENIED
//	404  NOT_FOUND
//	409  ABORTED
//	429  RESOURCE_EXHAUSTED
//	499  CANCELLED
//	500  INTERNAL, UNKNOWN
//	501  UNIMPLEMENTED
//	502  UNAVAILABLE
//	503  UNAVAILABLE
//	504  DEADLINE_EXCEEDED
//
// ALREADY_EXISTS and DATA_LOSS have none, since no repetition mends them. A status in the
// message of a failure, or in its details, beats the code: gRPC's own about an answer that
// is not gRPC's ("unexpected HTTP status code received from server: 502") and about messages
// that are too large (413), and LanceDB's ("Http error: (request_id=…) 503"). If there are
// several, all of them must be listed. The first text of [WithText] that matches beats them
// all.
//
// # Reads and writes
//
// A method is a read if it is declared with an idempotency_level, or named by [WithReads];
// all others are writes. A write is repeated only where nothing was done: after a failure
// to connect, and after the statuses of the config that say so, 409 and 429 among the
// default ones; never after one of the server's own (500 and above), 408, 413 and 499, nor
// when no answer came, nor if the code may follow an execution, whatever a text says that
// is not of [WithText]. A status behind a header counts as no answer, since there may have
// been one, or a proxy may have made it. (A grpcretry.WithCallPolicy of a call's own takes
// the place of all this.)
//
// Each call has the metadata x-request-id: a read the same in all attempts, a write another
// in each, unless the caller has given one, which stays.
//
// # Where LanceDB's documentation and its program differ
//
//	                       documentation     program           here
//	environment            read              not read          read, and garbage is an error
//	retries: 3             3 retries         3 requests        3 attempts
//	retries: 0             none              1 request         1 attempt
//	first wait             factor            twice that        factor, too
//	no connection, or no   backs off         constant wait     backs off
//	answer
//	limit of all failures  retries           none              retries
//	a limit of 0           of its kind       stops all kinds   of its kind, as 1
//	write after 5xx        never             most methods      never
//	write after a timeout  –                 some methods      never
//	answer broken off      counts as read    not retried       counts as read
//	closed before any      counts as read    not retried       counts as read
//	answer
//	proxy's 5xx            counts as request counts as request counts as read
//	statuses               without 409, 504  with them         with them
//	ids of a write         –                 new for some      new for all
//	limits beyond 255      –                 refused           an error
//	Retry-After            –                 not obeyed        gRPC's pushback is obeyed
//
// What is documented is followed, since programs are written against it, and where it
// protects writes the program has lost what older versions had. Two rows follow the
// program: the number of requests, which its tests and its users' settings count on, and
// the statuses, to which its documentation was not kept up. A limit of 0 means in both that
// nothing is retried, and cannot mean less than one attempt. Repeated reads do no harm, so
// that whatever has no answer counts as one that was broken off; a proxy's answer is among
// them, since the request may have been passed on. What a server of gRPC asks for, by
// grpc-retry-pushback-ms or google.rpc.RetryInfo, takes the place of a wait; the next one
// is as long as if it had not.
package lance
