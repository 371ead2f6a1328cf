// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

// Client posts documents to a gateway of Jina's. It is made by [Dial] or [NewClient], and
// safe for concurrent use.
type Client struct {
	conn  grpc.ClientConnInterface
	owned io.Closer   // the connection, if Dial made it
	ready atomic.Bool // the connection is known to have our options
}

// NewClient returns a client on a connection that was dialled with [DialOptions]. On one
// that was not every call fails, and says so; for that each is preceded, until one
// succeeds, by a call of a method that there is not, which only interceptors get to see
// that were given before. The connection stays the caller's.
func NewClient(conn grpc.ClientConnInterface) *Client { return &Client{conn: conn} }

// Close closes the connection that [Dial] made; one that was given to [NewClient] it
// leaves alone.
func (c *Client) Close() error {
	if c == nil || c.owned == nil {
		return nil
	}
	return c.owned.Close()
}

// usable returns why the client cannot be used for a call; nil if it can.
func (c *Client) usable(ctx context.Context) error {
	switch {
	case ctx == nil:
		return errors.New("the context is nil")
	case c == nil:
		return errors.New("the client is nil")
	case c.ready.Load():
		return nil
	}
	if gone, ok := c.conn.(*grpc.ClientConn); c.conn == nil || ok && gone == nil {
		return errors.New("the connection is nil")
	}
	if err := recognise(ctx, c.conn); err != nil {
		return err
	}
	c.ready.Store(true)
	return nil
}

// Ready asks the gateway whether it and its executors are ready, by Jina's dry_run, and
// returns nil if they are. gRPC's own retry repeats the question, under the params of
// [DialOptions] but for Timeout; the context alone bounds it. An executor that is not
// ready is an [ExecutorError], all else an [Error].
func (c *Client) Ready(ctx context.Context) error {
	const endpoint = "dry_run"
	if err := c.usable(ctx); err != nil {
		return badInput(endpoint, err)
	}
	var trailer metadata.MD
	answer, err := jinapb.NewJinaGatewayDryRunRPCClient(c.conn).DryRun(ctx, &emptypb.Empty{}, grpc.Trailer(&trailer))
	if err != nil {
		return newError(ctx, endpoint, "", trailer, err)
	}
	return executorError(answer, endpoint, "")
}
