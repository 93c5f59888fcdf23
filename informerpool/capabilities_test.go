// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

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
)

// TestHazardServerIsDowngraded: it no longer streams lists, so the history
// question, which is a streamed list, goes unanswered.
func TestHazardServerIsDowngraded(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		s.put("ns", "deleted", 1)
		l := acquireSynced(t, p, everything)
		after(time.Minute)
		s.set(func(s *modelServer) {
			s.fail = func(verb string) error {
				if verb == "guard" || verb == "stream" {
					return apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
				}
				return nil
			}
		})
		s.cut(io.ErrUnexpectedEOF)
		s.put("ns", "a", 2)
		s.delete("ns", "deleted")
		after(5 * time.Second)
		require.Equal(t, s.state(nil), contents(t, l))
		require.Equal(t, informerpool.StateSynced, l.Status().State)
		require.Zero(t, l.Status().Resyncs, "the question has an older form")
	})
}

// TestHazardServerIsUpgraded: a missing capability is remembered for a limited
// time, and for all informers of the API group.
func TestHazardServerIsUpgraded(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.noStream = true
		acquireSynced(t, p, in("one"))
		acquireSynced(t, p, in("ns"))
		acquireSynced(t, p, in("other"))
		require.Equal(t, 1, s.count("stream"), "one informer asks for all")
		require.Equal(t, 3, s.count("list"))
		s.set(func(s *modelServer) { s.noStream = false })
		after(11 * time.Minute)
		acquireSynced(t, p, in("later"))
		require.Equal(t, 2, s.count("stream"))

	})
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.noStream = true
		acquireSynced(t, p, in("one"))
		s.set(func(s *modelServer) { s.noStream = false })
		p.Wake(everything.Cluster) // a reconnect
		acquireSynced(t, p, in("ns"))
		require.Equal(t, 2, s.count("stream"))
	})
}

// TestHazardListWithoutWatch: a resource that cannot be watched is polled.
func TestHazardListWithoutWatch(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		s.fail = func(verb string) error {
			if verb != "list" {
				return apierrors.NewMethodNotSupported(widgets.GroupResource(), "watch")
			}
			return nil
		}
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		subscribe(t, p, l, r)
		synctest.Wait()
		r.take()
		s.put("ns", "a", 2)
		s.put("ns", "b", 1)
		after(41 * time.Second)
		require.Equal(t, s.state(nil), contents(t, l))
		require.ElementsMatch(t, []string{"Updated ns/a@102", "Added ns/b@103"}, r.take())
		s.delete("ns", "b")
		after(41 * time.Second)
		require.Equal(t, []string{"Deleted ns/b@103"}, r.take())
		require.NoError(t, l.Trust(0))
		require.True(t, l.Status().Polling)
		require.Equal(t, informerpool.StateSynced, l.Status().State)
		lists := s.count("list")
		after(10 * time.Minute)
		require.InDelta(t, 20, s.count("list")-lists, 8, "one list each interval")

		s.set(func(s *modelServer) { s.fail = func(string) error { return errUnreachable } })
		after(41 * time.Second)
		require.Error(t, l.Trust(0), "a poll that fails is no poll")
		require.Equal(t, informerpool.StateDegraded, l.Status().State)
		s.set(func(s *modelServer) { s.fail = nil })
		after(11 * time.Minute)
		require.False(t, l.Status().Polling, "it can be watched now")
		s.put("ns", "c", 1)
		synctest.Wait()
		require.Equal(t, s.state(nil), contents(t, l))
	})
}

// TestHazardContinueTokensExpire: the list completes all the same, and soon.
func TestHazardContinueTokensExpire(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { o.PagedLists, o.PageSize = true, 2 }, func(t *testing.T, s *modelServer, _ *informerpool.Pool) {
		for i := range 9 {
			s.put("ns", fmt.Sprint("o", i), 1)
		}
		source := questioned{s, func(r informerpool.Request, _ bool) (bool, error) {
			return r.Options.Continue != "", apierrors.NewResourceExpired("continue token expired")
		}}
		p, err := informerpool.New(informerpool.Options{Source: source, PagedLists: true, PageSize: 2})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		began := time.Now()
		l := acquireSynced(t, p, everything)
		require.Less(t, time.Since(began), 5*time.Second)
		require.Equal(t, s.state(nil), contents(t, l))
		require.LessOrEqual(t, s.count("list"), 3)
	})
}

// TestHazardNothingButExpiry: a server that reports every version as expired is
// queried ever less often.
func TestHazardNothingButExpiry(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.noStream = true
		s.fail = func(verb string) error {
			if verb == "watch" {
				return apierrors.NewResourceExpired("too old")
			}
			return nil
		}
		acquireSynced(t, p, everything)
		after(10 * time.Minute)
		require.Less(t, s.count("list"), 60)
	})
}

// TestHazardIdleResourceWithoutBookmarks: a server without a watch cache sends
// nothing while nothing changes.
func TestHazardIdleResourceWithoutBookmarks(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		l := acquireSynced(t, p, everything)
		for range 3 * 60 {
			after(10 * time.Second)
			require.Equal(t, informerpool.StateSynced, l.Status().State)
			require.NoError(t, l.Status().LastError)
			require.NoError(t, l.Trust(time.Second))
			require.Less(t, time.Since(l.Status().LastProof), informerpool.DefaultStallTimeout)
		}
		require.LessOrEqual(t, l.Status().Stalls, int64(1), "not for ever")
		require.Zero(t, l.Status().Resyncs)

		// A dead server is detected as soon as one with bookmarks.
		proof := l.Status().LastProof
		s.set(func(s *modelServer) { s.block = hang() })
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
	bubble(t, func(o *informerpool.Options) {
		o.OnFailed = func(_ informerpool.Key, err error) { failures = append(failures, err) }
	}, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		const rounds = 12
		for range rounds {
			after(5 * time.Minute)
			s.set(func(s *modelServer) { s.rv += 10 }) // of other resources
			s.compact()
			require.Equal(t, informerpool.StateSynced, l.Status().State)
			require.NoError(t, l.Trust(time.Second))
		}
		after(5 * time.Minute)
		require.Empty(t, failures)
		require.Equal(t, int64(rounds), l.Status().Resyncs, "as often as the history was forgotten, and no more")
		require.LessOrEqual(t, l.Status().Stalls, int64(1))

		// A server that keeps refusing is faulty.
		s.set(func(s *modelServer) {
			s.fail = func(verb string) error {
				if verb != "guard" {
					return apierrors.NewResourceExpired("too old")
				}
				return nil
			}
		})
		after(5 * time.Minute)
		require.NotEmpty(t, failures)
		require.Equal(t, informerpool.StateDegraded, l.Status().State)
	})
}

// TestHazardStreamedListWithoutEnd: the informer falls back to paged lists, and
// its status reports why.
func TestHazardStreamedListWithoutEnd(t *testing.T) {
	for name, frames := range map[string]func(*modelServer, *modelWatch, int){
		"silence":  func(*modelServer, *modelWatch, int) {},
		"the same": func(s *modelServer, w *modelWatch, _ int) { w.push(frame("ADDED", s.objects[aWidget].json())) },
		"changes": func(s *modelServer, w *modelWatch, i int) {
			o := s.objects[aWidget]
			o.rv += uint64(i)
			w.push(frame("MODIFIED", o.json()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, s *modelServer, _ *informerpool.Pool) {
				s.put("ns", "a", 1)
				p, err := informerpool.New(informerpool.Options{Source: endless{s, frames}})
				require.NoError(t, err)
				defer func() { require.NoError(t, p.Close(context.Background())) }()
				l := acquire(t, p, everything)
				after(2 * time.Minute)
				require.NoError(t, l.WaitForSync(context.Background()))
				require.Equal(t, s.state(nil), contents(t, l))
			})
		})
	}
}

var aWidget = types.NamespacedName{Namespace: "ns", Name: "a"}

// endless is a server that never ends the list it streams.
type endless struct {
	*modelServer
	frames func(s *modelServer, w *modelWatch, i int)
}

func (e endless) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Options.SendInitialEvents == nil {
		return e.modelServer.Watch(ctx, r)
	}
	w := &modelWatch{ctx: ctx, server: e.modelServer, news: make(chan struct{}, 1)}
	w.push(frame("ADDED", e.objects[aWidget].json()))
	go func() {
		for i := 0; ctx.Err() == nil; i++ {
			e.frames(e.modelServer, w, i)
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
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		s.fail = func(verb string) error {
			if verb == "stream" {
				return apierrors.NewInternalError(io.ErrClosedPipe)
			}
			return nil
		}
		l := acquireSynced(t, p, everything)
		require.Equal(t, s.state(nil), contents(t, l))
	})
}
