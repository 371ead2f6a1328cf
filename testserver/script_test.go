// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// A method's own script goes first, then the script for all methods.
func TestScriptForAllMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		srv.Script("", testserver.Fail(codes.DataLoss, "all").Forever())
		srv.Script("grpcretry.test.v1.TestService/Read", testserver.Fail(codes.Aborted, "own").Times(2))
		cc := srv.Dial()
		want := []codes.Code{codes.Aborted, codes.Aborted, codes.DataLoss, codes.DataLoss}
		for _, code := range want {
			assert.Equal(t, code, status.Code(shapes[0].call(t.Context(), cc, "a").err))
		}
		assert.Equal(t, codes.DataLoss, status.Code(shapes[1].call(t.Context(), cc, "a").err))
		assert.Equal(t, codes.DataLoss, status.Code(cc.Invoke(t.Context(), "/no.Such/Method", &testv1.Request{}, &testv1.Response{})))
		srv.Script("")
		assert.NoError(t, shapes[0].call(t.Context(), cc, "a").err, "the script was cleared")
		assert.Len(t, srv.Attempts("/grpcretry.test.v1.TestService/Read"), 5)
		assert.Len(t, srv.Attempts(shapes[0].method, shapes[1].method), 6)
		assert.Len(t, srv.Attempts(), 7)
	})
}

// Concurrent attempts take each step once, in the order of their numbers.
func TestScriptConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		srv.Script("", testserver.Fail(codes.Aborted, "").Times(30), testserver.Fail(codes.NotFound, "").Times(30))
		cc := srv.Dial()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { shapes[0].call(t.Context(), cc, "a") })
		}
		wg.Wait()
		all := srv.Attempts()
		require.Len(t, all, 100)
		for i, a := range all {
			want := codes.OK
			switch {
			case i < 30:
				want = codes.Aborted
			case i < 60:
				want = codes.NotFound
			}
			assert.Equal(t, want, a.Status.Code(), a)
			assert.Equal(t, i+1, a.Number)
		}
	})
}
