// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
)

// TestHazardQueueOfWhatCameAndWent: a handler that is slow, or stuck, need not
// receive objects that came and went meanwhile, and they must not accumulate,
// however many.
func TestHazardQueueOfWhatCameAndWent(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "told", 1)
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		sub := subscribe(t, p, l, r)
		synctest.Wait()
		r.take()
		sub.Pause()
		s.put("ns", "told", 2)
		s.put("ns", "kept", 1)
		marked := 0
		sub.After(l, func() { marked++ })
		long := strings.Repeat("n", 200)
		var before, heap int64
		for round := range 4 {
			for i := range 5000 {
				name := fmt.Sprint(long, i)
				s.put("ns", name, round)
				s.put("ns", "flaps", round)
				if i%50 == 0 {
					synctest.Wait()
				}
				s.delete("ns", name)
				s.delete("ns", "flaps")
				s.set(func(s *modelServer) { s.log = nil })
			}
			synctest.Wait()
			require.LessOrEqual(t, sub.Pending(), 4)
			if heap = liveHeap(); round == 0 {
				before = heap
			}
		}
		require.Less(t, heap-before, int64(1<<20))
		s.delete("ns", "told")
		s.put("ns", "again", 1)
		s.delete("ns", "again")
		s.put("ns", "again", 2)
		synctest.Wait()
		sub.Continue()
		synctest.Wait()
		require.Equal(t, 1, marked)
		require.Len(t, r.take(), 3)
		require.Equal(t, s.state(nil), r.told())
		require.Zero(t, sub.Pending())
		r.requireSound(t)
	})
}

// TestHazardNamesComeAndGoneAreKept: names of kinds and of informers must not
// accumulate.
func TestHazardNamesComeAndGoneAreKept(t *testing.T) {
	t.Run("informers", func(t *testing.T) {
		bubble(t, func(o *informerpool.Options) { o.Linger = -1 }, func(t *testing.T, _ *modelServer, p *informerpool.Pool) {
			for i := range 20 { // these stay, and have their audits before those of others
				acquireSynced(t, p, in(fmt.Sprint("stays", i)))
			}
			long := strings.Repeat("n", 200)
			var before, heap int64
			for round := range 4 {
				for i := range 2000 {
					l := acquireSynced(t, p, in(fmt.Sprint(long, round, "-", i)))
					l.Release()
				}
				synctest.Wait()
				if heap = liveHeapUnder(before + 4<<20); round == 0 {
					before = liveHeap()
				}
			}
			require.Less(t, heap, before+4<<20)
		})
	})
	t.Run("kinds that a server invents", func(t *testing.T) {
		bubble(t, nil, func(t *testing.T, _ *modelServer, _ *informerpool.Pool) {
			lists := 0
			p, err := informerpool.New(informerpool.Options{PagedLists: true, Source: &scripted{list: func() string {
				lists++
				return listOf(fmt.Sprint(strings.Repeat("Kind", 10_000), lists, "List"))
			}}})
			require.NoError(t, err)
			defer func() { require.NoError(t, p.Close(context.Background())) }()
			unnamed := everything
			unnamed.Kind = ""
			var before, heap int64
			for round := range 4 {
				for range 20 {
					l := acquire(t, p, unnamed)
					after(2 * time.Minute)
					l.ReleaseNow()
				}
				if heap = liveHeap(); round == 0 {
					before = heap
				}
			}
			require.Less(t, heap-before, int64(1<<20))
		})
	})
}

// TestHazardAuditRemembersAllThatChanges: the audit's list is slow, and objects
// of the kind come and go.
func TestHazardAuditRemembersAllThatChanges(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { o.AuditInterval, o.PagedLists = 24*time.Hour, true }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		more := hang()
		end := sync.OnceFunc(func() { close(more) })
		defer end()
		s.set(func(s *modelServer) {
			s.fail = func(verb string) error {
				if verb == "audit" {
					<-more
				}
				return nil
			}
		})
		p.AuditSoon(everything.Cluster)
		after(6 * time.Minute)
		require.Equal(t, 1, s.count("audit"))
		long := strings.Repeat("n", 200)
		var before int64
		for round := range 4 {
			for i := range 20_000 {
				name := fmt.Sprint(long, round, "-", i)
				s.put("ns", name, round)
				if i%50 == 0 {
					synctest.Wait()
				}
				s.delete("ns", name)
				s.set(func(s *modelServer) { s.log = nil })
			}
			synctest.Wait()
			if round == 0 {
				before = liveHeap()
			}
		}
		require.Less(t, liveHeap()-before, int64(8<<20))
		s.put("ns", "a", 2) // the list shows it, and the objects it is compared with do not
		synctest.Wait()
		end()
		after(time.Minute)
		require.EqualValues(t, 1, p.Totals().AuditFailures, "it is said that nothing was compared")
		require.Zero(t, p.Totals().AuditDifferences)
		s.set(func(s *modelServer) { s.deaf = true })
		s.put("ns", "missed", 1)
		s.set(func(s *modelServer) { s.deaf = false })
		s.speak(15)
		require.Equal(t, s.state(nil), contents(t, l), "the next one compares")
	})
}
