// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jina

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/seed98143e88/grpcretry"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

// What is kept of requests without an answer, so that they can be sent again.
const (
	maxUnanswered = 16 << 20 // bytes of one stream; the next request waits for an answer
	maxKept       = 1 << 30  // bytes of all streams of a connection
)

// DialOptions returns the options that install a [Client]'s retries on a connection:
// process_single_data and the streams of Call are retried by a [grpcretry.Retrier] under
// the params, and dry_run, _status and endpoint_discovery, which change nothing, by
// gRPC's own retry. No method has both, so that attempts do not multiply. All other
// methods are under the params without Timeout, and are repeated once they may have run
// only if they are declared with an idempotency_level.
//
// As in Jina's client, messages may have any size, and an idle connection is probed
// every 10 seconds. Options given after these win.
//
// Options of the Retrier come after those of the params: an Observer, for one. A
// service config, for balancing, must be given by [grpcretry.WithServiceConfig], since
// gRPC's own retry has one already. A [grpcretry.WithBuffer] replaces the buffer in which
// all requests of a stream that have no answer find room, up to 1 GiB for all streams of
// the connection: one that finds none is not sent again, and ends a Post that fails.
//
// Params that cannot be used are an error that names every field, with its value.
func DialOptions(params Params, opts ...grpcretry.Option) ([]grpc.DialOption, error) {
	if err := params.problems(); err != nil {
		return nil, fmt.Errorf("jina: %w", err)
	}
	all := append(params.options(), opts...)
	retrier, err := grpcretry.New(all...)
	if err != nil {
		return nil, fmt.Errorf("jina: %w", err)
	}
	return append([]grpc.DialOption{
		grpc.WithChainUnaryInterceptor(answerProbe),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		// Jina's client says 9999 ms, which gRPC for Go makes 10 s.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time:                10 * time.Second,
			Timeout:             4999 * time.Millisecond,
			PermitWithoutStream: true,
		}),
	}, retrier.DialOptions()...), nil
}

// options returns the params as options of a Retrier.
func (p Params) options() []grpcretry.Option {
	others := p.unary()
	others.Repeat, others.AttemptTimeout = grpcretry.RepeatIfIdempotent, 0
	options := []grpcretry.Option{
		grpcretry.WithPolicy(others),
		grpcretry.WithMethodPolicy(jinapb.JinaSingleDataRequestRPC_ProcessSingleData_FullMethodName, p.unary()),
		grpcretry.WithMethodPolicy(jinapb.JinaRPC_Call_FullMethodName, p.stream()),
		grpcretry.WithBuffer(grpcretry.Buffer{Memory: math.MaxInt64, Total: maxKept}),
	}
	if p.MaxAttempts < 2 {
		return options
	}
	for _, method := range []string{
		jinapb.JinaGatewayDryRunRPC_DryRun_FullMethodName,
		jinapb.JinaInfoRPC_XStatus_FullMethodName,
		jinapb.JinaDiscoverEndpointsRPC_EndpointDiscovery_FullMethodName,
	} {
		options = append(options, grpcretry.WithMethodPolicy(method, p.channel()), grpcretry.WithChannelRetry(method))
	}
	return options
}

// ServiceConfig returns the service config that Jina's client gives to its channel, in a
// form that gRPC takes in all languages: for clients in which nothing else retries. It
// covers every method, and is "{}" unless there is more than one attempt. gRPC makes no
// more than five unless it is told otherwise. It fails as [DialOptions] does.
func ServiceConfig(params Params) (string, error) {
	if err := params.problems(); err != nil {
		return "", fmt.Errorf("jina: %w", err)
	}
	if params.MaxAttempts < 2 {
		return "{}", nil
	}
	retrier, err := grpcretry.New(grpcretry.WithPolicy(params.channel()))
	if err != nil {
		return "", fmt.Errorf("jina: %w", err)
	}
	return retrier.ServiceConfig(), nil
}

// Dial returns a client with a connection of its own, which [Client.Close] closes. The
// target is one of [grpc.NewClient], with credentials among the options; or, as Jina's
// client has it, grpc://host:port, which is not encrypted, or grpcs://host:port, which
// uses TLS with the system's certificates. Nothing is sent yet.
//
// It is [DialOptions], grpc.NewClient and [NewClient] in one, without options of the
// Retrier. The options come after those of DialOptions, and win.
func Dial(target string, params Params, opts ...grpc.DialOption) (*Client, error) {
	options, err := DialOptions(params)
	if err != nil {
		return nil, err
	}
	target, secured, err := parseTarget(target)
	if err != nil {
		return nil, fmt.Errorf("jina: %w", err)
	}
	if secured != nil {
		options = append(options, grpc.WithTransportCredentials(secured))
	}
	conn, err := grpc.NewClient(target, append(options, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("jina: dialling %q: %w", target, err)
	}
	client := &Client{conn: conn, owned: conn}
	client.ready.Store(true)
	return client, nil
}

// parseTarget returns the target of gRPC that one of Jina's is, and its credentials; nil
// for one that is gRPC's already.
func parseTarget(target string) (string, credentials.TransportCredentials, error) {
	scheme, address, found := strings.Cut(target, "://")
	if !found {
		return target, nil, nil
	}
	var secured credentials.TransportCredentials
	switch strings.ToLower(scheme) {
	case "grpc":
		secured = insecure.NewCredentials()
	case "grpcs":
		secured = credentials.NewTLS(nil)
	case "http", "https", "ws", "wss":
		return "", nil, fmt.Errorf("the target %q is not of gRPC, which is all that there is here", target)
	default:
		return target, nil, nil
	}
	host, port, err := net.SplitHostPort(strings.TrimSuffix(address, "/"))
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || host == "" || strings.ContainsAny(host, "/ ?#@") {
		return "", nil, fmt.Errorf("the target %q must have the form %s://host:port", target, scheme)
	}
	return "dns:///" + net.JoinHostPort(host, port), secured, nil
}

// probe is a call option by which [answerProbe] knows a call that asks whether it is
// there. gRPC ignores it.
type probe struct {
	grpc.EmptyCallOption

	answered bool
}

// probeMethod is none that a server has.
const probeMethod = "/jina.DialOptions/are_there"

// answerProbe passes all calls on but probes.
func answerProbe(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	if method == probeMethod {
		for _, opt := range opts {
			if p, ok := opt.(*probe); ok {
				p.answered = true
				return nil
			}
		}
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}

// errNoOptions is the error of calls on a connection that lacks our options.
var errNoOptions = errors.New("the connection was not dialled with the options of jina.DialOptions")

// probeTimeout bounds a probe that goes astray.
const probeTimeout = 5 * time.Second

// recognise returns an error if a connection was not dialled with our options. If it was
// not, the probe gets as far as gRPC, which refuses it for its metadata, or where an
// interceptor has replaced them, for its compressor, before anything is sent.
func recognise(ctx context.Context, conn grpc.ClientConnInterface) error {
	// What the context has an interceptor may need; but whether the options are there
	// does not depend on how long it lasts.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	ctx = metadata.NewOutgoingContext(ctx, metadata.MD{"": {""}})
	var p probe
	err := conn.Invoke(ctx, probeMethod, &emptypb.Empty{}, &emptypb.Empty{}, &p, grpc.UseCompressor(probeMethod))
	if !p.answered {
		return fmt.Errorf("%w (asking for them: %w)", errNoOptions, err)
	}
	return nil
}
