// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// quick is a policy that gRPC can run too.
var quick = grpcretry.Policy{MaxAttempts: 4, Backoff: grpcretry.Backoff{Initial: time.Millisecond}}

// noticed is an observer that keeps what it is told to log.
func noticed(into *[]string) grpcretry.Option {
	return grpcretry.WithObserver(grpcretry.Observer{Notice: func(_ context.Context, _ string, text string) {
		*into = append(*into, text)
	}})
}

// TestChannelRetry holds that calls which gRPC retries tell as much as those which the
// suite does: the number of attempts, in trailer and error, once.
func TestChannelRetry(t *testing.T) {
	unary := func(ctx context.Context, r *rig, opts ...grpc.CallOption) (metadata.MD, error) {
		var trailer metadata.MD
		_, err := r.Read(ctx, &testv1.Request{Key: "a"}, append(opts, grpc.Trailer(&trailer))...)
		return trailer, err
	}
	stream := func(ctx context.Context, r *rig, opts ...grpc.CallOption) (metadata.MD, error) {
		var trailer metadata.MD
		_, own, err := callDownload(ctx, r, append(opts, grpc.Trailer(&trailer))...)
		if own != nil {
			assert.Equal(t, own["jina-client-attempts"], trailer["jina-client-attempts"])
		}
		return trailer, err
	}
	for name, kind := range map[string]struct {
		method string
		call   func(context.Context, *rig, ...grpc.CallOption) (metadata.MD, error)
	}{"unary": {read, unary}, "server stream": {download, stream}} {
		for _, row := range []struct {
			name     string
			script   []testserver.Step
			attempts int
			code     codes.Code
			reason   error
		}{
			{"success", nil, 1, codes.OK, nil},
			{"retried", []testserver.Step{busy.Times(2)}, 3, codes.OK, nil},
			{"exhausted", []testserver.Step{busy.Forever()}, 4, codes.Unavailable, grpcretry.ErrExhausted},
			{"not retryable", []testserver.Step{busy, testserver.Fail(codes.NotFound, "none")}, 2, codes.NotFound, grpcretry.ErrNotRetryable},
			{"at once", []testserver.Step{testserver.Fail(codes.NotFound, "none")}, 1, codes.NotFound, nil},
			{"pushback", []testserver.Step{busy, busy.Pushback("-1")}, 2, codes.Unavailable, grpcretry.ErrPushback},
		} {
			t.Run(name+", "+row.name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := newRig(t, quick, grpcretry.WithChannelRetry(kind.method))
					r.server.Script(kind.method, row.script...)
					var finished []error
					trailer, err := kind.call(t.Context(), r, grpc.OnFinish(func(err error) { finished = append(finished, err) }))
					assert.Equal(t, row.code, status.Code(err), "%v", err)
					assert.Len(t, r.server.Attempts(), row.attempts)
					n, ok := grpcretry.AttemptsFromMD(trailer)
					assert.True(t, ok)
					assert.Equal(t, row.attempts, n)
					assert.Equal(t, []error{err}, finished)
					if row.attempts == 1 {
						assert.NotErrorAs(t, err, new(*grpcretry.Error))
						return
					}
					require.Len(t, r.journal.done, 1)
					require.Len(t, r.journal.done[0].attempts, 1, "of the others nothing is known")
					assert.Equal(t, row.attempts, r.journal.done[0].attempts[0].Number)
					if row.reason != nil {
						require.ErrorIs(t, err, row.reason)
					}
				})
			})
		}
	}
}

// TestChannelRetryAttemptContext holds that the function which makes contexts is asked
// once, and may refuse.
func TestChannelRetryAttemptContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var asked []int
		refuse := false
		r := newRig(t, quick, grpcretry.WithChannelRetry(read, download), grpcretry.WithAttemptContext(func(ctx context.Context, n int) context.Context {
			if asked = append(asked, n); refuse {
				return nil
			}
			return metadata.AppendToOutgoingContext(ctx, "x-id", "a")
		}))
		r.server.Script("", busy, testserver.OK(), busy)
		_, err := r.call(t.Context(), read)
		require.NoError(t, err)
		_, _, err = callDownload(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, []int{1, 1}, asked)
		for _, a := range r.server.Attempts() {
			assert.Equal(t, []string{"a"}, a.Metadata["x-id"])
		}
		refuse = true
		_, err = r.call(t.Context(), read)
		assert.Equal(t, codes.Internal, status.Code(err))
		_, _, err = callDownload(t.Context(), r)
		assert.Equal(t, codes.Internal, status.Code(err))
	})
}

// TestChannelRetryBesideOthers holds that on one connection each layer has its methods.
func TestChannelRetryBesideOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quick, grpcretry.WithChannelRetry(read))
		r.server.Script("", busy.Forever())
		for _, method := range []string{read, put} {
			before := len(r.server.Attempts())
			var trailer metadata.MD
			_, err := r.call(t.Context(), method, grpc.Trailer(&trailer))
			require.ErrorIs(t, err, grpcretry.ErrExhausted)
			assert.Equal(t, []string{"4"}, trailer["jina-client-attempts"])
			assert.Equal(t, 4, len(r.server.Attempts())-before)
		}
		_, _, err := callExchange(t.Context(), r)
		require.ErrorIs(t, err, grpcretry.ErrNotRepeatable)
	})
}

// TestChannelRetryRefuses holds what is not given to the channel, and why.
func TestChannelRetryRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		options []grpcretry.Option
		err     string
	}{
		{"no name", []grpcretry.Option{grpcretry.WithChannelRetry()}, "grpcretry: WithChannelRetry: no name is given"},
		{"not linked", []grpcretry.Option{grpcretry.WithChannelRetry("a.B/C")}, `grpcretry: WithChannelRetry("a.B/C"): it is not linked, so that nobody knows whether it is a stream of requests`},
		{"service not linked", []grpcretry.Option{grpcretry.WithChannelRetry("a.B")}, `WithChannelRetry("a.B"): the service is not linked, so that nobody knows its methods`},
		{"no such method", []grpcretry.Option{grpcretry.WithChannelRetry("grpcretry.test.v1.TestService/No")}, "has no such method"},
		{"not idempotent", []grpcretry.Option{grpcretry.WithChannelRetry(write)}, "grpcretry.test.v1.TestService/Write has no idempotency_level; set Policy.Repeat"},
		{"a service with one that is not", []grpcretry.Option{grpcretry.WithChannelRetry("grpcretry.test.v1.TestService")}, "Write: grpcretry.test.v1.TestService/Write has no idempotency_level"},
		{"stream of requests", []grpcretry.Option{grpcretry.WithChannelRetry(upload)}, "it is a stream of requests, whose replay by gRPC may report a failure as success, or never end"},
		{"fields", []grpcretry.Option{grpcretry.WithChannelRetry(read), grpcretry.WithPolicy(grpcretry.Policy{
			MaxAttempts: 1, Codes: []codes.Code{}, AttemptTimeout: 1, IdleTimeout: 1, ConnectWait: -1, MaxServerDelay: 1, MaxConnect: 1, MaxLost: 1, MaxAnswered: 1,
			Retryable: func(grpcretry.Failure) bool { return true }, Check: func(any) error { return nil },
			Backoff: grpcretry.Backoff{Initial: -1, Jitter: -1, Delay: func(int, grpcretry.Failure, float64) time.Duration { return 0 }},
		})}, "MaxAttempts is 1; it must be at least 2\n" +
			"Codes is []; it must not be empty\n" +
			"AttemptTimeout is 1ns; it must not be set: gRPC's own retry has nothing of the kind\n" +
			"IdleTimeout is 1ns; it must not be set: gRPC's own retry has nothing of the kind\n" +
			"ConnectWait is -1ns; it must not be set: gRPC's own retry has nothing of the kind\n" +
			"MaxServerDelay is 1ns; it must not be set: gRPC's own retry has nothing of the kind\n" +
			"MaxConnect is 1; it must not be set: gRPC's own retry has nothing of the kind\n" +
			"MaxLost is 1; it must not be set: gRPC's own retry has nothing of the kind\n" +
			"MaxAnswered is 1; it must not be set: gRPC's own retry has nothing of the kind\n" +
			"Retryable is set; it must not be set: gRPC's own retry has nothing of the kind\n" +
			"Check is set; it must not be set: gRPC's own retry has nothing of the kind\n" +
			"Backoff.Delay is set; it must not be set: gRPC's own retry has nothing of the kind\n" +
			"Backoff.Initial is -1ns; it must be above 0\n" +
			"Backoff.Jitter is -1; it must be that of gRPC, 0.2"},
		{"resolver alone", []grpcretry.Option{grpcretry.WithResolverConfig()}, "WithResolverConfig: there is no WithChannelRetry that it is for"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := grpcretry.New(row.options...)
			assert.ErrorContains(t, err, row.err)
		})
	}
	r, err := grpcretry.New()
	require.NoError(t, err)
	assert.EqualError(t, r.Update(grpcretry.WithChannelRetry(read)), "grpcretry: WithChannelRetry: only policies can be updated")
}

// TestChannelRetryCallPolicy holds that a call cannot change what the channel does.
func TestChannelRetryCallPolicy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quick, grpcretry.WithChannelRetry(read, download))
		_, err := r.call(t.Context(), read, grpcretry.WithCallPolicy(grpcretry.Policy{}))
		assert.Equal(t, codes.Internal, status.Code(err))
		assert.ErrorContains(t, err, "the method is one of WithChannelRetry")
		_, _, err = callDownload(t.Context(), r, grpcretry.WithCallPolicy(grpcretry.Policy{}))
		assert.ErrorContains(t, err, "the method is one of WithChannelRetry")
		assert.Empty(t, r.server.Attempts())

		r.server.Script(read, busy.Times(3))
		_, err = r.call(t.Context(), read, grpcretry.Disable())
		require.NoError(t, err, "the channel retries all the same")
	})
}

// pushed is a connection whose resolver is the test.
func pushed(t *testing.T, r *rig) (*grpc.ClientConn, func(config string)) {
	t.Helper()
	push := manual.NewBuilderWithScheme("manual")
	state := resolver.State{Addresses: []resolver.Address{{Addr: "bufconn"}}}
	push.InitialState(state)
	all := append(r.server.DialOptions(), grpc.WithResolvers(push))
	conn, err := grpc.NewClient("manual:///test", append(all, r.retrier.DialOptions()...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn, func(config string) {
		state.ServiceConfig = push.CC().ParseServiceConfig(config)
		push.UpdateState(state)
		for range 100 { // the connection takes it over on a goroutine of its own
			time.Sleep(time.Millisecond)
		}
	}
}

const retryAll = `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":3,"initialBackoff":"0.001s","maxBackoff":"0.001s",` +
	`"backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`

// TestLaw2ResolverPushes holds that attempts do not multiply when a resolver gives
// everything a retryPolicy at run time.
func TestLaw2ResolverPushes(t *testing.T) {
	methods := map[string]func(ctx context.Context, c testv1.TestServiceClient) (metadata.MD, error){
		"Read": func(ctx context.Context, c testv1.TestServiceClient) (trailer metadata.MD, err error) {
			_, err = c.Read(ctx, &testv1.Request{}, grpc.Trailer(&trailer))
			return trailer, err
		},
		"Put": func(ctx context.Context, c testv1.TestServiceClient) (trailer metadata.MD, err error) {
			_, err = c.Put(ctx, &testv1.Request{}, grpc.Trailer(&trailer))
			return trailer, err
		},
		"Download": func(ctx context.Context, c testv1.TestServiceClient) (trailer metadata.MD, err error) {
			_, trailer, err = callDownload(ctx, c)
			return trailer, err
		},
		"Upload": func(ctx context.Context, c testv1.TestServiceClient) (trailer metadata.MD, err error) {
			_, trailer, err = callUpload(ctx, c)
			return trailer, err
		},
	}
	for _, row := range []struct {
		name    string
		options []grpcretry.Option
		want    map[string]int // attempts, where it is not four
	}{
		{"which is ignored", []grpcretry.Option{grpcretry.WithChannelRetry(read)}, nil},
		{"which wins", []grpcretry.Option{grpcretry.WithChannelRetry(read), grpcretry.WithResolverConfig()}, map[string]int{"Read": 3, "Put": 3, "Download": 3}},
		{"without methods of the channel", nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, quick, row.options...)
				r.server.Script("", busy.Forever())
				conn, push := pushed(t, r)
				client := testv1.NewTestServiceClient(conn)
				conn.Connect()
				push(retryAll)
				for name, call := range methods {
					before := len(r.server.Attempts())
					trailer, err := call(t.Context(), client)
					assert.Equal(t, codes.Unavailable, status.Code(err))
					want := 4
					if n, ok := row.want[name]; ok {
						want = n
					}
					n, _ := grpcretry.AttemptsFromMD(trailer)
					assert.Equal(t, want, n, "%s: %v", name, err)
					assert.Equal(t, want, len(r.server.Attempts())-before, name)
				}
			})
		})
	}
}

// TestLaw2ForeignDefault holds that a default service config which replaces that of the
// suite is noticed: what it gives to gRPC the suite leaves alone, and says so.
func TestLaw2ForeignDefault(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var notices []string
		r := newRig(t, quick, grpcretry.WithChannelRetry(read), noticed(&notices))
		r.server.Script("", busy.Forever())
		client := testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), grpc.WithDefaultServiceConfig(retryAll))...))
		_, err := client.Put(t.Context(), &testv1.Request{})
		require.ErrorIs(t, err, grpcretry.ErrChannelRetries)
		assert.Len(t, r.server.Attempts(), 1)
		assert.Equal(t, []string{"the service config in force has a retryPolicy for this method, so that the suite does not retry it"}, notices)

		notices = nil
		client = testv1.NewTestServiceClient(r.server.Dial(append(r.retrier.DialOptions(), grpc.WithDefaultServiceConfig("{}"))...))
		_, err = client.Read(t.Context(), &testv1.Request{})
		require.ErrorIs(t, err, grpcretry.ErrChannelRetries)
		assert.Len(t, r.server.Attempts(), 2)
		assert.Equal(t, []string{"the service config in force has no retryPolicy for this method of WithChannelRetry, so that nobody retries it"}, notices)
	})
}

// TestLaw2ThousandsOfCalls counts failing calls of all kinds, on one connection whose
// user has a config and whose resolver pushes others all the time: each call makes as
// many attempts as its own layer may, no more, and both sides know it.
func TestLaw2ThousandsOfCalls(t *testing.T) { lawTwo(t, 400) }

// TestSoakLaw2 makes 20,000.
func TestSoakLaw2(t *testing.T) {
	soak(t)
	lawTwo(t, 20_000)
}

func lawTwo(t *testing.T, calls int) {
	t.Helper()
	for name, options := range map[string][]grpcretry.Option{
		"which is ignored": nil,
		"which wins":       {grpcretry.WithResolverConfig()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var arrived atomic.Int64
			listener, dial := memoryListener()
			server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
				arrived.Add(1)
				return status.Error(codes.Unavailable, "busy")
			}))
			go func() { _ = server.Serve(listener) }()
			defer server.Stop()
			policy := grpcretry.Policy{MaxAttempts: 4, Repeat: grpcretry.RepeatAlways, Backoff: grpcretry.Backoff{Initial: time.Microsecond, Max: time.Microsecond}}
			retrier, err := grpcretry.New(append(options, grpcretry.WithPolicy(policy), grpcretry.WithChannelRetry(read, download),
				grpcretry.WithServiceConfig(`{"methodConfig":[{"name":[{}],"waitForReady":true}]}`))...)
			require.NoError(t, err)
			push := manual.NewBuilderWithScheme("manual")
			state := resolver.State{Addresses: []resolver.Address{{Addr: "memory"}}}
			push.InitialState(state)
			conn, err := grpc.NewClient("manual:///test", append(retrier.DialOptions(), grpc.WithResolvers(push),
				grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }))...)
			require.NoError(t, err)
			defer conn.Close()
			client := testv1.NewTestServiceClient(conn)
			ways := []func() (metadata.MD, error){
				func() (trailer metadata.MD, err error) {
					_, err = client.Read(t.Context(), &testv1.Request{}, grpc.Trailer(&trailer))
					return trailer, err
				},
				func() (trailer metadata.MD, err error) {
					_, err = client.Write(t.Context(), &testv1.Request{}, grpc.Trailer(&trailer))
					return trailer, err
				},
				func() (trailer metadata.MD, err error) { _, trailer, err = callDownload(t.Context(), client); return },
				func() (trailer metadata.MD, err error) { _, trailer, err = callUpload(t.Context(), client); return },
				func() (trailer metadata.MD, err error) { _, trailer, err = callExchange(t.Context(), client); return },
			}
			lost := 0
			defer func() { t.Logf("of %d calls gRPC lost the status of %d", calls, lost) }()
			for i := range calls {
				if i%50 == 25 {
					state.ServiceConfig = push.CC().ParseServiceConfig([]string{retryAll, `{}`}[i/50%2])
					push.UpdateState(state)
				}
				before := arrived.Load()
				trailer, err := ways[i%len(ways)]()
				if native := i%len(ways) == 0 || i%len(ways) == 2 || options != nil && i%len(ways) == 1; native && status.Code(err) == codes.Unknown {
					lost++ // gRPC's replay met the end of an attempt
				} else {
					require.Equal(t, codes.Unavailable, status.Code(err), "call %d: %v", i, err)
				}
				told, ok := grpcretry.AttemptsFromMD(trailer)
				require.True(t, ok)
				made := int(arrived.Load() - before)
				require.Equal(t, made, told, "call %d: %v", i, err)
				require.LessOrEqual(t, made, policy.MaxAttempts, "call %d", i)
				if options == nil {
					require.Equal(t, policy.MaxAttempts, made, "call %d: %v", i, err)
				}
			}
		})
	}
}
