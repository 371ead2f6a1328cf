// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

// Client posts documents to a gateway of Jina's. It is made by [Dial] or [NewClient], and
// safe for concurrent use.
type Client struct {
	conn  grpc.ClientConnInterface
	ready func() error // whether the connection was dialled with our options
	close func() error
}

// NewClient returns a client on a connection that was dialled with [DialOptions]. One
// that was not is found out by the first call, which fails, as do all others. The
// connection stays the caller's.
func NewClient(conn grpc.ClientConnInterface) *Client {
	return &Client{
		conn:  conn,
		close: func() error { return nil },
		ready: sync.OnceValue(func() error {
			if gone, ok := conn.(*grpc.ClientConn); conn == nil || ok && gone == nil {
				return errors.New("the connection is nil")
			}
			return recognise(conn)
		}),
	}
}

// Close closes the connection that [Dial] made; one that was given to [NewClient] it
// leaves alone.
func (c *Client) Close() error {
	if err := c.usable(); err != nil {
		return nil //nolint:nilerr // there is nothing to close
	}
	return c.close()
}

// usable returns why the client cannot be used; nil if it can.
func (c *Client) usable() error {
	if c == nil || c.ready == nil {
		return errors.New("the client was not made by Dial or NewClient")
	}
	return c.ready()
}

// Ready asks the gateway whether it and its executors are ready, by Jina's dry_run, and
// returns nil if they are. gRPC's own retry repeats the question, under the params of
// [DialOptions] but for Timeout; the context alone bounds it. An executor that is not
// ready is an [ExecutorError], all else an [Error].
func (c *Client) Ready(ctx context.Context) error {
	const endpoint = "dry_run"
	if err := c.usable(); err != nil {
		return &Error{Endpoint: endpoint, Class: ErrBadClientInput, Cause: err}
	}
	answer, err := jinapb.NewJinaGatewayDryRunRPCClient(c.conn).DryRun(ctx, &emptypb.Empty{})
	if err != nil {
		return newError(ctx, endpoint, "", nil, err)
	}
	return executorError(answer, endpoint, "")
}
