// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool"
)

func TestBrokenWatchResumesWithoutAList(t *testing.T) {
	for _, cause := range []error{io.EOF, io.ErrUnexpectedEOF, errors.New("http2: client connection lost")} {
		t.Run(cause.Error(), func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "a", 1)
				s.put("ns", "b", 1)
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				subscribe(t, p, l, r)
				after(time.Minute)
				r.take()
				s.set(func(s *modelServer) { s.fail = func(string) error { return errUnreachable } })
				s.cut(cause)
				time.Sleep(time.Second)
				s.put("ns", "a", 2) // while no watch is open
				s.delete("ns", "b")
				s.put("ns", "c", 1)
				s.set(func(s *modelServer) { s.fail = nil })
				after(time.Minute)
				require.Equal(t, []string{"Updated ns/a@103", "Deleted ns/b@104", "Added ns/c@105"}, r.take())
				require.Equal(t, s.state(nil), contents(t, l))
				require.Equal(t, 1, s.count("stream"))
				require.Zero(t, s.count("list"))
				r.requireSound(t)
			})
		})
	}
}

func TestGoneResyncsWithoutEventsForUnchanged(t *testing.T) {
	for _, paged := range []bool{false, true} {
		t.Run(fmt.Sprint("paged ", paged), func(t *testing.T) {
			bubble(t, func(o *informerpool.Options) { o.PagedLists = paged; o.PageSize = 2 }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				for _, name := range []string{"a", "b", "c", "d"} {
					s.put("ns", name, 1)
				}
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				subscribe(t, p, l, r)
				after(time.Minute)
				r.take()
				s.set(func(s *modelServer) { s.fail = func(string) error { return errUnreachable } })
				s.cut(io.ErrUnexpectedEOF)
				time.Sleep(time.Second)
				s.put("ns", "a", 2)
				s.delete("ns", "b")
				s.put("ns", "e", 1)
				s.compact()
				s.set(func(s *modelServer) { s.fail = nil })
				after(time.Minute)
				require.ElementsMatch(t, []string{"Updated ns/a@105", "Deleted ns/b@102", "Added ns/e@107"}, r.take())
				require.Equal(t, s.state(nil), contents(t, l))
				require.EqualValues(t, 1, l.Status().Resyncs)
				r.requireSound(t)
			})
		})
	}
}

func TestDeletesFoundByAListHaveAnUnknownFinalState(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		s.put("ns", "b", 1)
		l := acquireSynced(t, p, everything)
		unknown := map[string]bool{}
		subscribe(t, p, l, informerpool.HandlerFunc(func(e informerpool.Event) {
			if e.Type == informerpool.Deleted {
				unknown[e.Old.GetName()] = e.FinalStateUnknown
			}
		}))
		synctest.Wait()
		s.delete("ns", "a")
		synctest.Wait()
		s.cut(io.ErrUnexpectedEOF)
		s.delete("ns", "b")
		s.compact()
		after(time.Minute)
		require.Equal(t, map[string]bool{"a": false, "b": true}, unknown)
	})
}

func TestListBrokenHalfWayKeepsWhatWasThere(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { o.PagedLists = true }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		for i := range 20 {
			s.put("ns", fmt.Sprint("o", i), 1)
		}
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		subscribe(t, p, l, r)
		synctest.Wait()
		r.take()
		s.set(func(s *modelServer) { s.fail = func(string) error { return errUnreachable } })
		s.cut(io.ErrUnexpectedEOF)
		time.Sleep(time.Second)
		s.put("ns", "new", 1)
		s.compact()
		s.set(func(s *modelServer) { s.fail, s.cutAfter = nil, 1500 })
		after(time.Minute)
		require.Len(t, contents(t, l), 21, "the broken list's first objects are taken, and nothing is taken away")
		require.Equal(t, []string{"Added ns/new@121"}, r.take())
		require.Error(t, l.Status().LastError)
		require.Equal(t, informerpool.StateDegraded, l.Status().State)
		s.delete("ns", "o3")
		s.set(func(s *modelServer) { s.cutAfter = 0 })
		after(time.Minute)
		require.Equal(t, s.state(nil), contents(t, l))
		require.Len(t, r.take(), 1)
		require.NoError(t, l.Status().LastError)
	})
}

func TestRollbackStartsANewHistory(t *testing.T) {
	for _, paged := range []bool{false, true} {
		t.Run(fmt.Sprint("paged ", paged), func(t *testing.T) {
			var reported []informerpool.Key
			bubble(t, func(o *informerpool.Options) {
				o.PagedLists = paged
				o.OnRollback = func(k informerpool.Key) { reported = append(reported, k) }
			}, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "kept", 1)
				before := *snapshot(s)
				s.put("ns", "ghost", 1)
				s.put("ns", "kept", 2)
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				r.epochs = true
				subscribe(t, p, l, r)
				synctest.Wait()
				r.take()
				s.set(func(s *modelServer) { s.objects, s.rv, s.log = before.objects, before.rv, nil })
				s.cut(io.ErrUnexpectedEOF)
				after(time.Minute)
				s.put("ns", "late", 1)
				after(time.Minute)
				require.Equal(t, s.state(nil), contents(t, l))
				require.ElementsMatch(t, []string{"Deleted ns/ghost@102", "Updated ns/kept@101", "Added ns/late@102"}, r.take())
				require.Equal(t, []informerpool.Key{everything}, reported)
				r.requireSound(t)
			})
		})
	}
}

func snapshot(s *modelServer) *modelServer {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := newModelServer()
	maps.Copy(c.objects, s.objects)
	c.rv = s.rv
	return c
}

func TestNewEpochReplacesTheStoreAtOnce(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		for i := range 50 {
			s.put("ns", fmt.Sprint("o", i), 1)
		}
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		r.epochs = true
		// Each read shows a single epoch, including reads by a handler while it
		// handles the change.
		r.before = func(informerpool.Event) {
			objects, _, err := l.List(informerpool.Query{})
			require.NoError(t, err)
			for _, o := range objects {
				require.Equal(t, objects[0].GetUID()[0], o.GetUID()[0])
			}
		}
		subscribe(t, p, l, r)
		synctest.Wait()
		r.take()
		s.become("b", 1000) // far beyond: the resourceVersion alone would not show it
		for i := range 20 {
			s.put("ns", fmt.Sprint("o", i), 1)
		}
		after(time.Minute)
		require.Equal(t, s.state(nil), contents(t, l))
		require.EqualValues(t, "b", l.Epoch())
		require.Len(t, r.take(), 50+20, "a delete for each old object, an add for each new one")
		require.Equal(t, s.state(nil), r.told())
		r.requireSound(t)
	})
}

func TestStalledWatchIsCut(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		l := acquireSynced(t, p, everything)
		for range 10 { // an idle server sends one a minute
			after(time.Minute)
			s.bookmark()
		}
		synctest.Wait()
		require.Zero(t, l.Status().Stalls)
		began := time.Now()
		for l.Status().Stalls == 0 {
			time.Sleep(time.Second)
		}
		require.InDelta(t, informerpool.DefaultStallTimeout.Seconds(), time.Since(began).Seconds(), 1)
		s.put("ns", "a", 1)
		time.Sleep(time.Second)
		require.Equal(t, s.state(nil), contents(t, l))
		require.Equal(t, 1, s.count("stream"), "resumed, not listed")
	})
}

func TestHungRequestIsCut(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.block = hang()
		l := acquire(t, p, everything)
		time.Sleep(informerpool.DefaultStallTimeout + time.Second)
		require.ErrorIs(t, l.Status().LastError, informerpool.ErrStalled)
		s.set(func(s *modelServer) { s.block = nil })
		require.NoError(t, l.WaitForSync(context.Background()))
	})
}

func TestRefusalIsReportedAndHeals(t *testing.T) {
	refusals := map[string]struct {
		err error
		is  func(error) bool
	}{
		"forbidden": {apierrors.NewForbidden(widgets.GroupResource(), "", errors.New("no")), apierrors.IsForbidden},
		"not found": {apierrors.NewNotFound(widgets.GroupResource(), ""), apierrors.IsNotFound},
		"bad":       {apierrors.NewBadRequest("field label not supported"), apierrors.IsBadRequest},
	}
	for name, refusal := range refusals {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.fail = func(string) error { return refusal.err }
				l := acquire(t, p, everything)
				began := time.Now()
				err := l.WaitForSync(context.Background())
				require.True(t, refusal.is(err), "%v", err)
				require.Less(t, time.Since(began), time.Second)
				s.set(func(s *modelServer) { s.fail = nil })
				after(time.Minute)
				require.NoError(t, l.WaitForSync(context.Background()))
			})
		})
	}
}

func TestRefusalAfterSyncKeepsObjectsAndSaysSo(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		subscribe(t, p, l, r)
		synctest.Wait()
		r.take()
		s.set(func(s *modelServer) {
			s.fail = func(string) error { return apierrors.NewForbidden(widgets.GroupResource(), "", errors.New("no")) }
		})
		s.cut(io.ErrUnexpectedEOF)
		time.Sleep(10 * time.Minute)
		require.Empty(t, r.take())
		require.Len(t, contents(t, l), 1)
		st := l.Status()
		require.Equal(t, informerpool.StateDegraded, st.State)
		require.True(t, apierrors.IsForbidden(st.LastError))
	})
}

func TestObjectsOfADeletedDefinitionAreTakenAway(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		subscribe(t, p, l, r)
		synctest.Wait()
		r.take()
		missing := func(string) error { return apierrors.NewNotFound(widgets.GroupResource(), "") }
		s.set(func(s *modelServer) { s.fail = missing })
		s.cut(io.EOF)
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"Deleted ns/a@101"}, r.take())
		require.Empty(t, contents(t, l))
		require.True(t, apierrors.IsNotFound(l.Status().LastError))
		requests := s.count("stream")
		time.Sleep(10 * time.Minute)
		require.LessOrEqual(t, s.count("stream")-requests, 40, "no busy loop")
		s.set(func(s *modelServer) { s.fail = nil })
		after(time.Minute)
		require.Equal(t, []string{"Added ns/a@101"}, r.take())
		r.requireSound(t)
	})
}

func TestOneMissingAnswerTakesNothingAway(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		subscribe(t, p, l, r)
		synctest.Wait()
		r.take()
		failures := 0
		s.set(func(s *modelServer) {
			s.fail = func(verb string) error {
				if failures++; failures <= 2 && verb != "list" { // those of the guard and of one list
					return apierrors.NewNotFound(widgets.GroupResource(), "")
				}
				return nil
			}
		})
		s.cut(io.EOF)
		after(time.Minute)
		require.Empty(t, r.take())
	})
}

func TestServerThatOverlooksStreamingIsListed(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, _ *informerpool.Pool) {
		s.put("ns", "a", 1)
		p2, err := informerpool.New(informerpool.Options{Source: overlooking{s}})
		require.NoError(t, err)
		defer func() { require.NoError(t, p2.Close(context.Background())) }()
		l := acquire(t, p2, everything)
		time.Sleep(2 * time.Minute)
		s.bookmark()
		require.NoError(t, l.WaitForSync(context.Background()))
		require.Equal(t, 1, s.count("list"))
	})
}

// overlooking is a server that predates streamed lists: it treats such a
// request as one for a plain watch.
type overlooking struct{ *modelServer }

func (o overlooking) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Options.SendInitialEvents != nil {
		r.Options.SendInitialEvents = nil
		r.Options.ResourceVersion = "100"
	}
	return o.modelServer.Watch(ctx, r)
}

func TestListsOfTheFleetAreBounded(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { o.ListConcurrency = 3 }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.block = hang()
		leases := make([]*informerpool.Lease, 20)
		for i := range leases {
			leases[i] = acquire(t, p, in(fmt.Sprint("ns", i)))
		}
		synctest.Wait()
		require.Equal(t, 3, s.count("stream"))
		time.Sleep(informerpool.DefaultPermitTimeout - time.Millisecond)
		require.Equal(t, 3, s.count("stream"))
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, 20, s.count("stream"), "lists that hang do not hold back the others")
		close(s.block)
		for _, l := range leases {
			require.NoError(t, l.WaitForSync(context.Background()))
		}
	})
}

func TestRetryAfterIsHonouredAndCapped(t *testing.T) {
	for seconds, bound := range map[int]time.Duration{5: 6 * time.Second, 86400: 31 * time.Second} {
		bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
			throttled := true
			s.fail = func(string) error {
				if throttled {
					throttled = false
					return apierrors.NewTooManyRequests("later", seconds)
				}
				return nil
			}
			began := time.Now()
			acquireSynced(t, p, everything)
			require.GreaterOrEqual(t, time.Since(began), min(time.Duration(seconds)*time.Second, 30*time.Second))
			require.Less(t, time.Since(began), bound)
		})
	}
}

func TestWakeCutsTheWaitShort(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.fail = func(string) error { return errUnreachable }
		l := acquire(t, p, everything)
		time.Sleep(10 * time.Minute)
		s.set(func(s *modelServer) { s.fail = nil })
		began := time.Now()
		p.Wake(everything.Cluster)
		require.NoError(t, l.WaitForSync(context.Background()))
		require.Zero(t, time.Since(began))
	})
}

func TestEvictForgetsTheClusterAndComesBack(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		subscribe(t, p, l, r)
		synctest.Wait()
		r.take()
		s.set(func(s *modelServer) { s.notReady = hang() })
		p.Evict(everything.Cluster)
		synctest.Wait()
		require.Equal(t, []string{"Deleted ns/a@101"}, r.take())
		_, err := l.Get("ns", "a")
		require.ErrorIs(t, err, informerpool.ErrNotSynced)
		require.Zero(t, l.Status().Objects)
		requests := s.count("stream")
		time.Sleep(long)
		require.Equal(t, requests, s.count("stream"), "a parked informer asks nothing")
		s.set(func(s *modelServer) { close(s.notReady); s.notReady = nil })
		require.NoError(t, l.WaitForSync(context.Background()))
		synctest.Wait()
		require.Equal(t, []string{"Added ns/a@101"}, r.take())
		r.requireSound(t)
	})
}

func TestWaitForVersionSeesEventsAndBookmarks(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		l := acquireSynced(t, p, everything)
		rv := s.put("ns", "a", 1)
		require.NoError(t, l.WaitForVersion(context.Background(), fmt.Sprint(rv)))
		done := make(chan error, 1)
		go func() { done <- l.WaitForVersion(context.Background(), fmt.Sprint(rv+5)) }()
		synctest.Wait()
		require.Empty(t, done)
		s.set(func(s *modelServer) { s.rv += 5 })
		s.bookmark()
		require.NoError(t, <-done)
		require.Error(t, l.WaitForVersion(context.Background(), "x"))
		require.Equal(t, fmt.Sprint(rv+5), l.ResourceVersion())
	})
}

func TestForeignAndBrokenObjectsAreRefused(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, in("ns"))
		send := func(object string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for w := range s.watchers {
				w.push(frame("ADDED", []byte(object)))
			}
		}
		for _, object := range []string{
			`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"ns","name":"x","uid":"u","resourceVersion":"900"}}`,
			`{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"namespace":"ns","name":"x","uid":"u","resourceVersion":"900"}}`,
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":"other","name":"x","uid":"u","resourceVersion":"900"}}`,
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":"ns","name":"a/../b","uid":"u","resourceVersion":"900"}}`,
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":"ns","name":"","uid":"u","resourceVersion":"900"}}`,
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":"ns","name":"x","uid":"","resourceVersion":"900"}}`,
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":"ns","name":"x","uid":"u","resourceVersion":""}}`,
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":"ns","name":7,"uid":"u","resourceVersion":"900"}}`,
		} {
			send(object)
		}
		synctest.Wait()
		require.EqualValues(t, 8, l.Status().Rejected)
		require.Equal(t, s.state(nil), contents(t, l))
		s.put("ns", "b", 1)
		synctest.Wait()
		require.Equal(t, s.state(nil), contents(t, l))
	})
}

func TestClusterBudgetRefusesTheInformerThatGrows(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { o.MaxClusterBytes = 20_000 }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		for i := range 500 {
			s.put("big", fmt.Sprint("o", i), 1)
		}
		s.put("small", "one", 1)
		small := acquireSynced(t, p, in("small"))
		big := acquire(t, p, in("big"))
		require.ErrorIs(t, big.WaitForSync(context.Background()), informerpool.ErrBudget)
		require.True(t, small.HasSynced())
		other := in("big")
		other.Cluster.Name = "two"
		s.delete("big", "o0")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.ErrorIs(t, acquire(t, p, other).WaitForSync(ctx), informerpool.ErrBudget, "each cluster has a budget of its own")
		for i := range 480 {
			s.delete("big", fmt.Sprint("o", i))
		}
		after(time.Minute)
		require.NoError(t, big.WaitForSync(context.Background()), "it heals when there is less")
		require.LessOrEqual(t, big.Status().Bytes+small.Status().Bytes, int64(20_000))
	})
}

func TestObjectBudgetRefusesTheInformer(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { o.MaxObjects = 3 }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		for i := range 4 {
			s.put("ns", fmt.Sprint("o", i), 1)
			s.put("small", "one", 1)
		}
		l := acquire(t, p, in("ns"))
		require.ErrorIs(t, l.WaitForSync(context.Background()), informerpool.ErrBudget)
		acquireSynced(t, p, in("small"))
	})
}
