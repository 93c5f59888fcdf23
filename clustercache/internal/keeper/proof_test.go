// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// late makes the server's watches that continue a state bring what has changed
// since only after a delay; for ever if it is negative.
func late(s *pooltest.Server, delay time.Duration) {
	s.Set(func(s *pooltest.Server) {
		s.Accepted = func(verb string, w *pooltest.Watch) {
			held := w.Data
			if verb != "watch" || len(held) == 0 {
				return
			}
			w.Data = nil
			if delay >= 0 {
				time.AfterFunc(delay, func() { w.Push(held) })
			}
		}
	})
}

// changes are what may happen to a server between two processes.
func changes() map[string]func(s *pooltest.Server) {
	return map[string]func(s *pooltest.Server){
		"deleted": func(s *pooltest.Server) { s.Delete("ns", "w1") },
		"changed": func(s *pooltest.Server) { s.Put("ns", "w2", 1000) },
		"created": func(s *pooltest.Server) { s.Put("ns", "new", 1) },
		"created and deleted": func(s *pooltest.Server) {
			s.Put("ns", "new", 1)
			s.Put("ns", "w2", 1000)
			s.Delete("ns", "new")
		},
		"deleted and created": func(s *pooltest.Server) {
			s.Delete("ns", "w1")
			s.Put("ns", "w1", 1000)
		},
		"elsewhere only": func(s *pooltest.Server) { s.Set(func(s *pooltest.Server) { s.Version += 10 }) },
	}
}

// TestKeptStateIsSyncedOnlyOnceProven: however late the stream is that
// continues a kept state, what was deleted or changed meanwhile is never
// shown, and a state never counts as seen later than its server was asked.
func TestKeptStateIsSyncedOnlyOnceProven(t *testing.T) {
	for name, change := range changes() {
		for _, delay := range []time.Duration{
			0, 200 * time.Millisecond, 400 * time.Millisecond,
			time.Second, 3 * time.Second, 9 * time.Second, 11 * time.Second, -1,
		} {
			t.Run(fmt.Sprint(name, " ", delay), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, disk := filled(20), newMemory()
					first := start(t, s, disk, nil)
					first.synced()
					first.stop()
					requests(s)
					change(s)
					late(s, delay)
					time.Sleep(time.Hour)

					second := start(t, s, disk, nil)
					defer second.stop()
					began := time.Now()
					l := pooltest.Acquire(t, second.pool, pooltest.Everything)
					events := pooltest.Record(t, second.pool, l)
					require.NoError(t, l.WaitForSync(t.Context()))
					took := time.Since(began)
					require.Equal(t, s.State(nil), pooltest.Contents(t, l))
					if second.pool.Totals().Restores == 1 {
						require.Zero(t, l.Status().LastSeen.Sub(began), "the server was asked then")
						require.True(t, name == "elsewhere only" || took == delay, took)
					}
					synctest.Wait()
					require.Equal(t, s.State(nil), events.State())
					require.Equal(t, len(s.State(nil)), events.Count(), "nothing else was ever shown")

					proven := delay >= 0 && delay < 10*time.Second || name == "elsewhere only"
					require.Equal(t, proven, second.pool.Totals().Restores == 1)
					require.Equal(t, proven, requests(s)["stream"] == 0)
					require.LessOrEqual(t, took, 11*time.Second)
				})
			})
		}
	}
}
