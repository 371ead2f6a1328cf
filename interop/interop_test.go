// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Package interop holds that gRPC in other languages does what a service config of
// [grpcretry.Retrier.ServiceConfig] says.
package interop_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/testserver"
)

// clientTimeout is the longest that one client may take; it needs a few seconds.
const clientTimeout = time.Minute

// TestInterop has each client make each call under each config, and compares what the
// server and the client saw. The table of all is in the log.
func TestInterop(t *testing.T) {
	if os.Getenv("GRPCRETRY_INTEROP") == "" {
		t.Skip("needs Node.js and Python with gRPC; make interop installs them and runs this")
	}
	t.Parallel()
	seen := make([][][]string, len(table)) // by policy, call and client
	libraries := make([][]string, len(table))
	t.Cleanup(func() { t.Log("\n" + report(libraries[0], seen)) })
	for i, p := range table {
		seen[i], libraries[i] = make([][]string, len(p.calls)), make([]string, len(clients))
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			retrier, err := grpcretry.New(p.options...)
			require.NoError(t, err)
			for j, c := range clients {
				srv := newServer(testserver.New(t, testserver.TCP()), p.calls)
				ctx, cancel := context.WithCancel(t.Context())
				timer := time.AfterFunc(clientTimeout, cancel) // the server would see a deadline
				got, err := c.run(ctx, newTask(srv.Addr(), retrier.ServiceConfig(), p.calls))
				timer.Stop()
				cancel()
				require.NoError(t, err, c.name)
				require.Len(t, got.Results, len(p.calls), c.name)
				libraries[i][j] = got.Library
				for k, call := range p.calls {
					cell := srv.check(t, c.name, call, got.Results[k])
					seen[i][k] = append(seen[i][k], cell)
					assert.Equal(t, call.wanted(c.name), cell, "%s: %s: %s", c.name, call.name, got.Results[k].Message)
				}
			}
		})
	}
}

// check holds that what the client says fits what the server saw of a call, and returns
// both in short.
func (s *server) check(t *testing.T, client string, c call, r result) string {
	about := client + ": " + c.name
	assert.Equal(t, c.name, r.ID, about)
	attempts := s.of(c.name)
	for i, a := range attempts {
		want := i // gRFC A6: absent in the first attempt
		if i == 0 {
			want = -1
		}
		assert.Equal(t, want, a.PreviousAttempts, "%s: attempt %d: %v", about, i+1, a.Metadata)
	}
	var answers []string
	for i := range answersOf(c, len(attempts), r.Code) {
		answers = append(answers, fmt.Sprintf("%s %d", c.name, i+1))
	}
	assert.ElementsMatch(t, answers, r.Answers, about)
	cell := fmt.Sprintf("%d %s", len(attempts), r.Code)
	if c.limit && len(attempts) > 0 {
		limit := attempts[0].Deadline.Sub(attempts[0].Start).Round(10 * time.Second)
		cell += " in " + limit.String()
	}
	return cell
}

// report is the table for people: the number of attempts and the code of each call. Where
// a client differs, it gives the reason.
func report(libraries []string, seen [][][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "policy\tcall\t%s\n", strings.Join(libraries, "\t"))
	var reasons []string
	for i, p := range table {
		for j, c := range p.calls {
			cells := slices.Clone(seen[i][j])
			for k, client := range clients {
				if e, ok := c.except[client.name]; ok && k < len(cells) {
					if !slices.Contains(reasons, e.why) {
						reasons = append(reasons, e.why)
					}
					cells[k] += fmt.Sprintf(" [%d]", slices.Index(reasons, e.why)+1)
				}
			}
			_, _ = fmt.Fprintf(w, "%s\t%s %s\t%s\n", p.name, c.method, c.name, strings.Join(cells, "\t"))
		}
	}
	_ = w.Flush()
	for i, why := range reasons {
		_, _ = fmt.Fprintf(&b, "[%d] %s\n", i+1, why)
	}
	return b.String()
}
