// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// maxRows bounds the table of calls.
const maxRows = 40

// report checks the answers and prints what happened.
type report struct {
	out   io.Writer
	table *tabwriter.Writer
	rows  int

	calls, unary, retried, wrong int
	bytes, lines                 int64                  // confirmed by unary calls
	attempts                     int                    // as the callers of all calls saw them
	failed                       map[grpcretry.Kind]int // how many of the attempts failed how

	name    string              // of the call under way
	history []grpcretry.Attempt // of it, if it took more than one attempt or failed
}

func newReport(out io.Writer) *report {
	return &report{
		out:    out,
		table:  tabwriter.NewWriter(out, 0, 0, 2, ' ', 0),
		failed: map[grpcretry.Kind]int{},
	}
}

// done is the observer's hook. It runs on the goroutine that makes the call.
func (r *report) done(_ context.Context, _ string, attempts []grpcretry.Attempt, _ error) {
	r.history = attempts
}

func (r *report) begin(name string) {
	r.calls++
	r.name, r.history = name, nil
}

// batch checks the answer of a unary call against what the file says.
func (r *report) batch(batch []byte, answer *testv1.Response, trailer metadata.MD, err error) {
	r.unary++
	if err == nil {
		if err = differs(answer, digest(int64(r.unary), batch)); err == nil {
			r.bytes += int64(len(batch))
			r.lines += answer.GetCount()
		}
	}
	r.end(trailer, err)
}

// end takes down a call, and adds a row to the table if it took more than one
// attempt or went wrong.
func (r *report) end(trailer metadata.MD, err error) {
	result := "ok"
	if err != nil {
		result = err.Error()
	}
	attempts, reported := grpcretry.AttemptsFromMD(trailer)
	if !reported || attempts != r.made() {
		result = fmt.Sprintf("%s, but the trailer reports %v attempts", result, trailer.Get("jina-client-attempts"))
	}
	r.attempts += attempts
	for _, a := range r.history {
		if a.Failure != nil {
			r.failed[a.Failure.Kind]++
		}
	}
	if result != "ok" {
		r.wrong++
	}
	if r.made() > 1 {
		r.retried++
	}
	if r.made() > 1 || result != "ok" {
		r.row(attempts, result)
	}
}

// made is how many attempts the call made, as its observer was told. Of those that gRPC
// makes itself the history has only the last, but with its number.
func (r *report) made() int {
	if len(r.history) == 0 {
		return 1
	}
	return r.history[len(r.history)-1].Number
}

func (r *report) row(reported int, result string) {
	if r.rows++; r.rows > maxRows {
		return
	}
	if r.rows == 1 {
		fmt.Fprintln(r.table, "call\tattempts\twaits\twhat failed\tresult\tjina-client-attempts")
	}
	var waits, failures []string
	for _, a := range r.history {
		if a.Wait > 0 {
			waits = append(waits, a.Wait.Round(time.Millisecond).String())
		}
		if a.Failure != nil {
			failures = append(failures, fmt.Sprintf("%v (%v)", a.Failure.Status.Code(), a.Failure.Kind))
		}
	}
	if len(r.history) < r.made() {
		failures = []string{"(gRPC's own retry)"}
	}
	fmt.Fprintf(r.table, "%s\t%d\t%s\t%s\t%s\t%d\n",
		r.name, r.made(), strings.Join(waits, " "), runs(failures), result, reported)
}

// runs joins words, and shortens what is repeated to "3 × word".
func runs(words []string) string {
	var joined []string
	for i := 0; i < len(words); {
		n := 1
		for i+n < len(words) && words[i+n] == words[i] {
			n++
		}
		word := words[i]
		if n > 1 {
			word = fmt.Sprintf("%d × %s", n, word)
		}
		joined = append(joined, word)
		i += n
	}
	return strings.Join(joined, ", ")
}

// close prints the totals. It fails if any answer was wrong, or if the callers'
// count of attempts is not the server's: those that were answered arrived, those
// that found no connection did not, and those that were lost may have.
func (r *report) close(arrived int) error {
	if err := r.table.Flush(); err != nil {
		return err
	}
	if r.rows > maxRows {
		fmt.Fprintf(r.out, "… and %d more\n", r.rows-maxRows)
	}
	lost, unsent := r.failed[grpcretry.Lost], r.failed[grpcretry.Connect]+r.failed[grpcretry.Local]
	fmt.Fprintf(r.out, "calls: %d, retried: %d, wrong: %d; %d bytes and %d lines confirmed\n",
		r.calls, r.retried, r.wrong, r.bytes, r.lines)
	fmt.Fprintf(r.out, "attempts: %d, answered: %d, lost: %d, never sent: %d; %d arrived at the server\n",
		r.attempts, r.attempts-lost-unsent, lost, unsent, arrived)
	if r.wrong > 0 {
		return fmt.Errorf("%d of %d calls went wrong", r.wrong, r.calls)
	}
	if arrived > r.attempts-unsent || arrived < r.attempts-unsent-lost {
		return fmt.Errorf("the callers counted %d attempts, %d of them lost and %d never sent, but %d arrived",
			r.attempts, lost, unsent, arrived)
	}
	return nil
}
