// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package rawh2_test

import (
	"context"
	"fmt"

	"golang.org/x/net/http2"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver/rawh2"
)

// A call whose stream is refused once is sent again by grpc itself, unseen by
// the caller; one whose stream is reset otherwise fails.
func Example() {
	srv, err := rawh2.Start()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()
	srv.Script(
		rawh2.RefuseStream(),
		rawh2.OK(nil),
		rawh2.Headers().Then(rawh2.Reset(http2.ErrCodeInternal)),
	)
	client := testv1.NewTestServiceClient(srv.Dial())
	for range 2 {
		_, err = client.Read(context.Background(), &testv1.Request{Key: "a"})
		fmt.Println(err)
	}
	fmt.Println(len(srv.Record().Streams), "streams")
	// Output:
	// <nil>
	// rpc error: code = Internal desc = stream terminated by RST_STREAM with error code: INTERNAL_ERROR
	// 3 streams
}
