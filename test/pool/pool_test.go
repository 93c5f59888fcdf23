// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

func TestOneRequestHoweverManyLeases(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		var leases sync.WaitGroup
		for range 100 {
			leases.Go(func() {
				l, err := p.Acquire(context.Background(), pooltest.Everything)
				if err == nil {
					err = l.WaitForSync(context.Background())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		leases.Wait()
		synctest.Wait()
		require.Equal(t, 1, s.Count("stream"))
		require.Zero(t, s.Count("list")+s.Count("watch"))
		require.Len(t, p.Keys(), 1)
	})
}

func TestPagedListsWhereTheServerDoesNotStream(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.PageSize = 2
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.NoStream = true
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			s.Put("ns", name, 1)
		}
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		require.Equal(t, 3, s.Count("list"))
		s.Put("ns", "f", 1)
		synctest.Wait()
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		s.Cut(pooltest.ErrUnreachable)
		time.Sleep(time.Minute)
		require.Equal(t, 1, s.Count("stream"), "what the server cannot do is asked for once")
	})
}

func TestReadsBeforeSyncAreNotSyncedNeverNotFound(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Block = pooltest.Hang()
		s.Put("ns", "a", 1)
		l := pooltest.Acquire(t, p, pooltest.Everything)
		synctest.Wait()
		_, err := l.Get("ns", "a")
		require.ErrorIs(t, err, informerpool.ErrNotSynced)
		_, _, err = l.List(informerpool.Query{})
		require.ErrorIs(t, err, informerpool.ErrNotSynced)
		require.False(t, l.HasSynced())
		close(s.Block)
		require.NoError(t, l.WaitForSync(context.Background()))
		o, err := l.Get("ns", "a")
		require.NoError(t, err)
		require.Equal(t, "a", o.GetName())
		_, err = l.Get("ns", "b")
		require.True(t, apierrors.IsNotFound(err))
	})
}

func TestAcquireReturnsAtOnceWhileTheServerHangs(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Block = pooltest.Hang()
		began := time.Now()
		l := pooltest.Acquire(t, p, pooltest.Everything)
		p.Status()
		p.Keys()
		l.Status()
		require.Zero(t, time.Since(began))
	})
}

func TestAnotherLeasesEndChangesNothing(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Block = pooltest.Hang()
		ctx, cancel := context.WithCancel(context.Background())
		first, err := p.Acquire(ctx, pooltest.Everything)
		require.NoError(t, err)
		second := pooltest.Acquire(t, p, pooltest.Everything)
		waited := make(chan error, 1)
		go func() { waited <- first.WaitForSync(ctx) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-waited, context.Canceled)
		go func() { waited <- first.WaitForSync(context.Background()) }()
		synctest.Wait()
		first.Release()
		require.ErrorIs(t, <-waited, informerpool.ErrReleased)
		close(s.Block)
		require.NoError(t, second.WaitForSync(context.Background()))
		require.Equal(t, 1, s.Count("stream"))
	})
}

func TestReleaseIsIdempotentAndPerHandle(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, _ *pooltest.Server, p *informerpool.Pool) {
		first, second := pooltest.AcquireSynced(t, p, pooltest.Everything),
			pooltest.AcquireSynced(t, p, pooltest.Everything)
		for range 3 {
			first.Release()
		}
		time.Sleep(pooltest.Long)
		require.True(t, second.HasSynced())
		_, err := first.Get("ns", "a")
		require.ErrorIs(t, err, informerpool.ErrReleased)
		_, _, err = first.List(informerpool.Query{})
		require.ErrorIs(t, err, informerpool.ErrReleased)
		require.ErrorIs(t, first.WaitForSync(context.Background()), informerpool.ErrReleased)
		require.Equal(t, 1, second.Status().Leases)
		require.ErrorIs(t, p.Subscribe(pooltest.NewRecorder()).Add(first), informerpool.ErrReleased)
	})
}

func TestLingerCostsNoRequest(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for range 5 {
			pooltest.AcquireSynced(t, p, pooltest.Everything).Release()
			time.Sleep(informerpool.DefaultLinger - time.Second)
		}
		require.Equal(t, 1, s.Count("stream"))
		require.Len(t, p.Keys(), 1)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Empty(t, p.Keys())
		pooltest.AcquireSynced(t, p, pooltest.Everything)
		require.Equal(t, 2, s.Count("stream"))
	})
}

func TestAcquireAtTheEndOfTheLingerIsAlive(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for i := range 200 {
			pooltest.AcquireSynced(t, p, pooltest.Everything).Release()
			time.Sleep(informerpool.DefaultLinger) // up to the very moment the timer fires
			l := pooltest.Acquire(t, p, pooltest.Everything)
			require.NoError(t, l.WaitForSync(context.Background()))
			s.Put("ns", "a", i)
			synctest.Wait()
			require.Equal(t, s.State(nil), pooltest.Contents(t, l))
			l.Release()
			if i%2 == 0 {
				time.Sleep(pooltest.Long)
			}
		}
	})
}

func TestReleaseNowSkipsTheLingerButNotOtherLeases(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		first, second := pooltest.AcquireSynced(t, p, pooltest.Everything),
			pooltest.AcquireSynced(t, p, pooltest.Everything)
		first.ReleaseNow()
		first.Release()
		pooltest.After(time.Second)
		require.True(t, second.HasSynced())
		require.Len(t, p.Keys(), 1)
		second.ReleaseNow()
		require.Empty(t, p.Keys())
		_, _, err := second.List(informerpool.Query{})
		require.ErrorIs(t, err, informerpool.ErrReleased)
		pooltest.AcquireSynced(t, p, pooltest.Everything)
		require.Equal(t, 2, s.Count("stream"))
	})
}

func TestReacquireDoesNotWaitForTheDyingInformer(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.Linger = -1
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Fail = func(string) error { return pooltest.ErrUnreachable }
		l := pooltest.Acquire(t, p, pooltest.Everything)
		time.Sleep(5 * time.Minute) // deep in back-off
		l.Release()
		s.Heal()
		began := time.Now()
		pooltest.AcquireSynced(t, p, pooltest.Everything)
		require.Zero(t, time.Since(began))
	})
}

func TestWaitersAreReleasedWithThePool(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Block = pooltest.Hang()
		l := pooltest.Acquire(t, p, pooltest.Everything)
		waited := make(chan error, 1)
		go func() { waited <- l.WaitForSync(context.Background()) }()
		synctest.Wait()
		require.NoError(t, p.Close(context.Background()))
		require.ErrorIs(t, <-waited, informerpool.ErrClosed)
		_, err := p.Acquire(context.Background(), pooltest.Everything)
		require.ErrorIs(t, err, informerpool.ErrClosed)
		require.ErrorIs(t, p.Subscribe(pooltest.NewRecorder()).Add(l), informerpool.ErrClosed)
		_, err = l.Get("ns", "a")
		require.ErrorIs(t, err, informerpool.ErrClosed)
		l.Release()
	})
}

func TestInvalidKeysFailBeforeAnyRequest(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for field, change := range map[string]func(*informerpool.Key){
			"Resource.Resource": func(k *informerpool.Key) { k.Resource.Resource = "" },
			"Resource.Version":  func(k *informerpool.Key) { k.Resource.Version = "" },
			"Resource.Group":    func(k *informerpool.Key) { k.Resource.Group = "a/b" },
			"Namespace":         func(k *informerpool.Key) { k.Namespace = ".." },
			"LabelSelector":     func(k *informerpool.Key) { k.LabelSelector = "a in (" },
			"FieldSelector":     func(k *informerpool.Key) { k.FieldSelector = "metadata.name" },
			"FieldSelector ":    func(k *informerpool.Key) { k.FieldSelector = "metadata.name=x,=y" },
		} {
			k := pooltest.Everything
			change(&k)
			_, err := p.Acquire(context.Background(), k)
			ke, ok := errors.AsType[*informerpool.KeyError](err)
			require.True(t, ok, "%s: %v", field, err)
			require.Equal(t, strings.TrimSpace(field), ke.Field)
		}
		synctest.Wait()
		require.Zero(t, s.Count("stream"))
	})
}

func TestSelectorsThatMeanTheSameShareAnInformer(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, _ *pooltest.Server, p *informerpool.Pool) {
		a, b := pooltest.Everything, pooltest.Everything
		a.LabelSelector, b.LabelSelector = "x=1,y in (b,a)", "y in (a, b) , x==1"
		a.FieldSelector, b.FieldSelector = "metadata.name=n,spec.x=1", "spec.x==1,metadata.name=n"
		require.Equal(t, pooltest.AcquireSynced(t, p, a).Key(), pooltest.AcquireSynced(t, p, b).Key())
		require.Len(t, p.Keys(), 1)
	})
}

func TestWiderInformerServesNarrowerKeys(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1, "app=x")
		s.Put("ns", "b", 1, "app=y")
		s.Put("other", "c", 1, "app=x")
		pooltest.AcquireSynced(t, p, pooltest.Everything)
		narrow := pooltest.In("ns")
		narrow.LabelSelector = "app=x"
		l := pooltest.AcquireSynced(t, p, narrow)
		require.Equal(t, 1, s.Count("stream"))
		require.Equal(t, []string{"ns/a"}, pooltest.Sorted(pooltest.Contents(t, l)))
		_, err := l.Get("ns", "b")
		require.True(t, apierrors.IsNotFound(err))
		_, err = l.Get("other", "c")
		require.True(t, apierrors.IsNotFound(err))

		r := pooltest.Record(t, p, l)
		synctest.Wait()
		require.Equal(t, []string{"Added ns/a@101"}, r.Take())
		s.Put("ns", "a", 1, "app=y") // leaves the selector
		s.Put("ns", "b", 1, "app=x") // enters it
		s.Put("other", "d", 1, "app=x")
		synctest.Wait()
		require.ElementsMatch(t, []string{"Deleted ns/a@104", "Added ns/b@105"}, r.Take())
		r.RequireSound(t)
	})
}

func TestOnlyMetadataFieldsAreEvaluatedHere(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		pooltest.AcquireSynced(t, p, pooltest.Everything)
		byName, byStatus := pooltest.Everything, pooltest.Everything
		byName.FieldSelector = "metadata.name=a"
		byStatus.FieldSelector = "status.phase=Running"
		pooltest.AcquireSynced(t, p, byName)
		require.Equal(t, 1, s.Count("stream"))
		pooltest.AcquireSynced(t, p, byStatus)
		require.Equal(t, 2, s.Count("stream"))
	})
}

func TestStopIsPrompt(t *testing.T) {
	states := map[string]func(*pooltest.Server){
		"waiting for the cluster": func(s *pooltest.Server) { s.NotReady = pooltest.Hang() },
		"server hangs":            func(s *pooltest.Server) { s.Block = pooltest.Hang() },
		"refused": func(s *pooltest.Server) {
			s.Fail = func(string) error { return pooltest.ErrUnreachable }
		},
		"throttled": func(s *pooltest.Server) {
			s.Fail = func(string) error { return apierrors.NewTooManyRequests("later", 86400) }
		},
		"watching": func(*pooltest.Server) {},
		"forbidden": func(s *pooltest.Server) {
			s.Fail = func(string) error {
				return apierrors.NewForbidden(pooltest.Widgets.GroupResource(), "", errors.New("no"))
			}
		},
	}
	for name, change := range states {
		for _, after := range []time.Duration{0, 10 * time.Second, 10 * time.Minute} {
			t.Run(name+" after "+after.String(), func(t *testing.T) {
				pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
					s.Set(change)
					l := pooltest.Acquire(t, p, pooltest.Everything)
					pooltest.Subscribe(t, p, l, pooltest.NewRecorder())
					time.Sleep(after)
				}) // which closes the pool and checks how long that takes
			})
		}
	}
}
