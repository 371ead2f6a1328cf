// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed98143e88/grpcretry"
)

// tries is how often a shorter walk is taken before it counts as explained: what
// happens in one instant has no order, so that not every try shows a fault.
const tries = 30

// shortest makes a walk that fails as short as it can be while it still fails, and
// describes it.
func shortest(t *testing.T, w *walk, problems []string) string {
	for {
		shorter, found := shorten(t, w)
		if shorter == nil {
			return fmt.Sprintf("%s\n%v", strings.Join(problems, "\n"), w)
		}
		w, problems = shorter, found
	}
}

// shorten returns a walk that is a bit shorter and still fails, or nil.
func shorten(t *testing.T, w *walk) (shorter *walk, problems []string) {
	for _, change := range changes(w) {
		changed := *w
		changed.script = slices.Clone(w.script)
		changed.send, changed.receive = slices.Clone(w.send), slices.Clone(w.receive)
		change(&changed)
		if changed.String() == w.String() {
			continue
		}
		for range tries {
			if found := changed.take(t); found != nil {
				return &changed, found
			}
		}
	}
	return nil, nil
}

// changes are ways to make a walk shorter.
func changes(w *walk) []func(*walk) {
	list := []func(*walk){
		func(w *walk) { w.send = w.send[:len(w.send)/2] },
		func(w *walk) { w.cancel = 0 },
		func(w *walk) { w.outage = 0 },
		func(w *walk) { w.drop = false },
		func(w *walk) { w.slow = false },
		func(w *walk) { w.hooked = false },
		func(w *walk) { w.answers = 0 },
		func(w *walk) { w.policy.AttemptTimeout = 0 },
		func(w *walk) { w.policy.IdleTimeout = 0 },
		func(w *walk) { w.policy.ResetAfter.Responses = 0 },
		func(w *walk) { w.policy.ResetAfter.Quiet = 0 },
		func(w *walk) { w.policy.MaxLost = 0 },
		func(w *walk) { w.policy.MaxAnswered = 0 },
		func(w *walk) { w.policy.Backoff = grpcretry.Backoff{Initial: -1} },
		func(w *walk) { w.policy.Repeat = grpcretry.RepeatAlways },
		func(w *walk) { w.policy.Timeout = randomWalkTimeout },
		func(w *walk) { w.buffer = grpcretry.Buffer{} },
		func(w *walk) { w.buffer.ByReference = false },
		func(w *walk) { w.buffer.Fail = false },
		func(w *walk) { w.buffer.Disk = 0 },
	}
	for i := range w.script {
		list = append(list,
			func(w *walk) { w.script = slices.Delete(w.script, i, i+1) },
			func(w *walk) { w.script[i].received = 0 },
			func(w *walk) { w.script[i].received = min(w.script[i].received, 1) },
			func(w *walk) { w.script[i].sent = 0 },
			func(w *walk) { w.script[i].header = false },
			func(w *walk) { w.script[i].delay = 0 },
			func(w *walk) { w.script[i].pushback = "" },
		)
	}
	for i := range w.send {
		list = append(list,
			func(w *walk) { w.send = slices.Delete(w.send, i, i+1) },
			func(w *walk) { w.send[i].size = 0 },
			func(w *walk) { w.send[i].n = min(w.send[i].n, 1) },
			func(w *walk) { w.send[i].n /= 2 },
			func(w *walk) { w.send[i].fails = false },
		)
	}
	for i := range w.receive {
		list = append(list, func(w *walk) { w.receive = slices.Delete(w.receive, i, i+1) })
	}
	return list
}
