// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// WaitOrStop is for loops of their own around calls that nothing else retries, whose
// connections were not dialled with [DialOptions], or which have [grpcretry.Disable]. It
// is called after the attempt of a number, counted from 1, has failed with an error, and
// either waits as the [Params] say and returns nil, or returns the error that the loop
// ends with:
//
//	for attempt := 1; ; attempt++ {
//		err := call(ctx)
//		if err == nil {
//			break
//		}
//		if err := jina.WaitOrStop(ctx, attempt, err, params); err != nil {
//			return err
//		}
//	}
//
// The loop ends after MaxAttempts, and after an error that Jina's client would not retry:
// of other codes, unless AnyCode is set, or without any, like an [ExecutorError]. It ends
// without a wait if the context has ended, or would before the wait does. An error of gRPC
// comes back as an [Error] that says how many attempts the loop made, any other as it is.
func WaitOrStop(ctx context.Context, attempt int, err error, params Params) error {
	problems := params.problems()
	if ctx == nil {
		problems = errors.Join(problems, errors.New("the context is nil"))
	}
	if attempt < 1 {
		problems = errors.Join(problems, fmt.Errorf("the attempt is %d; they are counted from 1", attempt))
	}
	if err == nil {
		problems = errors.Join(problems, errors.New("the error is nil, so that there is nothing to wait for"))
	}
	if problems != nil {
		return fmt.Errorf("jina: WaitOrStop: %w", errors.Join(problems, err))
	}
	params = params.withDefaults()
	if attempt >= params.MaxAttempts || !params.retries(err) || ctx.Err() != nil {
		return stopped(ctx, attempt, err)
	}
	wait := params.wait(attempt, rand.Float64())
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return stopped(ctx, attempt, err)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return stopped(ctx, attempt, err)
	}
}

// retries tells whether an error is one to retry.
func (p Params) retries(err error) bool {
	if _, executors := errors.AsType[*ExecutorError](err); executors {
		return false
	}
	s, ok := status.FromError(err)
	if !ok {
		return false
	}
	return p.AnyCode || slices.Contains(retried(), s.Code())
}

// stopped returns the error that a loop ends with.
func stopped(ctx context.Context, attempt int, err error) error {
	if _, ok := status.FromError(err); !ok {
		return err
	}
	ended := ctx.Err()
	if ours, ok := errors.AsType[*Error](err); ok && ended == nil {
		counted := *ours
		counted.Trailer = ours.Trailer.Copy()
		counted.Trailer.Set(attemptsKey, strconv.Itoa(attempt))
		return &counted
	}
	if ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w (%w), after: %w", ended, status.FromContextError(ended).Err(), err)
	}
	return newError(ctx, "", "", metadata.Pairs(attemptsKey, strconv.Itoa(attempt)), err)
}
