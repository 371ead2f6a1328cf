// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed98143e88/grpcretry"
	"github.com/seed98143e88/grpcretry/jina"
	"github.com/seed98143e88/grpcretry/jina/jinatest"
	"github.com/seed98143e88/grpcretry/testserver"
)

// failOn makes the executor fail on one document.
func (r *rig) failOn(doc string) {
	r.gateway.Handle("echo", "", func(_ context.Context, docs []jina.Document, _ map[string]any) ([]jina.Document, error) {
		if string(docs[0]) == doc {
			return nil, &jinatest.Exception{Name: "ValueError", Args: []string{"bad " + doc}, Stacks: []string{"line 1", "line 2"}}
		}
		return docs, nil
	})
}

// inOrder are options that make the order of everything certain.
func inOrder(m mode) []jina.Option {
	return []jina.Option{jina.WithStream(m.stream), jina.WithResultsInOrder(true)}
}

// logTo returns a logger that writes into b, without times and ids.
func logTo(b io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "request_id" {
			return slog.Attr{}
		}
		return a
	}}))
}

// TestExecutorError holds what becomes of an executor's exception: it is never retried,
// and is on_error's, or is logged, or ends the Post.
func TestExecutorError(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		for _, row := range []struct {
			name      string
			opts      func(o *outcome, log io.Writer) []jina.Option
			docs      []string
			callbacks []string
			log       string
			fails     bool
		}{
			{
				name: "ends the Post", docs: []string{"1"}, callbacks: []string{"done 1", "always 1"}, fails: true,
				opts: func(*outcome, io.Writer) []jina.Option { return nil },
			},
			{
				name: "on_error", docs: []string{"1", "2", "3"},
				callbacks: []string{"done 1", "always 1", "error 2", "always 2", "done 3", "always 3"},
				opts: func(o *outcome, _ io.Writer) []jina.Option {
					return []jina.Option{jina.WithOnError(func(r *jina.Response) error {
						o.callbacks = append(o.callbacks, "error "+o.read(t, r))
						return nil
					})}
				},
			},
			{
				name: "continue_on_error", docs: []string{"1", "2", "3"},
				callbacks: []string{"done 1", "always 1", "always 2", "done 3", "always 3"},
				log: "level=ERROR msg=\"jina: continuing on error\" endpoint=/echo " +
					"error=\"jina: /echo: executor echo: ValueError('bad 2')\" executor=echo exception=ValueError\n",
				opts: func(_ *outcome, log io.Writer) []jina.Option {
					return []jina.Option{jina.WithContinueOnError(true), jina.WithLogger(logTo(log))}
				},
			},
		} {
			bubble(t, m.name+", "+row.name, func(t *testing.T) {
				r := newRig(t, jina.Params{MaxAttempts: 3, AnyCode: true})
				r.failOn("2")
				var logged bytes.Buffer
				o := &outcome{}
				r.postInto(t.Context(), o, m.input(texts(3)), append(inOrder(m), row.opts(o, &logged)...)...)
				assert.Equal(t, row.docs, o.docs)
				assert.Equal(t, row.callbacks, o.callbacks)
				assert.Equal(t, row.log, logged.String())
				for _, a := range r.gateway.Attempts() {
					assert.LessOrEqual(t, a.PreviousAttempts, 0, "never retried")
				}
				if !row.fails {
					require.NoError(t, o.err)
					failed, ok := errors.AsType[*jina.ExecutorError](o.responses[1].Err())
					require.True(t, ok)
					assert.Equal(t, "ValueError", failed.Name)
					return
				}
				failed, ok := errors.AsType[*jina.ExecutorError](o.err)
				require.True(t, ok)
				assert.NotEmpty(t, failed.RequestID)
				failed.RequestID = ""
				assert.Equal(t, &jina.ExecutorError{
					Executor: "echo", Name: "ValueError", Args: []string{"bad 2"}, Stacks: []string{"line 1", "line 2"},
					Description: "ValueError('bad 2')", Endpoint: "/echo",
				}, failed)
				require.EqualError(t, o.err, "jina: /echo: executor echo: ValueError('bad 2')")
			})
		}
	}
}

var errMine = errors.New("mine")

// TestCallbackFails holds what becomes of errors and panics of callbacks.
func TestCallbackFails(t *testing.T) {
	t.Parallel()
	callbacks := map[string]func(func(*jina.Response) error) jina.Option{
		"WithOnDone": jina.WithOnDone, "WithOnError": jina.WithOnError, "WithOnAlways": jina.WithOnAlways,
	}
	for _, m := range modes {
		for name, option := range callbacks {
			for _, how := range []string{"error", "panic", "panic with an error"} {
				fail := func(*jina.Response) error {
					switch how {
					case "error":
						return errMine
					case "panic":
						panic("mine") //nolint:forbidigo // it is what is tested
					}
					panic(errMine) //nolint:forbidigo // as above
				}
				for _, goOn := range []bool{false, true} {
					bubble(t, fmt.Sprintf("%s, %s, %s, %v", m.name, name, how, goOn), func(t *testing.T) {
						r := newRig(t, jina.Params{MaxAttempts: 3, AnyCode: true})
						if name == "WithOnError" {
							r.failOn("1")
						}
						var logged bytes.Buffer
						o := r.post(t.Context(), m.input(texts(1)), append(inOrder(m), option(fail),
							jina.WithContinueOnError(goOn), jina.WithLogger(logTo(&logged)))...)
						assert.Len(t, r.gateway.Attempts(), 1)
						if goOn {
							require.NoError(t, o.err)
							assert.Equal(t, []string{"1"}, o.docs)
							assert.Contains(t, logged.String(), "the callback of "+name+": ")
							return
						}
						failed, ok := errors.AsType[*jina.CallbackError](o.err)
						require.True(t, ok, o.err)
						assert.Equal(t, name, failed.Callback)
						assert.Equal(t, how != "error", failed.Stack != nil)
						assert.Equal(t, how != "panic", errors.Is(o.err, errMine))
						assert.Empty(t, o.docs)
					})
				}
			}
		}
	}
}

// TestGoesOnNotOnNetwork holds that continue_on_error is not for errors of gRPC, and
// that callbacks never see them.
func TestGoesOnNotOnNetwork(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		bubble(t, m.name, func(t *testing.T) {
			r := newRig(t, jina.Params{})
			r.gateway.Script("", testserver.Fail(codes.PermissionDenied, "no").Forever())
			o := r.post(t.Context(), m.input(texts(3)), append(inOrder(m), jina.WithContinueOnError(true),
				jina.WithOnError(func(*jina.Response) error {
					t.Error("called")
					return nil
				}))...)
			assert.Equal(t, codes.PermissionDenied, status.Code(o.err))
			assert.Empty(t, o.callbacks)
		})
	}
}

// TestUnreachableExecutorForever holds that the response by which a gateway says that it
// could not pass a request on is no progress.
func TestUnreachableExecutorForever(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T) {
		r := newRig(t, jina.Params{MaxAttempts: 3, ResetAfter: grpcretry.ResetAfter{Responses: 1}})
		r.gateway.Handle("echo", "", func(context.Context, []jina.Document, map[string]any) ([]jina.Document, error) {
			return nil, jinatest.Unreachable(codes.Unavailable, "no replica")
		})
		o := r.post(t.Context(), jina.Documents(texts(3)...))
		require.ErrorIs(t, o.err, jina.ErrConnection)
		require.ErrorContains(t, o.err, "3 responses had nothing but a request_id")
		assert.Equal(t, []string{"3"}, o.attempts)
	})
}

// TestUnreachableExecutor holds that the response by which a gateway tells which request
// it could not pass on is no result: the request is sent again with the others that have
// no answer.
func TestUnreachableExecutor(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		for _, attempts := range []int{1, 3} {
			bubble(t, fmt.Sprintf("%s, %d attempts", m.name, attempts), func(t *testing.T) {
				r := newRig(t, jina.Params{MaxAttempts: attempts})
				tries := 0
				r.gateway.Handle("echo", "", func(_ context.Context, docs []jina.Document, _ map[string]any) ([]jina.Document, error) {
					if string(docs[0]) != "2" {
						return docs, nil
					}
					if tries++; tries < 3 {
						return nil, jinatest.Unreachable(codes.Unavailable, "no replica")
					}
					return docs, nil
				})
				o := r.post(t.Context(), m.input(texts(3)), inOrder(m)...)
				if attempts == 3 {
					require.NoError(t, o.err)
					r.assertOnce(o, 3, true)
					return
				}
				require.ErrorIs(t, o.err, jina.ErrConnection)
				require.ErrorContains(t, o.err, "no replica")
				assert.Equal(t, []string{"1"}, o.docs)
				assert.Equal(t, 1, tries)
			})
		}
	}
}
