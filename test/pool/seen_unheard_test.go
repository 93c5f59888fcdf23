// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

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
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestHazardSeenObjectThatIsRefusedGoesUnheard: the informer never has the
// object in its store, so the store has no delete for it.
func TestHazardSeenObjectThatIsRefusedGoesUnheard(t *testing.T) {
	refuse := map[string]func(*informerpool.Options){
		"too large": func(o *informerpool.Options) { o.MaxObjectBytes = 2000 },
		"transform": func(o *informerpool.Options) {
			transform := func(u *unstructured.Unstructured) error {
				if u.GetName() == "big" {
					return errors.New("no")
				}
				return nil
			}
			o.Transforms = map[schema.GroupResource]informerpool.TransformFunc{
				pooltest.Widgets.GroupResource(): transform,
			}
		},
	}
	ends := map[string]func(*pooltest.Server){
		"stream": func(s *pooltest.Server) { s.Delete("ns", "big"); synctest.Wait() },
		"list":   func(s *pooltest.Server) { s.Away(func() { s.Delete("ns", "big") }) },
	}
	for how, change := range refuse {
		for end, ends := range ends {
			t.Run(how+" "+end, func(t *testing.T) {
				pooltest.Bubble(t, change, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
					s.Put("ns", "small", 1)
					l := pooltest.AcquireSynced(t, p, pooltest.Everything)
					r := pooltest.Record(t, p, l)
					s.Put("ns", "big", 1, "l="+strings.Repeat("x", 3000))
					l.Seen(s.Read(t, "big"))
					synctest.Wait()
					require.ErrorIs(t, l.Unknown("ns", "big"), informerpool.ErrRefused)
					r.Take()
					ends(s)
					require.Equal(t, []string{"Deleted ns/big@102"}, r.Take())
					s.Speak(3)
					require.Empty(t, r.Take())
				})
			})
		}
	}
}

// TestHazardSeenObjectIsTakenForItsSuccessor: another object of its name proves
// only that the seen one is gone.
func TestHazardSeenObjectIsTakenForItsSuccessor(t *testing.T) {
	replace := func(s *pooltest.Server) { s.Delete("ns", "o"); s.Put("ns", "o", 2) }
	want := []string{"Deleted ns/o@102", "Added ns/o@104"}
	t.Run("first list", func(t *testing.T) {
		pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
			s.Put("ns", "other", 1)
			s.Put("ns", "o", 1)
			s.NotReady = pooltest.Hang()
			l := pooltest.Acquire(t, p, pooltest.Everything)
			r := pooltest.Record(t, p, l)
			l.Seen(s.Read(t, "o"))
			replace(s)
			close(s.NotReady)
			s.Speak(3)
			require.Equal(t, want, pooltest.Without(r.Take(), "other"))
		})
	})
	t.Run("list", func(t *testing.T) {
		pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
			s.Put("ns", "other", 1)
			l := pooltest.AcquireSynced(t, p, pooltest.Everything)
			r := pooltest.Record(t, p, l)
			s.Away(func() {
				s.Put("ns", "o", 1)
				l.Seen(s.Read(t, "o"))
				replace(s)
			})
			require.Equal(t, want, pooltest.Without(r.Take(), "other"))
		})
	})
	t.Run("stream without it", func(t *testing.T) {
		pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
			s.Put("ns", "other", 1)
			l := pooltest.AcquireSynced(t, p, pooltest.Everything)
			r := pooltest.Record(t, p, l)
			s.Set(func(s *pooltest.Server) { s.Deaf = true })
			s.Put("ns", "o", 1)
			l.Seen(s.Read(t, "o"))
			s.Delete("ns", "o")
			s.Set(func(s *pooltest.Server) { s.Deaf = false })
			s.Put("ns", "o", 2)
			s.Speak(3)
			require.Equal(t, want, pooltest.Without(r.Take(), "other"))
		})
	})
}

// TestHazardSeenObjectEndsAnotherOne: a handler has received an object, another
// one of its name is read, and both are gone by the next list. If the handler
// received the delete of the one that was read, that would end its own object,
// at times twice.
func TestHazardSeenObjectEndsAnotherOne(t *testing.T) {
	for name, end := range map[string]struct {
		replace func(s *pooltest.Server)
		want    []string
	}{
		"gone": {func(s *pooltest.Server) { s.Delete("ns", "o") }, []string{"Deleted ns/o@102"}},
		"replaced": {func(s *pooltest.Server) {
			s.Delete("ns", "o")
			s.Put("ns", "o", 3)
		}, []string{"Deleted ns/o@102", "Added ns/o@106"}},
	} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "other", 1)
				s.Put("ns", "o", 1)
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.Record(t, p, l)
				synctest.Wait()
				require.Equal(t, []string{"Added ns/o@102"}, pooltest.Without(r.Take(), "other"))
				s.Away(func() {
					s.Delete("ns", "o")
					s.Put("ns", "o", 2)
					l.Seen(s.Read(t, "o"))
					end.replace(s)
				})
				require.Equal(t, end.want, pooltest.Without(r.Take(), "other"))
			})
		})
	}
}

// TestHazardSeenStateOutsideOfWhatWasToldGoesUnheard: a handler for some labels
// has not received an object that lacks them. A read shows the object with
// them, and by the next list it has lost them again, or is gone.
func TestHazardSeenStateOutsideOfWhatWasToldGoesUnheard(t *testing.T) {
	chosen := pooltest.Everything
	chosen.LabelSelector = "x=1"
	for name, end := range map[string]func(*pooltest.Server){
		"unselected": func(s *pooltest.Server) { s.Put("ns", "o", 3, "x=0") },
		"deleted":    func(s *pooltest.Server) { s.Delete("ns", "o") },
		"replaced":   func(s *pooltest.Server) { s.Delete("ns", "o"); s.Put("ns", "o", 3, "x=0") },
	} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "o", 1, "x=0")
				wide := pooltest.AcquireSynced(t, p, pooltest.Everything)
				l := pooltest.AcquireSynced(t, p, chosen)
				all, r := pooltest.NewRecorder(), pooltest.NewRecorder()
				pooltest.Subscribe(t, p, wide, all)
				pooltest.Subscribe(t, p, l, r)
				synctest.Wait()
				require.Empty(t, r.Take())
				s.Away(func() {
					s.Put("ns", "o", 2, "x=1")
					l.Seen(s.Read(t, "o"))
					end(s)
				})
				require.Equal(t, []string{"Deleted ns/o@102"}, r.Take())
				require.Equal(t, s.State(nil), all.State())
				all.RequireSound(t)
				s.Speak(5)
				require.Empty(t, r.Take())
			})
		})
	}
	t.Run("while the handler is busy", func(t *testing.T) {
		pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
			s.Put("ns", "o", 1, "x=0")
			pooltest.AcquireSynced(t, p, pooltest.Everything)
			l := pooltest.AcquireSynced(t, p, chosen)
			r := pooltest.NewRecorder()
			sub := pooltest.Subscribe(t, p, l, r)
			synctest.Wait()
			sub.Pause()
			s.Set(func(s *pooltest.Server) { s.Late = time.Second })
			s.Put("ns", "o", 2, "x=1")
			l.Seen(s.Read(t, "o"))
			pooltest.After(2 * time.Second)
			s.Put("ns", "o", 3, "x=0")
			pooltest.After(2 * time.Second)
			sub.Continue()
			s.Speak(3)
			require.Len(t, r.Take(), 1)
		})
	})
}

// TestHazardSeenObjectIsToldAsDeletedTwice: the end of an object is delivered
// once, whether a read, the informer, or both have shown the object.
func TestHazardSeenObjectIsToldAsDeletedTwice(t *testing.T) {
	for name, end := range map[string]func(*pooltest.Server, *informerpool.Pool, *informerpool.Lease){
		"evicted": func(_ *pooltest.Server, p *informerpool.Pool, _ *informerpool.Lease) {
			p.Evict(pooltest.Everything.Cluster)
		},
		"retired": func(_ *pooltest.Server, _ *informerpool.Pool, l *informerpool.Lease) { l.Retire() },
		"listed": func(s *pooltest.Server, _ *informerpool.Pool, _ *informerpool.Lease) {
			s.Away(func() { s.Delete("ns", "o") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "o", 1)
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.Record(t, p, l)
				synctest.Wait()
				r.Take()
				s.FailWith(pooltest.ErrUnreachable)
				s.Cut(io.ErrUnexpectedEOF)
				s.Put("ns", "o", 2)
				l.Seen(s.Read(t, "o"))
				s.Set(func(s *pooltest.Server) { s.Late = time.Minute })
				end(s, p, l)
				synctest.Wait()
				events := r.Take()
				require.Len(t, events, 1)
				require.Contains(t, events[0], "Deleted ns/o")
			})
		})
	}
}

// seen records objects of the given size that only reads have shown.
func seen(l *informerpool.Lease, number, size int) {
	for i := range number {
		o := pooltest.Object{
			Namespace: cmp.Or(l.Key().Namespace, "ns"),
			Name:      fmt.Sprint("seen", i),
			UID:       fmt.Sprint("s", i),
			Version:   1 << 40,
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(o.JSON()); err != nil {
			panic(err)
		}
		u.Object["data"] = strings.Repeat(fmt.Sprint(i, " incompressible? "), size/16)
		u.SetLabels(map[string]string{"long": pooltest.Noise(i, size*21/20)})
		l.Seen(u)
	}
}

// TestHazardSeenObjectsAreNotCounted: otherwise a user who creates objects that
// are read live could fill the memory.
func TestHazardSeenObjectsAreNotCounted(t *testing.T) {
	const size = 100_000
	pooltest.Bubble(t, nil, func(t *testing.T, _ *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		empty := l.Status().Bytes
		seen(l, 3, size)
		require.Greater(t, l.Status().Bytes, empty+3*size)
		require.Equal(t, empty, l.Status().Bytes-l.Status().SeenBytes)
		require.Equal(t, l.Status().Bytes, p.ClusterSummary(pooltest.Everything.Cluster).Bytes)
		require.Equal(t, l.Status().SeenBytes, p.ClusterSummary(pooltest.Everything.Cluster).SeenBytes)
		seen(l, 3, size)
		require.Less(t, l.Status().Bytes, empty+4*size, "each name counts once")
		seen(l, 200, size)
		require.Less(t, l.Status().Bytes, empty+9<<20)
		p.Evict(pooltest.Everything.Cluster)
		pooltest.After(time.Minute)
		require.Less(t, l.Status().Bytes, empty+1000)
	})
	pooltest.Bubble(t, nil, func(t *testing.T, _ *pooltest.Server, p *informerpool.Pool) {
		for i := range 10 {
			seen(pooltest.AcquireSynced(t, p, pooltest.In(fmt.Sprint("ns", i))), 20, size)
		}
		require.Less(t, p.ClusterSummary(pooltest.Everything.Cluster).Bytes, int64(9<<20), "a cluster has one bound")
	})
}

// TestHazardSeenObjectsKeepAnInformerOverBudget: the memory for reads is not
// part of the budget.
func TestHazardSeenObjectsKeepAnInformerOverBudget(t *testing.T) {
	const size = 100_000
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.MaxClusterBytes = 4 * size
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		other := pooltest.AcquireSynced(t, p, pooltest.In("other"))
		seen(l, 3, size)
		seen(other, 2, size)
		for i := range 3 {
			s.Put("ns", fmt.Sprint("o", i), i, "l="+pooltest.Noise(i, size))
		}
		pooltest.After(time.Minute)
		require.NoError(t, l.Status().LastError)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		require.NoError(t, other.WaitForSync(context.Background()))
	})
}

// TestHazardSeenObjectOfAKindThatVanishes: the resource is proved not to exist
// any more, and with it an object that only a read has shown.
func TestHazardSeenObjectOfAKindThatVanishes(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, _ *informerpool.Pool) {
		source := pooltest.NewDefined(s)
		p, err := informerpool.New(informerpool.Options{Source: source})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.Record(t, p, l)
		synctest.Wait()
		r.Take()
		source.Define("")
		s.FailWith(apierrors.NewNotFound(pooltest.Widgets.GroupResource(), ""))
		s.Put("ns", "a", 2)
		s.Cut(io.ErrUnexpectedEOF)
		s.Set(func(s *pooltest.Server) { s.Deaf = true })
		s.Put("ns", "o", 1)
		l.Seen(s.Read(t, "o"))
		pooltest.After(10 * time.Minute)
		require.Empty(t, pooltest.Contents(t, l))
		require.ElementsMatch(t, []string{"Updated ns/a@102", "Deleted ns/a@102", "Deleted ns/o@103"}, r.Take())
	})
}
