// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Package grpcretry retries gRPC calls on the client, for any generated stub:
//
//	retrier, err := grpcretry.New(grpcretry.WithPolicy(grpcretry.Policy{Repeat: grpcretry.RepeatAlways}))
//	conn, err := grpc.NewClient(target, append(retrier.DialOptions(), creds)...)
//
// Unary calls are retried inside the call. Streams of every kind are replayed from a
// buffered input, until their first response, and with a [Recovery] beyond it.
//
// # What is retried
//
// A failed attempt is retried if its status has one of [Policy].Codes, which are
// UNAVAILABLE by default; if it never left the client or was refused unprocessed;
// and if it ran into Policy.AttemptTimeout. There are at most Policy.MaxAttempts
// attempts, 3 by default, the first included.
//
// What may have run is not run again, unless the method is known to bear it:
// because its idempotency_level is NO_SIDE_EFFECTS or IDEMPOTENT in its .proto
// file, or because [Policy].Repeat says [RepeatAlways]. It does not matter how
// many Codes are listed. A retry that [RepeatIfIdempotent] alone forbids fails with
// [ErrNotRepeatable] and says what to set. See [Kind] for what counts as proof
// that a call did not run.
//
// # When
//
// The server's word wins: grpc-retry-pushback-ms, or else the delay of a
// google.rpc.RetryInfo in the status, is waited exactly. A server that asks not to
// retry, or to wait longer than Policy.MaxServerDelay, is obeyed at once. Without
// such a word the wait is Policy.[Backoff].
//
// No wait is begun that would not fit the deadline of the call: it fails at once
// with [ErrDeadline] and the last status. After the last attempt there is none.
//
// After an attempt that never left the client, the call also waits for its
// connection to become ready: at most Policy.ConnectWait, and until its deadline at
// the latest, with which it then fails. The failure to connect is in the error.
//
// With a [Throttle] there are no retries while too many calls fail.
//
// # Streams
//
// A stream can restart until its first response, or the header that the caller asked
// for, is handed over: then it is committed. What the caller sent so far is kept, as
// copies, and sent again to each further attempt, while responses are already read;
// the caller's Send goes on behind it. A failure is noticed by the operation that
// meets it, so a stream that nobody sends on or receives from does not restart by
// itself. Headers that the caller did not ask for do not commit, unlike in gRFC A6.
//
// The input that is kept is bounded, in memory, for a stream and for all streams of a
// Retrier, and on the disk, where nothing is kept by default: see [Buffer]. What
// [SendAll] sends of a [Replayable] source, a file for one, need not be kept. A stream
// whose input does not fit is committed, as it is by its Context method, and goes on
// without replay; [Observer].Commit is told. A committed stream that fails returns
// [ErrCommitted] if it would have been retried.
//
// With a [Recovery] a stream goes on after its first response: [Skip] sends all again and
// drops what the caller has, [Resume] asks the caller what to send, and [Acked] sends again
// what has no answer yet. What the server must promise for each is with each. Streams that
// live long have all their attempts again when [ResetAfter] says so.
//
// Policy.AttemptTimeout bounds an attempt until its first response, and
// Policy.IdleTimeout each Recv after that. Functions given to [grpc.OnFinish] must
// not receive from the stream, nor wait for whoever sends on it.
//
// # What the caller sees
//
// The number of attempts is in the trailer, of unary calls and of streams, under
// "jina-client-attempts"; see [AttemptsFromMD]. Servers see "grpc-previous-rpc-attempts", as gRFC A6 has it.
// [grpc.Header], [grpc.Trailer], [grpc.Peer] and [grpc.OnFinish] act once, with the
// values of the attempt whose result is returned.
//
// A call that fails after several attempts returns an [Error], which has the status
// of the last real failure and the history. A call that fails in its only attempt
// returns what gRPC returned, unless a retry that the policy allows was not made:
// then it returns an Error too, which says why.
//
// # Whose policy counts
//
// The call's own ([WithCallPolicy], or [Disable]), else the method's, else the
// service's ([WithMethodPolicy]), else the default ([WithPolicy]). Policies replace
// each other; they are never merged.
//
// # Limits
//
// gRPC's own retries are switched off on a connection with these dial options,
// whatever its service config says, since attempts would multiply, except for the
// methods of [WithChannelRetry]. This holds for its streams too.
// [grpc.MaxRetryRPCBufferSize] has no effect. The timeout of a service config bounds
// each attempt, unless the config was given to [WithServiceConfig].
//
// The request of a unary call is encoded anew for each attempt, so it must not be
// modified while its call runs; gRPC asks for the same. The messages of streams are
// copied, unless Buffer.ByReference is set.
//
// What an attempt proves is read from what gRPC reports of it. Where interceptors
// that are installed after this one pass on none of the call options that they are
// given, or make errors of their own, nothing is known, and the call counts as one
// that may have run. They must pass on all of the options or none. An invoker that
// runs beside or after another of the same attempt, or after the interceptor has
// returned, must have options of its own, since gRPC writes to them; and if the
// interceptor returns before an invoker does, that needs a reply of its own too.
//
// That a server refused a call unprocessed, gRPC says by the text of the status
// alone. Where a call may be repeated anyway, a server's own status with that very
// text, after headers and without a trailer, is taken for a refusal in the first
// attempt.
package grpcretry
