// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
)

// TestAfterComesBehindTheDeletesOfAnEvict: the handler is slow, and the
// informer has not even begun the Evict.
func TestAfterComesBehindTheDeletesOfAnEvict(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		for i := range 100 {
			s.put("ns", fmt.Sprint("o", i), 1)
		}
		l := acquireSynced(t, p, everything)
		deleted, slow := 0, make(chan struct{})
		sub := subscribe(t, p, l, informerpool.HandlerFunc(func(e informerpool.Event) {
			if e.Type == informerpool.Deleted {
				<-slow
				deleted++
			}
		}))
		synctest.Wait()
		var seen atomic.Int64
		s.set(func(s *modelServer) { s.block = hang() }) // otherwise the next list would undo the deletes
		p.Evict(everything.Cluster)
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
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l, other := acquireSynced(t, p, everything), acquireSynced(t, p, everything)
		r := newRecorder()
		sub := subscribe(t, p, l, r)
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
