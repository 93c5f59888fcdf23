// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

func TestReleaseWhileTheServerHangsEndsTheInformer(t *testing.T) {
	for _, half := range []bool{false, true} {
		t.Run(fmt.Sprint("in mid-frame ", half), func(t *testing.T) {
			pooltest.Bubble(t, func(o *informerpool.Options) { o.Linger = -1 }, func(t *testing.T, s *pooltest.Server,
				p *informerpool.Pool) {
				if !half {
					s.Block = pooltest.Hang()
				}
				l := pooltest.Acquire(t, p, pooltest.Everything)
				synctest.Wait()
				if half {
					s.Set(func(s *pooltest.Server) {
						for w := range s.Watchers {
							w.Push(
								[]byte(`{"type":"ADDED","object":{"kind":"Widget","apiVersion":"example.com/v1","meta`))
						}
					})
					synctest.Wait()
				}
				waited := make(chan error, 1)
				if !half {
					go func() { waited <- l.WaitForSync(context.Background()) }()
					synctest.Wait()
				}
				l.Release()
				synctest.Wait()
				require.NotContains(t, pooltest.Stacks(), "(*reflector).run(", "no goroutine is left")
				require.Empty(t, p.Keys())
				if !half {
					require.ErrorIs(t, <-waited, informerpool.ErrReleased)
				}
			})
		})
	}
}

func TestNoSubscriptionToADyingInformer(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) { o.Linger = -1 }, func(t *testing.T, s *pooltest.Server,
		p *informerpool.Pool) {
		for range 200 {
			l := pooltest.AcquireSynced(t, p, pooltest.Everything)
			var added atomic.Bool
			r := pooltest.NewRecorder()
			sub := p.Subscribe(r)
			go l.Release()
			added.Store(sub.Add(l) == nil) // either refused, or removed by the release
			synctest.Wait()
			require.ErrorIs(t, sub.Add(l), informerpool.ErrReleased)
			r.Take()
			s.Put("ns", "a", 1)
			synctest.Wait()
			require.Empty(t, r.Take())
			require.NoError(t, sub.Close(context.Background()))
		}
	})
}

func TestFailureOfTheFirstUserLeavesNobodyDeaf(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Fail = func(string) error { return apierrors.NewNotFound(pooltest.Widgets.GroupResource(), "") }
		first := pooltest.Acquire(t, p, pooltest.Everything)
		require.Error(t, first.WaitForSync(context.Background()))
		second := pooltest.Acquire(t, p, pooltest.Everything)
		r := pooltest.Record(t, p, second)
		first.Release()
		s.Heal()
		s.Put("ns", "a", 1)
		pooltest.After(time.Minute)
		require.Equal(t, []string{"Added ns/a@101"}, r.Take())
	})
}

func TestReadsAfterReleaseStartNothing(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		l.Release()
		pooltest.After(pooltest.Long)
		requests := s.Count("stream")
		_, err := l.Get("ns", "a")
		require.ErrorIs(t, err, informerpool.ErrReleased)
		_, _, err = l.List(informerpool.Query{})
		require.ErrorIs(t, err, informerpool.ErrReleased)
		require.ErrorIs(t, l.AddIndex("x", func(*informerpool.Object) []string { return nil }),
			informerpool.ErrReleased)
		pooltest.After(pooltest.Long)
		require.Equal(t, requests, s.Count("stream"))
		require.Empty(t, p.Keys())
	})
}

func TestCyclesOfAcquireAndReleaseLeaveNothing(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) { o.Linger = -1 }, func(t *testing.T, s *pooltest.Server,
		p *informerpool.Pool) {
		for i := range 500 {
			l := pooltest.Acquire(t, p, pooltest.In(fmt.Sprint("ns", i%7)))
			sub := pooltest.Subscribe(t, p, l, pooltest.NewRecorder())
			if i%3 > 0 {
				require.NoError(t, l.WaitForSync(context.Background()))
			}
			l.Release()
			sub.Stop()
		}
		synctest.Wait()
		require.Empty(t, p.Keys())
		require.NotContains(t, pooltest.Stacks(), "(*reflector).run(")
		s.Mu.Lock()
		defer s.Mu.Unlock()
		require.Empty(t, s.Watchers, "every stream is closed")
	})
}

func TestHandlerAddedInTheMiddleOfAResync(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) { o.PagedLists, o.PageSize = true, 2 }, func(t *testing.T,
		s *pooltest.Server, p *informerpool.Pool) {
		for i := range 9 {
			s.Put("ns", fmt.Sprint("o", i), 1)
		}
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		s.FailWith(pooltest.ErrUnreachable)
		s.Cut(io.ErrUnexpectedEOF)
		s.Delete("ns", "o7")
		s.Put("ns", "o1", 2)
		s.Compact()
		// The re-sync stops after its second page.
		pages, resume := 0, pooltest.Hang()
		s.Set(func(s *pooltest.Server) {
			s.Fail = func(verb string) error {
				if pages++; verb == "list" && pages > 4 {
					<-resume
				}
				return nil
			}
		})
		pooltest.After(time.Minute)
		r := pooltest.NewRecorder()
		sub := pooltest.Subscribe(t, p, l, r)
		require.NoError(t, sub.WaitForSync(context.Background(), l))
		require.Len(t, r.State(), 9, "what vanished is known until the list's end")
		close(resume)
		pooltest.After(time.Minute)
		require.Equal(t, s.State(nil), r.State())
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		r.RequireSound(t)
	})
}

// perResource fails the requests of one resource only.
type perResource struct {
	*pooltest.Server
	resource string
	err      error
}

func (p perResource) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Key.Resource.Resource == p.resource || r.Key.Resource.Version == p.resource {
		return nil, p.err
	}
	return p.Server.List(ctx, r)
}

func (p perResource) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Key.Resource.Resource == p.resource || r.Key.Resource.Version == p.resource {
		return nil, p.err
	}
	return p.Server.Watch(ctx, r)
}

// TestOneBrokenResourceStopsNoOther covers a conversion webhook that fails for
// one definition, and a version that is no longer served while another is.
func TestOneBrokenResourceStopsNoOther(t *testing.T) {
	for broken, err := range map[string]error{
		"gadgets": apierrors.NewInternalError(errors.New("conversion webhook failed")),
		"v1beta1": apierrors.NewNotFound(pooltest.Widgets.GroupResource(), ""),
	} {
		t.Run(broken, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := pooltest.NewServer()
				p, perr := informerpool.New(informerpool.Options{Source: perResource{s, broken, err}})
				require.NoError(t, perr)
				defer func() { require.NoError(t, p.Close(context.Background())) }()
				bad := pooltest.Everything
				if strings.HasPrefix(broken, "v") {
					bad.Resource.Version = broken
				} else {
					bad.Resource.Resource = broken
				}
				b := pooltest.Acquire(t, p, bad)
				good := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.Record(t, p, good)
				pooltest.After(time.Minute)
				require.Error(t, b.Status().LastError)
				b.Release()
				pooltest.After(pooltest.Long)
				s.Put("ns", "a", 1)
				synctest.Wait()
				require.Len(t, r.Take(), 1)
				require.EqualValues(t, 0, good.Status().Resyncs)
			})
		})
	}
}

// TestObjectOverTheSizeLimitStopsNoOther: otherwise any user who can create one
// object could freeze the informer of all.
func TestObjectOverTheSizeLimitStopsNoOther(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) { o.MaxObjectBytes = 4096 }, func(t *testing.T, s *pooltest.Server,
		p *informerpool.Pool) {
		s.Put("ns", "small", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		s.Put("ns", "huge", 1, "l="+strings.Repeat("x", 5000))
		s.Put("ns", "small", 2)
		synctest.Wait()
		require.Equal(t, informerpool.StateSynced, l.Status().State)
		require.Contains(t, l.Status().LastRefusal, "4096")
		require.ErrorIs(t, l.Unknown("ns", "huge"), informerpool.ErrRefused)
		require.NoError(t, l.Trust(0))
		require.Len(t, pooltest.Contents(t, l), 1)
		require.Equal(t, s.State(nil)["ns/small"], pooltest.Contents(t, l)["ns/small"])
		s.Delete("ns", "huge")
		synctest.Wait()
		require.NoError(t, l.Unknown("ns", "huge"))
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
	})
}

func TestEverythingAtOnceWithCloseEndsWithoutAHang(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			s := pooltest.NewServer()
			s.Put("ns", "a", 1)
			p, err := informerpool.New(informerpool.Options{Source: s, Linger: time.Nanosecond})
			require.NoError(t, err)
			var group sync.WaitGroup
			for i := range 10 {
				group.Go(func() {
					sub := p.Subscribe(pooltest.NewRecorder())
					for range 5 {
						l, err := p.Acquire(context.Background(), pooltest.In(fmt.Sprint("ns", i%3)))
						if errors.Is(err, informerpool.ErrClosed) {
							return
						}
						_ = sub.Add(l)
						_ = l.WaitForSync(context.Background())
						_, _, _ = l.List(informerpool.Query{})
						l.Release()
					}
					_ = sub.Close(context.Background())
				})
			}
			go s.Put("ns", "a", 2)
			require.NoError(t, p.Close(context.Background()))
			require.NoError(t, p.Close(context.Background()), "closing again changes nothing")
			group.Wait()
			require.Empty(t, p.Keys())
		})
	}
}

func TestCloseDuringTheLinger(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, _ *pooltest.Server, p *informerpool.Pool) {
		pooltest.AcquireSynced(t, p, pooltest.Everything).Release()
		require.NoError(t, p.Close(context.Background()))
		pooltest.After(pooltest.Long)
		require.Empty(t, p.Keys())
	})
}
