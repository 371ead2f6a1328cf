// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/seed98143e88/grpcretry"
)

var update = flag.Bool("update", false, "write docs/failures.md anew")

// cause is something that makes calls fail, for real.
type cause struct {
	name string
	// dial returns a connection on which every call fails for this cause.
	dial func(t *testing.T, opts ...grpc.DialOption) *grpc.ClientConn
	// call makes one call; nil for a plain one without deadline.
	call func(t *testing.T, conn *grpc.ClientConn, method string) error
	// policy is the caller's, if the cause is a timeout.
	policy grpcretry.Policy
	tcp    bool // needs real connections, so no virtual time

	kind    grpcretry.Kind
	code    codes.Code
	message string // part of the status's message
	// racy causes end in one of several messages.
	messages []string
}

// observed is what a cause showed.
type observed struct {
	failure grpcretry.Failure
	retried map[string]bool // by method
}

// observe makes a call of each method under the cause.
func (c cause) observe(t *testing.T) observed {
	t.Helper()
	result := observed{retried: map[string]bool{}}
	for _, method := range []string{read, write} {
		var attempts []grpcretry.Attempt
		policy := c.policy
		policy.MaxAttempts = 2
		policy.Backoff.Initial = -1
		policy.ConnectWait = -1
		retrier, err := grpcretry.New(grpcretry.WithPolicy(policy), grpcretry.WithObserver(grpcretry.Observer{
			Attempt: func(_ context.Context, _ string, a grpcretry.Attempt) { attempts = append(attempts, a) },
		}))
		require.NoError(t, err)
		conn := c.dial(t, retrier.DialOptions()...)
		call := c.call
		if call == nil {
			call = option()
		}
		err = call(t, conn, method)
		require.Error(t, err)
		require.NotEmpty(t, attempts)
		result.failure = *attempts[0].Failure
		result.retried[method] = len(attempts) > 1
	}
	return result
}

// TestFailureCauses produces every cause for real, and holds what the suite makes
// of it. docs/failures.md is what it saw.
func TestFailureCauses(t *testing.T) {
	t.Parallel()
	list := causes()
	rows := make([]string, len(list))
	t.Run("causes", func(t *testing.T) {
		for i, c := range list {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				var seen observed
				if c.tcp {
					seen = c.observe(t)
				} else {
					synctest.Test(t, func(t *testing.T) { seen = c.observe(t) })
				}
				if c.kind != 0 {
					assert.Equal(t, c.kind, seen.failure.Kind)
				}
				assert.Equal(t, c.code, seen.failure.Status.Code())
				messages := c.messages
				if c.message != "" {
					messages = []string{c.message}
				}
				found := false
				for _, message := range messages {
					found = found || strings.Contains(seen.failure.Status.Message(), message)
				}
				assert.True(t, found, "%q is none of %q", seen.failure.Status.Message(), messages)
				rows[i] = c.row(seen, messages)
			})
		}
	})
	if !t.Failed() {
		compareTable(t, rows)
	}
}

func (c cause) row(seen observed, messages []string) string {
	kind := "–"
	if c.kind != 0 {
		kind = c.kind.String()
	}
	yes := map[bool]string{true: "yes", false: "no"}
	return fmt.Sprintf("| %s | %s | %v | %s | %s | %s |", c.name, kind, c.code, yes[seen.retried[read]], yes[seen.retried[write]],
		"…"+strings.Join(messages, "… or …")+"…")
}

const tableHead = `# What failures mean

How the suite reads the ends of attempts, and which of them the default policy
retries. The table is what TestFailureCauses saw when it produced each cause for
real; run it with -update to write this file anew.

| cause | kind | code | retried if idempotent | retried otherwise | message |
|---|---|---|---|---|---|
`

func compareTable(t *testing.T, rows []string) {
	t.Helper()
	want := []byte(tableHead + strings.Join(rows, "\n") + "\n")
	const path = "docs/failures.md"
	if *update {
		require.NoError(t, os.MkdirAll("docs", 0o750))
		require.NoError(t, os.WriteFile(path, want, 0o600))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, got), "%s is out of date; run go test -run TestFailureCauses -update .\n%s", path, want)
}
