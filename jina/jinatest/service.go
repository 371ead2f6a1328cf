// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jinatest

import (
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

// Service is what a gateway of Jina serves, without the server: [Service.Register] puts
// it on any. It keeps nothing of what it served. All methods are safe for concurrent use.
//
// A mistake in its use cannot end a test here. It ends every call of Jina's services from
// then on, with INTERNAL and a message that names the mistake.
type Service struct {
	health *health.Server

	mu        sync.Mutex
	executors []executor // replaced, never changed
	ready     error      // why the gateway is not; nil if it is
	faults    error
	running   int           // calls whose handlers have not all returned
	rest      chan struct{} // closed once nothing runs; nil if nobody waits
}

// NewService returns a service without executors, which is ready.
func NewService() *Service {
	s := &Service{health: health.NewServer()}
	s.SetReady(nil)
	return s
}

// names are the services that a gateway has.
func (s *Service) names() []string {
	return []string{
		jinapb.JinaRPC_ServiceDesc.ServiceName,
		jinapb.JinaSingleDataRequestRPC_ServiceDesc.ServiceName,
		jinapb.JinaDataRequestRPC_ServiceDesc.ServiceName,
		jinapb.JinaDiscoverEndpointsRPC_ServiceDesc.ServiceName,
		jinapb.JinaGatewayDryRunRPC_ServiceDesc.ServiceName,
		jinapb.JinaInfoRPC_ServiceDesc.ServiceName,
		healthpb.Health_ServiceDesc.ServiceName,
		"grpc.reflection.v1.ServerReflection",
		"grpc.reflection.v1alpha.ServerReflection",
	}
}

// Register puts the service on a server: JinaRPC, JinaSingleDataRequestRPC,
// JinaDataRequestRPC, JinaDiscoverEndpointsRPC, JinaGatewayDryRunRPC, JinaInfoRPC,
// grpc.health.v1.Health, and reflection, v1 and v1alpha. Reflection lists the services
// that the server tells of, if it does as a grpc.Server does, and else the gateway's. No
// server takes a service twice.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	f := front{service: s}
	jinapb.RegisterJinaRPCServer(r, f)
	jinapb.RegisterJinaSingleDataRequestRPCServer(r, f)
	jinapb.RegisterJinaDataRequestRPCServer(r, f)
	jinapb.RegisterJinaDiscoverEndpointsRPCServer(r, f)
	jinapb.RegisterJinaGatewayDryRunRPCServer(r, f)
	jinapb.RegisterJinaInfoRPCServer(r, f)
	healthpb.RegisterHealthServer(r, s.health)
	info, ok := r.(reflection.ServiceInfoProvider)
	if !ok {
		info = listing{s}
	}
	reflection.Register(reflected{r, info})
}

// reflected is what reflection asks of a server.
type reflected struct {
	grpc.ServiceRegistrar
	reflection.ServiceInfoProvider
}

// listing lists a gateway's services for reflection, which wants their names alone.
type listing struct{ service *Service }

func (l listing) GetServiceInfo() map[string]grpc.ServiceInfo {
	all := map[string]grpc.ServiceInfo{}
	for _, name := range l.service.names() {
		all[name] = grpc.ServiceInfo{}
	}
	return all
}

// Handle makes f answer an endpoint, like "/search", of an executor, which there is from
// then on; requests pass the executors in the order of their first Handle. The endpoint
// "" is the default, for requests to endpoints that the executor does not have; Jina
// calls it "/default". A second f for the same endpoint replaces the first. Handle may be
// called at any time; requests that are under way keep what there was when they came.
//
// It is a mistake if f is nil, the name of the executor is empty, or one of the names is
// not valid UTF-8.
func (s *Service) Handle(executor, endpoint string, f Handler) {
	if err := s.handle(executor, endpoint, f); err != nil {
		s.misuse(err)
	}
}

func (s *Service) handle(name, endpoint string, f Handler) error {
	switch {
	case name == "":
		return fmt.Errorf("Handle: endpoint %q: the name of the executor is empty", endpoint)
	case !utf8.ValidString(name) || !utf8.ValidString(endpoint):
		return fmt.Errorf("Handle: executor %q, endpoint %q: not valid UTF-8", name, endpoint)
	case f == nil:
		return fmt.Errorf("Handle: executor %q, endpoint %q: the handler is nil", name, endpoint)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.executors = with(s.executors, name, endpoint, f)
	return nil
}

// misuse notes a mistake of the service's user.
func (s *Service) misuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = errors.Join(s.faults, err)
}

// SetReady says whether the gateway is ready, as it is at first: nil if it is, and else
// why not. Then dry_run answers ERROR with the text of the error, and the health of every
// service is NOT_SERVING. Requests are served in any case.
func (s *Service) SetReady(err error) {
	health := healthpb.HealthCheckResponse_SERVING
	if err != nil {
		health = healthpb.HealthCheckResponse_NOT_SERVING
	}
	s.mu.Lock()
	defer s.mu.Unlock() // so that both say the same; setting the health never blocks
	s.ready = err
	for _, name := range append(s.names(), "") {
		s.health.SetServingStatus(name, health)
	}
}

// Wait blocks until there is a moment in which no call runs, nor a handler of one that
// has ended. Stop the server first: calls end before their handlers do if clients cancel
// them, or another handler's error ends them.
func (s *Service) Wait() { <-s.idle() }

// idle returns a channel that is closed once nothing runs.
func (s *Service) idle() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.rest
	if rest == nil {
		rest = make(chan struct{})
	}
	if s.running == 0 {
		close(rest)
		return rest
	}
	s.rest = rest
	return rest
}

// begin counts a call; without an error, end must follow.
func (s *Service) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults != nil {
		return status.Errorf(codes.Internal, "jinatest: %v", s.faults)
	}
	s.running++
	return nil
}

func (s *Service) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	if s.running == 0 && s.rest != nil {
		close(s.rest)
		s.rest = nil
	}
}

// flow returns the executors in their order; what it returns does not change.
func (s *Service) flow() []executor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.executors
}

func (s *Service) notReady() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready
}
