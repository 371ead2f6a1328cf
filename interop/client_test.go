// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package interop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// task is what a client is told.
type task struct {
	Target        string     `json:"target"`
	ServiceConfig string     `json:"serviceConfig"`
	Descriptor    []byte     `json:"descriptor"` // of the service's file, where code is generated from no file
	Calls         []taskCall `json:"calls"`
}

type taskCall struct {
	ID        string `json:"id"`
	Method    string `json:"method"`
	Streams   bool   `json:"streams"`
	TimeoutMS int64  `json:"timeoutMs"`
}

// outcome is what a client prints.
type outcome struct {
	Library string   `json:"library"`
	Results []result `json:"results"`
}

type result struct {
	ID      string   `json:"id"`
	Code    string   `json:"code"` // as gRPC's specification writes it
	Message string   `json:"message"`
	Answers []string `json:"answers"` // key and sequence of each
}

// clients are the columns of the table.
var clients = []struct {
	name string
	run  func(ctx context.Context, t task) (outcome, error)
}{
	{"go", goClient},
	{"node", func(ctx context.Context, t task) (outcome, error) {
		return process(exec.CommandContext(ctx, "node", "js/client.js"), t)
	}},
	{"python", func(ctx context.Context, t task) (outcome, error) {
		return process(exec.CommandContext(ctx, "/usr/bin/python3", "py/client.py"), t)
	}},
}

func newTask(target, config string, calls []call) task {
	descriptor, err := proto.Marshal(protodesc.ToFileDescriptorProto(testv1.File_grpcretry_test_v1_test_proto))
	if err != nil {
		descriptor = nil // the client says so
	}
	t := task{Target: target, ServiceConfig: config, Descriptor: descriptor}
	for _, c := range calls {
		timeout := c.timeout
		if timeout == 0 {
			timeout = 20 * time.Second
		}
		t.Calls = append(t.Calls, taskCall{c.name, c.method, c.streams(), timeout.Milliseconds()})
	}
	return t
}

// process runs a client in a process of its own, which ends with the command's context.
func process(cmd *exec.Cmd, t task) (outcome, error) {
	input, err := json.Marshal(t)
	if err != nil {
		return outcome{}, err
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second // for pipes that somebody else holds open
	var o outcome
	if err = cmd.Run(); err == nil {
		err = json.Unmarshal(stdout.Bytes(), &o)
	}
	if err != nil {
		return o, fmt.Errorf("%v: %w\n%s%s", cmd.Args, err, stdout.Bytes(), stderr.Bytes())
	}
	return o, nil
}

// goClient does with grpc-go alone what client.js and client.py do.
func goClient(ctx context.Context, t task) (outcome, error) {
	conn, err := grpc.NewClient(t.Target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(t.ServiceConfig), grpc.WithNoProxy())
	if err != nil {
		return outcome{}, err
	}
	defer conn.Close()
	o := outcome{Library: "grpc-go " + grpc.Version}
	for _, c := range t.Calls {
		r := result{ID: c.ID}
		err := goCall(metadata.AppendToOutgoingContext(ctx, callKey, c.ID), testv1.NewTestServiceClient(conn), c, &r)
		r.Code = code.Code(status.Code(err)).String()
		r.Message = status.Convert(err).Message()
		o.Results = append(o.Results, r)
	}
	return o, nil
}

func goCall(ctx context.Context, client testv1.TestServiceClient, c taskCall, r *result) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.TimeoutMS)*time.Millisecond)
	defer cancel()
	request := &testv1.Request{Key: c.ID}
	answered := func(answer *testv1.Response) {
		r.Answers = append(r.Answers, fmt.Sprintf("%s %d", answer.GetKey(), answer.GetSequence()))
	}
	if !c.Streams {
		unary := map[string]func(context.Context, *testv1.Request, ...grpc.CallOption) (*testv1.Response, error){
			"Read": client.Read, "Put": client.Put, "Write": client.Write,
		}
		answer, err := unary[c.Method](ctx, request)
		if err == nil {
			answered(answer)
		}
		return err
	}
	stream, err := client.Download(ctx, request)
	for err == nil {
		var answer *testv1.Response
		if answer, err = stream.Recv(); err == nil {
			answered(answer)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
