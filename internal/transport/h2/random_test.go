// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

// TestRandomLife runs many requests that end in every possible way, on
// connections that break, against net/http's server. Bodies that end without an
// error must be complete, and nothing may be left behind.
func TestRandomLife(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomLife(t, seed) })
	}
}

func randomLife(t *testing.T, seed uint64) {
	const workers, requests = 50, 20
	var breaking breaker
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hang":
			hang(w, r)
		case "/abort":
			w.WriteHeader(http.StatusOK)
			panic(http.ErrAbortHandler)
		default:
			count(w, r)
		}
	}, func(srv *http.Server, o *h2.Options) {
		srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 10}
		o.StreamWindow = 16 << 10
		o.ConnWindow = 64 << 10
		dial := o.Dial
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return breaking.add(dial(ctx, addr)) }
	})
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			for range requests {
				if err := s.randomRequest(t.Context(), rnd); err != nil {
					t.Error(err)
				}
				if rnd.IntN(100) == 0 {
					breaking.one(rnd)
				}
			}
		})
	}
	all.Wait()
	require.Zero(t, s.transport.Streams())
	s.transport.Retire()
	require.Zero(t, s.transport.Connections())
}

// randomRequest returns an error if something happened that must not.
func (s *served) randomRequest(ctx context.Context, rnd *rand.Rand) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := rnd.Int64N(100_000)
	path := fmt.Sprintf("/?n=%d", n)
	kind := rnd.IntN(6)
	switch kind {
	case 0:
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rnd.IntN(3000))*time.Microsecond)
		defer cancel()
		path = "/hang"
	case 1:
		path = "/abort"
	}
	resp, err := s.get(ctx, path)
	if err != nil {
		return unexpected(err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch kind {
	case 2:
		return nil // closed unread
	case 3:
		_, _ = io.CopyN(io.Discard, resp.Body, n/2)
		cancel()
	case 4:
		go cancel()
	}
	got, err := io.Copy(io.Discard, resp.Body)
	if err != nil {
		return unexpected(err)
	}
	if kind != 3 && (kind < 2 || got != n) {
		return fmt.Errorf("kind %d: a body of %d bytes has ended well after %d", kind, n, got)
	}
	return nil
}

// unexpected returns err unless it is one that this test provokes.
func unexpected(err error) error {
	if _, ok := errors.AsType[*h2.StreamError](err); ok {
		return nil
	}
	for _, known := range []error{context.Canceled, context.DeadlineExceeded, h2.ErrConnectionLost, h2.ErrUnprocessed} {
		if errors.Is(err, known) {
			return nil
		}
	}
	return err
}

// breaker breaks connections.
type breaker struct {
	mu    sync.Mutex // protects conns
	conns []net.Conn
}

func (b *breaker) add(nc net.Conn, err error) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if err == nil {
		b.conns = append(b.conns, nc)
	}
	return nc, err
}

func (b *breaker) one(rnd *rand.Rand) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if len(b.conns) > 0 {
		nc := b.conns[rnd.IntN(len(b.conns))]
		_ = nc.(interface{ NetConn() net.Conn }).NetConn().Close()
	}
}
