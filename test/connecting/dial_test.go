// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// written is access from a Secret of an untrusted author.
func written(server string) resolver.Func {
	return func(context.Context, client.ObjectKey) (resolver.Access, error) {
		return resolver.FromToken(resolver.Endpoint{Server: server}, "canary-token", resolver.Allow{})
	}
}

// attempted engages the cluster, and returns its status after the first
// attempt.
func attempted(t *testing.T, o clustercache.Options) status.Cluster {
	t.Helper()
	cc := fleettest.Start(t, o)
	require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
	require.Eventually(t, func() bool { return fleettest.Status(t, cc).LastError != nil }, 30*time.Second,
		10*time.Millisecond)
	return fleettest.Status(t, cc)
}

// contacts counts connections to a listener on loopback.
func contacts(t *testing.T) (address string, count *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	count = &atomic.Int64{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			count.Add(1)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return listener.Addr().String(), count
}

// answerDNS makes every name resolve to the address, until the test ends.
func answerDNS(t *testing.T, address string) {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) == 0 {
				continue
			}
			m.Response, m.Additionals = true, nil
			q, addr := m.Questions[0], netip.MustParseAddr(address)
			header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
			switch {
			case q.Type == dnsmessage.TypeA && addr.Is4():
				m.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}}}
			case q.Type == dnsmessage.TypeAAAA && addr.Is6():
				m.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}}}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = server.WriteTo(out, from)
			}
		}
	}()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		_ = server.Close()
		<-done
	})
}

func TestAddressesThatOthersWroteAreJudgedWhenTheyAreDialled(t *testing.T) {
	refused := func(t *testing.T, o clustercache.Options) {
		t.Helper()
		s := attempted(t, o)
		require.Equal(t, status.PhaseRefused, s.Phase, "%v", s.LastError)
		require.Equal(t, status.ReasonRefused, s.Reason)
		_, ok := errors.AsType[*resolver.RefusedError](s.LastError)
		require.True(t, ok, "%v", s.LastError)
		require.NotContains(t, s.LastError.Error(), "canary")
	}
	for _, server := range []string{
		"https://169.254.169.254", "https://169.254.169.254:6443", "https://[::ffff:169.254.169.254]",
		"https://[64:ff9b::a9fe:a9fe]",
	} {
		t.Run(server, func(t *testing.T) { refused(t, fleettest.Silent(written(server))) })
	}
	for _, address := range []string{
		"169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "fe80::1",
		"fd00:ec2::254", "100.100.100.200", "0.0.0.0",
		"224.0.0.1",
	} {
		t.Run("name of "+address, func(t *testing.T) {
			answerDNS(t, address)
			refused(t, fleettest.Silent(written("https://innocent.example.com")))
		})
	}
	t.Run("hub", func(t *testing.T) {
		address, count := contacts(t)
		o := fleettest.Silent(written("https://" + address))
		o.DialPolicy.Hub = []string{"https://" + address}
		refused(t, o)
		require.Zero(t, count.Load())
	})
	t.Run("hub in a Pod, by name", func(t *testing.T) {
		address, count := contacts(t)
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
		t.Setenv("KUBERNETES_SERVICE_PORT", port)
		o := fleettest.Silent(written("https://kubernetes.example.com:" + port))
		o.DialPolicy.AllowLoopback = true
		answerDNS(t, "127.0.0.1")
		refused(t, o)
		require.Zero(t, count.Load())
	})
	t.Run("loopback in a Pod", func(t *testing.T) {
		address, count := contacts(t)
		t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
		t.Setenv("KUBERNETES_SERVICE_PORT", "443")
		refused(t, fleettest.Silent(written("https://"+address)))
		require.Zero(t, count.Load())
	})
}

func TestAddressesThatAreAllowedAreDialled(t *testing.T) {
	t.Run("loopback outside of a Pod", func(t *testing.T) {
		address, count := contacts(t)
		require.Equal(t, status.PhaseDisconnected,
			attempted(t, fleettest.Silent(written("https://"+address))).Phase)
		require.Positive(t, count.Load())
	})
	t.Run("the operator's own code, in a Pod, even to the hub", func(t *testing.T) {
		address, count := contacts(t)
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
		t.Setenv("KUBERNETES_SERVICE_PORT", port)
		d := fleettest.NewDirectory()
		api := fleettest.NewAPI(t, "uid-a")
		config := api.Config()
		config.Host, config.Dial = "https://"+address, nil
		d.Set(fleettest.Key("a"), config)
		require.Equal(t, status.PhaseDisconnected, attempted(t, fleettest.Silent(d)).Phase)
		require.Positive(t, count.Load())
	})
	t.Run("Options.Dial has the say", func(t *testing.T) {
		dialled := make(chan string, 100)
		o := fleettest.Silent(written("https://198.51.100.1"))
		o.DialPolicy.Deny = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
		o.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
			dialled <- address
			return nil, errors.New("no tunnel")
		}
		require.Equal(t, status.PhaseDisconnected, attempted(t, o).Phase)
		require.Equal(t, "198.51.100.1:443", <-dialled)
	})
}
