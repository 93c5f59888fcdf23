// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
)

// TestRetireKeepsTheDeletesAlone: the informer of a lease with a paused handler
// ends at once, before and after the Evict that empties it. Objects that the
// handler received are deleted later; the others are never delivered.
func TestRetireKeepsTheDeletesAlone(t *testing.T) {
	for _, evicted := range []bool{false, true} {
		t.Run(fmt.Sprint("evicted ", evicted), func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				for i := range 3 {
					s.put("ns", fmt.Sprint("o", i), 1)
				}
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				var marked []string
				r.before = func(e informerpool.Event) {
					if e.Evicted {
						marked = append(marked, e.Old.GetName())
					}
				}
				sub := subscribe(t, p, l, r)
				synctest.Wait()
				require.Len(t, r.take(), 3)
				sub.Pause()
				s.delete("ns", "o0") // before the cluster is removed
				s.put("ns", "o1", 2)
				s.put("ns", "untold", 1)
				synctest.Wait()
				if evicted {
					s.set(func(s *modelServer) { s.block = hang() })
					p.Evict(everything.Cluster)
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
				require.Empty(t, r.told())
				require.Len(t, r.take(), 3)
				require.ElementsMatch(t, []string{"o1", "o2"}, marked, "o0 was deleted by itself")
				r.requireSound(t)
			})
		})
	}
}

// TestNothingIsToldAfterCloseOfWhatWasRetired: this includes the pending
// deletes.
func TestNothingIsToldAfterCloseOfWhatWasRetired(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l, other := acquireSynced(t, p, everything), acquireSynced(t, p, everything)
		r := newRecorder()
		sub := subscribe(t, p, l, r)
		require.NoError(t, sub.Add(other))
		synctest.Wait()
		require.Len(t, r.take(), 2)
		sub.Pause()
		l.Retire()
		s.put("ns", "b", 1)
		synctest.Wait()
		require.Len(t, p.Keys(), 1, "another lease is held")
		sub.Continue()
		synctest.Wait()
		require.Equal(t, []string{"Deleted ns/a@101", "Added ns/b@102"}, r.take())
		sub.Pause()
		other.Retire()
		require.NoError(t, sub.Close(context.Background()))
		sub.Continue()
		synctest.Wait()
		require.Empty(t, r.take())
	})
}
