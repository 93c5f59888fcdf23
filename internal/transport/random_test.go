// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRandomLifeLeavesNothingBehind applies random operations in random order.
// Every failure must be a classified *Error, counts must return to zero, and
// Close must leave neither goroutines nor connections: otherwise the bubble
// would not end.
func TestRandomLifeLeavesNothingBehind(t *testing.T) {
	for seed := range uint64(4) {
		bubbles(t, func(t *testing.T, http2 bool) { randomLife(t, http2, seed) })
	}
}

func randomLife(t *testing.T, http2 bool, seed uint64) {
	n := newMemnet(t, http2, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			time.Sleep(20 * time.Millisecond)
		case "/goaway":
			w.Header().Set("Connection", "close")
		case "/unauthorized":
			w.WriteHeader(http.StatusUnauthorized)
		default:
			hangOrStream(w, r)
		}
	})
	s := connect(t, Options{Dial: n.dial, QPS: 500, Burst: 10}, n.config())
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	errs := make(chan error, 10000)
	for i := range 8 {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		workers.Go(func() {
			for ctx.Err() == nil {
				if err := randomRequest(ctx, s, random); err != nil {
					errs <- err
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(seed, 99))
	for i := range 100 {
		randomEvent(t, s, n, random, i)
		time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond)
	}
	stop()
	t.Cleanup(func() { time.Sleep(time.Second) }) // lets the server's slow handlers end
	if seed%2 == 0 {
		s.Close() // before the workers have noticed the end
	}
	workers.Wait()
	s.Close()
	close(errs)
	for err := range errs {
		var e *Error
		require.ErrorAs(t, err, &e)
		require.NotEqual(t, Unknown, e.Class, "seed %d: %v: %v", seed, err, unredacted(e.Err))
	}
	require.Zero(t, s.Streams())
	require.Zero(t, generations(s))
	require.Zero(t, n.open.Load())
}

func randomRequest(ctx context.Context, s *Transport, random *rand.Rand) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(random.IntN(50))*time.Millisecond+1)
	defer cancel()
	paths := []string{"/version", "/slow", "/hang", "/goaway", "/unauthorized", "/api/v1/pods?watch=1"}
	resp, err := get(ctx, s, paths[random.IntN(len(paths))])
	if err != nil {
		time.Sleep(time.Millisecond)
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if random.IntN(4) == 0 {
		return nil // closed unread
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func randomEvent(t *testing.T, s *Transport, n *memnet, random *rand.Rand, i int) {
	t.Helper()
	switch random.IntN(9) {
	case 0:
		s.Shut(errGiveUp)
	case 1, 2, 3:
		s.Open()
	case 4:
		require.NoError(t, s.Swap(n.config(), strconv.Itoa(i)))
	case 5:
		s.CutStreams(s.Revision())
	case 6:
		n.vanish()
	case 7:
		c, err := s.Candidate(n.config(), fmt.Sprint("candidate ", i))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if _, err := c.Get(ctx, "/version"); err == nil && random.IntN(2) == 0 {
			require.NoError(t, c.Use())
		}
		c.Close()
	case 8:
		n.blackhole()
	}
}

// unredacted returns the error behind the safe text.
func unredacted(err error) error {
	if hidden, ok := errors.AsType[*redacted](err); ok {
		return hidden.err
	}
	return err
}
