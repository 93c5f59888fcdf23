// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

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
)

func TestReleaseWhileTheServerHangsEndsTheInformer(t *testing.T) {
	for _, half := range []bool{false, true} {
		t.Run(fmt.Sprint("in mid-frame ", half), func(t *testing.T) {
			bubble(t, func(o *informerpool.Options) { o.Linger = -1 }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				if !half {
					s.block = hang()
				}
				l := acquire(t, p, everything)
				synctest.Wait()
				if half {
					s.set(func(s *modelServer) {
						for w := range s.watchers {
							w.push([]byte(`{"type":"ADDED","object":{"kind":"Widget","apiVersion":"example.com/v1","meta`))
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
				require.NotContains(t, stacks(), "(*reflector).run(", "no goroutine is left")
				require.Empty(t, p.Keys())
				if !half {
					require.ErrorIs(t, <-waited, informerpool.ErrReleased)
				}
			})
		})
	}
}

func TestNoSubscriptionToADyingInformer(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { o.Linger = -1 }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		for range 200 {
			l := acquireSynced(t, p, everything)
			var added atomic.Bool
			r := newRecorder()
			sub := p.Subscribe(r)
			go l.Release()
			added.Store(sub.Add(l) == nil) // either refused, or removed by the release
			synctest.Wait()
			require.ErrorIs(t, sub.Add(l), informerpool.ErrReleased)
			r.take()
			s.put("ns", "a", 1)
			synctest.Wait()
			require.Empty(t, r.take())
			require.NoError(t, sub.Close(context.Background()))
		}
	})
}

func TestFailureOfTheFirstUserLeavesNobodyDeaf(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.fail = func(string) error { return apierrors.NewNotFound(widgets.GroupResource(), "") }
		first := acquire(t, p, everything)
		require.Error(t, first.WaitForSync(context.Background()))
		second := acquire(t, p, everything)
		r := newRecorder()
		subscribe(t, p, second, r)
		first.Release()
		s.set(func(s *modelServer) { s.fail = nil })
		s.put("ns", "a", 1)
		after(time.Minute)
		require.Equal(t, []string{"Added ns/a@101"}, r.take())
	})
}

func TestReadsAfterReleaseStartNothing(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		l := acquireSynced(t, p, everything)
		l.Release()
		after(long)
		requests := s.count("stream")
		_, err := l.Get("ns", "a")
		require.ErrorIs(t, err, informerpool.ErrReleased)
		_, _, err = l.List(informerpool.Query{})
		require.ErrorIs(t, err, informerpool.ErrReleased)
		require.ErrorIs(t, l.AddIndex("x", func(*informerpool.Object) []string { return nil }), informerpool.ErrReleased)
		after(long)
		require.Equal(t, requests, s.count("stream"))
		require.Empty(t, p.Keys())
	})
}

func TestCyclesOfAcquireAndReleaseLeaveNothing(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { o.Linger = -1 }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		for i := range 500 {
			l := acquire(t, p, in(fmt.Sprint("ns", i%7)))
			sub := subscribe(t, p, l, newRecorder())
			if i%3 > 0 {
				require.NoError(t, l.WaitForSync(context.Background()))
			}
			l.Release()
			sub.Stop()
		}
		synctest.Wait()
		require.Empty(t, p.Keys())
		require.NotContains(t, stacks(), "(*reflector).run(")
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Empty(t, s.watchers, "every stream is closed")
	})
}

func TestHandlerAddedInTheMiddleOfAResync(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { o.PagedLists, o.PageSize = true, 2 }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		for i := range 9 {
			s.put("ns", fmt.Sprint("o", i), 1)
		}
		l := acquireSynced(t, p, everything)
		s.set(func(s *modelServer) { s.fail = func(string) error { return errUnreachable } })
		s.cut(io.ErrUnexpectedEOF)
		s.delete("ns", "o7")
		s.put("ns", "o1", 2)
		s.compact()
		// The re-sync stops after its second page.
		pages, resume := 0, hang()
		s.set(func(s *modelServer) {
			s.fail = func(verb string) error {
				if pages++; verb == "list" && pages > 4 {
					<-resume
				}
				return nil
			}
		})
		after(time.Minute)
		r := newRecorder()
		sub := subscribe(t, p, l, r)
		require.NoError(t, sub.WaitForSync(context.Background(), l))
		require.Len(t, r.told(), 9, "what vanished is known until the list's end")
		close(resume)
		after(time.Minute)
		require.Equal(t, s.state(nil), r.told())
		require.Equal(t, s.state(nil), contents(t, l))
		r.requireSound(t)
	})
}

// perResource fails the requests of one resource only.
type perResource struct {
	*modelServer
	resource string
	err      error
}

func (p perResource) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Key.Resource.Resource == p.resource || r.Key.Resource.Version == p.resource {
		return nil, p.err
	}
	return p.modelServer.List(ctx, r)
}

func (p perResource) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Key.Resource.Resource == p.resource || r.Key.Resource.Version == p.resource {
		return nil, p.err
	}
	return p.modelServer.Watch(ctx, r)
}

// TestOneBrokenResourceStopsNoOther covers a conversion webhook that fails for
// one definition, and a version that is no longer served while another is.
func TestOneBrokenResourceStopsNoOther(t *testing.T) {
	for broken, err := range map[string]error{
		"gadgets": apierrors.NewInternalError(errors.New("conversion webhook failed")),
		"v1beta1": apierrors.NewNotFound(widgets.GroupResource(), ""),
	} {
		t.Run(broken, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newModelServer()
				p, perr := informerpool.New(informerpool.Options{Source: perResource{s, broken, err}})
				require.NoError(t, perr)
				defer func() { require.NoError(t, p.Close(context.Background())) }()
				bad := everything
				if strings.HasPrefix(broken, "v") {
					bad.Resource.Version = broken
				} else {
					bad.Resource.Resource = broken
				}
				b := acquire(t, p, bad)
				good := acquireSynced(t, p, everything)
				r := newRecorder()
				subscribe(t, p, good, r)
				after(time.Minute)
				require.Error(t, b.Status().LastError)
				b.Release()
				after(long)
				s.put("ns", "a", 1)
				synctest.Wait()
				require.Len(t, r.take(), 1)
				require.EqualValues(t, 0, good.Status().Resyncs)
			})
		})
	}
}

// TestObjectOverTheSizeLimitStopsNoOther: otherwise any user who can create one
// object could freeze the informer of all.
func TestObjectOverTheSizeLimitStopsNoOther(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { o.MaxObjectBytes = 4096 }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "small", 1)
		l := acquireSynced(t, p, everything)
		s.put("ns", "huge", 1, "l="+strings.Repeat("x", 5000))
		s.put("ns", "small", 2)
		synctest.Wait()
		require.Equal(t, informerpool.StateSynced, l.Status().State)
		require.Contains(t, l.Status().LastRefusal, "4096")
		require.ErrorIs(t, l.Unknown("ns", "huge"), informerpool.ErrRefused)
		require.NoError(t, l.Trust(0))
		require.Len(t, contents(t, l), 1)
		require.Equal(t, s.state(nil)["ns/small"], contents(t, l)["ns/small"])
		s.delete("ns", "huge")
		synctest.Wait()
		require.NoError(t, l.Unknown("ns", "huge"))
		require.Equal(t, s.state(nil), contents(t, l))
	})
}

func TestEverythingAtOnceWithCloseEndsWithoutAHang(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			s := newModelServer()
			s.put("ns", "a", 1)
			p, err := informerpool.New(informerpool.Options{Source: s, Linger: time.Nanosecond})
			require.NoError(t, err)
			var group sync.WaitGroup
			for i := range 10 {
				group.Go(func() {
					sub := p.Subscribe(newRecorder())
					for range 5 {
						l, err := p.Acquire(context.Background(), in(fmt.Sprint("ns", i%3)))
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
			go s.put("ns", "a", 2)
			require.NoError(t, p.Close(context.Background()))
			require.NoError(t, p.Close(context.Background()), "closing again changes nothing")
			group.Wait()
			require.Empty(t, p.Keys())
		})
	}
}

func TestCloseDuringTheLinger(t *testing.T) {
	bubble(t, nil, func(t *testing.T, _ *modelServer, p *informerpool.Pool) {
		acquireSynced(t, p, everything).Release()
		require.NoError(t, p.Close(context.Background()))
		after(long)
		require.Empty(t, p.Keys())
	})
}
