// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// frequent makes audits come before a new watch replaces a silent one.
func frequent(o *informerpool.Options) { o.AuditInterval = time.Minute }

// TestHazardServerDropsEventsAndSendsNoBookmark: the version that the informer
// has reached does not advance, and as of that version the server agrees with
// the cache.
func TestHazardServerDropsEventsAndSendsNoBookmark(t *testing.T) {
	for name, change := range map[string]func(s *pooltest.Server, i int){
		"update": func(s *pooltest.Server, i int) { s.Put("ns", "o1", i+2) },
		"create": func(s *pooltest.Server, i int) { s.Put("ns", fmt.Sprint("new", i), 1) },
		"delete": func(s *pooltest.Server, i int) { s.Delete("ns", fmt.Sprint("o", i)) },
		"again":  func(s *pooltest.Server, i int) { s.Delete("ns", "o1"); s.Put("ns", "o1", i) },
	} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, frequent, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				for i := range 20 {
					s.Put("ns", fmt.Sprint("o", i), 1)
				}
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.NewRecorder()
				r.Epochs = true
				pooltest.Subscribe(t, p, l, r)
				for i := range 20 { // at any time between two audits
					pooltest.After(time.Duration(i) * 7 * time.Second)
					s.Deafly(func() { change(s, i) })
					pooltest.After(time.Minute)
					require.Equal(t, s.State(nil), pooltest.Contents(t, l), "round %d", i)
					require.Equal(t, s.State(nil), r.State(), "round %d", i)
				}
				r.RequireSound(t)
			})
		})
	}
}

// TestHazardServerStopsToSpeakAfterABookmark: the bookmark has moved the
// informer's version past that of the last audit.
func TestHazardServerStopsToSpeakAfterABookmark(t *testing.T) {
	pooltest.Bubble(t, frequent, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		for i := range 20 {
			pooltest.After(time.Duration(i) * 7 * time.Second)
			s.Put("ns", "b", i)
			s.Deafly(func() { s.Put("ns", "a", i+2) })
			pooltest.After(time.Minute)
			require.Equal(t, s.State(nil), pooltest.Contents(t, l), "round %d", i)
		}
	})
}

// TestHazardOtherObjectsSpeak: events of other objects arrive while those of
// one are dropped.
func TestHazardOtherObjectsSpeak(t *testing.T) {
	pooltest.Bubble(t, frequent, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		lost := 0
		for i := range 600 {
			pooltest.After(time.Second)
			s.Put("ns", fmt.Sprint("other", i%5), i)
			s.Deafly(func() { lost = int(s.Put("ns", "a", i)) })
			if i%61 == 60 {
				pooltest.After(0)
				o, err := l.Get("ns", "a")
				require.NoError(t, err)
				version, _ := o.Version()
				require.Greater(t, int(version), lost-2*61, "older than an AuditInterval")
			}
		}
		require.Positive(t, p.Totals().AuditDifferences)
	})
}

// TestAuditsOfLateStreamsFindNothing: a change that the stream brings late is
// not lost.
func TestAuditsOfLateStreamsFindNothing(t *testing.T) {
	for name, c := range map[string]struct{ late, pause time.Duration }{
		"a little": {late: 3 * time.Second, pause: 17 * time.Second},
		"much":     {late: 20 * time.Second, pause: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, frequent, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				s.Set(func(s *pooltest.Server) { s.Late = c.late })
				requireNothingFound(t, s, p, l, 1000, c.pause)
			})
		})
	}
}

// TestHazardAuditsFail: a server whose lists fail, for example because its
// conversion webhook is down, may withhold events as well. The informer must
// not keep reporting that all is well.
func TestHazardAuditsFail(t *testing.T) {
	pooltest.Bubble(t, audited, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		s.Set(func(s *pooltest.Server) {
			s.Fail = func(verb string) error {
				if verb == "guard" || verb == "watch" {
					return nil
				}
				return apierrors.NewInternalError(fmt.Errorf("conversion webhook failed"))
			}
		})
		for range 60 {
			s.Deafly(func() { s.Put("ns", "a", 2) })
			s.Speak(1)
		}
		require.Equal(t, informerpool.StateDegraded, l.Status().State)
		require.True(t, apierrors.IsInternalError(l.Status().LastError), "%v", l.Status().LastError)
		require.Error(t, l.Trust(time.Minute))
		s.Heal()
		pooltest.After(time.Minute)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		require.NoError(t, l.Trust(0))
	})
}

// TestHazardBusyServerEndsWatchesThatWork: a server over its limit serves only
// watches. Its informers keep following theirs, and resume them: a list would
// be refused.
func TestHazardBusyServerEndsWatchesThatWork(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) { frequent(o); o.PagedLists = true }, func(t *testing.T,
		s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		s.Set(func(s *pooltest.Server) {
			s.Fail = func(verb string) error {
				if verb == "audit" || verb == "list" {
					return apierrors.NewTooManyRequests("over the limit", 1)
				}
				return nil
			}
		})
		lists := s.Count("list")
		for i := range 4 * 60 {
			if i == 3*60 {
				s.Cut(io.ErrUnexpectedEOF)
			}
			s.Put("ns", "a", i+2)
			pooltest.After(time.Second)
			require.Equal(t, s.State(nil), pooltest.Contents(t, l), "after %d s", i)
			require.Equal(t, informerpool.StateSynced, l.Status().State)
		}
		require.Positive(t, p.Totals().AuditFailures)
		require.LessOrEqual(t, s.Count("list"), lists+1, "one question")
		s.Speak(10)
		require.Equal(t, informerpool.StateDegraded, l.Status().State, "not compared for too long")
		require.True(t, apierrors.IsTooManyRequests(l.Status().LastError), "%v", l.Status().LastError)
		s.Heal()
		pooltest.After(time.Minute)
		require.NoError(t, l.Trust(0))
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
	})
}

// TestAuditsThatAreRefused: refused audits are replaced by lists of the
// informer, which may be permitted streams only. Those lists change nothing.
func TestAuditsThatAreRefused(t *testing.T) {
	pooltest.Bubble(t, audited, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.NewRecorder()
		r.Epochs = true
		pooltest.Subscribe(t, p, l, r)
		s.Set(func(s *pooltest.Server) {
			s.Fail = func(verb string) error {
				if verb == "audit" || verb == "list" {
					return apierrors.NewForbidden(pooltest.Widgets.GroupResource(), "", nil)
				}
				return nil
			}
		})
		pooltest.After(0)
		r.Take()
		s.Speak(3 * 60)
		require.Empty(t, r.Take())
		require.LessOrEqual(t, s.Count("stream"), 1+6)
		s.Deafly(func() { s.Put("ns", "a", 2) })
		s.Speak(60)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		require.Equal(t, s.State(nil), r.State())
		require.NoError(t, l.Trust(0))
		require.Zero(t, l.Status().Rollbacks)
	})
}

// TestHazardHungClustersHoldUpTheAuditsOfOthers: they must not, although only a
// few audits run at once.
func TestHazardHungClustersHoldUpTheAuditsOfOthers(t *testing.T) {
	pooltest.Bubble(t, audited, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		leases := map[int]*informerpool.Lease{}
		for i := range 100 {
			k := pooltest.Everything
			k.Cluster = types.NamespacedName{Name: fmt.Sprint("c", i)}
			leases[i] = pooltest.AcquireSynced(t, p, k)
		}
		hung := pooltest.Hang()
		defer close(hung)
		s.Set(func(s *pooltest.Server) {
			s.Refuse = func(k informerpool.Key) error {
				if k.Cluster.Name < "c5" {
					<-hung
				}
				return nil
			}
		})
		s.Deafly(func() { s.Put("ns", "a", 2) })
		s.Speak(60)
		for i, l := range leases {
			if fmt.Sprint("c", i) >= "c5" {
				require.Equal(t, s.State(nil), pooltest.Contents(t, l))
			}
		}
	})
}

// TestHazardSlowAuditIsTheLast: an audit that fails after others have stopped
// waiting for it is repeated, even if no other informer has an appointment.
func TestHazardSlowAuditIsTheLast(t *testing.T) {
	pooltest.Bubble(t, frequent, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		s.Set(func(s *pooltest.Server) {
			s.Fail = func(verb string) error {
				if verb != "audit" {
					return nil
				}
				time.Sleep(2 * time.Second)
				return apierrors.NewInternalError(fmt.Errorf("slow"))
			}
		})
		for s.Count("audit") == 0 {
			s.Speak(1)
		}
		pooltest.After(2 * time.Second)
		s.Heal()
		s.Deafly(func() { s.Put("ns", "a", 2) })
		s.Speak(2)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
	})
}

// TestAuditSoonIsNotPutOff: repeated requests do not delay the audit, and a
// request during an audit is not forgotten.
func TestAuditSoonIsNotPutOff(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		pooltest.AcquireSynced(t, p, pooltest.Everything)
		began := time.Now()
		for s.Count("audit") == 0 {
			p.AuditSoon(pooltest.Everything.Cluster)
			s.Speak(1)
			require.LessOrEqual(t, time.Since(began), 5*time.Minute)
		}
		hung := pooltest.Hang()
		s.Set(func(s *pooltest.Server) {
			s.Fail = func(verb string) error {
				if verb == "audit" {
					<-hung
				}
				return nil
			}
		})
		p.AuditSoon(pooltest.Everything.Cluster)
		for s.Count("audit") < 2 {
			s.Speak(1)
		}
		p.AuditSoon(pooltest.Everything.Cluster)
		s.Heal()
		close(hung)
		synctest.Wait()
		s.Speak(5)
		require.Equal(t, 3, s.Count("audit"))
	})
}
