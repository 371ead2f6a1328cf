// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package grpcretry_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/seed98143e88/grpcretry"
	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
)

// callKey and attemptTag are the metadata by which a caller names its call, and
// the server the attempt whose header it sends.
const (
	callKey    = "x-call"
	attemptTag = "x-attempt"
)

// mortal is a gRPC server that is killed and comes back on the same port.
type mortal struct {
	addr   string
	creds  credentials.TransportCredentials
	calls  sync.Map // of *tcpCall by id: those that are not checked yet
	failf  func(format string, args ...any)
	life   int
	server *grpc.Server
	served chan error
}

// start begins a life.
func (m *mortal) start() error {
	listener, err := m.listen()
	if err != nil {
		return err
	}
	m.addr = listener.Addr().String()
	m.life++
	// Stop then returns when nobody will write to a record any more.
	m.server = grpc.NewServer(grpc.Creds(m.creds), grpc.WaitForHandlers(true))
	testv1.RegisterTestServiceServer(m.server, &lifetime{mortal: m, life: m.life})
	server, served := m.server, make(chan error, 1)
	m.served = served
	go func() { served <- server.Serve(listener) }()
	return nil
}

// listen tries again for a while: a connection of anybody's may have been given the
// port as its own while the server was away.
func (m *mortal) listen() (net.Listener, error) {
	var listener net.Listener
	var err error
	for range 200 {
		if listener, err = net.Listen("tcp", m.addr); err == nil {
			return listener, nil
		}
		<-time.After(10 * time.Millisecond)
	}
	return nil, err
}

// kill ends a life, and with it all connections and handlers.
func (m *mortal) kill() {
	m.server.Stop()
	// It may be stopped before it has begun to serve.
	if err := <-m.served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		m.failf("Serve: %v", err)
	}
}

// credentialsOf returns both sides' credentials: none, or TLS by a certificate that
// the server has signed itself.
func credentialsOf(t *testing.T) (server, client credentials.TransportCredentials) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	server = credentials.NewServerTLSFromCert(&tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key})
	return server, credentials.NewTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13})
}

// lifetime serves one life of a server.
type lifetime struct {
	testv1.UnimplementedTestServiceServer

	*mortal

	life int
}

// arrive takes down that an attempt is here. It returns nil for a call that was
// checked already.
func (l *lifetime) arrive(ctx context.Context) *arrival {
	id := metadata.ValueFromIncomingContext(ctx, callKey)
	if len(id) == 1 {
		if call, ok := l.calls.Load(id[0]); ok {
			return call.(*tcpCall).arrive(grpcretry.PreviousAttempts(ctx), l.life)
		}
	}
	l.failf("life %d: an attempt of call %v arrived after all had ended", l.life, id)
	return nil
}

// Put implements testv1.TestServiceServer.
func (l *lifetime) Put(ctx context.Context, request *testv1.Request) (response *testv1.Response, err error) {
	a := l.arrive(ctx)
	if a == nil {
		return nil, errUnknownCall
	}
	defer func() { a.end(err) }()
	if err = a.begin(ctx, func(md metadata.MD) error { return grpc.SetHeader(ctx, md) }); err != nil {
		return nil, err
	}
	if err = a.take(request); err != nil {
		return nil, err
	}
	return a.answer(0, a.hash.Sum(nil)), nil
}

// Download implements testv1.TestServiceServer.
func (l *lifetime) Download(request *testv1.Request, stream grpc.ServerStreamingServer[testv1.Response]) (err error) {
	a := l.arrive(stream.Context())
	if a == nil {
		return errUnknownCall
	}
	defer func() { a.end(err) }()
	if err = a.begin(stream.Context(), stream.SendHeader); err != nil {
		return err
	}
	start, err := a.start(request)
	if err != nil {
		return err
	}
	for i := start; i < a.call.responses(); i++ {
		if err = stream.Send(a.answer(i, a.call.payload(i))); err != nil {
			return err
		}
		if err = a.step(); err != nil {
			return err
		}
	}
	if a.call.protocol == watched {
		return await(stream)
	}
	return nil
}

// Upload implements testv1.TestServiceServer.
func (l *lifetime) Upload(stream grpc.ClientStreamingServer[testv1.Request, testv1.Response]) (err error) {
	a := l.arrive(stream.Context())
	if a == nil {
		return errUnknownCall
	}
	defer func() { a.end(err) }()
	if err = a.begin(stream.Context(), stream.SendHeader); err != nil {
		return err
	}
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(a.answer(0, a.hash.Sum(nil)))
		}
		if err != nil {
			return err
		}
		if err := a.take(request); err != nil {
			return err
		}
	}
}

// Exchange implements testv1.TestServiceServer.
func (l *lifetime) Exchange(stream grpc.BidiStreamingServer[testv1.Request, testv1.Response]) (err error) {
	a := l.arrive(stream.Context())
	if a == nil {
		return errUnknownCall
	}
	defer func() { a.end(err) }()
	if err = a.begin(stream.Context(), stream.SendHeader); err != nil {
		return err
	}
	if a.call.protocol == session {
		return a.session(stream)
	}
	for i := 0; ; i++ {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := a.take(request); err != nil {
			return err
		}
		if err := stream.Send(a.answer(i, request.GetPayload())); err != nil {
			return err
		}
	}
}

// answer makes the i-th response, which says which attempt it is from.
func (a *arrival) answer(i int, payload []byte) *testv1.Response {
	return &testv1.Response{Key: a.call.id, Sequence: int64(i), Payload: payload, Count: int64(a.previous + 1)}
}

// begin sends the header if the caller waits for it, and hangs if it is to.
func (a *arrival) begin(ctx context.Context, header func(metadata.MD) error) error {
	if a.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if a.call.header {
		return header(metadata.Pairs(attemptTag, strconv.Itoa(a.previous+1)))
	}
	return nil
}

// take takes down a request, which must be the next of the call's.
func (a *arrival) take(request *testv1.Request) error {
	a.call.expect(a.received, request, "attempt %d was sent", a.previous+1)
	a.received++
	addTo(a.hash, request)
	return a.step()
}

// step is called with each message. It fails if this is where the attempt is to.
func (a *arrival) step() error {
	a.call.step()
	if a.steps++; a.steps == a.failsAt {
		return errBusy
	}
	return nil
}
