// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jinatest_test

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry/jina"
	"github.com/seed98143e88/grpcretry/jina/jinatest"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
	"github.com/seed98143e88/grpcretry/testserver"
)

// Two executors, of which the second has no luck, and an RPC that fails once.
func ExampleStart() {
	gateway, err := jinatest.Start(testserver.TCP())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer gateway.Close()
	gateway.Handle("cutter", "/index",
		func(_ context.Context, docs []jina.Document, _ map[string]any) ([]jina.Document, error) {
			return docs[:1], nil
		})
	gateway.Handle("encoder", "/index",
		func(context.Context, []jina.Document, map[string]any) ([]jina.Document, error) {
			return nil, errors.New("no model")
		})
	gateway.Script(jinapb.JinaSingleDataRequestRPC_ProcessSingleData_FullMethodName,
		testserver.Fail(codes.Unavailable, "busy"))

	client := jinapb.NewJinaSingleDataRequestRPCClient(gateway.Dial())
	for range 2 {
		answer, err := client.ProcessSingleData(context.Background(), &jinapb.DataRequestProto{
			Header: &jinapb.HeaderProto{RequestId: "1", ExecEndpoint: new("/index")},
			Data: &jinapb.DataRequestProto_DataContentProto{
				Documents: &jinapb.DataRequestProto_DataContentProto_Docs{
					Docs: jina.EncodeDocuments([]jina.Document{{}, {}}),
				},
			},
		})
		fmt.Printf("%v %q\n", status.Code(err), answer.GetHeader().GetStatus().GetDescription())
	}
	// Output:
	// Unavailable ""
	// OK "RuntimeError('no model')"
}
