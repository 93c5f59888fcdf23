// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestAfterComesBehindTheDeletesOfAnEvict: the handler is slow, and the
// informer has not even begun the Evict.
func TestAfterComesBehindTheDeletesOfAnEvict(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for i := range 100 {
			s.Put("ns", fmt.Sprint("o", i), 1)
		}
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		deleted, slow := 0, make(chan struct{})
		sub := pooltest.Subscribe(t, p, l, informerpool.HandlerFunc(func(e informerpool.Event) {
			if e.Type == informerpool.Deleted {
				<-slow
				deleted++
			}
		}))
		synctest.Wait()
		var seen atomic.Int64
		s.Set(func(s *pooltest.Server) { s.Block = pooltest.Hang() }) // otherwise the next list would undo the deletes
		p.Evict(pooltest.Everything.Cluster)
		sub.After(l, func() {
			seen.Store(int64(deleted))
			l.Release() // as a caller that waits for it does; it drops undelivered changes
		})
		synctest.Wait()
		require.Zero(t, seen.Load())
		close(slow)
		synctest.Wait()
		require.EqualValues(t, 100, seen.Load())
	})
}

func TestAfterIsNowWhereNothingIsToldAndNeverAfterTheEnd(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l, other := pooltest.AcquireSynced(t, p, pooltest.Everything), pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.NewRecorder()
		sub := pooltest.Subscribe(t, p, l, r)
		synctest.Wait()
		var calls atomic.Int64
		count := func() { calls.Add(1) }
		sub.After(l, count)
		sub.After(other, count)
		sub.After(l, func() { panic("no") })
		sub.After(l, count)
		synctest.Wait()
		require.EqualValues(t, 3, calls.Load())
		require.EqualValues(t, 1, sub.Panics())

		sub.Pause()
		sub.After(l, count)
		l.Release()
		sub.After(l, count)
		sub.Continue()
		synctest.Wait()
		require.EqualValues(t, 3, calls.Load(), "released")
		require.NoError(t, sub.Close(context.Background()))
		sub.After(other, count)
		synctest.Wait()
		require.EqualValues(t, 3, calls.Load(), "closed")
	})
}
