// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry

import (
	"regexp"
	"testing"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// FuzzPushback holds that whatever a server sends as pushback is either a plain
// number of milliseconds or the end of the call.
func FuzzPushback(f *testing.F) {
	for _, seed := range []string{"", "0", "1", "-1", "007", "+7", "2147483647", "2147483648", "1e3", "9999999999999999999"} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	plain := regexp.MustCompile(`^(0|[1-9][0-9]{0,9})$`)
	f.Fuzz(func(t *testing.T, value string, twice bool) {
		values := []string{value}
		if twice {
			values = append(values, value)
		}
		got := demandOf(status.New(codes.Unavailable, ""), metadata.MD{pushbackKey: values})
		if !got.given || got.delay < 0 || got.delay > maxPushback {
			t.Fatalf("%q: %+v", values, got)
		}
		if allowed := !twice && plain.MatchString(value) && (len(value) < 10 || value <= "2147483647"); allowed != (got.stop == "") {
			t.Errorf("%q: %+v", values, got)
		}
	})
}

// FuzzRetryInfo holds that whatever a server sends as RetryInfo is nothing, a
// delay that is not negative, or the end of the call.
func FuzzRetryInfo(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte{0x0a, 0x00})
	f.Add([]byte{0x0a, 0x02, 0x08, 0x01})                                                       // 1 s
	f.Add([]byte{0x0a, 0x02, 0x10, 0x01})                                                       // 1 ns
	f.Add([]byte{0x0a, 0x0b, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff})                               // cut off
	f.Add([]byte{0x0a, 0x0b, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}) // -1 s
	f.Fuzz(func(t *testing.T, value []byte) {
		st := status.FromProto(&spb.Status{
			Code: int32(codes.Unavailable),
			Details: []*anypb.Any{
				{TypeUrl: "type.googleapis.com/unknown.Type", Value: value},
				{TypeUrl: "type.googleapis.com/google.rpc.RetryInfo", Value: value},
			},
		})
		got := demandOf(st, nil)
		if got.delay < 0 || got.stop != "" && !got.given || !got.given && got != (demand{}) {
			t.Errorf("%x: %+v", value, got)
		}
	})
}
