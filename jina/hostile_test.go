// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/seed98143e88/grpcretry/jina"
	"github.com/seed98143e88/grpcretry/jina/jinatest"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
	"github.com/seed98143e88/grpcretry/testserver"
)

type jinaRequest = jinapb.DataRequestProto

// answer makes the gateway read a stream to its end, and then answer it as a whole.
func (r *rig) answer(answers func(requests []*jinaRequest) []*jinaRequest) {
	r.gateway.Server.Handle(callMethod, func(stream grpc.ServerStream) error {
		var requests []*jinaRequest
		for {
			request := &jinaRequest{}
			err := stream.RecvMsg(request)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			requests = append(requests, request)
		}
		for _, response := range answers(requests) {
			if err := stream.SendMsg(response); err != nil {
				return err
			}
		}
		return nil
	})
}

// withID returns a copy of a request with another id.
func withID(request *jinaRequest, id string) *jinaRequest {
	other := proto.CloneOf(request)
	other.Header.RequestId = id
	return other
}

// TestHostileGateway holds that a gateway which does not answer each request once is
// found out, and that results are not mistaken for others.
func TestHostileGateway(t *testing.T) {
	t.Parallel()
	for _, attempts := range []int{1, 3} {
		for _, row := range []struct {
			name    string
			answers func(all []*jinaRequest) []*jinaRequest
			text    string
			docs    int
		}{
			{
				"unknown id", func(all []*jinaRequest) []*jinaRequest { return []*jinaRequest{all[0], withID(all[1], "x")} },
				"the gateway answered a request that was not sent: the request_id is \"x\"", 1,
			},
			{
				"no id", func(all []*jinaRequest) []*jinaRequest { return []*jinaRequest{withID(all[0], "")} },
				"the gateway answered a request that was not sent: the request_id is \"\"", 0,
			},
			{
				"no header", func(all []*jinaRequest) []*jinaRequest { return []*jinaRequest{{Data: all[0].GetData()}} },
				"the gateway answered a request that was not sent: the request_id is \"\"", 0,
			},
			{
				"twice", func(all []*jinaRequest) []*jinaRequest { return append(all[:1], all...) },
				"the gateway answered request 1 twice", 1,
			},
			{
				"never", func(all []*jinaRequest) []*jinaRequest { return all[1:] },
				"owed 1 answers", 2,
			},
			{
				"with nothing but ids", func(all []*jinaRequest) []*jinaRequest {
					for _, m := range all {
						proto.Reset(m)
						m.Header = &jinapb.HeaderProto{RequestId: "x"}
					}
					return all
				},
				"3 responses had nothing but a request_id", 0,
			},
		} {
			bubble(t, fmt.Sprintf("%s, %d attempts", row.name, attempts), func(t *testing.T) {
				r := newRig(t, jina.Params{MaxAttempts: attempts})
				r.answer(row.answers)
				o := r.post(t.Context(), jina.Documents(texts(3)...))
				require.ErrorIs(t, o.err, jina.ErrBadServerFlow)
				require.ErrorContains(t, o.err, row.text)
				assert.Len(t, o.docs, row.docs)
				assert.Len(t, r.gateway.Attempts(), 1, "nothing that another attempt would mend")
			})
		}
	}
	bubble(t, "ends before the input", func(t *testing.T) {
		r := newRig(t, jina.Params{MaxAttempts: 3})
		r.gateway.Script(callMethod, testserver.Do(func(stream grpc.ServerStream) error {
			request := &jinaRequest{}
			if err := stream.RecvMsg(request); err != nil {
				return err
			}
			return stream.SendMsg(request)
		}))
		o := r.post(t.Context(), jina.Documents(texts(3)...), jina.WithPrefetch(1))
		require.ErrorIs(t, o.err, jina.ErrBadServerFlow)
		assert.Equal(t, []string{"1"}, o.docs)
	})
	bubble(t, "other id without streaming", func(t *testing.T) {
		r := newRig(t, jina.Params{MaxAttempts: 3, AnyCode: true})
		r.gateway.Script(singleMethod, testserver.Do(func(stream grpc.ServerStream) error {
			request := &jinaRequest{}
			if err := stream.RecvMsg(request); err != nil {
				return err
			}
			return stream.SendMsg(withID(request, "x"))
		}))
		o := r.post(t.Context(), jina.Documents(texts(1)...), jina.WithStream(false))
		require.ErrorIs(t, o.err, jina.ErrBadServerFlow)
		require.ErrorContains(t, o.err, `request 1 (documents 1 to 1): bad server flow: the response has the request_id "x", not "`)
	})
}

// TestNeverAnswers holds that Timeout bounds each wait for a response of a stream, but
// not one in which nothing is owed.
func TestNeverAnswers(t *testing.T) {
	t.Parallel()
	bubble(t, "an answer in the middle", func(t *testing.T) {
		r := newRig(t, jina.Params{MaxAttempts: 2, Timeout: 3 * time.Second})
		r.gateway.Handle("echo", "", func(ctx context.Context, docs []jina.Document, _ map[string]any) ([]jina.Document, error) {
			if string(docs[0]) == "2" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return docs, nil
		})
		begun := time.Now()
		o := r.post(t.Context(), jina.Documents(texts(3)...), jina.WithPrefetch(2))
		assert.Equal(t, 2*3*time.Second+500*time.Millisecond, time.Since(begun))
		require.ErrorIs(t, o.err, jina.ErrConnection)
		assert.Equal(t, codes.DeadlineExceeded, status.Code(o.err))
		assert.Equal(t, []string{"2"}, o.attempts)
		assert.Equal(t, []string{"1", "3"}, o.docs)
	})
	bubble(t, "nothing is owed", func(t *testing.T) {
		r := newRig(t, jina.Params{MaxAttempts: 2, Timeout: 3 * time.Second})
		docs := make(chan jina.Document)
		go func() {
			defer close(docs)
			for _, doc := range texts(3) {
				docs <- doc
				time.Sleep(time.Minute)
			}
		}()
		o := r.post(t.Context(), jina.Channel(docs))
		require.NoError(t, o.err)
		assert.Equal(t, []string{"1", "2", "3"}, o.docs)
		assert.Equal(t, []string{"1"}, o.attempts)
	})
}

// TestTooLarge holds what becomes of documents over the limit of either side.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	large := jina.Documents(jina.Document("1"), make(jina.Document, 5000), jina.Document("3"))
	for _, m := range both {
		bubble(t, m.name+", this side", func(t *testing.T) {
			r := newRig(t, jina.Params{MaxAttempts: 3}, grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(4000)))
			o := r.post(t.Context(), large, inOrder(m)...)
			require.ErrorIs(t, o.err, jina.ErrBadClientInput)
			require.ErrorContains(t, o.err, "request 2 (documents 2 to 2): bad client input: ")
			require.ErrorContains(t, o.err, "trying to send message larger than max (50")
			assert.Equal(t, codes.ResourceExhausted, status.Code(o.err))
		})
		bubble(t, m.name+", the gateway's", func(t *testing.T) {
			r := newRigOf(t, jinatest.New(t, testserver.ServerOptions(grpc.MaxRecvMsgSize(4000))), jina.Params{MaxAttempts: 3})
			o := r.post(t.Context(), large, inOrder(m)...)
			require.ErrorIs(t, o.err, jina.ErrBadServerFlow)
			require.ErrorContains(t, o.err, "received message larger than max")
			assert.Equal(t, codes.ResourceExhausted, status.Code(o.err))
		})
		bubble(t, m.name+", the gateway's for its answer", func(t *testing.T) {
			r := newRigOf(t, jinatest.New(t, testserver.ServerOptions(grpc.MaxSendMsgSize(4000))), jina.Params{MaxAttempts: 3})
			o := r.post(t.Context(), large, inOrder(m)...)
			require.ErrorIs(t, o.err, jina.ErrBadServerFlow)
			require.ErrorContains(t, o.err, "trying to send message larger than max")
		})
		bubble(t, m.name+", 5 MB are not too many", func(t *testing.T) {
			r := newRigOf(t, jinatest.New(t, testserver.ServerOptions(grpc.MaxRecvMsgSize(10<<20))), jina.Params{MaxAttempts: 3})
			o := r.post(t.Context(), jina.Documents(make(jina.Document, 5<<20)), inOrder(m)...)
			require.NoError(t, o.err)
			assert.Len(t, o.docs[0], 5<<20)
		})
	}
	bubble(t, "more than is kept of a stream", func(t *testing.T) {
		r := newRigOf(t, jinatest.New(t, testserver.ServerOptions(grpc.MaxRecvMsgSize(50<<20))), jina.Params{MaxAttempts: 3})
		r.gateway.Script(callMethod, testserver.Cut().Sent(1).Times(2))
		docs := []jina.Document{make([]byte, 20<<20), make([]byte, 10<<20), make([]byte, 10<<20), []byte("4")}
		o := r.post(t.Context(), jina.Documents(docs...))
		require.NoError(t, o.err)
		assert.Len(t, o.docs, 4)
		assert.Equal(t, []string{"3"}, o.attempts, "it is sent again all the same")
	})
}
