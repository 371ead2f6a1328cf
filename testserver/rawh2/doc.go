// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Package rawh2 is a server for tests that speaks HTTP/2 frame by frame, for
// the faults that a gRPC server cannot be made to show: refused streams,
// GOAWAYs, answers of a proxy, frames and messages that break off.
//
//	srv := rawh2.New(t)
//	srv.Script(
//		rawh2.RefuseStream(),
//		rawh2.HTTPStatus(503, "text/html", "<p>no backend</p>"),
//		rawh2.Headers().Then(rawh2.Close()),
//	)
//	conn := srv.Dial()
//
// A script has one step for each stream, in the order in which the streams
// arrive over all connections. Streams that come after the script's last step
// get the step of [Server.Always], which is a successful, empty answer by
// default. A step acts when the request is complete; [Step.AtHeaders] and
// [Step.AtMessage] make it act earlier.
//
// The server does what HTTP/2 asks of every peer: it exchanges and acknowledges
// SETTINGS, answers PINGs and returns flow-control credit for all DATA that
// arrives. All else is the script's.
package rawh2
