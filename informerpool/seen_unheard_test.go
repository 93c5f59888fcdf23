// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool"
)

// away makes changes to a server that its informers see by a list, and not in
// their stream.
func (s *modelServer) away(happens func()) {
	s.set(func(s *modelServer) { s.fail = func(string) error { return errUnreachable } })
	s.cut(io.ErrUnexpectedEOF)
	happens()
	s.compact()
	s.set(func(s *modelServer) { s.fail = nil })
	after(time.Minute)
}

// TestHazardSeenObjectThatIsRefusedGoesUnheard: the informer never has the
// object in its store, so the store has no delete for it.
func TestHazardSeenObjectThatIsRefusedGoesUnheard(t *testing.T) {
	refuse := map[string]func(*informerpool.Options){
		"too large": func(o *informerpool.Options) { o.MaxObjectBytes = 2000 },
		"transform": func(o *informerpool.Options) {
			o.Transforms = map[schema.GroupResource]informerpool.TransformFunc{widgets.GroupResource(): func(u *unstructured.Unstructured) error {
				if u.GetName() == "big" {
					return errors.New("no")
				}
				return nil
			}}
		},
	}
	ends := map[string]func(*modelServer){
		"stream": func(s *modelServer) { s.delete("ns", "big"); synctest.Wait() },
		"list":   func(s *modelServer) { s.away(func() { s.delete("ns", "big") }) },
	}
	for how, change := range refuse {
		for end, ends := range ends {
			t.Run(how+" "+end, func(t *testing.T) {
				bubble(t, change, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
					s.put("ns", "small", 1)
					l := acquireSynced(t, p, everything)
					r := newRecorder()
					subscribe(t, p, l, r)
					s.put("ns", "big", 1, "l="+strings.Repeat("x", 3000))
					l.Seen(s.read(t, "big"))
					synctest.Wait()
					require.ErrorIs(t, l.Unknown("ns", "big"), informerpool.ErrRefused)
					r.take()
					ends(s)
					require.Equal(t, []string{"Deleted ns/big@102"}, r.take())
					s.speak(3)
					require.Empty(t, r.take())
				})
			})
		}
	}
}

// TestHazardSeenObjectIsTakenForItsSuccessor: another object of its name proves
// only that the seen one is gone.
func TestHazardSeenObjectIsTakenForItsSuccessor(t *testing.T) {
	replace := func(s *modelServer) { s.delete("ns", "o"); s.put("ns", "o", 2) }
	want := []string{"Deleted ns/o@102", "Added ns/o@104"}
	t.Run("first list", func(t *testing.T) {
		bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
			s.put("ns", "other", 1)
			s.put("ns", "o", 1)
			s.notReady = hang()
			l := acquire(t, p, everything)
			r := newRecorder()
			subscribe(t, p, l, r)
			l.Seen(s.read(t, "o"))
			replace(s)
			close(s.notReady)
			s.speak(3)
			require.Equal(t, want, without(r.take(), "other"))
		})
	})
	t.Run("list", func(t *testing.T) {
		bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
			s.put("ns", "other", 1)
			l := acquireSynced(t, p, everything)
			r := newRecorder()
			subscribe(t, p, l, r)
			s.away(func() {
				s.put("ns", "o", 1)
				l.Seen(s.read(t, "o"))
				replace(s)
			})
			require.Equal(t, want, without(r.take(), "other"))
		})
	})
	t.Run("stream without it", func(t *testing.T) {
		bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
			s.put("ns", "other", 1)
			l := acquireSynced(t, p, everything)
			r := newRecorder()
			subscribe(t, p, l, r)
			s.set(func(s *modelServer) { s.deaf = true })
			s.put("ns", "o", 1)
			l.Seen(s.read(t, "o"))
			s.delete("ns", "o")
			s.set(func(s *modelServer) { s.deaf = false })
			s.put("ns", "o", 2)
			s.speak(3)
			require.Equal(t, want, without(r.take(), "other"))
		})
	})
}

// TestHazardSeenObjectEndsAnotherOne: a handler has received an object, another
// one of its name is read, and both are gone by the next list. If the handler
// received the delete of the one that was read, that would end its own object,
// at times twice.
func TestHazardSeenObjectEndsAnotherOne(t *testing.T) {
	for name, end := range map[string]struct {
		replace func(s *modelServer)
		want    []string
	}{
		"gone":     {func(s *modelServer) { s.delete("ns", "o") }, []string{"Deleted ns/o@102"}},
		"replaced": {func(s *modelServer) { s.delete("ns", "o"); s.put("ns", "o", 3) }, []string{"Deleted ns/o@102", "Added ns/o@106"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "other", 1)
				s.put("ns", "o", 1)
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				subscribe(t, p, l, r)
				synctest.Wait()
				require.Equal(t, []string{"Added ns/o@102"}, without(r.take(), "other"))
				s.away(func() {
					s.delete("ns", "o")
					s.put("ns", "o", 2)
					l.Seen(s.read(t, "o"))
					end.replace(s)
				})
				require.Equal(t, end.want, without(r.take(), "other"))
			})
		})
	}
}

func without(events []string, name string) (out []string) {
	for _, e := range events {
		if !strings.Contains(e, name) {
			out = append(out, e)
		}
	}
	return out
}

// TestHazardSeenStateOutsideOfWhatWasToldGoesUnheard: a handler for some labels
// has not received an object that lacks them. A read shows the object with
// them, and by the next list it has lost them again, or is gone.
func TestHazardSeenStateOutsideOfWhatWasToldGoesUnheard(t *testing.T) {
	chosen := everything
	chosen.LabelSelector = "x=1"
	for name, end := range map[string]func(*modelServer){
		"unselected": func(s *modelServer) { s.put("ns", "o", 3, "x=0") },
		"deleted":    func(s *modelServer) { s.delete("ns", "o") },
		"replaced":   func(s *modelServer) { s.delete("ns", "o"); s.put("ns", "o", 3, "x=0") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "o", 1, "x=0")
				wide := acquireSynced(t, p, everything)
				l := acquireSynced(t, p, chosen)
				all, r := newRecorder(), newRecorder()
				subscribe(t, p, wide, all)
				subscribe(t, p, l, r)
				synctest.Wait()
				require.Empty(t, r.take())
				s.away(func() {
					s.put("ns", "o", 2, "x=1")
					l.Seen(s.read(t, "o"))
					end(s)
				})
				require.Equal(t, []string{"Deleted ns/o@102"}, r.take())
				require.Equal(t, s.state(nil), all.told())
				all.requireSound(t)
				s.speak(5)
				require.Empty(t, r.take())
			})
		})
	}
	t.Run("while the handler is busy", func(t *testing.T) {
		bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
			s.put("ns", "o", 1, "x=0")
			acquireSynced(t, p, everything)
			l := acquireSynced(t, p, chosen)
			r := newRecorder()
			sub := subscribe(t, p, l, r)
			synctest.Wait()
			sub.Pause()
			s.set(func(s *modelServer) { s.late = time.Second })
			s.put("ns", "o", 2, "x=1")
			l.Seen(s.read(t, "o"))
			after(2 * time.Second)
			s.put("ns", "o", 3, "x=0")
			after(2 * time.Second)
			sub.Continue()
			s.speak(3)
			require.Len(t, r.take(), 1)
		})
	})
}

// TestHazardSeenObjectIsToldAsDeletedTwice: the end of an object is delivered
// once, whether a read, the informer, or both have shown the object.
func TestHazardSeenObjectIsToldAsDeletedTwice(t *testing.T) {
	for name, end := range map[string]func(*modelServer, *informerpool.Pool, *informerpool.Lease){
		"evicted": func(_ *modelServer, p *informerpool.Pool, _ *informerpool.Lease) { p.Evict(everything.Cluster) },
		"retired": func(_ *modelServer, _ *informerpool.Pool, l *informerpool.Lease) { l.Retire() },
		"listed": func(s *modelServer, _ *informerpool.Pool, _ *informerpool.Lease) {
			s.away(func() { s.delete("ns", "o") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "o", 1)
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				subscribe(t, p, l, r)
				synctest.Wait()
				r.take()
				s.set(func(s *modelServer) { s.fail = func(string) error { return errUnreachable } })
				s.cut(io.ErrUnexpectedEOF)
				s.put("ns", "o", 2)
				l.Seen(s.read(t, "o"))
				s.set(func(s *modelServer) { s.late = time.Minute })
				end(s, p, l)
				synctest.Wait()
				events := r.take()
				require.Len(t, events, 1)
				require.Contains(t, events[0], "Deleted ns/o")
			})
		})
	}
}

// seen records objects of the given size that only reads have shown.
func (s *modelServer) seen(l *informerpool.Lease, number, size int) {
	for i := range number {
		o := modelObject{namespace: cmp.Or(l.Key().Namespace, "ns"), name: fmt.Sprint("seen", i), uid: fmt.Sprint("s", i), rv: 1 << 40}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(o.json()); err != nil {
			panic(err)
		}
		u.Object["data"] = strings.Repeat(fmt.Sprint(i, " incompressible? "), size/16)
		u.SetLabels(map[string]string{"long": strings.Repeat("x", size)})
		l.Seen(u)
	}
}

// TestHazardSeenObjectsAreNotCounted: otherwise a user who creates objects that
// are read live could fill the memory.
func TestHazardSeenObjectsAreNotCounted(t *testing.T) {
	const size = 100_000
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		l := acquireSynced(t, p, everything)
		empty := l.Status().Bytes
		s.seen(l, 3, size)
		require.Greater(t, l.Status().Bytes, empty+3*size)
		require.Equal(t, empty, l.Status().Bytes-l.Status().SeenBytes)
		require.Equal(t, l.Status().Bytes, p.ClusterSummary(everything.Cluster).Bytes)
		require.Equal(t, l.Status().SeenBytes, p.ClusterSummary(everything.Cluster).SeenBytes)
		s.seen(l, 3, size)
		require.Less(t, l.Status().Bytes, empty+4*size, "each name counts once")
		s.seen(l, 1000, size)
		require.Less(t, l.Status().Bytes, empty+9<<20)
		p.Evict(everything.Cluster)
		after(time.Minute)
		require.Less(t, l.Status().Bytes, empty+1000)
	})
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		for i := range 10 {
			s.seen(acquireSynced(t, p, in(fmt.Sprint("ns", i))), 20, size)
		}
		require.Less(t, p.ClusterSummary(everything.Cluster).Bytes, int64(9<<20), "a cluster has one bound")
	})
}

// TestHazardSeenObjectsKeepAnInformerOverBudget: the memory for reads is not
// part of the budget.
func TestHazardSeenObjectsKeepAnInformerOverBudget(t *testing.T) {
	const size = 100_000
	bubble(t, func(o *informerpool.Options) { o.MaxClusterBytes = 4 * size }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		l := acquireSynced(t, p, everything)
		other := acquireSynced(t, p, in("other"))
		s.seen(l, 3, size)
		s.seen(other, 2, size)
		for i := range 3 {
			s.put("ns", fmt.Sprint("o", i), i, "l="+strings.Repeat(fmt.Sprint(i), size))
		}
		after(time.Minute)
		require.NoError(t, l.Status().LastError)
		require.Equal(t, s.state(nil), contents(t, l))
		require.NoError(t, other.WaitForSync(context.Background()))
	})
}

// TestHazardSeenObjectOfAKindThatVanishes: the resource is proved not to exist
// any more, and with it an object that only a read has shown.
func TestHazardSeenObjectOfAKindThatVanishes(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		subscribe(t, p, l, r)
		synctest.Wait()
		r.take()
		s.set(func(s *modelServer) {
			s.fail = func(string) error { return apierrors.NewNotFound(widgets.GroupResource(), "") }
		})
		s.put("ns", "a", 2)
		s.cut(io.ErrUnexpectedEOF)
		s.set(func(s *modelServer) { s.deaf = true })
		s.put("ns", "o", 1)
		l.Seen(s.read(t, "o"))
		after(10 * time.Minute)
		require.Empty(t, contents(t, l))
		require.ElementsMatch(t, []string{"Updated ns/a@102", "Deleted ns/a@102", "Deleted ns/o@103"}, r.take())
	})
}
