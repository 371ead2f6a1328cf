// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina_test

import (
	"context"
	"iter"
	"net"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/seed98143e88/grpcretry/jina"
	"github.com/seed98143e88/grpcretry/jina/jinatest"
)

// memoryBound is how much the heap may grow while a Post goes on, in which a hundred
// requests of a hundred small documents may be on their way: 300 kB of them as they are,
// copies for a replay, and responses, on both sides.
const memoryBound = 4 << 20

// TestConstantMemory holds that the memory of a Post does not depend on how many
// documents are posted, with and without streaming.
func TestConstantMemory(t *testing.T) { //nolint:paralleltest // measures the heap of the process
	postMany(t, 100_000)
}

// TestSoakConstantMemory does the same with a million.
func TestSoakConstantMemory(t *testing.T) {
	if os.Getenv("GRPCRETRY_SOAK") == "" {
		t.Skip("runs in make soak")
	}
	postMany(t, 1_000_000)
}

func postMany(t *testing.T, documents int) {
	t.Helper()
	if jina.RaceEnabled {
		t.Skip("the race detector takes memory by itself")
	}
	client := plainGateway(t)
	for _, m := range both {
		input := jina.Generator(func(context.Context) iter.Seq2[jina.Document, error] {
			return func(yield func(jina.Document, error) bool) {
				for n := range documents {
					if !yield(strconv.AppendInt(nil, int64(n), 10), nil) {
						return
					}
				}
			}
		})
		before, sizes, received := heap(), []int{}, 0
		for response, err := range client.Post(t.Context(), "/x", input, jina.WithStream(m.stream), jina.WithPrefetch(100)) {
			require.NoError(t, err)
			for _, err := range response.Documents() {
				require.NoError(t, err)
				received++
			}
			if received%(documents/10) == 0 {
				sizes = append(sizes, heap()-before)
			}
		}
		t.Logf("%s: at each tenth the heap has grown by %d bytes", m.name, sizes)
		assert.Equal(t, documents, received)
		require.Len(t, sizes, 10)
		for _, size := range sizes {
			assert.Less(t, size, memoryBound)
		}
	}
}

// heap is what is reachable.
func heap() int {
	runtime.GC()
	runtime.GC() // what finalizers and pools let go
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// plainGateway returns a client of a gateway that keeps no records.
func plainGateway(t *testing.T) *jina.Client {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	jinatest.NewService().Register(server)
	go func() { _ = server.Serve(listener) }() // it ends when it is stopped
	options, err := jina.DialOptions(jina.Params{MaxAttempts: 3})
	require.NoError(t, err)
	conn, err := grpc.NewClient("passthrough:///memory", append(options,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
	})
	return jina.NewClient(conn)
}
