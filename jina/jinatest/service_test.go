// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jinatest_test

import (
	"context"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/seed98143e88/grpcretry/jina"
	"github.com/seed98143e88/grpcretry/jina/jinatest"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

// names are the services of a gateway.
var names = []string{
	"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
	"jina.JinaDataRequestRPC", "jina.JinaDiscoverEndpointsRPC", "jina.JinaGatewayDryRunRPC", "jina.JinaInfoRPC",
	"jina.JinaRPC", "jina.JinaSingleDataRequestRPC",
}

// plain serves a service on a plain server, with another one beside it.
func plain(t *testing.T, service *jinatest.Service) (*grpc.ClientConn, *grpc.Server) {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	service.Register(server)
	jinapb.RegisterJinaExecutorRestoreServer(server, jinapb.UnimplementedJinaExecutorRestoreServer{})
	go func() { _ = server.Serve(listener) }()
	cc, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, cc.Close())
		server.Stop()
		service.Wait()
	})
	return cc, server
}

func TestService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := jinatest.NewService()
		service.Handle("a", "/e", suffixed("1"))
		cc, _ := plain(t, service)
		o := single(t.Context(), cc, request("1", "/e", "d"))
		require.NoError(t, o.err)
		assert.Equal(t, []string{"d1"}, texts(t, o.answers[0]))
		o = call(t.Context(), cc, nil, request("1", "/e", "d"), request("2", "/e", "d"))
		require.NoError(t, o.err)
		assert.ElementsMatch(t, []string{"1", "2"}, ids(o.answers))
		o = single(t.Context(), cc, request("1", "/e", "d"))
		require.NoError(t, o.err)

		service.Handle("", "/e", suffixed("1"))
		err := single(t.Context(), cc, request("1", "/e")).err
		assert.Equal(t, codes.Internal, status.Code(err))
		assert.ErrorContains(t, err, `jinatest: Handle: endpoint "/e": the name of the executor is empty`)
	})
}

// Wait is for handlers that go on after their calls, and for those that run.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		service := jinatest.NewService()
		service.Wait()
		service.Handle("a", "/deaf", func(_ context.Context, docs []jina.Document, _ map[string]any) ([]jina.Document, error) {
			d, err := time.ParseDuration(string(docs[0]))
			time.Sleep(d)
			return nil, err
		})
		cc, server := plain(t, service)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go single(ctx, cc, request("1", "/deaf", "1m"))
		assert.Equal(t, codes.DeadlineExceeded, status.Code(call(ctx, cc, nil, request("1", "/deaf", "30s")).err))
		assert.Equal(t, time.Second, time.Since(start))
		server.Stop()
		go service.Wait()
		service.Wait()
		assert.Equal(t, time.Minute, time.Since(start))
	})
}

func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		cc := g.Dial()
		check := func(code jinapb.StatusProto_StatusCode, text string, health healthpb.HealthCheckResponse_ServingStatus) {
			out, err := jinapb.NewJinaGatewayDryRunRPCClient(cc).DryRun(t.Context(), &emptypb.Empty{})
			require.NoError(t, err)
			assert.True(t, proto.Equal(&jinapb.StatusProto{Code: code, Description: text}, out), "got %v", out)
			list, err := healthpb.NewHealthClient(cc).List(t.Context(), &healthpb.HealthListRequest{})
			require.NoError(t, err)
			assert.Len(t, list.GetStatuses(), len(names)+1)
			for _, name := range append(slices.Clone(names), "") {
				assert.Equal(t, health, list.GetStatuses()[name].GetStatus(), name)
			}
			require.NoError(t, single(t.Context(), cc, request("1", "/e")).err)
		}
		check(jinapb.StatusProto_SUCCESS, "", healthpb.HealthCheckResponse_SERVING)
		g.SetReady(errLoading)
		check(jinapb.StatusProto_ERROR, "still loading", healthpb.HealthCheckResponse_NOT_SERVING)
		g.SetReady(nil)
		check(jinapb.StatusProto_SUCCESS, "", healthpb.HealthCheckResponse_SERVING)
	})
}

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		client := healthpb.NewHealthClient(g.Dial())
		stream, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "jina.JinaRPC"})
		require.NoError(t, err)
		for _, c := range []struct {
			ready error
			want  healthpb.HealthCheckResponse_ServingStatus
		}{
			{nil, healthpb.HealthCheckResponse_SERVING},
			{errLoading, healthpb.HealthCheckResponse_NOT_SERVING},
			{nil, healthpb.HealthCheckResponse_SERVING},
		} {
			g.SetReady(c.ready)
			reply, err := stream.Recv()
			require.NoError(t, err)
			assert.Equal(t, c.want, reply.GetStatus())
		}
		_, err = client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "jina.Nothing"})
		assert.Equal(t, codes.NotFound, status.Code(err))
	})
}

// Both versions list the services, and have the files of each.
func TestReflection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _ := plain(t, jinatest.NewService())
		more := append(slices.Clone(names), "jina.JinaExecutorRestore")
		slices.Sort(more)
		for _, c := range []struct {
			cc   *grpc.ClientConn
			want []string
		}{{jinatest.New(t).Dial(), names}, {cc, more}} {
			for _, version := range []string{"v1", "v1alpha"} {
				// The messages of both are the same on the wire.
				stream, err := c.cc.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
					"/grpc.reflection."+version+".ServerReflection/ServerReflectionInfo")
				require.NoError(t, err)
				require.NoError(t, stream.SendMsg(&reflectionpb.ServerReflectionRequest{
					MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{},
				}))
				reply := &reflectionpb.ServerReflectionResponse{}
				require.NoError(t, stream.RecvMsg(reply))
				var listed []string
				for _, service := range reply.GetListServicesResponse().GetService() {
					listed = append(listed, service.GetName())
				}
				assert.Equal(t, c.want, listed)
				for _, name := range listed {
					require.NoError(t, stream.SendMsg(&reflectionpb.ServerReflectionRequest{
						MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name},
					}))
					reply = &reflectionpb.ServerReflectionResponse{}
					require.NoError(t, stream.RecvMsg(reply))
					assert.NotEmpty(t, reply.GetFileDescriptorResponse().GetFileDescriptorProto(), name)
				}
				require.NoError(t, stream.CloseSend())
			}
		}
	})
}

func TestInfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := jinatest.New(t)
		cc := g.Dial()
		info, err := jinapb.NewJinaInfoRPCClient(cc).XStatus(t.Context(), &emptypb.Empty{})
		require.NoError(t, err)
		for _, key := range []string{"jina", "docarray", "python"} {
			assert.NotEmpty(t, info.GetJina()[key], key)
		}
		assert.NotEmpty(t, info.GetEnvs())

		discovery := jinapb.NewJinaDiscoverEndpointsRPCClient(cc)
		found, err := discovery.EndpointDiscovery(t.Context(), &emptypb.Empty{})
		require.NoError(t, err)
		assert.Empty(t, found.GetEndpoints())
		g.Handle("b", "/search", suffixed(""))
		g.Handle("b", "", suffixed(""))
		g.Handle("a", "/search", suffixed(""))
		g.Handle("a", "/index", suffixed(""))
		found, err = discovery.EndpointDiscovery(t.Context(), &emptypb.Empty{})
		require.NoError(t, err)
		assert.True(t, proto.Equal(&jinapb.EndpointsProto{Endpoints: []string{"/default", "/index", "/search"}}, found))
	})
}
