// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/testserver"
)

// walk is a random walk through one stream: what the caller does, on two goroutines,
// what its attempts meet, and how the suite is set up. It is plain data, so that it
// can be printed and made shorter.
type walk struct {
	method   string
	policy   grpcretry.Policy
	recovery string // "" for none
	buffer   grpcretry.Buffer
	hooked   bool          // with Retryable and WithAttemptContext, which change nothing
	script   []happening   // what the attempts meet; those after it are answered
	answers  int           // responses of a Download
	slow     bool          // handlers take their time
	outage   time.Duration // when the server stops, for 50 ms; 0 for never
	send     []op          // what one goroutine does
	receive  []op          // what the other does, before it receives to the end
	drop     bool          // it does not, but cancels
	cancel   time.Duration // when the caller cancels; 0 for never
}

// happening is what one attempt meets.
type happening struct {
	what     ending
	code     codes.Code    // of failed
	reads    int           // of early
	answers  bool          // of early
	received int           // requests that are read before
	sent     int           // responses that are sent before
	header   bool          // headers are sent at once
	delay    time.Duration // before all that
	pushback string
}

type ending int

const (
	answered ending = iota
	failed          // with code
	cut
	reset
	hung
	early // ends well before it has read everything
)

// step is the happening in the language of the test server.
func (h happening) step() testserver.Step {
	var s testserver.Step
	switch h.what {
	case answered:
		s = testserver.OK()
	case failed:
		s = testserver.Fail(h.code, "scripted")
	case cut:
		s = testserver.Cut()
	case reset:
		s = testserver.Reset()
	case hung:
		s = testserver.Hang()
	case early:
		s = testserver.Do(endEarly(h.reads, h.answers))
	}
	if h.received > 0 {
		s = s.Received(h.received)
	}
	if h.sent > 0 {
		s = s.Sent(h.sent)
	}
	if h.header {
		s = s.SendHeader("h", "1")
	}
	if h.pushback != "" {
		s = s.Pushback(h.pushback)
	}
	return s.Delay(h.delay)
}

// String prints the happening as Go code.
func (h happening) String() string {
	s := map[ending]string{
		answered: "testserver.OK()",
		failed:   fmt.Sprintf("testserver.Fail(codes.%v, %q)", h.code, "scripted"),
		cut:      "testserver.Cut()",
		reset:    "testserver.Reset()",
		hung:     "testserver.Hang()",
		early:    fmt.Sprintf("testserver.Do(endEarly(%d, %t))", h.reads, h.answers),
	}[h.what]
	if h.received > 0 {
		s += fmt.Sprintf(".Received(%d)", h.received)
	}
	if h.sent > 0 {
		s += fmt.Sprintf(".Sent(%d)", h.sent)
	}
	if h.header {
		s += `.SendHeader("h", "1")`
	}
	if h.pushback != "" {
		s += fmt.Sprintf(".Pushback(%q)", h.pushback)
	}
	if h.delay > 0 {
		s += fmt.Sprintf(".Delay(%d)", h.delay)
	}
	return s
}

// op is one thing that a caller does.
type op struct {
	does  does
	n     int           // messages of sendAll
	size  int           // of the messages that are sent
	fails bool          // sendAll's source does, after n messages
	sleep time.Duration // for wait
}

type does string

const (
	sends    does = "Send"
	sendsOne does = "SendAll(Once)"
	sendsAll does = "SendAll(Replayable)"
	closes   does = "CloseSend"
	receives does = "Recv"
	headers  does = "Header"
	commitsC does = "Context"
	waits    does = "Sleep"
)

func (o op) String() string {
	switch o.does {
	case sends:
		return fmt.Sprintf("Send(%d B)", o.size)
	case sendsOne, sendsAll:
		return fmt.Sprintf("%s(%d × %d B, fails %t)", o.does, o.n, o.size, o.fails)
	case waits:
		return fmt.Sprintf("Sleep(%v)", o.sleep)
	default:
		return string(o.does)
	}
}

// sources tells whether the input has a part that fails.
func (w *walk) sourceFails() bool {
	for _, o := range w.send {
		if o.fails {
			return true
		}
	}
	return false
}

func (w *walk) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "server.Script(%q", w.method)
	for _, h := range w.script {
		fmt.Fprintf(&b, ",\n\t%v", h)
	}
	p := w.policy
	p.Retryable = nil // not printable
	fmt.Fprintf(&b, ")\npolicy  %+v\nbuffer  %+v\nsends   %v\nthen    %v, drops %t, cancels after %v\n", p, w.buffer, w.send, w.receive, w.drop, w.cancel)
	fmt.Fprintf(&b, "server  answers %d, slow %t, outage at %v; hooked %t, recovers by %q\n", w.answers, w.slow, w.outage, w.hooked, w.recovery)
	return b.String()
}

// randomWalkTimeout ends a call that nothing else ends.
const randomWalkTimeout = 2 * time.Second

// randomWalk makes the walk of a seed.
func randomWalk(seed uint64) *walk {
	d := newDice(seed)
	return d.walk([]string{download, upload, exchange}[d.n(3)])
}

// walk makes a walk of a method.
func (d dice) walk(method string) *walk {
	w := &walk{
		method:  method,
		policy:  d.policy(),
		buffer:  d.buffer(),
		hooked:  d.one(5),
		answers: d.n(6),
		slow:    d.one(3),
		drop:    d.one(10),
	}
	messages := 1
	if w.method != download {
		if messages = d.n(12); d.one(8) {
			messages = 150
		}
	}
	w.send = d.sending(w.method, messages)
	for range d.n(4) {
		w.receive = append(w.receive, []op{{does: receives}, {does: receives}, {does: headers}, {does: commitsC}, {does: waits, sleep: d.ms(30)}}[d.n(5)])
	}
	for range d.n(6) {
		w.script = append(w.script, d.happening(w.method, messages))
	}
	if d.one(4) {
		w.cancel = 1 + d.ms(80)
	}
	if d.one(6) {
		w.outage = 1 + d.ms(20)
	}
	return w
}

// dice make random choices.
type dice struct{ *rand.Rand }

func newDice(seed uint64) dice { return dice{rand.New(rand.NewPCG(seed, 0))} }

func (d dice) n(n int) int            { return d.IntN(n) }
func (d dice) one(in int) bool        { return d.IntN(in) == 0 }
func (d dice) ms(n int) time.Duration { return time.Duration(d.IntN(n)) * time.Millisecond }

func (d dice) policy() grpcretry.Policy {
	p := grpcretry.Policy{
		MaxAttempts: 1 + d.n(5),
		Repeat:      []grpcretry.Repeat{grpcretry.RepeatAlways, grpcretry.RepeatAlways, grpcretry.RepeatIfIdempotent, grpcretry.RepeatNever}[d.n(4)],
		Backoff:     grpcretry.Backoff{Initial: []time.Duration{-1, 5 * time.Millisecond, 5 * time.Millisecond}[d.n(3)]},
		Timeout:     randomWalkTimeout,
	}
	if d.one(4) {
		p.AttemptTimeout = time.Millisecond + d.ms(60)
	}
	if d.one(4) {
		p.IdleTimeout = time.Millisecond + d.ms(60)
	}
	if d.one(5) {
		p.Timeout = time.Millisecond + d.ms(100)
	}
	if d.one(5) {
		p.MaxLost = 1 + d.n(3)
	}
	if d.one(5) {
		p.MaxAnswered = 1 + d.n(3)
	}
	return p
}

func (d dice) buffer() grpcretry.Buffer {
	b := grpcretry.Buffer{ByReference: d.one(3), Fail: d.one(6)}
	switch d.n(5) {
	case 0:
		b.Memory = int64(d.n(3000))
	case 1:
		b.Memory, b.Total = 1<<20, int64(1+d.n(200_000))
	case 2:
		b.Memory = 4 << 20
	}
	switch d.n(5) {
	case 0:
		b.Disk = int64(1 + d.n(3000))
	case 1, 2:
		b.Disk = 100 << 20
	}
	return b
}

// sending makes what the sending goroutine does.
func (d dice) sending(method string, messages int) []op {
	size := []int{0, 10, 1000, 9000, 70_000}[d.n(5)]
	pause := d.one(3)
	var ops []op
	for i := 0; i < messages; {
		if method != download && d.one(4) {
			n := 1 + d.n(messages-i)
			ops = append(ops, op{does: []does{sendsOne, sendsAll, sendsAll}[d.n(3)], n: n, size: size, fails: d.one(6)})
			i += n
		} else {
			ops = append(ops, op{does: sends, size: size})
			i++
		}
		if pause {
			ops = append(ops, op{does: waits, sleep: d.ms(6)})
		}
		if method != download && d.one(20) {
			ops = append(ops, op{does: []does{headers, commitsC}[d.n(2)]})
		}
	}
	if method == download || !d.one(5) {
		ops = append(ops, op{does: closes})
	}
	return ops
}

func (d dice) happening(method string, messages int) happening {
	h := happening{what: []ending{failed, failed, failed, failed, cut, cut, reset, hung, early, answered}[d.n(10)]}
	switch h.what {
	case failed:
		h.code = []codes.Code{codes.Unavailable, codes.Unavailable, codes.NotFound}[d.n(3)]
		if d.one(4) {
			h.pushback = []string{"0", "7", "19", "-1", "soon"}[d.n(5)]
		}
	case early:
		h.reads, h.answers = d.n(4), d.one(2) || method == upload
	default:
	}
	h.header = d.one(3)
	if d.one(2) && messages > 0 {
		h.received = 1 + d.n(messages)
	}
	if d.one(5) && method == exchange && messages > 0 && h.what != early {
		h.sent = 1 + d.n(min(messages, 3))
	}
	if d.one(3) {
		h.delay = d.ms(20)
	}
	return h
}

// TestWalk takes some thousand random walks, each in a bubble of its own, and holds
// each against the model. A walk that the model cannot explain is made as short as it
// can be, and printed.
func TestWalk(t *testing.T) {
	walks := 4000
	if raceEnabled {
		walks = 600
	}
	takeWalks(t, walks, randomWalk)
}

// TestSoakWalk takes a hundred thousand, or a tenth of that if time is short.
func TestSoakWalk(t *testing.T) {
	if soak(t) < time.Minute {
		takeWalks(t, 10_000, randomWalk)
		return
	}
	takeWalks(t, 100_000, randomWalk)
}

func takeWalks(t *testing.T, walks int, of func(seed uint64) *walk) {
	t.Helper()
	const parts = 4
	first := uint64(1)
	for part := range parts {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			for i := range uint64(walks / parts) {
				seed := first + i*parts + uint64(part)
				if problems := of(seed).take(t); problems != nil {
					t.Fatalf("seed %d: %s", seed, shortest(t, of(seed), problems))
				}
			}
		})
	}
}
