// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
)

// TestHazardFullInformerNeverListsAnotherHistory: the informer holds objects of
// a history that is over, and beside them there is no room for those of the
// current one.
func TestHazardFullInformerNeverListsAnotherHistory(t *testing.T) {
	const budget, size, number = 40_000, 1000, 20
	long := "l=" + strings.Repeat("x", size)
	fill := func(s *modelServer, value int) {
		for i := range number {
			s.put("ns", fmt.Sprint("o", i), value, long+fmt.Sprint(value, i))
		}
	}
	for name, change := range map[string]struct {
		fill  func(s *modelServer)
		leave func(s *modelServer, before *modelServer)
	}{
		"switched": {
			func(s *modelServer) { fill(s, 1) },
			func(s *modelServer, _ *modelServer) { s.become("b", 50); fill(s, 2) },
		},
		"switched to other names": {
			func(s *modelServer) { fill(s, 1) },
			func(s *modelServer, _ *modelServer) {
				s.become("b", 5000)
				for i := range number {
					s.put("ns", fmt.Sprint("other", i), 2, long+fmt.Sprint(i))
				}
			},
		},
		"restored": {
			func(s *modelServer) {
				for i := range 2 * number {
					s.put("ns", fmt.Sprint("creep", i), 2, long+fmt.Sprint(i))
				}
			},
			func(s *modelServer, before *modelServer) {
				s.restore(before, 0)
				s.put("ns", "kept", 3, "big="+strings.Repeat("y", 2*size))
			},
		},
	} {
		for _, paged := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s paged %t", name, paged), func(t *testing.T) {
				bubble(t, func(o *informerpool.Options) { o.MaxClusterBytes, o.PagedLists = budget, paged }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
					s.put("ns", "kept", 1)
					before := snapshot(s)
					s.put("ns", "kept", 2)
					l := acquireSynced(t, p, everything)
					r := newRecorder()
					r.epochs = true
					subscribe(t, p, l, r)
					change.fill(s)
					after(time.Minute)
					change.leave(s, before)
					for range 300 {
						require.LessOrEqual(t, l.Status().Bytes, int64(budget))
						after(time.Second)
					}
					require.NoError(t, l.Trust(0))
					require.Equal(t, s.state(nil), contents(t, l))
					require.Equal(t, s.state(nil), r.told())
					r.requireSound(t)
				})
			})
		}
	}
}

// TestHazardFullInformersNeverListAnotherHistory: several informers of one
// cluster share the budget, and each gives up its objects of the old history.
func TestHazardFullInformersNeverListAnotherHistory(t *testing.T) {
	const budget, size, number = 80_000, 1000, 11
	fill := func(s *modelServer) {
		for ns := range 5 {
			for i := range number {
				s.put(fmt.Sprint("ns", ns), fmt.Sprint("o", i), 1, "l="+strings.Repeat("x", size)+fmt.Sprint(ns, i))
			}
		}
	}
	bubble(t, func(o *informerpool.Options) { o.MaxClusterBytes = budget }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		fill(s)
		var leases []*informerpool.Lease
		for ns := range 5 {
			leases = append(leases, acquireSynced(t, p, in(fmt.Sprint("ns", ns))))
		}
		synctest.Wait()
		full := p.ClusterSummary(everything.Cluster).Bytes
		require.Greater(t, full, int64(budget*4/5))
		s.become("b", 50)
		fill(s)
		after(3 * time.Minute)
		for _, l := range leases {
			require.NoError(t, l.Trust(0))
			require.Len(t, contents(t, l), number)
		}
		require.LessOrEqual(t, p.ClusterSummary(everything.Cluster).Bytes, full)
	})
}
