// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestRetireKeepsTheDeletesAlone: the informer of a lease with a paused handler
// ends at once, before and after the Evict that empties it. Objects that the
// handler received are deleted later; the others are never delivered.
func TestRetireKeepsTheDeletesAlone(t *testing.T) {
	for _, evicted := range []bool{false, true} {
		t.Run(fmt.Sprint("evicted ", evicted), func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				for i := range 3 {
					s.Put("ns", fmt.Sprint("o", i), 1)
				}
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.NewRecorder()
				var marked []string
				r.Before = func(e informerpool.Event) {
					if e.Evicted {
						marked = append(marked, e.Old.GetName())
					}
				}
				sub := pooltest.Subscribe(t, p, l, r)
				synctest.Wait()
				require.Len(t, r.Take(), 3)
				sub.Pause()
				s.Delete("ns", "o0") // before the cluster is removed
				s.Put("ns", "o1", 2)
				s.Put("ns", "untold", 1)
				synctest.Wait()
				if evicted {
					s.Set(func(s *pooltest.Server) { s.Block = pooltest.Hang() })
					p.Evict(pooltest.Everything.Cluster)
					synctest.Wait()
				}
				l.Retire()
				l.Retire()
				l.Release()
				synctest.Wait()
				require.Empty(t, p.Keys(), "the informer does not linger")
				require.ErrorIs(t, l.WaitForSync(context.Background()), informerpool.ErrReleased)
				require.ErrorIs(t, sub.WaitForSync(context.Background(), l), informerpool.ErrReleased)
				require.Equal(t, 3, sub.Pending())

				sub.Continue()
				synctest.Wait()
				require.Empty(t, r.State())
				require.Len(t, r.Take(), 3)
				require.ElementsMatch(t, []string{"o1", "o2"}, marked, "o0 was deleted by itself")
				r.RequireSound(t)
			})
		})
	}
}

// TestNothingIsToldAfterCloseOfWhatWasRetired: this includes the pending
// deletes.
func TestNothingIsToldAfterCloseOfWhatWasRetired(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l, other := pooltest.AcquireSynced(t, p, pooltest.Everything), pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.NewRecorder()
		sub := pooltest.Subscribe(t, p, l, r)
		require.NoError(t, sub.Add(other))
		synctest.Wait()
		require.Len(t, r.Take(), 2)
		sub.Pause()
		l.Retire()
		s.Put("ns", "b", 1)
		synctest.Wait()
		require.Len(t, p.Keys(), 1, "another lease is held")
		sub.Continue()
		synctest.Wait()
		require.Equal(t, []string{"Deleted ns/a@101", "Added ns/b@102"}, r.Take())
		sub.Pause()
		other.Retire()
		require.NoError(t, sub.Close(context.Background()))
		sub.Continue()
		synctest.Wait()
		require.Empty(t, r.Take())
	})
}
