// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// mute returns neither a body nor an error for some requests.
type mute struct {
	*pooltest.Server

	lists, watches atomic.Bool
}

func (s *mute) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if s.lists.Load() {
		return nil, nil
	}
	return s.Server.List(ctx, r)
}

func (s *mute) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if s.watches.Load() {
		return nil, nil
	}
	return s.Server.Watch(ctx, r)
}

// TestHazardSourceReturnsNothing: the informer says so, and tries again.
func TestHazardSourceReturnsNothing(t *testing.T) {
	for name, begin := range map[string]func(*mute){
		"list":  func(s *mute) { s.lists.Store(true) },
		"watch": func(s *mute) { s.watches.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, server *pooltest.Server, _ *informerpool.Pool) {
				s := &mute{Server: server}
				begin(s)
				server.Put("ns", "a", 1)
				var failed atomic.Int32
				p, err := informerpool.New(informerpool.Options{
					Source: s, PagedLists: true, AuditInterval: time.Minute,
					OnPanic: func(string) { failed.Add(1) },
				})
				require.NoError(t, err)
				defer func() { require.NoError(t, p.Close(context.Background())) }()
				l := pooltest.Acquire(t, p, pooltest.Everything)
				pooltest.After(10 * time.Minute)
				require.ErrorContains(t, l.Status().LastError, "neither a body nor an error")
				require.Zero(t, failed.Load())
				s.lists.Store(false)
				s.watches.Store(false)
				pooltest.After(10 * time.Minute)
				require.NoError(t, l.Status().LastError)
				require.Equal(t, server.State(nil), pooltest.Contents(t, l))
			})
		})
	}
}
