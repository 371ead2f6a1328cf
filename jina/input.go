// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
)

// Input is where the documents of a Post come from. It is made by [Documents],
// [Channel], [Sequence] or [Generator]. An input that gives no document makes no request,
// and a Post of it does nothing; but the zero Input makes one request without documents,
// for endpoints that want parameters alone.
//
// Documents must not be modified before their answer has come. What is drawn from an
// input runs ahead of the responses, by the prefetch and one request; it is drawn on a
// goroutine of the Post's, which has ended when the Post has.
type Input struct {
	open   func(ctx context.Context) iter.Seq2[Document, error]
	atHand bool // it neither waits nor fails
	total  int  // documents; 0 if nobody knows
	fault  string
}

// Documents is an input of documents at hand.
func Documents(docs ...Document) Input {
	return Input{atHand: true, total: len(docs), open: func(context.Context) iter.Seq2[Document, error] {
		return faultless(slices.Values(docs))
	}}
}

// Channel is an input of what is received from a channel until it is closed. A Post that
// ends before leaves the rest in it.
func Channel(docs <-chan Document) Input {
	if docs == nil {
		return Input{fault: "Channel(nil)"}
	}
	return Input{open: func(ctx context.Context) iter.Seq2[Document, error] {
		return func(yield func(Document, error) bool) {
			for {
				select {
				case doc, more := <-docs:
					if !more || !yield(doc, nil) {
						return
					}
				case <-ctx.Done():
					yield(nil, ctx.Err())
					return
				}
			}
		}
	}}
}

// Sequence is an input of what an iterator gives. One that waits for something delays
// the end of a Post that is over; see [Generator].
func Sequence(docs iter.Seq[Document]) Input {
	if docs == nil {
		return Input{fault: "Sequence(nil)"}
	}
	return Input{open: func(ctx context.Context) iter.Seq2[Document, error] {
		return untilOver(ctx, faultless(docs))
	}}
}

// faultless yields documents without errors.
func faultless(docs iter.Seq[Document]) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		for doc := range docs {
			if !yield(doc, nil) {
				return
			}
		}
	}
}

// Generator is an input of what an iterator gives that may wait, or fail. The function
// is called once for each Post, with a context that ends when nothing more is drawn, so
// that the iterator can stop waiting. After an error nothing more is drawn: what came
// before is sent and answered, and then the Post ends with the error.
func Generator(open func(ctx context.Context) iter.Seq2[Document, error]) Input {
	if open == nil {
		return Input{fault: "Generator(nil)"}
	}
	return Input{open: func(ctx context.Context) iter.Seq2[Document, error] {
		docs := open(ctx)
		if docs == nil {
			docs = func(yield func(Document, error) bool) {
				yield(nil, errors.New("the function given to Generator returned nil"))
			}
		}
		return untilOver(ctx, docs)
	}}
}

// untilOver yields the context's error behind the documents, if it has ended by then:
// nobody knows whether the iterator has ended or given up.
func untilOver(ctx context.Context, docs iter.Seq2[Document, error]) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		for doc, err := range docs {
			if !yield(doc, err) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(nil, err)
		}
	}
}

// WithTotal returns the input with the number of documents that are expected of it, for
// [Progress]. Nothing else depends on it. Zero or less means that nobody knows, which is
// the default for all but [Documents].
func (in Input) WithTotal(documents int) Input {
	in.total = max(documents, 0)
	return in
}

// empty tells that there are no documents at all, and one request without any.
func (in Input) empty() bool { return in.open == nil }

// draw yields the documents, and whatever is wrong with the input as an error, which is
// the last. A panic of the input has no caller of its own here, so it becomes one too.
func (in Input) draw(ctx context.Context) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		theirs, over := true, false // whatever panics is the input; nobody asks for more
		defer func() {
			if !theirs {
				return
			}
			if p := recover(); p != nil && !over {
				yield(nil, fmt.Errorf("the input panicked: %v", p))
			}
		}()
		for doc, err := range in.open(ctx) {
			theirs = false
			over = !yield(doc, err) || err != nil
			theirs = true
			if over {
				cancel() // before the iterator is left, which may wait for it
				return
			}
		}
	}
}
