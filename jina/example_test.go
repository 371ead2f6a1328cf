// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/jina"
	"github.com/seed98143e88/grpcretry/jina/jinatest"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
	"github.com/seed98143e88/grpcretry/testserver"
)

// shouting returns a gateway with an executor that answers in capitals, and how to reach
// it.
func shouting() (gateway *jinatest.Gateway, target string) {
	gateway, err := jinatest.Start(testserver.TCP())
	if err != nil {
		log.Fatal(err)
	}
	gateway.Handle("shouter", "/shout", func(_ context.Context, docs []jina.Document, _ map[string]any) ([]jina.Document, error) {
		for i, doc := range docs {
			if len(doc) == 0 {
				return nil, &jinatest.Exception{Name: "ValueError", Args: []string{"nothing to shout"}}
			}
			docs[i] = append(append(jina.Document{}, doc...), '!')
		}
		return docs, nil
	})
	return gateway, "grpc://" + gateway.Addr()
}

// A stream that fails is replaced by another.
func ExampleClient_Post() {
	gateway, target := shouting()
	defer gateway.Close()
	gateway.Script(jinapb.JinaRPC_Call_FullMethodName, testserver.Fail(codes.Unavailable, "busy"))

	client, err := jina.Dial(target, jina.Params{MaxAttempts: 3, InitialBackoff: 10 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	docs := jina.Documents(jina.Document("hello"), jina.Document("world"))
	for response, err := range client.Post(context.Background(), "/shout", docs) {
		if err != nil {
			log.Fatal(err)
		}
		for doc, err := range response.Documents() {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(string(doc))
		}
	}
	// Output:
	// hello!
	// world!
}

// Each request is a call of its own, at most two at a time, and an executor that fails
// does not end the Post.
func ExampleClient_Post_unary() {
	gateway, target := shouting()
	defer gateway.Close()
	client, err := jina.Dial(target, jina.Params{MaxAttempts: 3})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	docs := jina.Documents(jina.Document("hello"), jina.Document(""), jina.Document("world"))
	post := client.Post(context.Background(), "/shout", docs,
		jina.WithStream(false), jina.WithRequestSize(1), jina.WithPrefetch(2), jina.WithResultsInOrder(true),
		jina.WithOnDone(func(response *jina.Response) error {
			for doc, err := range response.Documents() {
				if err != nil {
					return err
				}
				fmt.Println(string(doc))
			}
			return nil
		}),
		jina.WithOnError(func(response *jina.Response) error {
			fmt.Println(response.Err())
			return nil
		}),
		jina.WithTrailer(func(trailer metadata.MD) {
			attempts, _ := grpcretry.AttemptsFromMD(trailer)
			fmt.Println(attempts, "attempt")
		}))
	for _, err := range post {
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 1 attempt
	// hello!
	// 1 attempt
	// jina: /shout: executor shouter: ValueError('nothing to shout')
	// 1 attempt
	// world!
}

// What a Post fails with is an error of the connection, of the input, or of the gateway.
func ExampleError() {
	gateway, target := shouting()
	defer gateway.Close()
	gateway.Script("", testserver.Fail(codes.NotFound, "no such deployment").Forever())
	client, err := jina.Dial(target, jina.Params{MaxAttempts: 2, InitialBackoff: -1})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for _, err := range client.Post(context.Background(), "/shout", jina.Documents(jina.Document("hello"))) {
		fmt.Println(errors.Is(err, jina.ErrConnection), status.Code(err))
		if failed, ok := errors.AsType[*jina.Error](err); ok {
			fmt.Println(failed.Attempts(), "attempts")
		}
	}
	// Output:
	// true NotFound
	// 2 attempts
}

// On a connection of one's own.
func ExampleDialOptions() {
	params := jina.Params{MaxAttempts: 5, Timeout: 10 * time.Second, ConnectWait: time.Minute}
	options, err := jina.DialOptions(params, grpcretry.WithObserver(grpcretry.Observer{
		Attempt: func(_ context.Context, method string, attempt grpcretry.Attempt) {
			log.Println(method, attempt.Number, attempt.Failure)
		},
	}))
	if err != nil {
		log.Fatal(err)
	}
	conn, err := grpc.NewClient("localhost:54321", append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	_ = jina.NewClient(conn)
	// Output:
}

// A loop of one's own around a call that nothing else retries.
func ExampleWaitOrStop() {
	call := func(attempt int) error {
		if attempt < 3 {
			return status.Error(codes.Unavailable, "busy")
		}
		return nil
	}
	params := jina.Params{MaxAttempts: 3, InitialBackoff: time.Millisecond}
	for attempt := 1; ; attempt++ {
		err := call(attempt)
		if err == nil {
			fmt.Println("done after", attempt)
			break
		}
		if err := jina.WaitOrStop(context.Background(), attempt, err, params); err != nil {
			log.Fatal(err)
		}
	}
	// Output: done after 3
}

func ExampleServiceConfig() {
	config, err := jina.ServiceConfig(jina.Params{MaxAttempts: 3})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(grpcretry.CheckServiceConfig(config)), "findings")
	// Output: 0 findings
}

func ExampleGenerator() {
	names := []string{"a.txt", "b.txt"}
	input := jina.Generator(func(context.Context) iter.Seq2[jina.Document, error] {
		return func(yield func(jina.Document, error) bool) {
			for _, name := range names {
				if !yield(jina.Text(name, "the text of "+name)) {
					return
				}
			}
		}
	}).WithTotal(len(names))
	gateway, target := shouting()
	defer gateway.Close()
	client, err := jina.Dial(target, jina.Params{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	progress := jina.WithProgress(func(p jina.Progress) { fmt.Println(p.Documents, "of", p.Total) })
	for _, err := range client.Post(context.Background(), "/shout", input, jina.WithRequestSize(1), progress) {
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 1 of 2
	// 2 of 2
}
