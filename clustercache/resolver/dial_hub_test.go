// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

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
