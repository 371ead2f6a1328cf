// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jinatest

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

// front is a service as gRPC sees it.
type front struct {
	jinapb.UnimplementedJinaRPCServer
	jinapb.UnimplementedJinaSingleDataRequestRPCServer
	jinapb.UnimplementedJinaDataRequestRPCServer
	jinapb.UnimplementedJinaDiscoverEndpointsRPCServer
	jinapb.UnimplementedJinaGatewayDryRunRPCServer
	jinapb.UnimplementedJinaInfoRPCServer

	service *Service
}

// errorTrailer is what Jina's servers add to calls with an answer that is an error.
func errorTrailer() metadata.MD { return metadata.Pairs("is-error", "true") }

// ProcessSingleData answers one request.
func (f front) ProcessSingleData(ctx context.Context, in *jinapb.DataRequestProto) (*jinapb.DataRequestProto, error) {
	if err := f.service.begin(); err != nil {
		return nil, err
	}
	defer f.service.end()
	return f.single(ctx, in)
}

func (f front) single(ctx context.Context, in *jinapb.DataRequestProto) (*jinapb.DataRequestProto, error) {
	a := f.service.pass(ctx, in)
	switch {
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	case a.lost != nil:
		return nil, a.lost.Err()
	case a.isError():
		if err := grpc.SetTrailer(ctx, errorTrailer()); err != nil {
			return nil, err
		}
	}
	return a.response, nil
}

// ProcessData answers several requests as if they were one: with the header and the
// parameters of the first, and the documents of all.
func (f front) ProcessData(ctx context.Context, in *jinapb.DataRequestListProto) (*jinapb.DataRequestProto, error) {
	if err := f.service.begin(); err != nil {
		return nil, err
	}
	defer f.service.end()
	all := in.GetRequests()
	if len(all) == 0 {
		return nil, status.Error(codes.InvalidArgument, "jinatest: process_data: the list has no requests")
	}
	first := all[0]
	if len(all) == 1 {
		return f.single(ctx, first)
	}
	var docs []byte
	for i, request := range all {
		if _, other := request.GetData().GetDocuments().(*jinapb.DataRequestProto_DataContentProto_DocsBytes); other {
			return nil, status.Errorf(codes.InvalidArgument,
				"jinatest: process_data: request %d of %d: data.docs_bytes cannot be joined", i+1, len(all))
		}
		// Lists one after the other are the encoding of one list.
		docs = append(docs, request.GetData().GetDocs()...)
	}
	return f.single(ctx, &jinapb.DataRequestProto{
		Header:     first.GetHeader(),
		Parameters: first.GetParameters(),
		Routes:     first.GetRoutes(),
		Data: &jinapb.DataRequestProto_DataContentProto{
			Documents: &jinapb.DataRequestProto_DataContentProto_Docs{Docs: docs},
		},
	})
}

// EndpointDiscovery lists the endpoints of all executors.
func (f front) EndpointDiscovery(context.Context, *emptypb.Empty) (*jinapb.EndpointsProto, error) {
	if err := f.service.begin(); err != nil {
		return nil, err
	}
	defer f.service.end()
	return &jinapb.EndpointsProto{Endpoints: endpoints(f.service.flow())}, nil
}

// DryRun tells whether the gateway is ready.
func (f front) DryRun(context.Context, *emptypb.Empty) (*jinapb.StatusProto, error) {
	if err := f.service.begin(); err != nil {
		return nil, err
	}
	defer f.service.end()
	if err := f.service.notReady(); err != nil {
		return &jinapb.StatusProto{Code: jinapb.StatusProto_ERROR, Description: valid(err.Error())}, nil
	}
	return statusOr(nil), nil
}

// XStatus tells what the gateway pretends to run on, nothing of the real process.
func (f front) XStatus(context.Context, *emptypb.Empty) (*jinapb.JinaInfoProto, error) {
	if err := f.service.begin(); err != nil {
		return nil, err
	}
	defer f.service.end()
	return &jinapb.JinaInfoProto{
		Jina: map[string]string{"jina": "3.25.0", "docarray": "0.40.0", "python": "3.11.9"},
		Envs: map[string]string{"JINA_LOG_LEVEL": "(unset)"},
	}, nil
}
