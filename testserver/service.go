// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// service is a registered implementation.
type service struct {
	impl    any
	methods map[string]grpc.MethodDesc
	streams map[string]grpc.StreamDesc
}

// method is one RPC as the server knows it.
type method struct {
	name         string // "/pkg.Service/Method"
	clientStream bool
	serverStream bool
	newRequest   func() proto.Message
	newResponse  func() proto.Message
	serve        func(*stream) error
}

// RegisterService makes impl answer the methods of desc; it is what the
// generated RegisterXxxServer functions call. It may be called at any time, also
// while calls run. Registering a service twice, or an impl that does not
// implement it, is a mistake and is reported as [Server.Script] does.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	s.helper()
	svc, err := newService(desc, impl)
	if err == nil {
		s.mu.Lock()
		if _, twice := s.services[desc.ServiceName]; twice {
			err = fmt.Errorf("service %q is already registered", desc.ServiceName)
		} else {
			s.services[desc.ServiceName] = svc
		}
		s.mu.Unlock()
	}
	if err != nil {
		s.misuse("RegisterService: %v", err)
	}
}

func newService(desc *grpc.ServiceDesc, impl any) (*service, error) {
	if desc == nil {
		return nil, errors.New("the ServiceDesc is nil")
	}
	if impl == nil {
		return nil, fmt.Errorf("the implementation of %q is nil", desc.ServiceName)
	}
	if desc.HandlerType != nil {
		want := reflect.TypeOf(desc.HandlerType).Elem()
		if got := reflect.TypeOf(impl); !got.Implements(want) {
			return nil, fmt.Errorf("%v does not implement %v of service %q", got, want, desc.ServiceName)
		}
	}
	svc := &service{impl: impl, methods: map[string]grpc.MethodDesc{}, streams: map[string]grpc.StreamDesc{}}
	for _, m := range desc.Methods {
		svc.methods[m.MethodName] = m
	}
	for _, m := range desc.Streams {
		svc.streams[m.StreamName] = m
	}
	return svc, nil
}

// Handle makes f answer one method, given as "/pkg.Service/Method" (the
// generated _FullMethodName) or "pkg.Service/Method". It goes before a
// registered service, and replaces what an earlier Handle gave for the method.
func (s *Server) Handle(name string, f func(stream grpc.ServerStream) error) {
	s.helper()
	m, err := s.method(name)
	switch {
	case err != nil:
		s.misuse("Handle: %v", err)
	case f == nil:
		s.misuse("Handle: the function for %q is nil", name)
	default:
		s.mu.Lock()
		s.handlers[m.name] = f
		s.mu.Unlock()
	}
}

// method finds a method among the registered services and the linked
// descriptors.
func (s *Server) method(name string) (*method, error) {
	full := "/" + strings.TrimPrefix(name, "/")
	at := strings.LastIndexByte(full, '/')
	if at < 1 {
		return nil, fmt.Errorf("method %q is not of the form /pkg.Service/Method", name)
	}
	owner, short := full[1:at], full[at+1:]
	s.mu.Lock()
	svc, handler := s.services[owner], s.handlers[full]
	s.mu.Unlock()

	m := &method{name: full}
	known := m.describe(owner, short)
	if svc != nil && m.implement(svc, short) {
		known = true
	}
	if !known {
		return nil, fmt.Errorf("method %q is in no linked or registered service", name)
	}
	if handler != nil {
		m.serve = func(st *stream) error { return handler(st) }
	}
	return m, nil
}

// describe fills m from the descriptors linked into the program.
func (m *method) describe(owner, short string) bool {
	m.newRequest, m.newResponse = newEmpty, newEmpty
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(owner))
	if err != nil {
		return false
	}
	sd, ok := d.(protoreflect.ServiceDescriptor)
	if !ok {
		return false
	}
	md := sd.Methods().ByName(protoreflect.Name(short))
	if md == nil {
		return false
	}
	m.clientStream, m.serverStream = md.IsStreamingClient(), md.IsStreamingServer()
	m.newRequest, m.newResponse = maker(md.Input()), maker(md.Output())
	m.serve = m.echo
	return true
}

// implement fills m from a registered service.
func (m *method) implement(svc *service, short string) bool {
	if desc, ok := svc.methods[short]; ok {
		m.clientStream, m.serverStream = false, false
		m.serve = func(st *stream) error { return serveUnary(desc, svc.impl, st) }
		return true
	}
	if desc, ok := svc.streams[short]; ok {
		m.clientStream, m.serverStream = desc.ClientStreams, desc.ServerStreams
		m.serve = func(st *stream) error { return desc.Handler(svc.impl, st) }
		return true
	}
	return false
}

func serveUnary(desc grpc.MethodDesc, impl any, st *stream) error {
	ctx := st.Context()
	decode := func(m any) error { return st.RecvMsg(m) }
	reply, err := desc.Handler(impl, ctx, decode, nil)
	if err != nil {
		return err
	}
	return st.SendMsg(reply)
}

func maker(d protoreflect.MessageDescriptor) func() proto.Message {
	if t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName()); err == nil {
		return func() proto.Message { return t.New().Interface() }
	}
	return func() proto.Message { return dynamicpb.NewMessage(d) }
}

// newEmpty stands in for the messages of a method without descriptor: an Empty
// keeps every field it does not know, so that nothing is lost.
func newEmpty() proto.Message { return &emptypb.Empty{} }
