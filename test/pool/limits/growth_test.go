// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package limits_test

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
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestHazardQueueOfWhatCameAndWent: a handler that is slow, or stuck, need not
// receive objects that came and went meanwhile, and they must not accumulate,
// however many.
func TestHazardQueueOfWhatCameAndWent(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "told", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.NewRecorder()
		sub := pooltest.Subscribe(t, p, l, r)
		synctest.Wait()
		r.Take()
		sub.Pause()
		s.Put("ns", "told", 2)
		s.Put("ns", "kept", 1)
		marked := 0
		sub.After(l, func() { marked++ })
		long := strings.Repeat("n", 200)
		var before, heap int64
		for round := range 4 {
			for i := range 5000 {
				name := fmt.Sprint(long, i)
				s.Put("ns", name, round)
				s.Put("ns", "flaps", round)
				if i%50 == 0 {
					synctest.Wait()
				}
				s.Delete("ns", name)
				s.Delete("ns", "flaps")
				s.Set(func(s *pooltest.Server) { s.Log = nil })
			}
			synctest.Wait()
			require.LessOrEqual(t, sub.Pending(), 4)
			if heap = pooltest.LiveHeap(); round == 0 {
				before = heap
			}
		}
		require.Less(t, heap-before, int64(1<<20))
		s.Delete("ns", "told")
		s.Put("ns", "again", 1)
		s.Delete("ns", "again")
		s.Put("ns", "again", 2)
		synctest.Wait()
		sub.Continue()
		synctest.Wait()
		require.Equal(t, 1, marked)
		require.Len(t, r.Take(), 3)
		require.Equal(t, s.State(nil), r.State())
		require.Zero(t, sub.Pending())
		r.RequireSound(t)
	})
}

// TestHazardNamesComeAndGoneAreKept: names of kinds and of informers must not
// accumulate.
func TestHazardNamesComeAndGoneAreKept(t *testing.T) {
	t.Run("informers", func(t *testing.T) {
		pooltest.Bubble(t, func(o *informerpool.Options) { o.Linger = -1 }, func(t *testing.T, _ *pooltest.Server,
			p *informerpool.Pool) {
			for i := range 20 { // these stay, and have their audits before those of others
				pooltest.AcquireSynced(t, p, pooltest.In(fmt.Sprint("stays", i)))
			}
			long := strings.Repeat("n", 200)
			var before, heap int64
			for round := range 4 {
				for i := range 2000 {
					l := pooltest.AcquireSynced(t, p, pooltest.In(fmt.Sprint(long, round, "-", i)))
					l.Release()
				}
				synctest.Wait()
				if heap = pooltest.LiveHeapUnder(before + 4<<20); round == 0 {
					before = pooltest.LiveHeap()
				}
			}
			require.Less(t, heap, before+4<<20)
		})
	})
	t.Run("kinds that a server invents", func(t *testing.T) {
		pooltest.Bubble(t, nil, func(t *testing.T, _ *pooltest.Server, _ *informerpool.Pool) {
			lists := 0
			p, err := informerpool.New(informerpool.Options{PagedLists: true,
				Source: &pooltest.Scripted{Listed: func() string {
					lists++
					return pooltest.ListOf(fmt.Sprint(strings.Repeat("Kind", 10_000), lists, "List"))
				}}})
			require.NoError(t, err)
			defer func() { require.NoError(t, p.Close(context.Background())) }()
			unnamed := pooltest.Everything
			unnamed.Kind = ""
			var before, heap int64
			for round := range 4 {
				for range 20 {
					l := pooltest.Acquire(t, p, unnamed)
					pooltest.After(2 * time.Minute)
					l.ReleaseNow()
				}
				if heap = pooltest.LiveHeap(); round == 0 {
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
	pooltest.Bubble(t, func(o *informerpool.Options) { o.AuditInterval, o.PagedLists = 24*time.Hour, true }, func(
		t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		more := pooltest.Hang()
		end := sync.OnceFunc(func() { close(more) })
		defer end()
		s.Set(func(s *pooltest.Server) {
			s.Fail = func(verb string) error {
				if verb == "audit" {
					<-more
				}
				return nil
			}
		})
		p.AuditSoon(pooltest.Everything.Cluster)
		pooltest.After(6 * time.Minute)
		require.Equal(t, 1, s.Count("audit"))
		long := strings.Repeat("n", 200)
		var before int64
		for round := range 4 {
			for i := range 20_000 {
				name := fmt.Sprint(long, round, "-", i)
				s.Put("ns", name, round)
				if i%50 == 0 {
					synctest.Wait()
				}
				s.Delete("ns", name)
				s.Set(func(s *pooltest.Server) { s.Log = nil })
			}
			synctest.Wait()
			if round == 0 {
				before = pooltest.LiveHeap()
			}
		}
		require.Less(t, pooltest.LiveHeap()-before, int64(8<<20))
		s.Put("ns", "a", 2) // the list shows it, and the objects it is compared with do not
		synctest.Wait()
		end()
		pooltest.After(time.Minute)
		require.EqualValues(t, 1, p.Totals().AuditFailures, "it is said that nothing was compared")
		require.Zero(t, p.Totals().AuditDifferences)
		s.Set(func(s *pooltest.Server) { s.Deaf = true })
		s.Put("ns", "missed", 1)
		s.Set(func(s *pooltest.Server) { s.Deaf = false })
		s.Speak(15)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l), "the next one compares")
	})
}
