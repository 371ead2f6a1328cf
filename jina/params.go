// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/seed98143e88/grpcretry"
)

// Defaults of [Params], those of Jina's client.
const (
	defaultMaxAttempts       = 1
	defaultInitialBackoff    = 500 * time.Millisecond
	defaultMaxBackoff        = 2 * time.Second
	defaultBackoffMultiplier = 1.5
)

// Params are the retry parameters of Jina's client, under its names and with its
// defaults. They are plain data: a zero field means its default, and the zero Params
// retries nothing.
type Params struct {
	// MaxAttempts is the largest number of attempts, the first included: of each
	// request without streaming, and of the whole stream with it, however long that
	// lives, unless ResetAfter says otherwise. With more than 1, whatever fails is
	// repeated, though it may have run. A gateway that restarts costs two attempts, one
	// that breaks and one that finds nobody, if ConnectWait is set. Zero means 1.
	MaxAttempts int

	// InitialBackoff is the wait after the first attempt, exactly: there is no jitter,
	// and MaxBackoff does not cap it. Zero means 500 ms; a negative value means no wait
	// after any attempt.
	InitialBackoff time.Duration

	// MaxBackoff caps the waits after all other attempts. They are random, between
	// zero and InitialBackoff × BackoffMultiplier^(n-1) after the n-th. Zero means 2 s.
	MaxBackoff time.Duration

	// BackoffMultiplier is what that grows by, at least 1. Zero means 1.5.
	BackoffMultiplier float64

	// Timeout bounds each attempt, not the Post: without streaming an attempt of a
	// request, which the gateway sees as its deadline; of a stream the time to the first
	// response of each attempt, and then each wait for the next one while a request has
	// no answer. Zero means no bound.
	Timeout time.Duration

	// AnyCode retries requests without streaming that failed with any code,
	// INVALID_ARGUMENT and UNIMPLEMENTED too, as Jina's client does, unless they failed on
	// this side. Without it they are retried like streams: after UNAVAILABLE, DEADLINE_EXCEEDED, INTERNAL and NOT_FOUND.
	AnyCode bool

	// GuideBackoff makes the wait after the first attempt what Jina's documentation says
	// in place of what its client does: random like the others, and capped like them.
	GuideBackoff bool

	// ConnectWait is how long a retry waits, after its backoff, for the connection if
	// the attempt before found none. Unlike that of [grpcretry.Policy], zero means that it
	// does not, as in Jina's client, so that all attempts may be spent while a gateway
	// restarts: after a failed dial gRPC dials again no sooner than a second later, unless
	// grpc.WithConnectParams says otherwise.
	ConnectWait time.Duration

	// ResetAfter says when a stream has all its attempts again; see
	// [grpcretry.ResetAfter]. A Post of many requests may want it after one response. The
	// zero value means never. It has no effect on requests without streaming.
	ResetAfter grpcretry.ResetAfter
}

func (p Params) withDefaults() Params {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = defaultMaxAttempts
	}
	if p.InitialBackoff == 0 {
		p.InitialBackoff = defaultInitialBackoff
	}
	if p.MaxBackoff == 0 {
		p.MaxBackoff = defaultMaxBackoff
	}
	if p.BackoffMultiplier == 0 {
		p.BackoffMultiplier = defaultBackoffMultiplier
	}
	return p
}

// problems lists every field that cannot be used, with its value.
func (p Params) problems() error {
	var problems []error
	for _, field := range []struct {
		name     string
		negative bool
		value    any
	}{
		{"MaxAttempts", p.MaxAttempts < 0, p.MaxAttempts},
		{"MaxBackoff", p.MaxBackoff < 0, p.MaxBackoff},
		{"Timeout", p.Timeout < 0, p.Timeout},
		{"ConnectWait", p.ConnectWait < 0, p.ConnectWait},
		{"ResetAfter.Responses", p.ResetAfter.Responses < 0, p.ResetAfter.Responses},
		{"ResetAfter.Quiet", p.ResetAfter.Quiet < 0, p.ResetAfter.Quiet},
	} {
		if field.negative {
			problems = append(problems, fmt.Errorf("params: %s is %v; it must not be negative", field.name, field.value))
		}
	}
	if m := p.BackoffMultiplier; m != 0 && (!(m >= 1) || math.IsInf(m, 1)) {
		problems = append(problems, fmt.Errorf("params: BackoffMultiplier is %v; it must be a number of at least 1", m))
	}
	return errors.Join(problems...)
}

// wait returns how long to wait after the attempt of a number, from 1, has failed, for a
// random number in [0, 1). It is for params with defaults.
func (p Params) wait(attempt int, random float64) time.Duration {
	switch {
	case p.InitialBackoff < 0:
		return 0
	case attempt <= 1 && !p.GuideBackoff:
		return p.InitialBackoff
	}
	limit := float64(p.InitialBackoff) * math.Pow(p.BackoffMultiplier, float64(attempt-1))
	return time.Duration(random * math.Min(limit, float64(p.MaxBackoff)))
}

// retried are the codes that Jina's client retries. Of streams it makes errors of the
// connection out of the first three, which it retries, and leaves the last as it is.
func retried() []codes.Code {
	return []codes.Code{codes.Unavailable, codes.NotFound, codes.DeadlineExceeded, codes.Internal}
}

// unary returns the policy of requests without streaming.
func (p Params) unary() grpcretry.Policy {
	p = p.withDefaults()
	policy := grpcretry.Policy{
		MaxAttempts:    p.MaxAttempts,
		Codes:          retried(),
		Repeat:         grpcretry.RepeatAlways,
		AttemptTimeout: p.Timeout,
		ConnectWait:    p.ConnectWait,
		Backoff: grpcretry.Backoff{Delay: func(attempt int, _ grpcretry.Failure, random float64) time.Duration {
			return p.wait(attempt, random)
		}},
	}
	if p.AnyCode {
		policy.Retryable = func(grpcretry.Failure) bool { return true }
	}
	if p.ConnectWait == 0 {
		policy.ConnectWait = -1
	}
	return policy
}

// stream returns the policy of streams.
func (p Params) stream() grpcretry.Policy {
	policy := p.unary()
	policy.Retryable = nil
	policy.IdleTimeout = p.Timeout
	policy.ResetAfter = p.ResetAfter
	return policy
}

// channel returns the policy that Jina's client gives to gRPC's own retry. The fields
// that gRPC has no form for are left out, and so is NOT_FOUND. gRPC has no retries without
// a wait, and caps the first one, too.
func (p Params) channel() grpcretry.Policy {
	p = p.withDefaults()
	most := max(p.MaxBackoff, time.Millisecond)
	return grpcretry.Policy{
		MaxAttempts: p.MaxAttempts,
		Codes:       []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Internal},
		Repeat:      grpcretry.RepeatAlways,
		Backoff: grpcretry.Backoff{
			Initial:    min(max(p.InitialBackoff, time.Millisecond), most),
			Max:        most,
			Multiplier: p.BackoffMultiplier,
		},
	}
}
