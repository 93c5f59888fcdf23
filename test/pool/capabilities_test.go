// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestHazardServerIsDowngraded: it no longer streams lists, so the history
// question, which is a streamed list, goes unanswered.
func TestHazardServerIsDowngraded(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		s.Put("ns", "deleted", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		pooltest.After(time.Minute)
		s.Set(func(s *pooltest.Server) {
			s.Fail = func(verb string) error {
				if verb == "guard" || verb == "stream" {
					return apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
				}
				return nil
			}
		})
		s.Cut(io.ErrUnexpectedEOF)
		s.Put("ns", "a", 2)
		s.Delete("ns", "deleted")
		pooltest.After(5 * time.Second)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		require.Equal(t, informerpool.StateSynced, l.Status().State)
		require.Zero(t, l.Status().Resyncs, "the question has an older form")
	})
}

// TestHazardServerIsUpgraded: a missing capability is remembered for a limited
// time, and for all informers of the API group.
func TestHazardServerIsUpgraded(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.NoStream = true
		pooltest.AcquireSynced(t, p, pooltest.In("one"))
		pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		pooltest.AcquireSynced(t, p, pooltest.In("other"))
		require.Equal(t, 1, s.Count("stream"), "one informer asks for all")
		require.Equal(t, 3, s.Count("list"))
		s.Set(func(s *pooltest.Server) { s.NoStream = false })
		pooltest.After(11 * time.Minute)
		pooltest.AcquireSynced(t, p, pooltest.In("later"))
		require.Equal(t, 2, s.Count("stream"))

	})
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.NoStream = true
		pooltest.AcquireSynced(t, p, pooltest.In("one"))
		s.Set(func(s *pooltest.Server) { s.NoStream = false })
		p.Wake(pooltest.Everything.Cluster) // a reconnect
		pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		require.Equal(t, 2, s.Count("stream"))
	})
}

// TestHazardListWithoutWatch: a resource that cannot be watched is polled.
func TestHazardListWithoutWatch(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		s.Fail = func(verb string) error {
			if verb != "list" {
				return apierrors.NewMethodNotSupported(pooltest.Widgets.GroupResource(), "watch")
			}
			return nil
		}
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.Record(t, p, l)
		synctest.Wait()
		r.Take()
		s.Put("ns", "a", 2)
		s.Put("ns", "b", 1)
		pooltest.After(41 * time.Second)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		require.ElementsMatch(t, []string{"Updated ns/a@102", "Added ns/b@103"}, r.Take())
		s.Delete("ns", "b")
		pooltest.After(41 * time.Second)
		require.Equal(t, []string{"Deleted ns/b@103"}, r.Take())
		require.NoError(t, l.Trust(0))
		require.True(t, l.Status().Polling)
		require.Equal(t, informerpool.StateSynced, l.Status().State)
		lists := s.Count("list")
		pooltest.After(10 * time.Minute)
		require.InDelta(t, 20, s.Count("list")-lists, 8, "one list each interval")

		s.FailWith(pooltest.ErrUnreachable)
		pooltest.After(41 * time.Second)
		require.Error(t, l.Trust(0), "a poll that fails is no poll")
		require.Equal(t, informerpool.StateDegraded, l.Status().State)
		s.Heal()
		pooltest.After(11 * time.Minute)
		require.False(t, l.Status().Polling, "it can be watched now")
		s.Put("ns", "c", 1)
		synctest.Wait()
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
	})
}

// TestHazardContinueTokensExpire: the list completes all the same, and soon.
func TestHazardContinueTokensExpire(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) { o.PagedLists, o.PageSize = true, 2 }, func(t *testing.T,
		s *pooltest.Server, _ *informerpool.Pool) {
		for i := range 9 {
			s.Put("ns", fmt.Sprint("o", i), 1)
		}
		source := questioned{s, func(r informerpool.Request, _ bool) (bool, error) {
			return r.Options.Continue != "", apierrors.NewResourceExpired("continue token expired")
		}}
		p, err := informerpool.New(informerpool.Options{Source: source, PagedLists: true, PageSize: 2})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		began := time.Now()
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		require.Less(t, time.Since(began), 5*time.Second)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		require.LessOrEqual(t, s.Count("list"), 3)
	})
}

// TestHazardNothingButExpiry: a server that reports every version as expired is
// queried ever less often.
func TestHazardNothingButExpiry(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.NoStream = true
		s.Fail = func(verb string) error {
			if verb == "watch" {
				return apierrors.NewResourceExpired("too old")
			}
			return nil
		}
		pooltest.AcquireSynced(t, p, pooltest.Everything)
		pooltest.After(10 * time.Minute)
		require.Less(t, s.Count("list"), 60)
	})
}

// TestHazardIdleResourceWithoutBookmarks: a server without a watch cache sends
// nothing while nothing changes.
func TestHazardIdleResourceWithoutBookmarks(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		for range 3 * 60 {
			pooltest.After(10 * time.Second)
			require.Equal(t, informerpool.StateSynced, l.Status().State)
			require.NoError(t, l.Status().LastError)
			require.NoError(t, l.Trust(time.Second))
			require.Less(t, time.Since(l.Status().LastSeen), informerpool.DefaultStallTimeout)
		}
		require.LessOrEqual(t, l.Status().Stalls, int64(1), "not for ever")
		require.Zero(t, l.Status().Resyncs)

		// A dead server is detected as soon as one with bookmarks.
		proof := l.Status().LastSeen
		s.Set(func(s *pooltest.Server) { s.Block = pooltest.Hang() })
		for l.Status().State == informerpool.StateSynced {
			time.Sleep(time.Second)
		}
		require.InDelta(t, informerpool.DefaultStallTimeout.Seconds(), time.Since(proof).Seconds(), 2)
	})
}

// TestHazardIdleResourceOutlivesItsHistory: a server without a watch cache for
// the resource no longer knows the informer's version once etcd has compacted
// it, which happens every five minutes by default, although nothing has changed
// since. A list follows, and it counts as no failure.
func TestHazardIdleResourceOutlivesItsHistory(t *testing.T) {
	var failures []error
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.OnFailed = func(_ informerpool.Key, err error) { failures = append(failures, err) }
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		const rounds = 12
		for range rounds {
			pooltest.After(5 * time.Minute)
			s.Set(func(s *pooltest.Server) { s.Version += 10 }) // of other resources
			s.Compact()
			require.Equal(t, informerpool.StateSynced, l.Status().State)
			require.NoError(t, l.Trust(time.Second))
		}
		pooltest.After(5 * time.Minute)
		require.Empty(t, failures)
		require.Equal(t, int64(rounds), l.Status().Resyncs, "as often as the history was forgotten, and no more")
		require.LessOrEqual(t, l.Status().Stalls, int64(1))

		// A server that keeps refusing is faulty.
		s.Set(func(s *pooltest.Server) {
			s.Fail = func(verb string) error {
				if verb != "guard" {
					return apierrors.NewResourceExpired("too old")
				}
				return nil
			}
		})
		pooltest.After(5 * time.Minute)
		require.NotEmpty(t, failures)
		require.Equal(t, informerpool.StateDegraded, l.Status().State)
	})
}

// TestHazardStreamedListWithoutEnd: the informer falls back to paged lists, and
// its status reports why.
func TestHazardStreamedListWithoutEnd(t *testing.T) {
	for name, frames := range map[string]func(*pooltest.Server, *pooltest.Watch, int){
		"silence": func(*pooltest.Server, *pooltest.Watch, int) {},
		"the same": func(s *pooltest.Server, w *pooltest.Watch, _ int) {
			w.Push(pooltest.Frame("ADDED", s.Objects[aWidget].JSON()))
		},
		"changes": func(s *pooltest.Server, w *pooltest.Watch, i int) {
			o := s.Objects[aWidget]
			o.Version += uint64(i)
			w.Push(pooltest.Frame("MODIFIED", o.JSON()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, _ *informerpool.Pool) {
				s.Put("ns", "a", 1)
				p, err := informerpool.New(informerpool.Options{Source: endless{s, frames}})
				require.NoError(t, err)
				defer func() { require.NoError(t, p.Close(context.Background())) }()
				l := pooltest.Acquire(t, p, pooltest.Everything)
				pooltest.After(2 * time.Minute)
				require.NoError(t, l.WaitForSync(context.Background()))
				require.Equal(t, s.State(nil), pooltest.Contents(t, l))
			})
		})
	}
}

var aWidget = types.NamespacedName{Namespace: "ns", Name: "a"}

// endless is a server that never ends the list it streams.
type endless struct {
	*pooltest.Server
	frames func(s *pooltest.Server, w *pooltest.Watch, i int)
}

func (e endless) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Options.SendInitialEvents == nil {
		return e.Server.Watch(ctx, r)
	}
	w := &pooltest.Watch{Ctx: ctx, Server: e.Server, News: make(chan struct{}, 1)}
	w.Push(pooltest.Frame("ADDED", e.Objects[aWidget].JSON()))
	go func() {
		for i := 0; ctx.Err() == nil; i++ {
			e.frames(e.Server, w, i)
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return w, nil
}

// TestHazardStreamingFailsWithinTheServer: lists in pages work.
func TestHazardStreamingFailsWithinTheServer(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		s.Fail = func(verb string) error {
			if verb == "stream" {
				return apierrors.NewInternalError(io.ErrClosedPipe)
			}
			return nil
		}
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
	})
}
