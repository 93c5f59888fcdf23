// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

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
)

// frequent makes audits come before a new watch replaces a silent one.
func frequent(o *informerpool.Options) { o.AuditInterval = time.Minute }

// deafly changes a model server's objects without sending the changes to its
// watches.
func (s *modelServer) deafly(change func()) {
	s.set(func(s *modelServer) { s.deaf = true })
	change()
	s.set(func(s *modelServer) { s.deaf = false })
}

// TestHazardServerDropsEventsAndSendsNoBookmark: the version that the informer
// has reached does not advance, and as of that version the server agrees with
// the cache.
func TestHazardServerDropsEventsAndSendsNoBookmark(t *testing.T) {
	for name, change := range map[string]func(s *modelServer, i int){
		"update": func(s *modelServer, i int) { s.put("ns", "o1", i+2) },
		"create": func(s *modelServer, i int) { s.put("ns", fmt.Sprint("new", i), 1) },
		"delete": func(s *modelServer, i int) { s.delete("ns", fmt.Sprint("o", i)) },
		"again":  func(s *modelServer, i int) { s.delete("ns", "o1"); s.put("ns", "o1", i) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, frequent, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				for i := range 20 {
					s.put("ns", fmt.Sprint("o", i), 1)
				}
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				r.epochs = true
				subscribe(t, p, l, r)
				for i := range 20 { // at any time between two audits
					after(time.Duration(i) * 7 * time.Second)
					s.deafly(func() { change(s, i) })
					after(time.Minute)
					require.Equal(t, s.state(nil), contents(t, l), "round %d", i)
					require.Equal(t, s.state(nil), r.told(), "round %d", i)
				}
				r.requireSound(t)
			})
		})
	}
}

// TestHazardServerStopsToSpeakAfterABookmark: the bookmark has moved the
// informer's version past that of the last audit.
func TestHazardServerStopsToSpeakAfterABookmark(t *testing.T) {
	bubble(t, frequent, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		for i := range 20 {
			after(time.Duration(i) * 7 * time.Second)
			s.put("ns", "b", i)
			s.deafly(func() { s.put("ns", "a", i+2) })
			after(time.Minute)
			require.Equal(t, s.state(nil), contents(t, l), "round %d", i)
		}
	})
}

// TestHazardOtherObjectsSpeak: events of other objects arrive while those of
// one are dropped.
func TestHazardOtherObjectsSpeak(t *testing.T) {
	bubble(t, frequent, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		lost := 0
		for i := range 600 {
			after(time.Second)
			s.put("ns", fmt.Sprint("other", i%5), i)
			s.deafly(func() { lost = int(s.put("ns", "a", i)) })
			if i%61 == 60 {
				after(0)
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
			bubble(t, frequent, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				l := acquireSynced(t, p, everything)
				s.set(func(s *modelServer) { s.late = c.late })
				requireNothingFound(t, s, p, l, 1000, c.pause)
			})
		})
	}
}

// TestHazardAuditsFail: a server whose lists fail, for example because its
// conversion webhook is down, may withhold events as well. The informer must
// not keep reporting that all is well.
func TestHazardAuditsFail(t *testing.T) {
	bubble(t, audited, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		s.set(func(s *modelServer) {
			s.fail = func(verb string) error {
				if verb == "guard" || verb == "watch" {
					return nil
				}
				return apierrors.NewInternalError(fmt.Errorf("conversion webhook failed"))
			}
		})
		for range 60 {
			s.deafly(func() { s.put("ns", "a", 2) })
			s.speak(1)
		}
		require.Equal(t, informerpool.StateDegraded, l.Status().State)
		require.True(t, apierrors.IsInternalError(l.Status().LastError), "%v", l.Status().LastError)
		require.Error(t, l.Trust(time.Minute))
		s.set(func(s *modelServer) { s.fail = nil })
		after(time.Minute)
		require.Equal(t, s.state(nil), contents(t, l))
		require.NoError(t, l.Trust(0))
	})
}

// TestHazardBusyServerEndsWatchesThatWork: a server over its limit serves only
// watches. Its informers keep following theirs, and resume them: a list would
// be refused.
func TestHazardBusyServerEndsWatchesThatWork(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { frequent(o); o.PagedLists = true }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		s.set(func(s *modelServer) {
			s.fail = func(verb string) error {
				if verb == "audit" || verb == "list" {
					return apierrors.NewTooManyRequests("over the limit", 1)
				}
				return nil
			}
		})
		lists := s.count("list")
		for i := range 4 * 60 {
			if i == 3*60 {
				s.cut(io.ErrUnexpectedEOF)
			}
			s.put("ns", "a", i+2)
			after(time.Second)
			require.Equal(t, s.state(nil), contents(t, l), "after %d s", i)
			require.Equal(t, informerpool.StateSynced, l.Status().State)
		}
		require.Positive(t, p.Totals().AuditFailures)
		require.LessOrEqual(t, s.count("list"), lists+1, "one question")
		s.speak(10)
		require.Equal(t, informerpool.StateDegraded, l.Status().State, "not compared for too long")
		require.True(t, apierrors.IsTooManyRequests(l.Status().LastError), "%v", l.Status().LastError)
		s.set(func(s *modelServer) { s.fail = nil })
		after(time.Minute)
		require.NoError(t, l.Trust(0))
		require.Equal(t, s.state(nil), contents(t, l))
	})
}

// TestAuditsThatAreRefused: refused audits are replaced by lists of the
// informer, which may be permitted streams only. Those lists change nothing.
func TestAuditsThatAreRefused(t *testing.T) {
	bubble(t, audited, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		r.epochs = true
		subscribe(t, p, l, r)
		s.set(func(s *modelServer) {
			s.fail = func(verb string) error {
				if verb == "audit" || verb == "list" {
					return apierrors.NewForbidden(widgets.GroupResource(), "", nil)
				}
				return nil
			}
		})
		after(0)
		r.take()
		s.speak(3 * 60)
		require.Empty(t, r.take())
		require.LessOrEqual(t, s.count("stream"), 1+6)
		s.deafly(func() { s.put("ns", "a", 2) })
		s.speak(60)
		require.Equal(t, s.state(nil), contents(t, l))
		require.Equal(t, s.state(nil), r.told())
		require.NoError(t, l.Trust(0))
		require.Zero(t, l.Status().Rollbacks)
	})
}

// TestHazardHungClustersHoldUpTheAuditsOfOthers: they must not, although only a
// few audits run at once.
func TestHazardHungClustersHoldUpTheAuditsOfOthers(t *testing.T) {
	bubble(t, audited, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		leases := map[int]*informerpool.Lease{}
		for i := range 100 {
			k := everything
			k.Cluster = types.NamespacedName{Name: fmt.Sprint("c", i)}
			leases[i] = acquireSynced(t, p, k)
		}
		hung := hang()
		defer close(hung)
		s.set(func(s *modelServer) {
			s.refuse = func(k informerpool.Key) error {
				if k.Cluster.Name < "c5" {
					<-hung
				}
				return nil
			}
		})
		s.deafly(func() { s.put("ns", "a", 2) })
		s.speak(60)
		for i, l := range leases {
			if fmt.Sprint("c", i) >= "c5" {
				require.Equal(t, s.state(nil), contents(t, l))
			}
		}
	})
}

// TestHazardSlowAuditIsTheLast: an audit that fails after others have stopped
// waiting for it is repeated, even if no other informer has an appointment.
func TestHazardSlowAuditIsTheLast(t *testing.T) {
	bubble(t, frequent, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		s.set(func(s *modelServer) {
			s.fail = func(verb string) error {
				if verb != "audit" {
					return nil
				}
				time.Sleep(2 * time.Second)
				return apierrors.NewInternalError(fmt.Errorf("slow"))
			}
		})
		for s.count("audit") == 0 {
			s.speak(1)
		}
		after(2 * time.Second)
		s.set(func(s *modelServer) { s.fail = nil })
		s.deafly(func() { s.put("ns", "a", 2) })
		s.speak(2)
		require.Equal(t, s.state(nil), contents(t, l))
	})
}

// TestAuditSoonIsNotPutOff: repeated requests do not delay the audit, and a
// request during an audit is not forgotten.
func TestAuditSoonIsNotPutOff(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		acquireSynced(t, p, everything)
		began := time.Now()
		for s.count("audit") == 0 {
			p.AuditSoon(everything.Cluster)
			s.speak(1)
			require.LessOrEqual(t, time.Since(began), 5*time.Minute)
		}
		hung := hang()
		s.set(func(s *modelServer) {
			s.fail = func(verb string) error {
				if verb == "audit" {
					<-hung
				}
				return nil
			}
		})
		p.AuditSoon(everything.Cluster)
		for s.count("audit") < 2 {
			s.speak(1)
		}
		p.AuditSoon(everything.Cluster)
		s.set(func(s *modelServer) { s.fail = nil })
		close(hung)
		synctest.Wait()
		s.speak(5)
		require.Equal(t, 3, s.count("audit"))
	})
}
