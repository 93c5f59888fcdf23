// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

func TestBrokenWatchResumesWithoutAList(t *testing.T) {
	for _, cause := range []error{io.EOF, io.ErrUnexpectedEOF, errors.New("http2: client connection lost")} {
		t.Run(cause.Error(), func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "a", 1)
				s.Put("ns", "b", 1)
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.Record(t, p, l)
				pooltest.After(time.Minute)
				r.Take()
				s.FailWith(pooltest.ErrUnreachable)
				s.Cut(cause)
				time.Sleep(time.Second)
				s.Put("ns", "a", 2) // while no watch is open
				s.Delete("ns", "b")
				s.Put("ns", "c", 1)
				s.Heal()
				pooltest.After(time.Minute)
				require.Equal(t, []string{"Updated ns/a@103", "Deleted ns/b@104", "Added ns/c@105"}, r.Take())
				require.Equal(t, s.State(nil), pooltest.Contents(t, l))
				require.Equal(t, 1, s.Count("stream"))
				require.Zero(t, s.Count("list"))
				r.RequireSound(t)
			})
		})
	}
}

func TestGoneResyncsWithoutEventsForUnchanged(t *testing.T) {
	for _, paged := range []bool{false, true} {
		t.Run(fmt.Sprint("paged ", paged), func(t *testing.T) {
			pooltest.Bubble(t, func(o *informerpool.Options) {
				o.PagedLists = paged
				o.PageSize = 2
			}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				for _, name := range []string{"a", "b", "c", "d"} {
					s.Put("ns", name, 1)
				}
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.Record(t, p, l)
				pooltest.After(time.Minute)
				r.Take()
				s.FailWith(pooltest.ErrUnreachable)
				s.Cut(io.ErrUnexpectedEOF)
				time.Sleep(time.Second)
				s.Put("ns", "a", 2)
				s.Delete("ns", "b")
				s.Put("ns", "e", 1)
				s.Compact()
				s.Heal()
				pooltest.After(time.Minute)
				require.ElementsMatch(t, []string{"Updated ns/a@105", "Deleted ns/b@102", "Added ns/e@107"}, r.Take())
				require.Equal(t, s.State(nil), pooltest.Contents(t, l))
				require.EqualValues(t, 1, l.Status().Resyncs)
				r.RequireSound(t)
			})
		})
	}
}

func TestDeletesFoundByAListHaveAnUnknownFinalState(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		s.Put("ns", "b", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		unknown := map[string]bool{}
		pooltest.Subscribe(t, p, l, informerpool.HandlerFunc(func(e informerpool.Event) {
			if e.Type == informerpool.Deleted {
				unknown[e.Old.GetName()] = e.FinalStateUnknown
			}
		}))
		synctest.Wait()
		s.Delete("ns", "a")
		synctest.Wait()
		s.Cut(io.ErrUnexpectedEOF)
		s.Delete("ns", "b")
		s.Compact()
		pooltest.After(time.Minute)
		require.Equal(t, map[string]bool{"a": false, "b": true}, unknown)
	})
}

func TestListBrokenHalfWayKeepsWhatWasThere(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.PagedLists = true
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for i := range 20 {
			s.Put("ns", fmt.Sprint("o", i), 1)
		}
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.Record(t, p, l)
		synctest.Wait()
		r.Take()
		s.FailWith(pooltest.ErrUnreachable)
		s.Cut(io.ErrUnexpectedEOF)
		time.Sleep(time.Second)
		s.Put("ns", "new", 1)
		s.Compact()
		s.Set(func(s *pooltest.Server) { s.Fail, s.CutAfter = nil, 1500 })
		pooltest.After(time.Minute)
		require.Len(t, pooltest.Contents(t, l), 21,
			"the broken list's first objects are taken, and nothing is taken away")
		require.Equal(t, []string{"Added ns/new@121"}, r.Take())
		require.Error(t, l.Status().LastError)
		require.Equal(t, informerpool.StateDegraded, l.Status().State)
		s.Delete("ns", "o3")
		s.Set(func(s *pooltest.Server) { s.CutAfter = 0 })
		pooltest.After(time.Minute)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		require.Len(t, r.Take(), 1)
		require.NoError(t, l.Status().LastError)
	})
}

func TestRollbackStartsANewHistory(t *testing.T) {
	for _, paged := range []bool{false, true} {
		t.Run(fmt.Sprint("paged ", paged), func(t *testing.T) {
			var reported []informerpool.Key
			pooltest.Bubble(t, func(o *informerpool.Options) {
				o.PagedLists = paged
				o.OnRollback = func(k informerpool.Key) { reported = append(reported, k) }
			}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "kept", 1)
				before := *pooltest.Copy(s)
				s.Put("ns", "ghost", 1)
				s.Put("ns", "kept", 2)
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.NewRecorder()
				r.Epochs = true
				pooltest.Subscribe(t, p, l, r)
				synctest.Wait()
				r.Take()
				s.Set(func(s *pooltest.Server) { s.Objects, s.Version, s.Log = before.Objects, before.Version, nil })
				s.Cut(io.ErrUnexpectedEOF)
				pooltest.After(time.Minute)
				s.Put("ns", "late", 1)
				pooltest.After(time.Minute)
				require.Equal(t, s.State(nil), pooltest.Contents(t, l))
				require.ElementsMatch(t, []string{"Deleted ns/ghost@102", "Updated ns/kept@101",
					"Added ns/late@102"}, r.Take())
				require.Equal(t, []informerpool.Key{pooltest.Everything}, reported)
				r.RequireSound(t)
			})
		})
	}
}

func TestNewEpochReplacesTheStoreAtOnce(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for i := range 50 {
			s.Put("ns", fmt.Sprint("o", i), 1)
		}
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.NewRecorder()
		r.Epochs = true
		// Each read shows a single epoch, including reads by a handler while it
		// handles the change.
		r.Before = func(informerpool.Event) {
			objects, _, err := l.List(informerpool.Query{})
			require.NoError(t, err)
			for _, o := range objects {
				require.Equal(t, objects[0].GetUID()[0], o.GetUID()[0])
			}
		}
		pooltest.Subscribe(t, p, l, r)
		synctest.Wait()
		r.Take()
		s.Become("b", 1000) // far beyond: the resourceVersion alone would not show it
		for i := range 20 {
			s.Put("ns", fmt.Sprint("o", i), 1)
		}
		pooltest.After(time.Minute)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		require.EqualValues(t, "b", l.Epoch())
		require.Len(t, r.Take(), 50+20, "a delete for each old object, an add for each new one")
		require.Equal(t, s.State(nil), r.State())
		r.RequireSound(t)
	})
}

func TestStalledWatchIsCut(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		for range 10 { // an idle server sends one a minute
			pooltest.After(time.Minute)
			s.SendBookmark()
		}
		synctest.Wait()
		require.Zero(t, l.Status().Stalls)
		began := time.Now()
		for l.Status().Stalls == 0 {
			time.Sleep(time.Second)
		}
		require.InDelta(t, informerpool.DefaultStallTimeout.Seconds(), time.Since(began).Seconds(), 1)
		s.Put("ns", "a", 1)
		time.Sleep(time.Second)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		require.Equal(t, 1, s.Count("stream"), "resumed, not listed")
	})
}

func TestHungRequestIsCut(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Block = pooltest.Hang()
		l := pooltest.Acquire(t, p, pooltest.Everything)
		time.Sleep(informerpool.DefaultStallTimeout + time.Second)
		require.ErrorIs(t, l.Status().LastError, informerpool.ErrStalled)
		s.Set(func(s *pooltest.Server) { s.Block = nil })
		require.NoError(t, l.WaitForSync(context.Background()))
	})
}

func TestRefusalIsReportedAndHeals(t *testing.T) {
	refusals := map[string]struct {
		err error
		is  func(error) bool
	}{
		"forbidden": {apierrors.NewForbidden(pooltest.Widgets.GroupResource(), "", errors.New("no")),
			apierrors.IsForbidden},
		"not found": {apierrors.NewNotFound(pooltest.Widgets.GroupResource(), ""), apierrors.IsNotFound},
		"bad":       {apierrors.NewBadRequest("field label not supported"), apierrors.IsBadRequest},
	}
	for name, refusal := range refusals {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Fail = func(string) error { return refusal.err }
				l := pooltest.Acquire(t, p, pooltest.Everything)
				began := time.Now()
				err := l.WaitForSync(context.Background())
				require.True(t, refusal.is(err), "%v", err)
				require.Less(t, time.Since(began), time.Second)
				s.Heal()
				pooltest.After(time.Minute)
				require.NoError(t, l.WaitForSync(context.Background()))
			})
		})
	}
}

func TestRefusalAfterSyncKeepsObjectsAndSaysSo(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.Record(t, p, l)
		synctest.Wait()
		r.Take()
		s.FailWith(apierrors.NewForbidden(pooltest.Widgets.GroupResource(), "", errors.New("no")))
		s.Cut(io.ErrUnexpectedEOF)
		time.Sleep(10 * time.Minute)
		require.Empty(t, r.Take())
		require.Len(t, pooltest.Contents(t, l), 1)
		st := l.Status()
		require.Equal(t, informerpool.StateDegraded, st.State)
		require.True(t, apierrors.IsForbidden(st.LastError))
	})
}

func TestObjectsOfADeletedDefinitionAreTakenAway(t *testing.T) {
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
		missing := func(string) error { return apierrors.NewNotFound(pooltest.Widgets.GroupResource(), "") }
		s.Set(func(s *pooltest.Server) { s.Fail = missing })
		source.Define("")
		s.Cut(io.EOF)
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"Deleted ns/a@101"}, r.Take())
		require.Empty(t, pooltest.Contents(t, l))
		require.True(t, apierrors.IsNotFound(l.Status().LastError))
		requests := s.Count("stream")
		time.Sleep(10 * time.Minute)
		require.LessOrEqual(t, s.Count("stream")-requests, 40, "no busy loop")
		source.Define("two")
		s.Heal()
		pooltest.After(time.Minute)
		require.Equal(t, []string{"Added ns/a@101"}, r.Take())
		r.RequireSound(t)
	})
}

// TestSourceWithoutDiscoveryKeepsWhatIsNotServed: it cannot tell a deleted
// definition from an API that is not served at the moment.
func TestSourceWithoutDiscoveryKeepsWhatIsNotServed(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.Record(t, p, l)
		synctest.Wait()
		r.Take()
		s.FailWith(apierrors.NewNotFound(pooltest.Widgets.GroupResource(), ""))
		s.Cut(io.EOF)
		time.Sleep(time.Hour)
		require.Empty(t, r.Take())
		require.Len(t, pooltest.Contents(t, l), 1)
		require.True(t, apierrors.IsNotFound(l.Trust(time.Hour)))
		s.Heal()
		pooltest.After(time.Minute)
		require.Empty(t, r.Take())
		require.NoError(t, l.Trust(0))
	})
}

func TestOneMissingAnswerTakesNothingAway(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.Record(t, p, l)
		synctest.Wait()
		r.Take()
		failures := 0
		s.Set(func(s *pooltest.Server) {
			s.Fail = func(verb string) error {
				if failures++; failures <= 2 && verb != "list" { // those of the guard and of one list
					return apierrors.NewNotFound(pooltest.Widgets.GroupResource(), "")
				}
				return nil
			}
		})
		s.Cut(io.EOF)
		pooltest.After(time.Minute)
		require.Empty(t, r.Take())
	})
}

func TestServerThatOverlooksStreamingIsListed(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, _ *informerpool.Pool) {
		s.Put("ns", "a", 1)
		p2, err := informerpool.New(informerpool.Options{Source: overlooking{s}})
		require.NoError(t, err)
		defer func() { require.NoError(t, p2.Close(context.Background())) }()
		l := pooltest.Acquire(t, p2, pooltest.Everything)
		time.Sleep(2 * time.Minute)
		s.SendBookmark()
		require.NoError(t, l.WaitForSync(context.Background()))
		require.Equal(t, 1, s.Count("list"))
	})
}

// overlooking is a server that predates streamed lists: it treats such a
// request as one for a plain watch.
type overlooking struct{ *pooltest.Server }

func (o overlooking) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Options.SendInitialEvents != nil {
		r.Options.SendInitialEvents = nil
		r.Options.ResourceVersion = "100"
	}
	return o.Server.Watch(ctx, r)
}

func TestListsOfTheFleetAreBounded(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.ListConcurrency = 3
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Block = pooltest.Hang()
		leases := make([]*informerpool.Lease, 20)
		for i := range leases {
			leases[i] = pooltest.Acquire(t, p, pooltest.In(fmt.Sprint("ns", i)))
		}
		synctest.Wait()
		require.Equal(t, 3, s.Count("stream"))
		time.Sleep(informerpool.DefaultPermitTimeout - time.Millisecond)
		require.Equal(t, 3, s.Count("stream"))
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, 20, s.Count("stream"), "lists that hang do not hold back the others")
		close(s.Block)
		for _, l := range leases {
			require.NoError(t, l.WaitForSync(context.Background()))
		}
	})
}

func TestRetryAfterIsHonouredAndCapped(t *testing.T) {
	for seconds, bound := range map[int]time.Duration{5: 6 * time.Second, 86400: 31 * time.Second} {
		pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
			throttled := true
			s.Fail = func(string) error {
				if throttled {
					throttled = false
					return apierrors.NewTooManyRequests("later", seconds)
				}
				return nil
			}
			began := time.Now()
			pooltest.AcquireSynced(t, p, pooltest.Everything)
			require.GreaterOrEqual(t, time.Since(began), min(time.Duration(seconds)*time.Second, 30*time.Second))
			require.Less(t, time.Since(began), bound)
		})
	}
}

func TestWakeCutsTheWaitShort(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Fail = func(string) error { return pooltest.ErrUnreachable }
		l := pooltest.Acquire(t, p, pooltest.Everything)
		time.Sleep(10 * time.Minute)
		s.Heal()
		began := time.Now()
		p.Wake(pooltest.Everything.Cluster)
		require.NoError(t, l.WaitForSync(context.Background()))
		require.Zero(t, time.Since(began))
	})
}

func TestEvictForgetsTheClusterAndComesBack(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.Record(t, p, l)
		synctest.Wait()
		r.Take()
		s.Set(func(s *pooltest.Server) { s.NotReady = pooltest.Hang() })
		p.Evict(pooltest.Everything.Cluster)
		synctest.Wait()
		require.Equal(t, []string{"Deleted ns/a@101"}, r.Take())
		_, err := l.Get("ns", "a")
		require.ErrorIs(t, err, informerpool.ErrNotSynced)
		require.Zero(t, l.Status().Objects)
		requests := s.Count("stream")
		time.Sleep(pooltest.Long)
		require.Equal(t, requests, s.Count("stream"), "a parked informer asks nothing")
		s.Set(func(s *pooltest.Server) { close(s.NotReady); s.NotReady = nil })
		require.NoError(t, l.WaitForSync(context.Background()))
		synctest.Wait()
		require.Equal(t, []string{"Added ns/a@101"}, r.Take())
		r.RequireSound(t)
	})
}

func TestWaitForVersionSeesEventsAndBookmarks(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		rv := s.Put("ns", "a", 1)
		require.NoError(t, l.WaitForVersion(context.Background(), fmt.Sprint(rv)))
		done := make(chan error, 1)
		go func() { done <- l.WaitForVersion(context.Background(), fmt.Sprint(rv+5)) }()
		synctest.Wait()
		require.Empty(t, done)
		s.Set(func(s *pooltest.Server) { s.Version += 5 })
		s.SendBookmark()
		require.NoError(t, <-done)
		require.Error(t, l.WaitForVersion(context.Background(), "x"))
		require.Equal(t, fmt.Sprint(rv+5), l.ResourceVersion())
	})
}

func TestForeignAndBrokenObjectsAreRefused(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		for _, object := range []string{
			`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"ns","name":"x","uid":"u",` +
				`"resourceVersion":"900"}}`,
			`{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"namespace":"ns","name":"x","uid":"u",` +
				`"resourceVersion":"900"}}`,
			pooltest.WidgetWith(`"namespace":"other","name":"x","uid":"u","resourceVersion":"900"`),
			pooltest.WidgetWith(`"namespace":"ns","name":"a/../b","uid":"u","resourceVersion":"900"`),
			pooltest.WidgetWith(`"namespace":"ns","name":"","uid":"u","resourceVersion":"900"`),
			pooltest.WidgetWith(`"namespace":"ns","name":"x","uid":"","resourceVersion":"900"`),
			pooltest.WidgetWith(`"namespace":"ns","name":"x","uid":"u","resourceVersion":""`),
			pooltest.WidgetWith(`"namespace":"ns","name":7,"uid":"u","resourceVersion":"900"`),
		} {
			pooltest.Push(s, "ADDED", object)
		}
		synctest.Wait()
		require.EqualValues(t, 8, l.Status().Rejected)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		s.Put("ns", "b", 1)
		synctest.Wait()
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
	})
}

func TestClusterBudgetRefusesTheInformerThatGrows(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.MaxClusterBytes = 20_000
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for i := range 500 {
			s.Put("big", fmt.Sprint("o", i), 1)
		}
		s.Put("small", "one", 1)
		small := pooltest.AcquireSynced(t, p, pooltest.In("small"))
		big := pooltest.Acquire(t, p, pooltest.In("big"))
		require.ErrorIs(t, big.WaitForSync(context.Background()), informerpool.ErrBudget)
		require.True(t, small.HasSynced())
		other := pooltest.In("big")
		other.Cluster.Name = "two"
		s.Delete("big", "o0")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.ErrorIs(t, pooltest.Acquire(t, p, other).WaitForSync(ctx), informerpool.ErrBudget,
			"each cluster has a budget of its own")
		for i := range 480 {
			s.Delete("big", fmt.Sprint("o", i))
		}
		pooltest.After(time.Minute)
		require.NoError(t, big.WaitForSync(context.Background()), "it heals when there is less")
		require.LessOrEqual(t, big.Status().Bytes+small.Status().Bytes, int64(20_000))
	})
}

func TestObjectBudgetRefusesTheInformer(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.MaxObjects = 3
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for i := range 4 {
			s.Put("ns", fmt.Sprint("o", i), 1)
			s.Put("small", "one", 1)
		}
		l := pooltest.Acquire(t, p, pooltest.In("ns"))
		require.ErrorIs(t, l.WaitForSync(context.Background()), informerpool.ErrBudget)
		pooltest.AcquireSynced(t, p, pooltest.In("small"))
	})
}
