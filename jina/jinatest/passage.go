// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jinatest

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/seed98143e88/grpcretry/jina"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

// gatewayName is how the gateway calls itself in routes.
const gatewayName = "gateway"

// answer is what comes of a request.
type answer struct {
	response *jinapb.DataRequestProto
	lost     *status.Status // an executor could not be reached; ends the RPC
}

func (a answer) isError() bool {
	return a.response.GetHeader().GetStatus().GetCode() == jinapb.StatusProto_ERROR
}

// passage is a request on its way through the executors.
type passage struct {
	request *jinapb.DataRequestProto
	routes  []*jinapb.RouteProto
	docs    []jina.Document
	read    bool // docs are the request's, or changed
	changed bool
	failure *jinapb.StatusProto // ends the way
	lost    *status.Status      // ends the way and the RPC
}

// pass sends a request through the executors. If the context ends meanwhile, nobody may
// want the answer, and it is not complete.
func (s *Service) pass(ctx context.Context, request *jinapb.DataRequestProto) answer {
	p := &passage{request: request, routes: slices.Clip(request.GetRoutes())}
	gateway := p.enter(gatewayName)
	header := request.GetHeader()
	flow, err := targets(s.flow(), header.GetTargetExecutor())
	if err != nil {
		text := "target_executor " + repr(header.GetTargetExecutor()) + ": " + err.Error()
		// Python's module re calls its exception so.
		p.fail((&Exception{Name: "error", Args: []string{text}}).valid(), "")
	}
	for _, e := range flow {
		if p.failure != nil || p.lost != nil || ctx.Err() != nil {
			break
		}
		route := p.enter(e.name)
		p.visit(ctx, e)
		leave(route, p.failure)
	}
	leave(gateway, p.failure)
	return p.answer()
}

// visit has one executor handle the request.
func (p *passage) visit(ctx context.Context, e executor) {
	f := e.handler(p.request.GetHeader().GetExecEndpoint())
	if f == nil {
		return
	}
	if err := p.decode(); err != nil {
		// So does Python's protobuf call what it raises.
		p.fail((&Exception{Name: "DecodeError", Args: []string{err.Error()}}).valid(), e.name)
		return
	}
	r := invoke(ctx, f, slices.Clip(p.docs), p.request.GetParameters().AsMap())
	switch {
	case r.lost != nil:
		p.lost = r.lost
	case r.exception != nil:
		p.fail(r.exception, e.name)
	case r.docs != nil:
		p.docs, p.changed = r.docs, true
	}
}

// decode reads the documents of the request, once the first executor wants them.
func (p *passage) decode() error {
	if p.read {
		return nil
	}
	p.read = true
	data := p.request.GetData()
	if _, other := data.GetDocuments().(*jinapb.DataRequestProto_DataContentProto_DocsBytes); other {
		return errors.New("data.docs_bytes cannot be read: its encoding is not known")
	}
	for doc, err := range jina.DecodeDocuments(data.GetDocs()) {
		if err != nil {
			return err
		}
		p.docs = append(p.docs, doc)
	}
	return nil
}

func (p *passage) fail(e *Exception, executor string) { p.failure = e.status(executor) }

// enter adds a station to the route.
func (p *passage) enter(station string) *jinapb.RouteProto {
	route := &jinapb.RouteProto{Executor: station, StartTime: timestamppb.Now()}
	p.routes = append(p.routes, route)
	return route
}

func leave(route *jinapb.RouteProto, failure *jinapb.StatusProto) {
	route.EndTime = timestamppb.Now()
	route.Status = statusOr(failure)
}

// statusOr returns the failure, or that there was none.
func statusOr(failure *jinapb.StatusProto) *jinapb.StatusProto {
	if failure == nil {
		return &jinapb.StatusProto{Code: jinapb.StatusProto_SUCCESS}
	}
	return failure
}

func (p *passage) answer() answer {
	in := p.request.GetHeader()
	if p.lost != nil {
		rest := &jinapb.DataRequestProto{Header: &jinapb.HeaderProto{RequestId: in.GetRequestId()}}
		return answer{response: rest, lost: p.lost}
	}
	header := &jinapb.HeaderProto{RequestId: in.GetRequestId(), Status: statusOr(p.failure)}
	if in != nil {
		header.ExecEndpoint, header.TargetExecutor, header.Timeout = in.ExecEndpoint, in.TargetExecutor, in.Timeout
	}
	out := &jinapb.DataRequestProto{
		Header:     header,
		Parameters: p.request.GetParameters(),
		Routes:     p.routes,
		Data:       p.request.GetData(),
	}
	if p.changed {
		docs := jina.EncodeDocuments(p.docs)
		out.Data = &jinapb.DataRequestProto_DataContentProto{
			Documents: &jinapb.DataRequestProto_DataContentProto_Docs{Docs: docs},
		}
	}
	return answer{response: out}
}
