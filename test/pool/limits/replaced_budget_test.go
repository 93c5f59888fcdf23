// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestHazardFullInformerNeverListsAnotherHistory: the informer holds objects of
// a history that is over, and beside them there is no room for those of the
// current one.
func TestHazardFullInformerNeverListsAnotherHistory(t *testing.T) {
	const budget, size, number = 40_000, 1000, 20
	long := func(i int) string { return "l=" + pooltest.Noise(i, 2*size) } // of digits that take four bits
	fill := func(s *pooltest.Server, value int) {
		for i := range number {
			s.Put("ns", fmt.Sprint("o", i), value, long(1000*value+i))
		}
	}
	for name, change := range map[string]struct {
		fill  func(s *pooltest.Server)
		leave func(s *pooltest.Server, before *pooltest.Server)
	}{
		"switched": {
			func(s *pooltest.Server) { fill(s, 1) },
			func(s *pooltest.Server, _ *pooltest.Server) { s.Become("b", 50); fill(s, 2) },
		},
		"switched to other names": {
			func(s *pooltest.Server) { fill(s, 1) },
			func(s *pooltest.Server, _ *pooltest.Server) {
				s.Become("b", 5000)
				for i := range number {
					s.Put("ns", fmt.Sprint("other", i), 2, long(3000+i))
				}
			},
		},
		"restored": {
			func(s *pooltest.Server) {
				for i := range 2 * number {
					s.Put("ns", fmt.Sprint("creep", i), 2, long(4000+i))
				}
			},
			func(s *pooltest.Server, before *pooltest.Server) {
				s.Restore(before, 0)
				s.Put("ns", "kept", 3, "big="+pooltest.Noise(0, 4*size))
			},
		},
	} {
		for _, paged := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s paged %t", name, paged), func(t *testing.T) {
				pooltest.Bubble(t, func(o *informerpool.Options) {
					o.MaxClusterBytes, o.PagedLists = budget, paged
				}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
					s.Put("ns", "kept", 1)
					before := pooltest.Copy(s)
					s.Put("ns", "kept", 2)
					l := pooltest.AcquireSynced(t, p, pooltest.Everything)
					r := pooltest.NewRecorder()
					r.Epochs = true
					pooltest.Subscribe(t, p, l, r)
					change.fill(s)
					pooltest.After(time.Minute)
					change.leave(s, before)
					for range 300 {
						require.LessOrEqual(t, l.Status().Bytes, int64(budget))
						pooltest.After(time.Second)
					}
					require.NoError(t, l.Trust(0))
					require.Equal(t, s.State(nil), pooltest.Contents(t, l))
					require.Equal(t, s.State(nil), r.State())
					r.RequireSound(t)
				})
			})
		}
	}
}

// TestHazardFullInformersNeverListAnotherHistory: several informers of one
// cluster share the budget, and each gives up its objects of the old history.
func TestHazardFullInformersNeverListAnotherHistory(t *testing.T) {
	const budget, size, number = 80_000, 1000, 10
	fill := func(s *pooltest.Server, history int) {
		for ns := range 5 {
			for i := range number {
				s.Put(fmt.Sprint("ns", ns), fmt.Sprint("o", i), 1, "l="+pooltest.Noise(100*history+number*ns+i, 2*size))
			}
		}
	}
	pooltest.Bubble(t, func(o *informerpool.Options) { o.MaxClusterBytes = budget }, func(t *testing.T,
		s *pooltest.Server, p *informerpool.Pool) {
		fill(s, 1)
		var leases []*informerpool.Lease
		for ns := range 5 {
			leases = append(leases, pooltest.AcquireSynced(t, p, pooltest.In(fmt.Sprint("ns", ns))))
		}
		synctest.Wait()
		full := p.ClusterSummary(pooltest.Everything.Cluster).Bytes
		require.Greater(t, full, int64(budget*4/5))
		s.Become("b", 50)
		fill(s, 2)
		pooltest.After(3 * time.Minute)
		for _, l := range leases {
			require.NoError(t, l.Trust(0))
			require.Len(t, pooltest.Contents(t, l), number)
		}
		require.LessOrEqual(t, p.ClusterSummary(pooltest.Everything.Cluster).Bytes, full)
	})
}
