// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// implementation is what a user of the generated code would write.
type implementation struct {
	testv1.UnimplementedTestServiceServer
}

func (implementation) Read(ctx context.Context, in *testv1.Request) (*testv1.Response, error) {
	if err := grpc.SetHeader(ctx, metadata.Pairs("h", "1")); err != nil {
		return nil, err
	}
	if err := grpc.SetTrailer(ctx, metadata.Pairs("t", "1")); err != nil {
		return nil, err
	}
	if in.GetKey() == "" {
		return nil, status.Error(codes.InvalidArgument, "no key")
	}
	return &testv1.Response{Key: "read " + in.GetKey()}, nil
}

func (implementation) Download(in *testv1.Request, stream grpc.ServerStreamingServer[testv1.Response]) error {
	for i := range 3 {
		if err := stream.Send(&testv1.Response{Key: in.GetKey(), Sequence: int64(i)}); err != nil {
			return err
		}
	}
	return nil
}

func TestRegisteredService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		testv1.RegisterTestServiceServer(srv, implementation{})
		cc := srv.Dial()
		o := shapes[0].call(t.Context(), cc, "a")
		require.NoError(t, o.err)
		assert.Equal(t, []string{"read a"}, keysOf(o.replies))
		assert.Equal(t, []string{"1"}, o.header.Get("h"))
		assert.Equal(t, []string{"1"}, o.trailer.Get("t"))
		assert.Equal(t, "no key", status.Convert(shapes[0].call(t.Context(), cc, "").err).Message())
		assert.Len(t, shapes[1].call(t.Context(), cc, "a").replies, 3)
		assert.Equal(t, codes.Unimplemented, status.Code(shapes[2].call(t.Context(), cc, "a").err))

		// What the handler says through its context is dropped like the rest.
		srv.Script("", testserver.Fail(codes.Aborted, "").Applied(), testserver.Fail(codes.Aborted, "").Sent(2))
		o = shapes[0].call(t.Context(), cc, "a")
		assert.Nil(t, o.header)
		assert.Empty(t, o.trailer.Get("t"))
		assert.Len(t, shapes[1].call(t.Context(), cc, "a").replies, 2)

		all := srv.Attempts()
		require.Len(t, all, 6)
		for _, i := range []int{0, 1, 2, 4, 5} {
			assert.Len(t, all[i].Requests, 1, all[i])
			assert.True(t, all[i].HalfClosed, all[i])
		}
	})
}

// Handle goes before the registered service.
func TestHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		testv1.RegisterTestServiceServer(srv, implementation{})
		srv.Handle("grpcretry.test.v1.TestService/Read", answers(1))
		cc := srv.Dial()
		assert.Equal(t, []string{"1"}, keysOf(shapes[0].call(t.Context(), cc, "a").replies))
		assert.Len(t, shapes[1].call(t.Context(), cc, "a").replies, 3)
	})
}

// Services of other modules need nothing special.
func TestOtherService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		client := healthv1.NewHealthClient(srv.Dial())
		reply, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: "s"})
		require.NoError(t, err)
		assert.Equal(t, healthv1.HealthCheckResponse_UNKNOWN, reply.GetStatus())
		healthv1.RegisterHealthServer(srv, health.NewServer())
		reply, err = client.Check(t.Context(), &healthv1.HealthCheckRequest{})
		require.NoError(t, err)
		assert.Equal(t, healthv1.HealthCheckResponse_SERVING, reply.GetStatus())
	})
}

func TestUnknownMethod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		cc := srv.Dial()
		for _, method := range []string{"/no.Such/Method", "/grpcretry.test.v1.TestService/Nothing", "/grpcretry.test.v1.Request/Read"} {
			err := cc.Invoke(t.Context(), method, &testv1.Request{}, &testv1.Response{})
			assert.Equal(t, codes.Unimplemented, status.Code(err))
			assert.ErrorContains(t, err, method)
		}
		assert.Len(t, srv.Attempts(), 3)
	})
}

// A shape with one request has one, as with any gRPC server.
func TestOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		cc := srv.Dial()
		for n, text := range map[int]string{0: "received no request message", 2: "received multiple request messages"} {
			stream, err := cc.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, shapes[1].method)
			require.NoError(t, err)
			for range n {
				require.NoError(t, stream.SendMsg(&testv1.Request{}))
			}
			require.NoError(t, stream.CloseSend())
			err = stream.RecvMsg(&testv1.Response{})
			assert.Equal(t, codes.Internal, status.Code(err))
			assert.ErrorContains(t, err, text)
		}
	})
}

// A service that was written by hand, without descriptors.
func TestServiceWithoutDescriptor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		srv.RegisterService(&grpc.ServiceDesc{
			ServiceName: "hand.Written",
			Streams: []grpc.StreamDesc{{
				StreamName:    "Join",
				ClientStreams: true,
				Handler: func(_ any, stream grpc.ServerStream) error {
					var text string
					for range 2 {
						in := &wrapperspb.StringValue{}
						if err := stream.RecvMsg(in); err != nil {
							return err
						}
						text += in.GetValue()
					}
					return stream.SendMsg(wrapperspb.String(text))
				},
			}},
		}, struct{}{})
		srv.Script("hand.Written/Join", testserver.OK().Received(1))
		cc := srv.Dial()
		stream, err := cc.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, "/hand.Written/Join")
		require.NoError(t, err)
		require.NoError(t, stream.SendMsg(wrapperspb.String("a")))
		require.NoError(t, stream.SendMsg(wrapperspb.String("b")))
		require.NoError(t, stream.CloseSend())
		out := &wrapperspb.StringValue{}
		require.NoError(t, stream.RecvMsg(out))
		assert.Equal(t, "ab", out.GetValue())
		assert.Len(t, srv.Attempts("/hand.Written/Join")[0].Requests, 2)
	})
}

// dynamicFile describes a service whose messages have no generated code. It is
// registered once in a process.
var dynamicFile = sync.OnceValues(func() (protoreflect.FileDescriptor, error) {
	const text = `
	name: "testserver_dynamic.proto" package: "dynamic" syntax: "proto3"
	dependency: "google/protobuf/wrappers.proto"
	message_type { name: "In"
		field { name: "s" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
		field { name: "other" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
		field { name: "m" number: 3 type: TYPE_MESSAGE type_name: ".google.protobuf.StringValue" label: LABEL_OPTIONAL }
		field { name: "l" number: 4 type: TYPE_INT32 label: LABEL_REPEATED }
		field { name: "lm" number: 5 type: TYPE_MESSAGE type_name: ".google.protobuf.StringValue" label: LABEL_REPEATED }
		field { name: "mm" number: 6 type: TYPE_MESSAGE type_name: ".dynamic.In.MmEntry" label: LABEL_REPEATED }
		field { name: "plural" number: 7 type: TYPE_INT32 label: LABEL_REPEATED }
		nested_type { name: "MmEntry" options { map_entry: true }
			field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
			field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".google.protobuf.StringValue" label: LABEL_OPTIONAL } } }
	message_type { name: "Out"
		field { name: "mm" number: 1 type: TYPE_MESSAGE type_name: ".dynamic.Out.MmEntry" label: LABEL_REPEATED }
		field { name: "lm" number: 2 type: TYPE_MESSAGE type_name: ".google.protobuf.StringValue" label: LABEL_REPEATED }
		field { name: "l" number: 3 type: TYPE_INT32 label: LABEL_REPEATED }
		field { name: "m" number: 4 type: TYPE_MESSAGE type_name: ".google.protobuf.StringValue" label: LABEL_OPTIONAL }
		field { name: "other" number: 5 type: TYPE_INT32 label: LABEL_OPTIONAL }
		field { name: "s" number: 6 type: TYPE_STRING label: LABEL_OPTIONAL }
		field { name: "plural" number: 7 type: TYPE_INT32 label: LABEL_OPTIONAL }
		nested_type { name: "MmEntry" options { map_entry: true }
			field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
			field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".google.protobuf.StringValue" label: LABEL_OPTIONAL } } }
	service { name: "Service" method { name: "Method" input_type: ".dynamic.In" output_type: ".dynamic.Out" } }`
	raw := &descriptorpb.FileDescriptorProto{}
	if err := prototext.Unmarshal([]byte(text), raw); err != nil {
		return nil, err
	}
	file, err := protodesc.NewFile(raw, protoregistry.GlobalFiles)
	if err != nil {
		return nil, err
	}
	return file, protoregistry.GlobalFiles.RegisterFile(file)
})

// Fields are echoed if name and type agree, whatever their numbers and kinds.
func TestDynamicMessages(t *testing.T) {
	file, err := dynamicFile()
	require.NoError(t, err)
	in := dynamicpb.NewMessage(file.Messages().ByName("In"))
	require.NoError(t, prototext.Unmarshal([]byte(`s: "a" other: "b" m { value: "c" } l: 1 l: 2 lm { value: "d" }
		mm { key: "e" value { value: "f" } } plural: 3`), in))
	want := dynamicpb.NewMessage(file.Messages().ByName("Out"))
	require.NoError(t, prototext.Unmarshal([]byte(`s: "a" m { value: "c" } l: 1 l: 2 lm { value: "d" }
		mm { key: "e" value { value: "f" } }`), want))
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		got := dynamicpb.NewMessage(want.Descriptor())
		require.NoError(t, srv.Dial().Invoke(t.Context(), "/dynamic.Service/Method", in, got))
		assert.True(t, proto.Equal(want, got), "got %v", got)
		assert.True(t, proto.Equal(in, srv.Attempts()[0].Requests[0]))
	})
}
