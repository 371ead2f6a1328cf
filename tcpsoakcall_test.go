// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"math/rand/v2"
	"path"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

var (
	errBusy        = status.Error(codes.Unavailable, "busy")
	errUnknownCall = status.Error(codes.Internal, "unknown call")
)

const (
	mostMessages = 60
	largest      = 200 << 10
)

// noise is what all payloads are cut from, so that calls need not keep theirs.
var noise = func() []byte {
	bytes := make([]byte, 2*largest)
	_, _ = rand.NewChaCha8([32]byte{}).Read(bytes)
	return bytes
}()

// piece is where a payload lies in the noise.
type piece struct{ from, size int }

// tcpCall is one call: what is to happen, and what both sides saw of it.
type tcpCall struct {
	id       string
	method   string
	pieces   []piece // of its messages
	seed     uint64
	header   bool // the caller asks for the header
	timed    bool // the call has an AttemptTimeout, and its first attempt may hang
	lockstep bool // a duplex call sends only after it has the last answer
	protocol tcpProtocol
	cancelAt int64
	failf    func(format string, args ...any)
	cancel   context.CancelFunc

	steps     atomic.Int64 // messages seen on either side
	cancelled atomic.Bool

	// The caller's, until the call is over.
	got     int   // responses
	answers []int // which, of a session
	tag     int64 // the attempt that they and the header are from
	headed  bool  // it has the header
	err     error // nil for a clean end
	trailer metadata.MD

	mu       sync.Mutex
	arrivals []*arrival
	observed int // by Observer.Attempt
	told     int // by Observer.Done
	history  []grpcretry.Attempt
	doneErr  error
}

// newCall makes up a call. Lengths are spread evenly over their magnitudes, so that
// most calls are small and some have megabytes.
func newCall(id string, random *rand.Rand, failf func(string, ...any)) *tcpCall {
	c := &tcpCall{
		id:       id,
		method:   []string{put, download, upload, exchange}[random.IntN(4)],
		seed:     random.Uint64(),
		header:   random.IntN(8) == 0,
		timed:    random.IntN(16) == 0,
		lockstep: random.IntN(2) == 0,
	}
	c.failf = func(format string, args ...any) {
		failf("call %s, %s %s: "+format, append([]any{c.id, path.Base(c.method), c.protocol}, args...)...)
	}
	c.choose(random)
	messages, limit := 1+random.IntN(mostMessages), float64(largest)
	if raceEnabled { // a call must fit into a life of the server
		limit /= 10
	}
	if c.timed { // too short to run into the timeout by themselves
		messages, limit = 1+random.IntN(4), 1000
	}
	for range messages {
		size := int(math.Exp(random.Float64() * math.Log(limit)))
		c.pieces = append(c.pieces, piece{random.IntN(len(noise) - size), size})
	}
	if random.IntN(8) == 0 {
		c.cancelAt = 1 + random.Int64N(int64(c.requests()+c.responses()))
	}
	return c
}

func (c *tcpCall) payload(i int) []byte {
	p := c.pieces[i]
	return noise[p.from : p.from+p.size]
}

func (c *tcpCall) request(i int) *testv1.Request {
	return &testv1.Request{Key: c.id, Sequence: int64(i), Payload: c.payload(i)}
}

// requests and responses are how many a complete call has.
func (c *tcpCall) requests() int {
	if c.method == put || c.method == download {
		return 1
	}
	return len(c.pieces)
}

func (c *tcpCall) responses() int {
	if c.method == put || c.method == upload {
		return 1
	}
	return len(c.pieces)
}

// sum is the hash of all requests.
func (c *tcpCall) sum() []byte {
	all := sha256.New()
	for i := range c.requests() {
		addTo(all, c.request(i))
	}
	return all.Sum(nil)
}

func addTo(all hash.Hash, request *testv1.Request) {
	fmt.Fprintf(all, "%s %d %d\n", request.GetKey(), request.GetSequence(), len(request.GetPayload()))
	all.Write(request.GetPayload())
}

// message is a request or a response.
type message interface {
	GetKey() string
	GetSequence() int64
	GetPayload() []byte
}

// expect fails unless a message is the i-th of the call.
func (c *tcpCall) expect(i int, m message, format string, args ...any) {
	if i >= len(c.pieces) || m.GetKey() != c.id || m.GetSequence() != int64(i) || !bytes.Equal(m.GetPayload(), c.payload(i)) {
		c.failf("%s %s/%d of %d bytes as message %d of %d",
			fmt.Sprintf(format, args...), m.GetKey(), m.GetSequence(), len(m.GetPayload()), i, len(c.pieces))
	}
}

// step is called with each message on either side, and makes the caller cancel the
// call half-way.
func (c *tcpCall) step() {
	if c.steps.Add(1) == c.cancelAt {
		c.cancelled.Store(true)
		c.cancel()
	}
}

// run makes the call.
func (c *tcpCall) run(ctx context.Context, client testv1.TestServiceClient) {
	ctx = metadata.AppendToOutgoingContext(ctx, callKey, c.id)
	options := []grpc.CallOption{grpc.Trailer(&c.trailer)}
	if c.protocol != noRecovery {
		options = append(options, grpcretry.WithCallPolicy(c.policy()))
	}
	if c.timed {
		policy := patient(grpcretry.RepeatAlways)
		policy.AttemptTimeout = 100 * time.Millisecond
		options = append(options, grpcretry.WithCallPolicy(policy))
	}
	switch c.method {
	case put:
		c.put(ctx, client, options)
	case download:
		stream, err := client.Download(ctx, c.request(0), options...)
		if c.opened(stream, err) {
			c.err = c.receive(stream, stream.Recv)
		}
	case upload:
		stream, err := client.Upload(ctx, options...)
		if c.opened(stream, err) {
			c.send(stream)
			c.err = c.receive(stream, stream.CloseAndRecv)
		}
	default:
		stream, err := client.Exchange(ctx, options...)
		if c.opened(stream, err) {
			c.exchange(stream)
		}
	}
	c.ended()
}

func (c *tcpCall) put(ctx context.Context, client testv1.TestServiceClient, options []grpc.CallOption) {
	var header metadata.MD
	if c.header {
		options = append(options, grpc.Header(&header))
	}
	response, err := client.Put(ctx, c.request(0), options...)
	if c.err = err; err == nil {
		c.answered(response)
		if c.header {
			c.take(header)
		}
	}
}

// opened asks a stream that was opened for its header, if the call does.
func (c *tcpCall) opened(stream grpc.ClientStream, err error) bool {
	if c.err = err; err != nil {
		return false
	}
	if c.header {
		if header, _ := stream.Header(); header != nil { // RecvMsg has the error
			c.headed = true
			c.take(header)
		}
	}
	return true
}

// take takes down whose the header is.
func (c *tcpCall) take(header metadata.MD) {
	values := header.Get(attemptTag)
	if len(values) != 1 {
		c.failf("header %v", header)
		return
	}
	attempt, _ := strconv.ParseInt(values[0], 10, 64)
	c.belongs(attempt)
}

// belongs fails if the caller is given something of a second attempt.
func (c *tcpCall) belongs(attempt int64) {
	if c.tag == 0 {
		c.tag = attempt
	}
	if attempt != c.tag {
		c.failf("was given something of attempt %d after something of attempt %d", attempt, c.tag)
	}
}

// sender is the sending side of a client's stream.
type sender interface {
	Send(request *testv1.Request) error
}

func (c *tcpCall) send(stream sender) {
	for i := range c.pieces {
		if stream.Send(c.request(i)) != nil {
			return // RecvMsg has the error
		}
		c.step()
	}
}

// receive takes responses until the end, and returns nil if that is clean.
func (c *tcpCall) receive(stream grpc.ClientStream, recv func() (*testv1.Response, error)) error {
	defer func() { c.sameTrailer(stream) }()
	for {
		response, err := recv()
		switch {
		case err == nil:
			c.answered(response)
		case errors.Is(err, io.EOF) && c.method != upload:
			return nil
		default:
			return err
		}
		if c.method == upload {
			return nil
		}
		c.step()
	}
}

func (c *tcpCall) exchange(stream grpc.BidiStreamingClient[testv1.Request, testv1.Response]) {
	if !c.lockstep {
		var sending sync.WaitGroup
		sending.Go(func() {
			c.send(stream)
			_ = stream.CloseSend() // always nil
		})
		c.err = c.receive(stream, stream.Recv)
		sending.Wait()
		return
	}
	sent := 0
	c.err = c.receive(stream, func() (*testv1.Response, error) {
		if sent == len(c.pieces) {
			_ = stream.CloseSend()
		} else {
			_ = stream.Send(c.request(sent)) // RecvMsg has the error
			sent++
		}
		return stream.Recv()
	})
}

// answered takes down a response.
func (c *tcpCall) answered(response *testv1.Response) {
	if c.protocol != noRecovery {
		c.goesOn(response)
		return
	}
	c.belongs(response.GetCount())
	switch {
	case c.method == download || c.method == exchange:
		c.expect(c.got, response, "received")
	case response.GetKey() != c.id || !bytes.Equal(response.GetPayload(), c.sum()):
		c.failf("the answer to %s says that the server has %x instead of %x", response.GetKey(), response.GetPayload(), c.sum())
	}
	c.got++
}

// sameTrailer holds that both ways to the trailer of a stream tell the same.
func (c *tcpCall) sameTrailer(stream grpc.ClientStream) {
	own, _ := grpcretry.AttemptsFromMD(stream.Trailer())
	option, _ := grpcretry.AttemptsFromMD(c.trailer)
	if own != option {
		c.failf("Trailer says %d attempts, grpc.Trailer %d", own, option)
	}
}

// ended judges how the call ended for its caller.
func (c *tcpCall) ended() {
	switch {
	case c.err == nil:
		if c.got != c.responses() {
			c.failf("cancelled %t, header %t, ended well with %d of %d responses",
				c.cancelled.Load(), c.header, c.got, c.responses())
		}
	case errors.Is(c.err, grpcretry.ErrCommitted) && c.protocol == noRecovery && (c.got > 0 || c.headed):
	case c.cancelled.Load() && status.Code(c.err) == codes.Canceled:
	default:
		c.failf("cancelled %t, header %t, %d of %d responses: failed with %v",
			c.cancelled.Load(), c.header, c.got, c.responses(), c.err)
	}
}
