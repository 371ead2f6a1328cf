// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"fmt"
	"slices"

	"google.golang.org/grpc"
)

// Option changes how [New] and [Start] set up a server. TCP and ServerOptions
// make the only ones.
type Option interface {
	apply(*options)
}

type options struct {
	tcp    bool
	server []grpc.ServerOption
}

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

// TCP makes the server listen on a free port of 127.0.0.1. The default is an
// in-memory connection, which works inside a synctest bubble; TCP does not.
func TCP() Option {
	return optionFunc(func(o *options) { o.tcp = true })
}

// ServerOptions hands options to grpc.NewServer: message sizes, the limit of
// concurrent streams, keepalive, credentials. Several uses add up. The default
// is none.
//
// Every method is served through grpc.UnknownServiceHandler. So an
// UnknownServiceHandler given here is replaced, unary interceptors see nothing,
// and stream interceptors see every call, unary ones too.
func ServerOptions(opts ...grpc.ServerOption) Option {
	return optionFunc(func(o *options) { o.server = append(o.server, opts...) })
}

func gather(opts []Option) (options, error) {
	var o options
	for i, opt := range opts {
		if opt == nil {
			return o, fmt.Errorf("option %d is nil", i+1)
		}
		opt.apply(&o)
	}
	for i, opt := range o.server {
		if opt == nil {
			return o, fmt.Errorf("ServerOptions: option %d is nil", i+1)
		}
	}
	return o, nil
}

// newServer turns grpc's panics on options that contradict each other (a second
// tap handle, for one) into errors.
func (o options) newServer(handler grpc.StreamHandler) (server *grpc.Server, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("ServerOptions: grpc refuses them: %v", p)
		}
	}()
	// Ours comes last, since the last one wins.
	all := slices.Concat(o.server, []grpc.ServerOption{grpc.UnknownServiceHandler(handler)})
	return grpc.NewServer(all...), nil
}
