// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

func requireRefused(t testing.TB, err error) {
	t.Helper()
	_, refused := errors.AsType[*resolver.RefusedError](err)
	require.True(t, refused, "%v", err)
}

func TestDialPolicyRefusesAddressesInAllSpellings(t *testing.T) {
	policy := resolver.DialPolicy{Deny: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}}
	for _, address := range []string{
		"169.254.169.254:443", "169.254.0.1:6443", "[::ffff:169.254.169.254]:443", "[::ffff:a9fe:a9fe]:443",
		"[::169.254.169.254]:443",
		"[64:ff9b::a9fe:a9fe]:443", "[64:ff9b:1::a9fe:a9fe]:443", "[2002:a9fe:a9fe::]:443",
		"[::ffff:0:169.254.169.254]:443",
		"[fe80::1]:443", "[fe80::1%lo]:443", "[febf::1]:443", "[fec0::1]:443", "[fd00:ec2::254]:443",
		"[fd00:ec2::23]:443", "[fd20:ce::254]:443",
		"100.100.100.200:443", "168.63.129.16:443", "192.0.0.192:443", "0.0.0.0:443", "[::]:443", "0.1.2.3:443",
		"[::ffff:0.0.0.0]:443",
		"224.0.0.1:443", "[ff02::1]:443", "255.255.255.255:443", "240.0.0.1:443",
		"127.0.0.1:443", "127.9.9.9:443", "[::1]:443", "[::ffff:127.0.0.1]:443", "10.96.0.1:443",
		"[::ffff:10.96.0.1]:443",
	} {
		target := netip.MustParseAddrPort(address)
		requireRefused(t, policy.Check(target))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := policy.Dialer()(ctx, "tcp", address)
		cancel()
		requireRefused(t, err)
	}
	for _, address := range []string{"10.0.0.1:6443", "192.168.1.1:6443", "172.16.0.1:443", "1.1.1.1:443",
		"[2001:db8::1]:443", "[fd00::1]:443", "100.64.0.1:443"} {
		require.NoError(t, policy.Check(netip.MustParseAddrPort(address)), address)
	}
}

// listen accepts and closes connections on loopback.
func listen(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return listener.Addr().String()
}

func TestDialPolicyChecksWhatANameResolvesTo(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	address := listen(t)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)

	_, err = resolver.DialPolicy{}.Dialer()(t.Context(), "tcp", "localhost:"+port)
	requireRefused(t, err)
	conn, err := resolver.DialPolicy{AllowLoopback: true}.Dialer()(t.Context(), "tcp", "localhost:"+port)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

func TestDialPolicyRefusesTheHubHoweverItIsNamed(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	address := listen(t)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	for _, hub := range []string{address, "https://" + address, "https://" + address + "/prefix", "localhost:" + port,
		"[::ffff:127.0.0.1]:" + port} {
		for range 2 {
			_, err := resolver.DialPolicy{AllowLoopback: true, Hub: []string{hub}}.Dialer()(t.Context(),
				"tcp4", "localhost:"+port)
			requireRefused(t, err)
		}
	}
	for _, policy := range []resolver.DialPolicy{
		{AllowLoopback: true, Hub: []string{address}, AllowHub: true},
		{AllowLoopback: true, Hub: []string{"127.0.0.1:1", "127.0.0.2:" + port, "127.0.0.1"}},
	} {
		conn, err := policy.Dialer()(t.Context(), "tcp", address)
		require.NoError(t, err, "another port is another server")
		require.NoError(t, conn.Close())
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", port)
	_, err = resolver.DialPolicy{AllowLoopback: true}.Dialer()(t.Context(), "tcp", address)
	requireRefused(t, err)
}

func TestDialPolicyIsFoundInTheErrorOfARequest(t *testing.T) {
	access, err := resolver.FromToken(resolver.Endpoint{Server: "https://127.0.0.1:6443"},
		resolvertest.CanaryToken, resolver.Allow{})
	require.NoError(t, err)
	config := access.Config()
	config.Dial = resolver.DialPolicy{}.Dialer()
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host, nil)
	require.NoError(t, err)
	_, err = client.Do(request) //nolint:bodyclose // there is none
	requireRefused(t, err)
	resolvertest.RequireNoCanary(t, err.Error())
}

// nameServer answers every name with 192.0.2.1 unless it hangs.
type nameServer struct {
	hangs atomic.Bool
	asked atomic.Int64
}

// serveNames makes an in-memory name server the default one until the test
// ends.
func serveNames(t *testing.T) *nameServer {
	t.Helper()
	s := &nameServer{}
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: s.dial}
	t.Cleanup(func() { net.DefaultResolver = before })
	// The first look-up creates state in package net that all later ones share,
	// so it must not happen in a bubble.
	_, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip", "first.example.com")
	require.NoError(t, err)
	s.asked.Store(0)
	return s
}

func (s *nameServer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	s.asked.Add(1)
	if s.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	client, server := net.Pipe()
	go func() {
		defer func() { _ = server.Close() }()
		_ = answer(server)
	}()
	return client, nil
}

// answer answers one query in the TCP format.
func answer(conn net.Conn) error {
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return err
	}
	buf := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(conn, buf); err != nil {
		return err
	}
	var m dnsmessage.Message
	if err := m.Unpack(buf); err != nil {
		return err
	}
	if len(m.Questions) == 0 {
		return errors.New("no question")
	}
	m.Response, m.Additionals = true, nil
	if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
		header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
		m.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}}}}
	}
	out, err := m.Pack()
	if err != nil {
		return err
	}
	_, err = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...))
	return err
}

// TestHazardNameServerOfTheHubHoldsBackEveryDial guards against each dial of
// every remote cluster waiting five seconds for the name server.
func TestHazardNameServerOfTheHubHoldsBackEveryDial(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	policy := resolver.DialPolicy{AllowLoopback: true, Hub: []string{"https://hub.example.com:6443"}}

	t.Run("from the beginning", func(t *testing.T) {
		names := serveNames(t)
		names.hangs.Store(true)
		synctest.Test(t, func(t *testing.T) {
			dial := policy.Dialer()
			var dials sync.WaitGroup
			for range 50 {
				dials.Go(func() {
					begin := time.Now()
					_, err := dial(t.Context(), "tcp", "127.0.0.1:1")
					require.ErrorContains(t, err, "the hub's own address")
					require.LessOrEqual(t, time.Since(begin), time.Second)
				})
			}
			dials.Wait()
			time.Sleep(5 * time.Second) // the end of the look-up
			asked := names.asked.Load()
			require.LessOrEqual(t, asked, int64(10), "one for all: a few questions")
			begin := time.Now()
			_, err := dial(t.Context(), "tcp", "127.0.0.1:1")
			require.Error(t, err)
			require.Zero(t, time.Since(begin), "a failure stands for a while")
			require.Equal(t, asked, names.asked.Load())
			names.hangs.Store(false)
			time.Sleep(5 * time.Second)
			_, err = dial(t.Context(), "tcp", "127.0.0.1:1")
			require.ErrorContains(t, err, "connection refused", "dialled")
		})
	})
	t.Run("once the name is known", func(t *testing.T) {
		names := serveNames(t)
		synctest.Test(t, func(t *testing.T) {
			dial := policy.Dialer()
			_, err := dial(t.Context(), "tcp", "127.0.0.1:1")
			require.ErrorContains(t, err, "connection refused", "dialled")
			_, err = dial(t.Context(), "tcp", "192.0.2.1:6443")
			requireRefused(t, err)
			names.hangs.Store(true)
			for range 20 {
				time.Sleep(time.Minute)
				begin := time.Now()
				_, err := dial(t.Context(), "tcp", "127.0.0.1:1")
				require.ErrorContains(t, err, "connection refused", "dialled")
				require.Zero(t, time.Since(begin))
				_, err = dial(t.Context(), "tcp", "192.0.2.1:6443")
				requireRefused(t, err)
			}
			time.Sleep(10 * time.Second) // the end of the last look-up
		})
	})
}
