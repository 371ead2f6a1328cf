// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// Every mistake ends the test, and is named with the value at fault.
func TestFaultySteps(t *testing.T) {
	read := testv1.TestService_Read_FullMethodName
	fail := testserver.Fail(codes.Aborted, "")
	steps := map[string]struct {
		step testserver.Step
		text string
	}{
		"ok":            {testserver.Fail(codes.OK, ""), "Fail: the code is OK"},
		"do":            {testserver.Do(nil), "Do: the function is nil"},
		"nil detail":    {testserver.Fail(codes.Aborted, "", nil), "Details: detail 1 is nil"},
		"details":       {testserver.Cut().Details(&errdetails.ErrorInfo{}), "Details: Cut has no status"},
		"retry info":    {testserver.OK().RetryInfo(time.Second), "RetryInfo: OK has no status"},
		"pushback":      {fail.Pushback(), "Pushback: no value"},
		"odd":           {fail.Header("a"), "Header: 1 strings are no pairs"},
		"odd sent":      {fail.SendHeader("a", "b", "c"), "SendHeader: 3 strings are no pairs"},
		"empty key":     {fail.Trailer("", "b"), "Trailer: a key is empty"},
		"bad key":       {fail.Trailer("a b", "c"), `Trailer: key "a b" has the character ' '`},
		"reserved":      {fail.Trailer("grpc-status", "0"), `key "grpc-status" is reserved`},
		"bad value":     {fail.Trailer("a", "\n"), `value "\n" of key "a" is not printable`},
		"delay":         {fail.Delay(-1), "Delay: -1ns is negative"},
		"received":      {fail.Received(-1), "Received: -1 is negative"},
		"sent":          {fail.Sent(-2), "Sent: -2 is negative"},
		"times":         {fail.Times(0), "Times: 0 is less than 1"},
		"lost trailer":  {testserver.Hang().Trailer("a", "b"), "Hang never sends trailers"},
		"lost pushback": {testserver.Reset().Pushback("1"), "Reset never sends trailers"},
		"lost header":   {testserver.Cut().Header("a", "b").Applied(), "Cut never sends it; use SendHeader or Sent"},
		"two":           {fail.Sent(-2).Delay(-1), "Sent: -2 is negative; Delay: -1ns is negative"},
	}
	for name, c := range steps {
		t.Run(name, func(t *testing.T) {
			text := failure(t, func(tb testing.TB) { testserver.New(tb).Script(read, testserver.OK(), c.step) })
			assert.Contains(t, text, "testserver: Script: ")
			assert.Contains(t, text, "step 2: ")
			assert.Contains(t, text, c.text)
		})
	}
}

func TestMistakes(t *testing.T) {
	read := testv1.TestService_Read_FullMethodName
	fail := testserver.Fail(codes.Aborted, "")
	uses := map[string]struct {
		use  func(*testserver.Server)
		text string
	}{
		"forever":  {func(s *testserver.Server) { s.Script(read, fail.Forever(), fail) }, "step 1: Forever leaves no attempt for step 2"},
		"script":   {func(s *testserver.Server) { s.Script("/no.Such/Method", fail) }, `Script: method "/no.Such/Method" is in no linked`},
		"form":     {func(s *testserver.Server) { s.Script("Read", fail) }, `method "Read" is not of the form`},
		"attempts": {func(s *testserver.Server) { s.Attempts("a/b") }, `Attempts: method "a/b"`},
		"handle":   {func(s *testserver.Server) { s.Handle("a/b", answers(1)) }, `Handle: method "a/b"`},
		"handler":  {func(s *testserver.Server) { s.Handle(read, nil) }, "Handle: the function for"},
		"desc":     {func(s *testserver.Server) { s.RegisterService(nil, 1) }, "RegisterService: the ServiceDesc is nil"},
		"nil impl": {func(s *testserver.Server) { s.RegisterService(&testv1.TestService_ServiceDesc, nil) }, "is nil"},
		"impl":     {func(s *testserver.Server) { s.RegisterService(&testv1.TestService_ServiceDesc, 1) }, "int does not implement testv1.TestServiceServer"},
		"twice": {func(s *testserver.Server) {
			testv1.RegisterTestServiceServer(s, implementation{})
			testv1.RegisterTestServiceServer(s, implementation{})
		}, "already registered"},
		"dial": {func(s *testserver.Server) { s.Dial(grpc.WithDefaultServiceConfig("{")) }, "Dial: "},
		"closed": {func(s *testserver.Server) {
			s.Close()
			s.Dial()
		}, "Dial: the server is closed"},
	}
	for name, c := range uses {
		t.Run(name, func(t *testing.T) {
			assert.Contains(t, failure(t, func(tb testing.TB) { c.use(testserver.New(tb)) }), c.text)
		})
	}
}

func TestFaultyOptions(t *testing.T) {
	handle := func(ctx context.Context, _ *tap.Info) (context.Context, error) { return ctx, nil }
	for text, opt := range map[string]testserver.Option{
		"option 1 is nil":                   nil,
		"ServerOptions: option 1 is nil":    testserver.ServerOptions(nil),
		"ServerOptions: grpc refuses them:": testserver.ServerOptions(grpc.InTapHandle(handle), grpc.InTapHandle(handle)),
	} {
		_, err := testserver.Start(opt)
		require.ErrorContains(t, err, "testserver: Start: "+text)
		assert.Contains(t, failure(t, func(tb testing.TB) { testserver.New(tb, opt) }), "testserver: New: "+text)
	}
}

// Without a test to end, a mistake shows in every attempt.
func TestMistakesWithoutTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start()
		require.NoError(t, err)
		defer srv.Close()
		require.NoError(t, shapes[0].call(t.Context(), srv.Dial(), "a").err)
		srv.Script("", testserver.OK().Sent(-1))
		srv.Script("/no.Such/Method")
		for _, s := range shapes {
			err := s.call(t.Context(), srv.Dial(grpc.WithDefaultServiceConfig("{")), "a").err
			assert.Equal(t, codes.Internal, status.Code(err))
			assert.ErrorContains(t, err, "Sent: -1 is negative")
			assert.ErrorContains(t, err, "/no.Such/Method")
			assert.ErrorContains(t, err, "Dial: ")
		}
		srv.Close()
		assert.Equal(t, codes.Canceled, status.Code(shapes[0].call(t.Context(), srv.Dial(), "a").err))
	})
}
