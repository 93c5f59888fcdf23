// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetcache/fleetcache/informerpool"
)

// undone are changes of the object o, made at 101, that a restore undoes after
// a read has shown them.
var undone = map[string]func(*modelServer){
	"replaced": func(s *modelServer) { s.delete("ns", "o"); s.put("ns", "o", 2) },
	"changed":  func(s *modelServer) { s.put("ns", "o", 2) },
}

// undo makes a change that a read shows and watches do not, and restores the
// server to its state before. It returns the object that was read.
func (s *modelServer) undo(t *testing.T, change func(*modelServer)) *unstructured.Unstructured {
	t.Helper()
	before := snapshot(s)
	var read *unstructured.Unstructured
	s.deafly(func() {
		change(s)
		read = s.read(t, "o")
	})
	s.restore(before, 0)
	return read
}

// overtake makes the server's history pass the versions of the previous one.
func (s *modelServer) overtake() {
	for i := range 5 {
		s.put("ns", fmt.Sprint("other", i), 1)
	}
	after(10 * time.Second)
}

// TestHazardReadOfAHistoryThatIsOverEndsWhatIsThere: a handler has received an
// object. A read shows another one of its name, or a later state, and a restore
// undoes that. Once the new history has passed the version, the audit that the
// read triggers finds the cache correct. The handler received the delete of the
// object that had been read, and afterwards nothing about the object that
// exists; if a state was undone, it received nothing at all.
func TestHazardReadOfAHistoryThatIsOverEndsWhatIsThere(t *testing.T) {
	for what, change := range undone {
		for name, interval := range map[string]time.Duration{"audited": time.Hour, "listed": -1} {
			t.Run(what+" "+name, func(t *testing.T) {
				bubble(t, func(o *informerpool.Options) { o.AuditInterval = interval }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
					s.put("ns", "o", 1)
					l := acquireSynced(t, p, everything)
					r := newRecorder()
					subscribe(t, p, l, r)
					synctest.Wait()
					require.Equal(t, []string{"Added ns/o@101"}, r.take())
					l.Seen(s.undo(t, change))
					s.overtake()
					require.Equal(t, []string{"Updated ns/o@101"}, without(r.take(), "other"))
					require.Equal(t, s.state(nil), r.told())
					s.speak(3)
					require.Empty(t, r.take())
					r.requireSound(t)
				})
			})
		}
	}
}

// TestHazardReadBeforeTheFirstListIsOfAHistoryThatIsOver: the object that was
// read waits for 30 s, or for the informer to pass its version, which happens
// in another history.
func TestHazardReadBeforeTheFirstListIsOfAHistoryThatIsOver(t *testing.T) {
	for what, change := range undone {
		t.Run(what, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "o", 1)
				s.notReady = hang()
				l := acquire(t, p, everything)
				r := newRecorder()
				subscribe(t, p, l, r)
				l.Seen(s.undo(t, change))
				close(s.notReady)
				s.speak(1)
				s.overtake()
				require.Equal(t, []string{"Added ns/o@101", "Updated ns/o@101"}, without(r.take(), "other"))
				require.Equal(t, s.state(nil), r.told())
				s.speak(3)
				require.Empty(t, r.take())
				r.requireSound(t)
			})
		})
	}
}

// TestHazardReadOfAHistoryThatIsOverEndsWhatAnotherInformerTold: a lease that
// moves takes along the objects that its handlers have received and those its
// user has read. The informer it moves to cannot contradict them yet.
func TestHazardReadOfAHistoryThatIsOverEndsWhatAnotherInformerTold(t *testing.T) {
	for what, change := range undone {
		for name, meanwhile := range map[string]struct {
			change func(*modelServer)
			want   []string
		}{
			"there":    {func(*modelServer) {}, []string{"Updated ns/o@101"}},
			"later":    {func(s *modelServer) { s.put("ns", "o", 3) }, []string{"Updated ns/o@107"}},
			"gone":     {func(s *modelServer) { s.delete("ns", "o") }, []string{"Deleted ns/o@101"}},
			"replaced": {func(s *modelServer) { s.delete("ns", "o"); s.put("ns", "o", 3) }, []string{"Deleted ns/o@101", "Added ns/o@108"}},
		} {
			t.Run(what+" "+name, func(t *testing.T) {
				bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
					s.put("ns", "o", 1)
					l := acquireSynced(t, p, in("ns"))
					r := newRecorder()
					subscribe(t, p, l, r)
					synctest.Wait()
					r.take()
					read := s.undo(t, change)
					s.set(func(s *modelServer) { s.notReady = hang() })
					require.NoError(t, l.Retarget(t.Context(), everything))
					l.Seen(read)
					s.overtake()
					meanwhile.change(s)
					s.set(func(s *modelServer) {
						close(s.notReady)
						s.notReady = nil
					})
					s.speak(3)
					require.Equal(t, meanwhile.want, without(r.take(), "other"))
					require.Equal(t, s.state(nil), r.told())
					r.requireSound(t)
				})
			})
		}
	}
}

// TestHazardReadEndsWhatAnotherInformerToldTwice: the cluster ends while a
// lease is on its way to another informer, and the delete of a name is
// delivered once.
func TestHazardReadEndsWhatAnotherInformerToldTwice(t *testing.T) {
	for name, end := range map[string]func(*informerpool.Pool, *informerpool.Lease){
		"evicted": func(p *informerpool.Pool, _ *informerpool.Lease) { p.Evict(everything.Cluster) },
		"retired": func(_ *informerpool.Pool, l *informerpool.Lease) { l.Retire() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "o", 1)
				l := acquireSynced(t, p, in("ns"))
				r := newRecorder()
				subscribe(t, p, l, r)
				synctest.Wait()
				r.take()
				read := s.undo(t, undone["replaced"])
				s.set(func(s *modelServer) { s.notReady = hang() })
				require.NoError(t, l.Retarget(t.Context(), everything))
				l.Seen(read)
				end(p, l)
				synctest.Wait()
				require.Equal(t, []string{"Deleted ns/o@101"}, r.take())
				r.requireSound(t)
			})
		})
	}
}

// TestHazardReadOfAHistoryThatIsOverIsNeverPassed: nothing is written after the
// restore, so the new history never reaches the version that was read. The
// regular audit begins after the read, and is behind that version: this is
// proof.
func TestHazardReadOfAHistoryThatIsOverIsNeverPassed(t *testing.T) {
	made := func(s *modelServer) { s.put("ns", "o", 2) }
	for name, c := range map[string]struct {
		there  bool
		change func(*modelServer)
		want   []string
	}{
		"made":     {false, made, []string{"Deleted ns/o@102"}},
		"changed":  {true, undone["changed"], []string{"Updated ns/o@102"}},
		"replaced": {true, undone["replaced"], []string{"Updated ns/o@102"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(o *informerpool.Options) { o.AuditInterval = time.Hour }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "other", 1)
				if c.there {
					s.put("ns", "o", 1)
				}
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				subscribe(t, p, l, r)
				synctest.Wait()
				r.take()
				l.Seen(s.undo(t, c.change))
				s.speak(120)
				require.Equal(t, c.want, r.take())
				require.Equal(t, s.state(nil), r.told())
			})
		})
	}
}

// TestHazardAuditOverlooksWhatWasRead: a stream is late, and an audit begins
// that cannot decide whether cache and server agree on an object that was read:
// it finds more differences than it keeps, or cannot read the object. The
// object exists, and its delete must not be delivered.
func TestHazardAuditOverlooksWhatWasRead(t *testing.T) {
	for name, c := range map[string]struct {
		others int
		label  string
		added  bool
	}{
		"more differences than are kept": {others: 300, label: "l=x", added: true},
		"too large":                      {label: "l=" + strings.Repeat("x", 3000)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(o *informerpool.Options) { o.MaxObjectBytes = 2000 }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				subscribe(t, p, l, r)
				s.put("ns", "gone", 1)
				gone := s.read(t, "gone")
				s.delete("ns", "gone")
				after(time.Minute)
				r.take()
				s.set(func(s *modelServer) { s.late = 20 * time.Second })
				for i := range c.others {
					s.put("ns", fmt.Sprint("n", i), 1)
				}
				after(17 * time.Second)
				s.put("ns", "o", 1, c.label)
				l.Seen(s.read(t, "o"))
				audits := s.count("audit")
				l.Seen(gone) // an audit is due at once: the cache is past it
				after(time.Second)
				require.Greater(t, s.count("audit"), audits)
				after(time.Minute)
				events := r.take()
				require.Contains(t, events, "Deleted ns/gone@101")
				read := slices.DeleteFunc(events, func(e string) bool { return !strings.Contains(e, " ns/o@") })
				if c.added {
					require.Len(t, read, 1)
					require.Contains(t, read[0], "Added")
				} else {
					require.Empty(t, read)
				}
				s.delete("ns", "o")
				after(time.Minute)
				require.Len(t, r.take(), 1)
			})
		})
	}
}
