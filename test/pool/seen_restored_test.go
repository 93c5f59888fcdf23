// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

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
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// undone are changes of the object o, made at 101, that a restore undoes after
// a read has shown them.
var undone = map[string]func(*pooltest.Server){
	"replaced": func(s *pooltest.Server) { s.Delete("ns", "o"); s.Put("ns", "o", 2) },
	"changed":  func(s *pooltest.Server) { s.Put("ns", "o", 2) },
}

// undo makes a change that a read shows and watches do not, and restores the
// server to its state before. It returns the object that was read.
func undo(t *testing.T, s *pooltest.Server, change func(*pooltest.Server)) *unstructured.Unstructured {
	t.Helper()
	before := pooltest.Copy(s)
	var read *unstructured.Unstructured
	s.Deafly(func() {
		change(s)
		read = s.Read(t, "o")
	})
	s.Restore(before, 0)
	return read
}

// overtake makes the server's history pass the versions of the previous one.
func overtake(s *pooltest.Server) {
	for i := range 5 {
		s.Put("ns", fmt.Sprint("other", i), 1)
	}
	pooltest.After(10 * time.Second)
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
				pooltest.Bubble(t, func(o *informerpool.Options) { o.AuditInterval = interval }, func(t *testing.T,
					s *pooltest.Server, p *informerpool.Pool) {
					s.Put("ns", "o", 1)
					l := pooltest.AcquireSynced(t, p, pooltest.Everything)
					r := pooltest.Record(t, p, l)
					synctest.Wait()
					require.Equal(t, []string{"Added ns/o@101"}, r.Take())
					l.Seen(undo(t, s, change))
					overtake(s)
					require.Equal(t, []string{"Updated ns/o@101"}, pooltest.Without(r.Take(), "other"))
					require.Equal(t, s.State(nil), r.State())
					s.Speak(3)
					require.Empty(t, r.Take())
					r.RequireSound(t)
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
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "o", 1)
				s.NotReady = pooltest.Hang()
				l := pooltest.Acquire(t, p, pooltest.Everything)
				r := pooltest.Record(t, p, l)
				l.Seen(undo(t, s, change))
				close(s.NotReady)
				s.Speak(1)
				overtake(s)
				require.Equal(t, []string{"Added ns/o@101", "Updated ns/o@101"}, pooltest.Without(r.Take(), "other"))
				require.Equal(t, s.State(nil), r.State())
				s.Speak(3)
				require.Empty(t, r.Take())
				r.RequireSound(t)
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
			change func(*pooltest.Server)
			want   []string
		}{
			"there": {func(*pooltest.Server) {}, []string{"Updated ns/o@101"}},
			"later": {func(s *pooltest.Server) { s.Put("ns", "o", 3) }, []string{"Updated ns/o@107"}},
			"gone":  {func(s *pooltest.Server) { s.Delete("ns", "o") }, []string{"Deleted ns/o@101"}},
			"replaced": {func(s *pooltest.Server) {
				s.Delete("ns", "o")
				s.Put("ns", "o", 3)
			}, []string{"Deleted ns/o@101", "Added ns/o@108"}},
		} {
			t.Run(what+" "+name, func(t *testing.T) {
				pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
					s.Put("ns", "o", 1)
					l := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
					r := pooltest.Record(t, p, l)
					synctest.Wait()
					r.Take()
					read := undo(t, s, change)
					s.Set(func(s *pooltest.Server) { s.NotReady = pooltest.Hang() })
					require.NoError(t, l.Retarget(t.Context(), pooltest.Everything))
					l.Seen(read)
					overtake(s)
					meanwhile.change(s)
					s.Set(func(s *pooltest.Server) {
						close(s.NotReady)
						s.NotReady = nil
					})
					s.Speak(3)
					require.Equal(t, meanwhile.want, pooltest.Without(r.Take(), "other"))
					require.Equal(t, s.State(nil), r.State())
					r.RequireSound(t)
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
		"evicted": func(p *informerpool.Pool, _ *informerpool.Lease) { p.Evict(pooltest.Everything.Cluster) },
		"retired": func(_ *informerpool.Pool, l *informerpool.Lease) { l.Retire() },
	} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "o", 1)
				l := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
				r := pooltest.Record(t, p, l)
				synctest.Wait()
				r.Take()
				read := undo(t, s, undone["replaced"])
				s.Set(func(s *pooltest.Server) { s.NotReady = pooltest.Hang() })
				require.NoError(t, l.Retarget(t.Context(), pooltest.Everything))
				l.Seen(read)
				end(p, l)
				synctest.Wait()
				require.Equal(t, []string{"Deleted ns/o@101"}, r.Take())
				r.RequireSound(t)
			})
		})
	}
}

// TestHazardReadOfAHistoryThatIsOverIsNeverPassed: nothing is written after the
// restore, so the new history never reaches the version that was read. The
// regular audit begins after the read, and is behind that version: this is
// proof.
func TestHazardReadOfAHistoryThatIsOverIsNeverPassed(t *testing.T) {
	made := func(s *pooltest.Server) { s.Put("ns", "o", 2) }
	for name, c := range map[string]struct {
		there  bool
		change func(*pooltest.Server)
		want   []string
	}{
		"made":     {false, made, []string{"Deleted ns/o@102"}},
		"changed":  {true, undone["changed"], []string{"Updated ns/o@102"}},
		"replaced": {true, undone["replaced"], []string{"Updated ns/o@102"}},
	} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, func(o *informerpool.Options) { o.AuditInterval = time.Hour }, func(t *testing.T,
				s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "other", 1)
				if c.there {
					s.Put("ns", "o", 1)
				}
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.Record(t, p, l)
				synctest.Wait()
				r.Take()
				l.Seen(undo(t, s, c.change))
				s.Speak(120)
				require.Equal(t, c.want, r.Take())
				require.Equal(t, s.State(nil), r.State())
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
			pooltest.Bubble(t, func(o *informerpool.Options) { o.MaxObjectBytes = 2000 }, func(t *testing.T,
				s *pooltest.Server, p *informerpool.Pool) {
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.Record(t, p, l)
				s.Put("ns", "gone", 1)
				gone := s.Read(t, "gone")
				s.Delete("ns", "gone")
				pooltest.After(time.Minute)
				r.Take()
				s.Set(func(s *pooltest.Server) { s.Late = 20 * time.Second })
				for i := range c.others {
					s.Put("ns", fmt.Sprint("n", i), 1)
				}
				pooltest.After(17 * time.Second)
				s.Put("ns", "o", 1, c.label)
				l.Seen(s.Read(t, "o"))
				audits := s.Count("audit")
				l.Seen(gone) // an audit is due at once: the cache is past it
				pooltest.After(time.Second)
				require.Greater(t, s.Count("audit"), audits)
				pooltest.After(time.Minute)
				events := r.Take()
				require.Contains(t, events, "Deleted ns/gone@101")
				read := slices.DeleteFunc(events, func(e string) bool { return !strings.Contains(e, " ns/o@") })
				if c.added {
					require.Len(t, read, 1)
					require.Contains(t, read[0], "Added")
				} else {
					require.Empty(t, read)
				}
				s.Delete("ns", "o")
				pooltest.After(time.Minute)
				require.Len(t, r.Take(), 1)
			})
		})
	}
}
