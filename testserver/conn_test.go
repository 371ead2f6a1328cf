// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package testserver_test

import (
	"bytes"
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
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	testv1 "github.com/seed98143e88/grpcretry/proto/grpcretry/test/v1"
	"github.com/seed98143e88/grpcretry/testserver"
)

// bothNetworks runs a test in a bubble over memory, and outside over TCP.
func bothNetworks(t *testing.T, test func(t *testing.T, srv *testserver.Server)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, testserver.New(t)) })
	})
	t.Run("tcp", func(t *testing.T) { test(t, testserver.New(t, testserver.TCP())) })
}

func TestCut(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			bothNetworks(t, func(t *testing.T, srv *testserver.Server) {
				srv.Handle(s.method, answers(s.most(3)))
				srv.Script(s.method, testserver.Cut(), testserver.Cut().Received(1), testserver.Cut().SendHeader("k", "1"),
					testserver.Cut().Header("k", "1").Sent(s.most(2)), testserver.Cut().Applied(), testserver.Reset())
				cc := srv.Dial()
				header := []bool{false, false, true, true, false, false}
				for i := range header {
					o := s.call(t.Context(), cc, "a")
					assert.Equal(t, codes.Unavailable, status.Code(o.err), "%d: %v", i, o.err)
					if s.desc.ServerStreams || s.desc.ClientStreams {
						assert.Equal(t, header[i], o.header != nil, i)
					}
					if s.desc.ServerStreams && i == 3 {
						assert.Equal(t, []string{"1", "2"}, keysOf(o.replies))
					}
					assert.Empty(t, o.trailer)
				}
				all := srv.Attempts()
				require.Len(t, all, len(header), "a call was repeated below the client")
				for _, a := range all {
					assert.True(t, a.Cut, a)
					assert.Nil(t, a.Status)
					assert.False(t, a.Cancelled)
				}
				assert.NoError(t, s.call(t.Context(), cc, "a").err)
			})
		})
	}
}

// spy passes on the errors of a client's connection.
type spy struct {
	net.Conn

	errs chan error
}

func (s spy) Read(b []byte) (int, error)  { return s.note(s.Conn.Read(b)) }
func (s spy) Write(b []byte) (int, error) { return s.note(s.Conn.Write(b)) }

func (s spy) note(n int, err error) (int, error) {
	if err != nil {
		s.errs <- err
	}
	return n, err
}

// A client gets FIN from Cut and RST from Reset, also while it is sending. RST
// may show in its read or in its write: the kernel tells but one of them.
func TestCutAndResetOverTCP(t *testing.T) {
	for name, step := range map[string]testserver.Step{
		"FIN": testserver.Cut().Received(3),
		"RST": testserver.Reset().Received(3),
	} {
		t.Run(name, func(t *testing.T) {
			srv := testserver.New(t, testserver.TCP())
			srv.Script("", step)
			errs := make(chan error, 100)
			cc := srv.Dial(grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
				return spy{nc, errs}, err
			}))
			stream, err := testv1.NewTestServiceClient(cc).Exchange(t.Context())
			require.NoError(t, err)
			for err == nil {
				err = stream.Send(&testv1.Request{Payload: make([]byte, 20<<10)})
			}
			require.ErrorIs(t, err, io.EOF)
			_, err = stream.Recv()
			assert.Equal(t, codes.Unavailable, status.Code(err))
			if name == "FIN" {
				assert.Equal(t, io.EOF, <-errs)
				return
			}
			for err := range errs {
				if errors.Is(err, syscall.ECONNRESET) {
					return
				}
			}
		})
	}
}

// Messages of many frames, compressed or not, all arrive before the end.
func TestCutAfterLargeMessages(t *testing.T) {
	payload := make([]byte, 100<<10)
	_, _ = rand.Read(payload)
	for name, opts := range map[string][]grpc.CallOption{
		"plain": nil,
		"gzip":  {grpc.UseCompressor(gzip.Name)},
	} {
		t.Run(name, func(t *testing.T) {
			bothNetworks(t, func(t *testing.T, srv *testserver.Server) {
				srv.Script("", testserver.Cut().Sent(3))
				stream, err := testv1.NewTestServiceClient(srv.Dial()).Exchange(t.Context(), opts...)
				require.NoError(t, err)
				for range 3 {
					require.NoError(t, stream.Send(&testv1.Request{Payload: payload}))
					reply, err := stream.Recv()
					require.NoError(t, err)
					assert.True(t, bytes.Equal(payload, reply.GetPayload()))
				}
				_, err = stream.Recv()
				assert.Equal(t, codes.Unavailable, status.Code(err))
			})
		})
	}
}

// Other calls on the connection fail with it, but what they send meanwhile does
// not make the cut come early.
func TestCutBesideOtherCalls(t *testing.T) {
	bothNetworks(t, func(t *testing.T, srv *testserver.Server) {
		payload := bytes.Repeat([]byte("x"), 10<<10)
		srv.Handle(testv1.TestService_Download_FullMethodName, func(stream grpc.ServerStream) error {
			for {
				if err := stream.SendMsg(&testv1.Response{Payload: payload}); err != nil {
					return err
				}
			}
		})
		srv.Handle(testv1.TestService_Exchange_FullMethodName, answers(20))
		srv.Script(testv1.TestService_Exchange_FullMethodName, testserver.Cut().Sent(15))
		cc := srv.Dial()
		client := testv1.NewTestServiceClient(cc)
		noise, err := client.Download(t.Context(), &testv1.Request{})
		require.NoError(t, err)
		_, err = noise.Recv()
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() {
			var err error
			for err == nil {
				_, err = noise.Recv()
			}
			ended <- err
		}()
		assert.Len(t, shapes[3].call(t.Context(), cc, "a").replies, 15)
		assert.Equal(t, codes.Unavailable, status.Code(<-ended))
		srv.Await(t, testserver.Ended(2))
	})
}

// A client that reads nothing can hold up a promised message, not the server.
func TestCutEndsWithTheClient(t *testing.T) {
	bothNetworks(t, func(t *testing.T, srv *testserver.Server) {
		srv.Handle(testv1.TestService_Download_FullMethodName, func(stream grpc.ServerStream) error {
			return stream.SendMsg(&testv1.Response{Payload: make([]byte, 1<<20)})
		})
		srv.Script("", testserver.Cut().Sent(1))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := testv1.NewTestServiceClient(srv.Dial()).Download(ctx, &testv1.Request{})
		require.NoError(t, err)
		_, err = stream.Header()
		require.NoError(t, err)
		cancel()
		a := srv.Await(t, testserver.Ended(1))[0]
		assert.True(t, a.Cancelled)
		assert.False(t, a.Cut)
	})
}

// An encrypted connection can be cut, but not followed.
func TestCutEncrypted(t *testing.T) {
	creds, pool := selfSigned(t)
	srv := testserver.New(t, testserver.TCP(), testserver.ServerOptions(grpc.Creds(credentials.NewServerTLSFromCert(&creds))))
	srv.Script("", testserver.OK(), testserver.Cut(), testserver.Cut().Sent(1), testserver.Cut().SendHeader())
	cc := srv.Dial(grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(pool, "localhost")))
	require.NoError(t, shapes[0].call(t.Context(), cc, "a").err)
	assert.Equal(t, codes.Unavailable, status.Code(shapes[0].call(t.Context(), cc, "a").err))
	for range 2 {
		err := shapes[0].call(t.Context(), cc, "a").err
		assert.Equal(t, codes.Internal, status.Code(err))
		assert.ErrorContains(t, err, "the connection is encrypted")
	}
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{"localhost"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
