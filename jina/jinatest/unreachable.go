// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jinatest

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// Unreachable returns an error by which a [Handler] says that the gateway cannot reach
// its executor. The request then ends its RPC with the status that is given:
// process_single_data and process_data at once; Call when the request's answer is due,
// with one more response, of which only the header's request_id is set, before the
// status. Answers that are not out by then are lost, and so is the rest of the stream.
//
// Jina's gateways do so with UNAVAILABLE and DEADLINE_EXCEEDED, and NOT_FOUND, after they
// have tried again. Trailing metadata are added by grpc.SetTrailer, with the handler's
// context. If the code is OK or a detail is nil, the status is INTERNAL and says that.
func Unreachable(code codes.Code, message string, details ...proto.Message) error {
	if code == codes.OK {
		return misused("the code is OK, which is no failure")
	}
	st := status.New(code, valid(message)) // else gRPC would drop the details
	if len(details) == 0 {
		return unreachable{st}
	}
	old := make([]protoadapt.MessageV1, len(details))
	for i, d := range details {
		if d == nil || !d.ProtoReflect().IsValid() {
			return misused("a detail is nil")
		}
		old[i] = protoadapt.MessageV1Of(d)
	}
	st, err := st.WithDetails(old...)
	if err != nil {
		return misused(err.Error())
	}
	return unreachable{st}
}

func misused(text string) error {
	return unreachable{status.New(codes.Internal, "jinatest: Unreachable: "+text)}
}

// unreachable is the error that Unreachable returns.
type unreachable struct{ status *status.Status }

func (u unreachable) Error() string { return "the executor is unreachable: " + u.status.String() }
