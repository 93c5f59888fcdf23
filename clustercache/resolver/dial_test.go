// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

func requireRefused(t testing.TB, err error) {
	t.Helper()
	_, refused := errors.AsType[*resolver.RefusedError](err)
	require.True(t, refused, "%v", err)
}

func TestDialPolicyRefusesAddressesInAllSpellings(t *testing.T) {
	policy := resolver.DialPolicy{Deny: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}}
	for _, address := range []string{
		"169.254.169.254:443", "169.254.0.1:6443", "[::ffff:169.254.169.254]:443", "[::ffff:a9fe:a9fe]:443", "[::169.254.169.254]:443",
		"[64:ff9b::a9fe:a9fe]:443", "[64:ff9b:1::a9fe:a9fe]:443", "[2002:a9fe:a9fe::]:443", "[::ffff:0:169.254.169.254]:443",
		"[fe80::1]:443", "[fe80::1%lo]:443", "[febf::1]:443", "[fec0::1]:443", "[fd00:ec2::254]:443", "[fd00:ec2::23]:443", "[fd20:ce::254]:443",
		"100.100.100.200:443", "168.63.129.16:443", "192.0.0.192:443", "0.0.0.0:443", "[::]:443", "0.1.2.3:443", "[::ffff:0.0.0.0]:443",
		"224.0.0.1:443", "[ff02::1]:443", "255.255.255.255:443", "240.0.0.1:443",
		"127.0.0.1:443", "127.9.9.9:443", "[::1]:443", "[::ffff:127.0.0.1]:443", "10.96.0.1:443", "[::ffff:10.96.0.1]:443",
	} {
		target := netip.MustParseAddrPort(address)
		requireRefused(t, policy.Check(target))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := policy.Dialer()(ctx, "tcp", address)
		cancel()
		requireRefused(t, err)
	}
	for _, address := range []string{"10.0.0.1:6443", "192.168.1.1:6443", "172.16.0.1:443", "1.1.1.1:443", "[2001:db8::1]:443", "[fd00::1]:443", "100.64.0.1:443"} {
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
	for _, hub := range []string{address, "https://" + address, "https://" + address + "/prefix", "localhost:" + port, "[::ffff:127.0.0.1]:" + port} {
		for range 2 {
			_, err := resolver.DialPolicy{AllowLoopback: true, Hub: []string{hub}}.Dialer()(t.Context(), "tcp4", "localhost:"+port)
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
	access, err := resolver.FromToken(resolver.Endpoint{Server: "https://127.0.0.1:6443"}, canaryToken, resolver.Allow{})
	require.NoError(t, err)
	config := access.Config()
	config.Dial = resolver.DialPolicy{}.Dialer()
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host, nil)
	require.NoError(t, err)
	_, err = client.Do(request) //nolint:bodyclose // there is none
	requireRefused(t, err)
	requireNoCanary(t, err.Error())
}
