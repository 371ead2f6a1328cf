// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Package testserver is a gRPC server for tests of clients: it does what a
// script says, attempt by attempt, and records what reaches it.
//
//	srv := testserver.New(t)
//	srv.Script(testv1.TestService_Read_FullMethodName,
//		testserver.Fail(codes.Unavailable, "busy"),
//		testserver.Fail(codes.Unavailable, "busy").Pushback("250"),
//		testserver.OK())
//	client := testv1.NewTestServiceClient(srv.Dial())
//	_, err := client.Read(ctx, &testv1.Request{Key: "a"})
//	require.NoError(t, err)
//	require.Len(t, srv.Attempts(), 3)
//
// # What is served
//
// Every method of every service whose generated code is linked into the program.
// Nothing needs to be implemented: by default a unary or client-streaming method
// reads the requests to their end and answers once, a server-streaming method
// too, and a bidirectional one answers each request. The answer has the fields
// of the last request that it knows by name and type, and is empty apart from
// that. Better answers come from [Server.RegisterService], which the generated
// RegisterXxxServer functions call, or from [Server.Handle] for one method.
//
// # What goes wrong
//
// A script is a list of steps for the next attempts of a method; see
// [Server.Script] and [Step]. Some of what steps can say:
//
//	Fail(codes.Unavailable, "busy").Pushback("250")        a wish to wait 250 ms
//	Fail(codes.ResourceExhausted, "quota").RetryInfo(d)    the same in the status
//	Fail(codes.Unavailable, "busy").Header("a", "b")       not trailers-only
//	Fail(codes.Internal, "bug").Sent(2)                    a half-answered stream
//	Fail(codes.Unavailable, "gone").Applied()              done, but not said so
//	OK().Delay(time.Second).Times(3)                       three slow answers
//	Hang()                                                 no answer, ever
//	Cut()                                                  lost before the headers
//	Cut().SendHeader()                                     lost after the headers
//	Cut().Sent(2)                                          lost in mid-stream
//	Cut().Applied()                                        lost, but done
//	Reset()                                                RST instead of FIN
//
// [Server.Stop] and [Server.Start] make the whole server go away and come back
// at the same address.
//
// # What is recorded
//
// [Server.Attempts] returns what is known of every attempt. A record is complete
// before the client can learn how the attempt ended, unless the client ended it,
// or gRPC did (a request above the size limit); for those cases, and for all that
// happens beside the test, [Server.Await] waits without sleeping.
//
// # Time and place
//
// By default the connection is in memory, and the server works inside a bubble
// of testing/synctest: time is virtual there, so that delays cost nothing and
// can be compared with ==. With [TCP] it listens on 127.0.0.1, outside bubbles.
// Nothing is left behind at the end of a test: no goroutine, no port.
//
// Programs without a test use [Start] and [Server.Close].
package testserver
