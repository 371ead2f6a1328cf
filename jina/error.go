// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

// What an [Error] is, for [errors.Is]: the exceptions that Jina's client makes of the
// errors of gRPC. INTERNAL is none of them, as there, and neither is the end of the
// caller's own context.
var (
	// ErrConnection is the ConnectionError of Jina's client: after UNAVAILABLE,
	// NOT_FOUND and DEADLINE_EXCEEDED.
	ErrConnection = errors.New("connection error")
	// ErrBadClientInput means that the input or a parameter of the Post is at fault.
	ErrBadClientInput = errors.New("bad client input")
	// ErrBadServerFlow means that the gateway refused the call, for any other reason,
	// or did not keep to the protocol.
	ErrBadServerFlow = errors.New("bad server flow")
)

// Error is how a Post ends that failed on the way to the executors, a request of it or
// all. [status.Code] and the like see through it to gRPC's status, which is unchanged;
// one that has nothing to do with gRPC has none. If there was more than one attempt, a
// [grpcretry.Error] with their history is in its chain. An input that fails with an error
// of another Post's passes that on: both classes apply.
type Error struct {
	// Endpoint is that of the Post; "dry_run" for [Client.Ready], and empty for
	// [WaitOrStop].
	Endpoint string
	// Request says which request failed; empty if it was not a single one, as of a
	// stream that broke.
	Request string
	// Trailer is that of gRPC's call, with jina-client-attempts, the number of
	// attempts; nil if there was none.
	Trailer metadata.MD
	// Class is [ErrConnection], [ErrBadClientInput] or [ErrBadServerFlow], or nil.
	Class error
	// Cause is the error that the Post ended with.
	Cause error
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("jina: ")
	for _, part := range []string{e.Endpoint, e.Request} {
		if part != "" {
			b.WriteString(part + ": ")
		}
	}
	if e.Class != nil {
		b.WriteString(e.Class.Error() + ": ")
	}
	b.WriteString(e.Cause.Error())
	return b.String()
}

// Unwrap returns the class and the cause.
func (e *Error) Unwrap() []error {
	if e.Class == nil {
		return []error{e.Cause}
	}
	return []error{e.Class, e.Cause}
}

// GRPCStatus returns the status of the cause; nil if it has none. It is what
// [status.FromError] looks for.
func (e *Error) GRPCStatus() *status.Status {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(e.Cause, &s) {
		return s.GRPCStatus()
	}
	return nil
}

// Attempts returns how many attempts were made, as far as the trailer says; 0 if it does
// not.
func (e *Error) Attempts() int {
	n, _ := grpcretry.AttemptsFromMD(e.Trailer)
	return n
}

// ExecutorError is an exception of an executor, which the gateway tells of in a response.
// It is never retried.
type ExecutorError struct {
	Executor    string   // where it was raised; empty if that was not in an executor
	Name        string   // of the exception's class
	Args        []string // what it was made of, each as text
	Stacks      []string // the lines of its traceback
	Description string   // of the first error, in words
	Endpoint    string
	RequestID   string
}

// Error implements error.
func (e *ExecutorError) Error() string {
	text := "jina: " + e.Endpoint + ": executor"
	if e.Executor != "" {
		text += " " + e.Executor
	}
	switch {
	case e.Description != "":
		return text + ": " + e.Description
	case e.Name != "":
		return text + ": " + e.Name + "(" + strings.Join(e.Args, ", ") + ")"
	}
	return text + ": an error without a description"
}

// executorError returns what a status says went wrong; nil if nothing did.
func executorError(s *jinapb.StatusProto, endpoint, requestID string) error {
	if s.GetCode() == jinapb.StatusProto_SUCCESS {
		return nil
	}
	exception := s.GetException()
	return &ExecutorError{
		Executor:    exception.GetExecutor(),
		Name:        exception.GetName(),
		Args:        exception.GetArgs(),
		Stacks:      exception.GetStacks(),
		Description: s.GetDescription(),
		Endpoint:    endpoint,
		RequestID:   requestID,
	}
}

// CallbackError is an error or a panic of a callback.
type CallbackError struct {
	Callback string // the option that it was given to
	Endpoint string
	// Cause is what the callback returned, or says what it panicked with.
	Cause error
	// Stack is that of a panic; nil if there was none.
	Stack []byte
}

// Error implements error.
func (e *CallbackError) Error() string {
	return fmt.Sprintf("jina: %s: the callback of %s: %v", e.Endpoint, e.Callback, e.Cause)
}

// Unwrap returns the cause.
func (e *CallbackError) Unwrap() error { return e.Cause }

// badInput makes the error of an input, or a parameter, that is at fault.
func badInput(endpoint string, cause error) *Error {
	return &Error{Endpoint: endpoint, Class: ErrBadClientInput, Cause: cause}
}

// newError makes the error of a call of gRPC.
func newError(ctx context.Context, endpoint, request string, trailer metadata.MD, err error) *Error {
	e := &Error{Endpoint: endpoint, Request: request, Trailer: trailer, Cause: err}
	if ended := endOf(ctx); ended != nil {
		own := status.FromContextError(ended)
		switch code := status.Code(err); {
		case code == own.Code():
			if !errors.Is(err, ended) {
				e.Cause = fmt.Errorf("%w: %w", ended, err)
			}
			return e // the caller's own doing
		case code == codes.Unknown && errors.Is(err, ended): // as an interceptor has it, bare
			e.Cause = fmt.Errorf("%w: %w", own.Err(), err)
			return e
		}
	}
	e.Class = classify(status.Convert(err))
	return e
}

// endOf returns why a context has ended; nil if it has not. At its deadline the server's
// timer may be the first, and the context's own late.
func endOf(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// timeoutOfGateway is in the message of a timeout within a gateway.
const timeoutOfGateway = "asyncio.exceptions.TimeoutError"

// classify returns the class of a status of gRPC.
func classify(s *status.Status) error {
	switch s.Code() {
	case codes.Internal:
		return nil
	case codes.Unavailable, codes.NotFound, codes.DeadlineExceeded:
		return ErrConnection
	case codes.Unknown:
		if strings.Contains(s.Message(), timeoutOfGateway) {
			return ErrBadClientInput
		}
	default:
	}
	return ErrBadServerFlow
}

// tooLarge is in gRPC's message about a request over the limit of the side that says so.
const tooLarge = "trying to send message larger than max"

// unsent says that the call has not left this side.
func (e *Error) unsent() {
	if s := status.Convert(e.Cause); s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), tooLarge) {
		e.Class = ErrBadClientInput
	}
}
