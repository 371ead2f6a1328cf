// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// idleBound is the most memory that an idle Acked stream may take beyond what gRPC's own
// stream takes.
const idleBound = 4 << 10

// TestAckedIdle holds that streams which wait cost little, and always the same.
func TestAckedIdle(t *testing.T) { //nolint:paralleltest // measures the heap of the process
	const streams = 10_000
	if raceEnabled {
		t.Skip("the race detector takes memory by itself")
	}
	retrier, err := grpcretry.New(grpcretry.WithPolicy(grpcretry.Policy{Repeat: grpcretry.RepeatAlways, Recovery: grpcretry.Acked(keyOf)}))
	require.NoError(t, err)
	plain := idle(t, streams, grpc.WithDisableRetry())
	ours := idle(t, streams, retrier.DialOptions()...)
	t.Logf("a stream takes %d B, an Acked one %d B after one message, %d B after 11", plain[0], ours[0], ours[1])
	assert.Less(t, ours[0]-plain[0], idleBound)
	assert.Less(t, ours[1]-ours[0], 512, "it is flat")
	assert.Zero(t, grpcretry.Buffered(retrier))
}

// idle opens streams of which each has one message answered, and then ten more, and
// returns the heap that each of them took then, both sides together.
func idle(t *testing.T, streams int, dial ...grpc.DialOption) (taken [2]int) {
	t.Helper()
	client, stop := echo(t, dial...)
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := heap()
	all := make([]testv1.TestService_ExchangeClient, streams)
	talk := func(messages int) {
		for _, stream := range all {
			for i := range messages {
				require.NoError(t, stream.Send(&testv1.Request{Key: strconv.Itoa(i)}))
				_, err := stream.Recv()
				require.NoError(t, err)
			}
		}
	}
	var err error
	for i := range all {
		all[i], err = client.Exchange(ctx)
		require.NoError(t, err)
	}
	for i, messages := range []int{1, 10} {
		talk(messages)
		taken[i] = (heap() - before) / streams
	}
	runtime.KeepAlive(all)
	return taken
}

// echo serves a duplex stream that answers each request with its key.
func echo(t *testing.T, dial ...grpc.DialOption) (client testv1.TestServiceClient, stop func()) {
	t.Helper()
	listener, dialer := memoryListener()
	server := grpc.NewServer()
	testv1.RegisterTestServiceServer(server, echoing{})
	go func() { _ = server.Serve(listener) }()
	conn := dialMemory(t, dialer, dial...)
	return testv1.NewTestServiceClient(conn), func() {
		_ = conn.Close()
		server.Stop()
	}
}

type echoing struct {
	testv1.UnimplementedTestServiceServer
}

func (echoing) Exchange(stream grpc.BidiStreamingServer[testv1.Request, testv1.Response]) error {
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&testv1.Response{Key: request.GetKey()}); err != nil {
			return err
		}
	}
}

// TestAckedEndless sends 100,000 messages through one stream, by which its memory does
// not grow.
func TestAckedEndless(t *testing.T) { //nolint:paralleltest // measures the heap of the process
	messages := 100_000
	if raceEnabled {
		messages = 10_000
	}
	endless(t, messages)
}

// TestSoakAckedEndless sends 10,000,000.
func TestSoakAckedEndless(t *testing.T) {
	soak(t)
	endless(t, 10_000_000)
}

// endless sends messages through one stream, with at most some of them outstanding.
func endless(t *testing.T, messages int) {
	t.Helper()
	const outstanding, tenths = 100, 10
	retrier, err := grpcretry.New(grpcretry.WithPolicy(grpcretry.Policy{Repeat: grpcretry.RepeatAlways, Recovery: grpcretry.Acked(keyOf)}))
	require.NoError(t, err)
	client, stop := echo(t, retrier.DialOptions()...)
	defer stop()
	stream, err := client.Exchange(t.Context())
	require.NoError(t, err)
	room := make(chan struct{}, outstanding)
	go func() {
		for i := range messages {
			room <- struct{}{}
			if stream.Send(&testv1.Request{Key: strconv.Itoa(i)}) != nil {
				return // Recv has the error
			}
		}
		_ = stream.CloseSend() // always nil
	}()
	var heaps []int
	for i := range messages {
		response, err := stream.Recv()
		require.NoError(t, err)
		if response.GetKey() != strconv.Itoa(i) {
			require.Equal(t, strconv.Itoa(i), response.GetKey())
		}
		<-room
		if (i+1)%(messages/tenths) == 0 {
			heaps = append(heaps, heap())
			assert.LessOrEqual(t, grpcretry.Buffered(retrier), int64(outstanding*300))
		}
	}
	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF)
	t.Logf("the heap, each tenth: %d", heaps)
	assert.Less(t, heaps[tenths-1], heaps[0]+256<<10, "it is flat")
	assert.Zero(t, grpcretry.Buffered(retrier))
}
