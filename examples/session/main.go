// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Session places orders, 20,000 by default, in one duplex stream. Its server is killed
// eight times under it, and answers in another sequence. Each order must get its own
// answer, once, with a receipt that no other got, and there must be no more receipts than
// orders: each was executed once, however often it was sent.
//
//	go run ./examples/session [-orders 20000]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// outstanding is how many orders may wait for their answers.
const outstanding = 64

func main() {
	orders := flag.Uint("orders", 20_000, "how many orders to place")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, int(*orders)); err != nil {
		fmt.Fprintln(os.Stderr, "session:", err)
		os.Exit(1)
	}
}

// run places so many orders.
func run(ctx context.Context, out io.Writer, orders int) error {
	// Between two kills orders are answered, for more are executed than can wait.
	server := newServer(max(orders/8, 2*outstanding))
	if err := server.Start(server); err != nil {
		return err
	}
	defer server.Stop()

	retrier, err := grpcretry.New(
		grpcretry.WithMethodPolicy(testv1.TestService_Exchange_FullMethodName, grpcretry.Policy{
			MaxAttempts: 3,
			// Nothing is declared of Exchange, but we know our server: it executes the
			// order of a key once, and answers it as often as it is asked.
			Repeat:   grpcretry.RepeatAlways,
			Recovery: grpcretry.Acked(keyOf),
			// With each answer the session counts as well again, so that it fails only
			// if two more attempts in a row get none.
			ResetAfter: grpcretry.ResetAfter{Responses: 1},
		}),
	)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(server.Addr(), append(retrier.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return err
	}
	defer conn.Close()

	receipts := newReceipts(orders)
	attempts, err := place(ctx, testv1.NewTestServiceClient(conn), orders, receipts.add)
	if err != nil {
		return err
	}
	if missing := len(receipts.missing); missing > 0 {
		return fmt.Errorf("%d of %d orders were not answered", missing, orders)
	}
	fmt.Fprintf(out, "%d orders were executed and answered, each once; %d attempts, the server was killed %d times\n",
		orders, attempts, server.Kills())
	return nil
}

// keyOf says which answer belongs to which order.
func keyOf(message any) string {
	switch m := message.(type) {
	case *testv1.Request:
		return m.GetKey()
	case *testv1.Response:
		return m.GetKey()
	}
	return ""
}

// place places the orders, and hands over the answers as they come. It returns how many
// attempts that took.
func place(
	ctx context.Context, client testv1.TestServiceClient, orders int, handle func(*testv1.Response) error,
) (attempts int, err error) {
	var sending sync.WaitGroup
	defer sending.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream, and the sender, if an answer is refused
	stream, err := client.Exchange(ctx)
	if err != nil {
		return 0, err
	}
	slots := make(chan struct{}, outstanding)
	sending.Go(func() { send(ctx, stream, orders, slots) })
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			attempts, _ := grpcretry.AttemptsFromMD(stream.Trailer())
			return attempts, nil
		}
		if err != nil {
			return 0, err
		}
		if err := handle(answer); err != nil {
			return 0, err
		}
		<-slots
	}
}

// send sends the orders, as fast as they are answered. What ends it early ends Recv too,
// which says why.
func send(ctx context.Context, stream testv1.TestService_ExchangeClient, orders int, slots chan<- struct{}) {
	for number := range orders {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if err := stream.Send(&testv1.Request{Key: orderKey(number)}); err != nil {
			return
		}
	}
	_ = stream.CloseSend() // always nil
}

// orderKey is the key of an order. One of a real client would be unique for ever, and
// kept with the order, so that it is the same after a crash.
func orderKey(number int) string { return "order " + strconv.Itoa(number) }

// receipts are those that were given, and those that are missing.
type receipts struct {
	orders  int
	missing map[string]bool // by key
	given   map[int64]bool
}

func newReceipts(orders int) *receipts {
	r := &receipts{orders: orders, missing: map[string]bool{}, given: map[int64]bool{}}
	for number := range orders {
		r.missing[orderKey(number)] = true
	}
	return r
}

// add refuses answers that no order waits for, and receipts that prove that an order was
// executed twice.
func (r *receipts) add(answer *testv1.Response) error {
	key, receipt := answer.GetKey(), answer.GetCount()
	switch {
	case !r.missing[key]:
		return fmt.Errorf("%s was answered, and was not placed or has its answer", key)
	case r.given[receipt]:
		return fmt.Errorf("%s got receipt %d, which another order has", key, receipt)
	case receipt < 1 || receipt > int64(r.orders):
		return fmt.Errorf("%s got receipt %d of %d orders", key, receipt, r.orders)
	}
	delete(r.missing, key)
	r.given[receipt] = true
	return nil
}
