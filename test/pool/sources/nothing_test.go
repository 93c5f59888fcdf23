// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sources_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// mute returns neither a body nor an error for some requests.
type mute struct {
	*pooltest.Server

	lists, watches bool
}

func (s *mute) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if s.lists {
		return nil, nil
	}
	return s.Server.List(ctx, r)
}

func (s *mute) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if s.watches {
		return nil, nil
	}
	return s.Server.Watch(ctx, r)
}

// TestHazardSourceReturnsNothing: the informer says so, and tries again.
func TestHazardSourceReturnsNothing(t *testing.T) {
	for name, s := range map[string]*mute{"list": {lists: true}, "watch": {watches: true}} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, server *pooltest.Server, _ *informerpool.Pool) {
				s.Server = server
				server.Put("ns", "a", 1)
				failed := 0
				p, err := informerpool.New(informerpool.Options{
					Source: s, PagedLists: true, AuditInterval: time.Minute,
					OnPanic: func(string) { failed++ },
				})
				require.NoError(t, err)
				defer func() { require.NoError(t, p.Close(context.Background())) }()
				l := pooltest.Acquire(t, p, pooltest.Everything)
				pooltest.After(10 * time.Minute)
				require.ErrorContains(t, l.Status().LastError, "neither a body nor an error")
				require.Zero(t, failed)
				s.lists, s.watches = false, false
				pooltest.After(10 * time.Minute)
				require.NoError(t, l.Status().LastError)
				require.Equal(t, server.State(nil), pooltest.Contents(t, l))
			})
		})
	}
}
