// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jinatest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/seed98143e88/grpcretry/jina"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

// request is what a client sends; the documents are their own text.
func request(id, endpoint string, docs ...string) *jinapb.DataRequestProto {
	list := make([]jina.Document, len(docs))
	for i, doc := range docs {
		list[i] = jina.Document(doc)
	}
	return &jinapb.DataRequestProto{
		Header:     &jinapb.HeaderProto{RequestId: id, ExecEndpoint: &endpoint},
		Parameters: &structpb.Struct{Fields: map[string]*structpb.Value{"__results__": structpb.NewStructValue(&structpb.Struct{})}},
		Data:       encoded(jina.EncodeDocuments(list)),
	}
}

func encoded(docs []byte) *jinapb.DataRequestProto_DataContentProto {
	return &jinapb.DataRequestProto_DataContentProto{Documents: &jinapb.DataRequestProto_DataContentProto_Docs{Docs: docs}}
}

// texts are the documents of an answer.
func texts(tb testing.TB, answer *jinapb.DataRequestProto) []string {
	tb.Helper()
	var out []string
	for doc, err := range jina.DecodeDocuments(answer.GetData().GetDocs()) {
		require.NoError(tb, err)
		out = append(out, string(doc))
	}
	return out
}

// ids are the requests that the answers belong to.
func ids(answers []*jinapb.DataRequestProto) []string {
	var out []string
	for _, a := range answers {
		out = append(out, a.GetHeader().GetRequestId())
	}
	return out
}

// stations are the names on the route of an answer.
func stations(answer *jinapb.DataRequestProto) []string {
	var out []string
	for _, route := range answer.GetRoutes() {
		out = append(out, route.GetExecutor())
	}
	return out
}

// suffixed is a handler that adds a text to every document.
func suffixed(text string) func(context.Context, []jina.Document, map[string]any) ([]jina.Document, error) {
	return func(_ context.Context, docs []jina.Document, _ map[string]any) ([]jina.Document, error) {
		out := make([]jina.Document, len(docs))
		for i, doc := range docs {
			out[i] = jina.Document(string(doc) + text)
		}
		return out, nil
	}
}

// failing is a handler that returns an error.
func failing(err error) func(context.Context, []jina.Document, map[string]any) ([]jina.Document, error) {
	return func(context.Context, []jina.Document, map[string]any) ([]jina.Document, error) { return nil, err }
}

// slow is a handler that takes as long as its first document says, or until the call
// ends. It returns the documents as they are.
func slow(ctx context.Context, docs []jina.Document, _ map[string]any) ([]jina.Document, error) {
	d, err := time.ParseDuration(string(docs[0]))
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(d):
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// outcome is what a client sees of a call.
type outcome struct {
	answers []*jinapb.DataRequestProto
	at      []time.Duration // when each came, from the beginning
	trailer metadata.MD
	err     error // nil for a clean end
	took    time.Duration
}

// single sends one request by itself.
func single(ctx context.Context, cc grpc.ClientConnInterface, in *jinapb.DataRequestProto) (o outcome) {
	start := time.Now()
	answer, err := jinapb.NewJinaSingleDataRequestRPCClient(cc).ProcessSingleData(ctx, in, grpc.Trailer(&o.trailer))
	o.err, o.took = err, time.Since(start)
	if err == nil {
		o.answers = append(o.answers, answer)
	}
	return o
}

// call sends requests in a stream, half-closes it and reads to the end. The metadata are
// keys and values.
func call(ctx context.Context, cc grpc.ClientConnInterface, md []string, in ...*jinapb.DataRequestProto) outcome {
	start := time.Now()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, md...))
	defer cancel()
	stream, err := jinapb.NewJinaRPCClient(cc).Call(ctx)
	if err != nil {
		return outcome{err: err}
	}
	for _, r := range in {
		if err := stream.Send(r); err != nil && !errors.Is(err, io.EOF) {
			return outcome{err: err}
		}
	}
	if err := stream.CloseSend(); err != nil {
		return outcome{err: err}
	}
	return drain(stream, start)
}

func drain(stream grpc.BidiStreamingClient[jinapb.DataRequestProto, jinapb.DataRequestProto], start time.Time) (o outcome) {
	for {
		answer, err := stream.Recv()
		if err != nil {
			o.took, o.trailer = time.Since(start), stream.Trailer()
			if !errors.Is(err, io.EOF) {
				o.err = err
			}
			return o
		}
		o.answers, o.at = append(o.answers, answer), append(o.at, time.Since(start))
	}
}

// fakeTB stands for a test that is expected to fail.
type fakeTB struct {
	testing.TB

	mu       sync.Mutex
	failed   strings.Builder
	cleanups []func()
}

func (f *fakeTB) Helper() {}

func (f *fakeTB) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }

func (f *fakeTB) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintf(&f.failed, format, args...)
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

// failure runs a test that is expected to fail, and returns what it said.
func failure(tb testing.TB, test func(tb testing.TB)) string {
	tb.Helper()
	f := &fakeTB{TB: tb}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := range f.cleanups {
				f.cleanups[len(f.cleanups)-1-i]()
			}
		}()
		test(f)
	}()
	<-done
	return f.failed.String()
}
