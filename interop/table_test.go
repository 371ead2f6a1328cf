// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package interop_test

import (
	"math"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// policy is some rows of the table: the calls under one service config.
type policy struct {
	name    string
	options []grpcretry.Option
	calls   []call
}

// call is a row of the table.
type call struct {
	method string
	name   string
	meets  []failure  // attempts after these succeed
	want   string     // number of attempts, and the code of the call
	except exceptions // by client

	timeout time.Duration // of the call; zero means a long one
	limit   bool          // the config has a timeout, which the server must see
}

// exceptions are what clients do otherwise, and why.
type exceptions map[string]exception

type exception struct{ want, why string }

func (c call) streams() bool { return c.method == "Download" }

func (c call) wanted(client string) string {
	if e, ok := c.except[client]; ok {
		return e.want
	}
	return c.want
}

var (
	busy   = failure{code: codes.Unavailable}
	twice  = slices.Repeat([]failure{busy}, 2)
	always = slices.Repeat([]failure{busy}, 10)
	soon   = failure{code: codes.Unavailable, pushback: "0"}

	quick = grpcretry.Backoff{Initial: time.Millisecond, Max: 10 * time.Millisecond, Multiplier: 1.5}
)

// waits are the calls by which a backoff shows that is longer than the test.
func waits() []call {
	return []call{
		{method: "Read", name: "has a deadline before", meets: always, timeout: time.Second, want: "1 DEADLINE_EXCEEDED"},
		{method: "Read", name: "is told to retry at once", meets: []failure{soon, soon}, want: "3 OK"},
	}
}

var table = []policy{
	{name: "none", calls: []call{
		{method: "Read", name: "fails twice", meets: twice, want: "1 UNAVAILABLE"},
	}},
	{name: "default for all", options: []grpcretry.Option{
		grpcretry.WithPolicy(grpcretry.Policy{Repeat: grpcretry.RepeatAlways}),
	}, calls: []call{
		{method: "Read", name: "fails twice", meets: twice, want: "3 OK"},
		{method: "Read", name: "fails always", meets: always, want: "3 UNAVAILABLE"},
		{method: "Read", name: "fails with another code", meets: []failure{{code: codes.Internal}}, want: "1 INTERNAL"},
		{method: "Write", name: "is repeated too", meets: twice, want: "3 OK"},
		{method: "Download", name: "fails twice before a message", meets: twice, want: "3 OK"},
		{method: "Download", name: "fails after a message", meets: []failure{{code: codes.Unavailable, sent: 1}}, want: "1 UNAVAILABLE"},
		{method: "Read", name: "is told not to retry", meets: []failure{{code: codes.Unavailable, pushback: "-1"}}, want: "1 UNAVAILABLE"},
		{method: "Read", name: "is told nonsense", meets: slices.Repeat([]failure{{code: codes.Unavailable, pushback: "abc"}}, 10), want: "1 UNAVAILABLE", except: exceptions{
			"node": {"3 UNAVAILABLE", "grpc-js takes what is no number for a wish to be retried at once"},
		}},
	}},
	{name: "a service by its descriptors", options: []grpcretry.Option{
		grpcretry.WithMethodPolicy("grpcretry.test.v1.TestService", grpcretry.Policy{
			MaxAttempts: 4, Backoff: quick,
			Codes: []codes.Code{codes.Unavailable, codes.Canceled, codes.ResourceExhausted},
		}),
	}, calls: []call{
		{method: "Read", name: "fails with each code", meets: []failure{{code: codes.Canceled}, {code: codes.ResourceExhausted}, busy}, want: "4 OK"},
		{method: "Put", name: "fails always", meets: always, want: "4 UNAVAILABLE"},
		{method: "Write", name: "must not be repeated", meets: twice, want: "1 UNAVAILABLE"},
		{method: "Download", name: "fails twice before a message", meets: twice, want: "3 OK"},
	}},
	{name: "a method beside a default", options: []grpcretry.Option{
		grpcretry.WithPolicy(grpcretry.Policy{Repeat: grpcretry.RepeatAlways, Backoff: quick}),
		grpcretry.WithMethodPolicy(testv1.TestService_Write_FullMethodName, grpcretry.Policy{MaxAttempts: 1}),
	}, calls: []call{
		{method: "Write", name: "must not be retried", meets: twice, want: "1 UNAVAILABLE"},
		{method: "Read", name: "has the default", meets: twice, want: "3 OK"},
	}},
	{name: "a timeout", options: []grpcretry.Option{
		grpcretry.WithPolicy(grpcretry.Policy{
			Repeat: grpcretry.RepeatAlways, Timeout: time.Hour + 1_234_567_890, Backoff: quick,
		}),
	}, calls: []call{
		{method: "Read", name: "fails twice", meets: twice, timeout: 2 * time.Hour, limit: true, want: "3 OK in 1h0m0s", except: exceptions{
			// See also https://github.com/grpc/grpc/issues/40633.
			"python": {"3 OK in 2h0m0s", "the C core does not tell the server of a config's timeout, and ends calls up to two seconds before it"},
		}},
	}},
	backoff("waits of a nanosecond", grpcretry.Backoff{Initial: 1, Max: 1}, fifth),
	backoff("waits in microseconds", grpcretry.Backoff{Initial: 1500 * time.Microsecond, Max: 1600 * time.Microsecond}, fifth),
	backoff("steepest growth", grpcretry.Backoff{Initial: time.Millisecond, Max: 2 * time.Millisecond, Multiplier: 1e21}, fifth),
	backoff("waits of a day", grpcretry.Backoff{Initial: 24 * time.Hour, Max: 240 * time.Hour}, waits()),
	backoff("waits of 50 days", grpcretry.Backoff{Initial: 50 * 24 * time.Hour, Max: 500 * 24 * time.Hour}, waits()),
	backoff("waits of 200 years", grpcretry.Backoff{Initial: 200 * 365 * 24 * time.Hour, Max: math.MaxInt64}, waits()),
}

// fifth is the call by which a backoff shows that is short.
var fifth = []call{
	{method: "Read", name: "fails always", meets: always, want: "5 UNAVAILABLE"},
}

// backoff returns the rows of a policy that is special for its waits, and has more
// attempts than gRPC allows.
func backoff(name string, b grpcretry.Backoff, calls []call) policy {
	return policy{name, []grpcretry.Option{
		grpcretry.WithPolicy(grpcretry.Policy{MaxAttempts: 8, Repeat: grpcretry.RepeatAlways, Backoff: b}),
	}, calls}
}
