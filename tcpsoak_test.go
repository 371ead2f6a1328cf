// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

const (
	// soakWorkers is how many calls run at the same time.
	soakWorkers = 8
	// stuckAfter is when a call counts as one that will never end.
	stuckAfter = 2 * time.Minute
	// soakFailures is how many failures are reported before the soak ends.
	soakFailures = 20
)

// TestSoakTCP makes calls of all kinds to a server that is killed all the time and
// comes back, and holds that nothing is lost, delivered twice, or left behind.
func TestSoakTCP(t *testing.T) {
	half := soak(t) / 2
	overTCP(t, func(t *testing.T, s *tcpSoak) {
		s.forTime(t, half/10)
		before := s.rest(t)
		s.forTime(t, half-half/10)
		after := s.rest(t)
		t.Logf("before %+v, after %+v", before, after)
		assert.LessOrEqual(t, after.goroutines, before.goroutines+4)
		assert.LessOrEqual(t, after.files, before.files+2)
		assert.Less(t, after.heap, before.heap+4<<20)
		assert.Positive(t, s.replayed, "else nothing was put to the test")
		for _, protocol := range []tcpProtocol{repeated, resumed, watched, session} {
			assert.Positive(t, s.recovered[protocol], "%s: else nothing was put to the test", protocol)
		}
	})
}

// TestTCPKilled does the same with five kills, by the count of calls and not by the
// clock.
func TestTCPKilled(t *testing.T) {
	t.Parallel()
	overTCP(t, func(t *testing.T, s *tcpSoak) {
		ctx, cancel := context.WithCancel(s.ctx)
		completed := make(chan struct{})
		s.work(ctx, func() {
			select {
			case completed <- struct{}{}:
			case <-ctx.Done():
			}
		})
		for range 5 {
			for range 20 {
				select {
				case <-completed:
				case <-ctx.Done():
				}
			}
			s.bury(t, 0)
		}
		cancel()
		s.workers.Wait()
	})
}

// overTCP runs a test over plain connections, and over TLS.
func overTCP(t *testing.T, test func(t *testing.T, s *tcpSoak)) {
	t.Helper()
	run := func(t *testing.T, server, client credentials.TransportCredentials) {
		t.Helper()
		s := newTCPSoak(t, server, client)
		test(t, s)
		s.settle(t)
		s.report(t)
		assert.Greater(t, s.attempts, s.checked)
	}
	t.Run("plain", func(t *testing.T) {
		run(t, insecure.NewCredentials(), insecure.NewCredentials())
	})
	t.Run("TLS", func(t *testing.T) {
		server, client := credentialsOf(t)
		run(t, server, client)
	})
}

// tcpSoak is a connection through a Retrier to a server that is killed.
type tcpSoak struct {
	mortal

	conn    *grpc.ClientConn
	retrier *grpcretry.Retrier
	ctx     context.Context // ends when enough has failed
	seed    uint64
	random  *rand.Rand // of when the server is killed
	workers sync.WaitGroup
	started uint64 // workers
	ids     atomic.Int64

	mu    sync.Mutex
	ended []*tcpCall // that are to be checked

	// What was seen of all calls that were checked.
	checked, attempts, cancelled, committed, replayed int

	recovered map[tcpProtocol]int // calls that took more than one attempt

	kinds [grpcretry.Local + 1]int // of failures
}

func newTCPSoak(t *testing.T, server, client credentials.TransportCredentials) *tcpSoak {
	t.Helper()
	s := &tcpSoak{seed: rand.Uint64(), recovered: map[tcpProtocol]int{}}
	t.Logf("seed %d", s.seed)
	s.random = rand.New(rand.NewPCG(s.seed, 0))
	ctx, cancel := context.WithCancel(t.Context())
	s.ctx = ctx
	var failures atomic.Int64
	s.mortal = mortal{addr: "127.0.0.1:0", creds: server, failf: func(format string, args ...any) {
		t.Helper()
		if n := failures.Add(1); n <= soakFailures {
			t.Errorf(format, args...)
		} else if n == soakFailures+1 {
			cancel() // the rest follows from it, or is more of the same
		}
	}}
	require.NoError(t, s.start())
	var err error
	s.retrier, err = grpcretry.New(
		grpcretry.WithPolicy(patient(0)),
		grpcretry.WithMethodPolicy(exchange, patient(grpcretry.RepeatAlways)),
		grpcretry.WithBuffer(grpcretry.Buffer{Memory: 2 * mostMessages * largest, Total: 1 << 30}),
		grpcretry.WithObserver(tcpObserver()),
	)
	require.NoError(t, err)
	reconnect := backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 50 * time.Millisecond}
	s.conn, err = grpc.NewClient(s.addr, append(s.retrier.DialOptions(),
		grpc.WithTransportCredentials(client),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 5 * time.Second}))...)
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		s.workers.Wait()
		_ = s.conn.Close()
		s.kill()
	})
	return s
}

// patient is a policy under which a server that is killed makes no call fail.
func patient(repeat grpcretry.Repeat) grpcretry.Policy {
	return grpcretry.Policy{
		MaxAttempts: 100, // as many as the history has
		Backoff:     grpcretry.Backoff{Initial: 5 * time.Millisecond, Max: 100 * time.Millisecond},
		Repeat:      repeat,
	}
}

// work starts workers, which make calls until the context ends. After each of them
// they call a function.
func (s *tcpSoak) work(ctx context.Context, after func()) {
	client := testv1.NewTestServiceClient(s.conn)
	for range soakWorkers {
		s.started++
		random := rand.New(rand.NewPCG(s.seed, s.started))
		s.workers.Go(func() {
			for ctx.Err() == nil {
				s.call(newCall(strconv.FormatInt(s.ids.Add(1), 10), random, s.failf), client)
				after()
			}
		})
	}
}

// call makes a call, which is then to be checked.
func (s *tcpSoak) call(c *tcpCall, client testv1.TestServiceClient) {
	ctx, cancel := context.WithCancel(context.WithValue(s.ctx, tcpCallKey{}, c))
	defer cancel()
	c.cancel = cancel
	s.calls.Store(c.id, c)
	watch := time.AfterFunc(stuckAfter, func() {
		var stacks strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
		c.failf("is stuck\n%s", stacks.String())
		cancel()
	})
	defer watch.Stop()
	c.run(ctx, client)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, c)
}

// forTime makes calls for some time, while the server is killed.
func (s *tcpSoak) forTime(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, d)
	defer cancel()
	s.work(ctx, func() {})
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(50+s.random.IntN(451)) * time.Millisecond):
		}
		s.bury(t, time.Duration(max(0, s.random.IntN(100)-50))*time.Millisecond)
	}
	s.workers.Wait()
}

// bury kills the server, checks the calls that had ended before, since the server
// then has nothing more to say about them, and starts it again after some time.
func (s *tcpSoak) bury(t *testing.T, away time.Duration) {
	t.Helper()
	s.mu.Lock()
	ended := s.ended
	s.ended = nil
	s.mu.Unlock()
	s.kill()
	for _, c := range ended {
		s.calls.Delete(c.id)
		c.check()
		s.count(c)
	}
	if away > 0 {
		<-time.After(away)
	}
	require.NoError(t, s.start())
}

// count adds a call to the figures.
func (s *tcpSoak) count(c *tcpCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	attempts, _ := grpcretry.AttemptsFromMD(c.trailer)
	s.checked++
	s.attempts += attempts
	if c.protocol != noRecovery && attempts > 1 && c.got > 0 {
		s.recovered[c.protocol]++
	}
	switch {
	case errors.Is(c.err, grpcretry.ErrCommitted):
		s.committed++
	case status.Code(c.err) == codes.Canceled:
		s.cancelled++
	case c.err == nil && c.requests() > 1 && attempts > 1 && c.arrivals[0].received > 1:
		s.replayed++
	}
	for _, attempt := range c.history {
		if attempt.Failure != nil {
			s.kinds[attempt.Failure.Kind]++
		}
	}
}

// settle checks all calls, which must be over, and holds that nothing is kept.
func (s *tcpSoak) settle(t *testing.T) {
	t.Helper()
	s.bury(t, 0)
	s.calls.Range(func(id, _ any) bool {
		t.Errorf("call %v was not checked", id)
		return true
	})
	assert.Zero(t, grpcretry.Buffered(s.retrier))
}

func (s *tcpSoak) report(t *testing.T) {
	t.Helper()
	t.Logf("%d calls, %d attempts, %d kills; %d calls cancelled, %d failed committed, %d replayed well, recovered %v; "+
		"attempts that failed: %d to connect, %d answered, %d lost, %d here", s.checked, s.attempts, s.life-1,
		s.cancelled, s.committed, s.replayed, s.recovered,
		s.kinds[grpcretry.Connect], s.kinds[grpcretry.Answered], s.kinds[grpcretry.Lost], s.kinds[grpcretry.Local])
}

// usage is what the process uses.
type usage struct{ goroutines, files, heap int }

// rest settles, and measures what the process uses once it is at rest.
func (s *tcpSoak) rest(t *testing.T) usage {
	t.Helper()
	s.settle(t)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	now := usage{goroutines: runtime.NumGoroutine()}
	for same, ticks := 0, 0; same < 20 && ticks < 500; ticks++ {
		<-ticker.C
		same++
		if n := runtime.NumGoroutine(); n != now.goroutines || s.conn.GetState() != connectivity.Ready {
			s.conn.Connect() // with a connection, at all times
			now.goroutines, same = n, 0
		}
	}
	files, _ := os.ReadDir("/proc/self/fd") // where that exists
	now.files, now.heap = len(files), heap()
	return now
}
