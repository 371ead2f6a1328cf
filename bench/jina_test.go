// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/seed98143e88/grpcretry/jina"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

// echoes is a gateway that answers with what it was sent.
type echoes struct {
	jinapb.UnimplementedJinaRPCServer
	jinapb.UnimplementedJinaSingleDataRequestRPCServer
}

func (echoes) ProcessSingleData(_ context.Context, request *jinapb.DataRequestProto) (*jinapb.DataRequestProto, error) {
	return request, nil
}

func (echoes) Call(stream grpc.BidiStreamingServer[jinapb.DataRequestProto, jinapb.DataRequestProto]) error {
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(request); err != nil {
			return err
		}
	}
}

// gateway returns a connection to a gateway of its own.
func gateway(tb testing.TB, opts ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	jinapb.RegisterJinaRPCServer(server, echoes{})
	jinapb.RegisterJinaSingleDataRequestRPCServer(server, echoes{})
	go func() { _ = server.Serve(listener) }() // it ends when it is stopped
	conn, err := grpc.NewClient("passthrough:///memory", append(opts,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
	})
	return conn
}

// What is posted: so many documents of so many bytes, in requests of so many.
const (
	documents    = 50_000
	documentSize = 64
	requestSize  = 100
)

var posted = func() []jina.Document {
	docs := make([]jina.Document, documents)
	for i := range docs {
		docs[i] = fmt.Appendf(nil, "%*d", documentSize, i)
	}
	return docs
}()

// byHand is what a loop by hand sends, and reads of the answer.
type byHand struct {
	endpoint   string
	parameters *structpb.Struct
	received   int
}

// newByHand makes requests with the parameters that a gateway of Jina's asks for.
func newByHand(tb testing.TB) *byHand {
	tb.Helper()
	parameters, err := structpb.NewStruct(map[string]any{"__results__": map[string]any{}})
	require.NoError(tb, err)
	return &byHand{endpoint: "/index", parameters: parameters}
}

func (h *byHand) request(n int) *jinapb.DataRequestProto {
	return &jinapb.DataRequestProto{
		Header:     &jinapb.HeaderProto{RequestId: fmt.Sprintf("%032x", n), ExecEndpoint: &h.endpoint},
		Parameters: h.parameters,
		Data: &jinapb.DataRequestProto_DataContentProto{Documents: &jinapb.DataRequestProto_DataContentProto_Docs{
			Docs: jina.EncodeDocuments(posted[n*requestSize : (n+1)*requestSize]),
		}},
	}
}

func (h *byHand) read(tb testing.TB, response *jinapb.DataRequestProto) {
	tb.Helper()
	for _, err := range jina.DecodeDocuments(response.GetData().GetDocs()) {
		if err != nil {
			tb.Fatal(err)
		}
		h.received++
	}
}

func (h *byHand) done(tb testing.TB) {
	tb.Helper()
	if h.received != documents {
		tb.Fatalf("%d documents came back", h.received)
	}
}

// callByHand makes one call after the other, or several at a time.
func callByHand(tb testing.TB, conn *grpc.ClientConn, atOnce int) {
	tb.Helper()
	h := newByHand(tb)
	client := jinapb.NewJinaSingleDataRequestRPCClient(conn)
	if atOnce == 1 {
		for n := range documents / requestSize {
			response, err := client.ProcessSingleData(context.Background(), h.request(n))
			if err != nil {
				tb.Fatal(err)
			}
			h.read(tb, response)
		}
		h.done(tb)
		return
	}
	responses := make(chan *jinapb.DataRequestProto)
	numbers := make(chan int)
	go func() {
		defer close(numbers)
		for n := range documents / requestSize {
			numbers <- n
		}
	}()
	for range atOnce {
		go func() {
			for n := range numbers {
				response, err := client.ProcessSingleData(context.Background(), h.request(n))
				if err != nil {
					tb.Error(err)
				}
				responses <- response
			}
		}()
	}
	for range documents / requestSize {
		h.read(tb, <-responses)
	}
	h.done(tb)
}

// streamByHand sends all on one stream, with at most some requests outstanding.
func streamByHand(tb testing.TB, conn *grpc.ClientConn, outstanding int) {
	tb.Helper()
	h := newByHand(tb)
	stream, err := jinapb.NewJinaRPCClient(conn).Call(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	room := make(chan struct{}, outstanding)
	sent := make(chan error, 1)
	go func() {
		for n := range documents / requestSize {
			room <- struct{}{}
			if err := stream.Send(h.request(n)); err != nil {
				sent <- err
				return
			}
		}
		sent <- stream.CloseSend()
	}()
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			tb.Fatal(err)
		}
		h.read(tb, response)
		<-room
	}
	if err := <-sent; err != nil {
		tb.Fatal(err)
	}
	h.done(tb)
}

// post posts the same documents.
func post(tb testing.TB, client *jina.Client, opts ...jina.Option) {
	tb.Helper()
	h := &byHand{}
	for response, err := range client.Post(context.Background(), "/index", jina.Documents(posted...), opts...) {
		if err != nil {
			tb.Fatal(err)
		}
		h.read(tb, response.Message())
	}
	h.done(tb)
}

// BenchmarkPost compares Post with loops by hand around the stub that do the same, but
// for retries, replays, and telling responses apart.
func BenchmarkPost(b *testing.B) {
	for _, bench := range []struct {
		name   string
		byHand func(testing.TB, *grpc.ClientConn, int)
		limit  int
		stream bool
	}{
		{"unary, one after the other", callByHand, 1, false},
		{"unary, 16 at a time", callByHand, 16, false},
		{"unary, 100 at a time", callByHand, 100, false},
		{"stream, 16 outstanding", streamByHand, 16, true},
		{"stream, 1000 outstanding", streamByHand, 1000, true},
	} {
		b.Run(bench.name+"/lib=control", func(b *testing.B) {
			one, other := gateway(b), gateway(b)
			ratio(b, func() { bench.byHand(b, one, bench.limit) }, func() { bench.byHand(b, other, bench.limit) })
		})
		// With retries the connection counts those of gRPC's own, too.
		for _, attempts := range []int{1, 3} {
			b.Run(fmt.Sprintf("%s/lib=grpcretry-max-attempts-%d", bench.name, attempts), func(b *testing.B) {
				options, err := jina.DialOptions(jina.Params{MaxAttempts: attempts})
				require.NoError(b, err)
				plain, client := gateway(b), jina.NewClient(gateway(b, options...))
				ratio(b, func() { bench.byHand(b, plain, bench.limit) }, func() {
					post(b, client, jina.WithStream(bench.stream), jina.WithPrefetch(bench.limit))
				})
			})
		}
	}
}
