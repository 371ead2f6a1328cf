// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // for WithCompression
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"
)

// Option is a parameter of a [Client.Post]. Of two that set the same thing the later one
// counts. One that cannot be used ends the Post before anything is sent, with an error
// that names it.
type Option interface {
	apply(p *post) error
}

type optionFunc func(*post) error

func (f optionFunc) apply(p *post) error { return f(p) }

// WithParams gives the Post retry parameters of its own, in place of all those of its
// connection: Jina's max_attempts, initial_backoff, max_backoff, backoff_multiplier and
// timeout.
func WithParams(params Params) Option {
	return optionFunc(func(p *post) error {
		p.params = &params
		return params.problems()
	})
}

// WithRequestSize is Jina's request_size: the largest number of documents in a request.
// An error of an executor is one of the whole request, the other documents in it
// included. The default is 100; zero or less puts all documents into one request.
func WithRequestSize(documents int) Option {
	return optionFunc(func(p *post) error {
		p.requestSize = documents
		return nil
	})
}

// WithStream is Jina's stream: true sends all requests on one stream, false each in a
// unary call of its own. The default is true.
func WithStream(stream bool) Option {
	return optionFunc(func(p *post) error {
		p.stream = stream
		return nil
	})
}

// WithPrefetch is Jina's prefetch: the largest number of requests that are on their way
// or have responses which the caller has not done with. The gateway of a stream is told
// too. The default is 1000, of which a gateway is not told; zero means no limit. With 1
// and without streaming everything is done by whoever ranges over the Post, one request
// after the other.
func WithPrefetch(requests int) Option {
	return optionFunc(func(p *post) error {
		if p.prefetch = requests; requests < 0 {
			return fmt.Errorf("WithPrefetch(%d): it must not be negative", requests)
		}
		p.prefetchGiven = true
		return nil
	})
}

// WithResultsInOrder is Jina's results_in_order: whether responses come in the order of
// the requests, or as they are done, which is the default. The gateway of a stream is
// told, and responses that come too soon all the same are held back.
func WithResultsInOrder(inOrder bool) Option {
	return optionFunc(func(p *post) error {
		p.inOrder = inOrder
		return nil
	})
}

// WithContinueOnError is Jina's continue_on_error: whether the Post goes on after an
// error of an executor that no [WithOnError] is for, and after an error or a panic of a
// callback, all of which are then logged. Errors of gRPC always end the Post. The default
// is false.
func WithContinueOnError(goOn bool) Option {
	return optionFunc(func(p *post) error {
		p.continueOnError = goOn
		return nil
	})
}

// WithLogger sets where [WithContinueOnError] logs, as errors. The default is
// [slog.Default].
func WithLogger(logger *slog.Logger) Option {
	return optionFunc(func(p *post) error {
		if p.logger = logger; logger == nil {
			return errors.New("WithLogger(nil): a logger is needed")
		}
		return nil
	})
}

// resultsKey is the key of the parameters that Jina has for itself.
const resultsKey = "__results__"

// WithParameters is Jina's parameters: arguments of the executors, of the types that
// [structpb.NewValue] takes. The key __results__ is refused, since executors put their
// results there. The map may be modified afterwards. The default is none.
func WithParameters(parameters map[string]any) Option {
	converted, err := newParameters(parameters)
	return optionFunc(func(p *post) error {
		p.parameters = converted
		return err
	})
}

func newParameters(parameters map[string]any) (*structpb.Struct, error) {
	converted := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		value, err := structpb.NewValue(parameters[key])
		switch {
		case key == resultsKey:
			err = fmt.Errorf("the key %q is reserved for results", key)
		case !utf8.ValidString(key):
			err = fmt.Errorf("the key %q is not valid UTF-8", key)
		case err != nil:
			err = fmt.Errorf("the value of %q, a %T: %w", key, parameters[key], err)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("WithParameters: %w", err))
		}
		converted.Fields[key] = value
	}
	return converted, errors.Join(problems...)
}

// WithTargetExecutor is Jina's target_executor: a regular expression, of Python's kind;
// executors with other names are passed by. The default is all executors.
func WithTargetExecutor(pattern string) Option {
	return optionFunc(func(p *post) error {
		p.targetExecutor = pattern
		if !utf8.ValidString(pattern) {
			return fmt.Errorf("WithTargetExecutor(%q): it is not valid UTF-8", pattern)
		}
		return nil
	})
}

// WithMetadata is Jina's metadata: what is sent with each call, beside what the context
// has. Several of them add up. What gRPC cannot send, or sends as its own, is refused,
// and so are __prefetch__ and __results_in_order__, which there are options for. The map
// may be modified afterwards.
func WithMetadata(md metadata.MD) Option {
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(md)) {
		if err := sendable(key, md[key]); err != nil {
			problems = append(problems, fmt.Errorf("WithMetadata: %w", err))
		}
	}
	own, err := metadata.MD{}, errors.Join(problems...)
	for _, key := range slices.Sorted(maps.Keys(md)) {
		own.Append(key, md[key]...) // in small letters, in which alone gRPC takes them
	}
	return optionFunc(func(p *post) error {
		p.metadata = metadata.Join(p.metadata, own)
		return err
	})
}

// WithCompression is Jina's compression: by what name gRPC knows the encoding of
// requests. "gzip" is there, others must be registered with package encoding of gRPC;
// "NoCompression" and "" mean none, which is the default. Case does not matter.
func WithCompression(name string) Option {
	return optionFunc(func(p *post) error {
		p.compression = strings.ToLower(name)
		switch {
		case p.compression == "" || p.compression == "nocompression":
			p.compression = encoding.Identity
		case p.compression != encoding.Identity && encoding.GetCompressor(p.compression) == nil:
			return fmt.Errorf("WithCompression(%q): no such compressor is registered with gRPC", name)
		}
		return nil
	})
}

// WithOnDone is Jina's on_done: it is called with each response without an error of an
// executor.
//
// All callbacks are called by whoever ranges over the Post, one at a time, before the
// response is yielded, once for each response, however many attempts there were; they
// never see errors of gRPC. An error or a panic of one ends the Post with a
// [CallbackError], or is logged if [WithContinueOnError] is set.
func WithOnDone(f func(*Response) error) Option {
	return callbackOption("WithOnDone", f, func(p *post) *callback { return &p.onDone })
}

// WithOnError is Jina's on_error: it is called with each response with an error of an
// executor, which then does not end the Post. Like all others the response is yielded,
// without an error beside it; [Response.Err] has it.
func WithOnError(f func(*Response) error) Option {
	return callbackOption("WithOnError", f, func(p *post) *callback { return &p.onError })
}

// WithOnAlways is Jina's on_always: it is called with each response, after the other
// callback, unless the Post ends with the response's error.
func WithOnAlways(f func(*Response) error) Option {
	return callbackOption("WithOnAlways", f, func(p *post) *callback { return &p.onAlways })
}

func callbackOption(name string, f func(*Response) error, of func(*post) *callback) Option {
	return optionFunc(func(p *post) error {
		*of(p) = callback{name: name, f: f}
		if f == nil {
			return fmt.Errorf("%s(nil): a function is needed", name)
		}
		return nil
	})
}

// Progress is how far a Post is.
type Progress struct {
	Requests  int // that have a response
	Documents int // that were in these requests
	Total     int // documents of the input; 0 if nobody knows
}

// WithProgress sets a function that is called after each response, when the callbacks
// have been.
func WithProgress(f func(Progress)) Option {
	return optionFunc(func(p *post) error {
		if p.onProgress = f; f == nil {
			return errors.New("WithProgress(nil): a function is needed")
		}
		return nil
	})
}

// WithTrailer sets a function that is called with the trailer of each call of gRPC that
// is over: of each request without streaming, else of the stream. Its
// jina-client-attempts says how many attempts were made ([grpcretry.AttemptsFromMD]).
// It is called by whoever ranges over the Post: without streaming before the response or
// the error is handed over, and for a stream once, after the last response. A Post that
// ends before its call is over has no trailer of it.
func WithTrailer(f func(metadata.MD)) Option {
	return optionFunc(func(p *post) error {
		if p.onTrailer = f; f == nil {
			return errors.New("WithTrailer(nil): a function is needed")
		}
		return nil
	})
}
