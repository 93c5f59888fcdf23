// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

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
)

func TestOneRequestHoweverManyLeases(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		var leases sync.WaitGroup
		for range 100 {
			leases.Go(func() {
				l, err := p.Acquire(context.Background(), everything)
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
		require.Equal(t, 1, s.count("stream"))
		require.Zero(t, s.count("list")+s.count("watch"))
		require.Len(t, p.Keys(), 1)
	})
}

func TestPagedListsWhereTheServerDoesNotStream(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { o.PageSize = 2 }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.noStream = true
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			s.put("ns", name, 1)
		}
		l := acquireSynced(t, p, everything)
		require.Equal(t, s.state(nil), contents(t, l))
		require.Equal(t, 3, s.count("list"))
		s.put("ns", "f", 1)
		synctest.Wait()
		require.Equal(t, s.state(nil), contents(t, l))
		s.cut(errUnreachable)
		time.Sleep(time.Minute)
		require.Equal(t, 1, s.count("stream"), "what the server cannot do is asked for once")
	})
}

func TestReadsBeforeSyncAreNotSyncedNeverNotFound(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.block = hang()
		s.put("ns", "a", 1)
		l := acquire(t, p, everything)
		synctest.Wait()
		_, err := l.Get("ns", "a")
		require.ErrorIs(t, err, informerpool.ErrNotSynced)
		_, _, err = l.List(informerpool.Query{})
		require.ErrorIs(t, err, informerpool.ErrNotSynced)
		require.False(t, l.HasSynced())
		close(s.block)
		require.NoError(t, l.WaitForSync(context.Background()))
		o, err := l.Get("ns", "a")
		require.NoError(t, err)
		require.Equal(t, "a", o.GetName())
		_, err = l.Get("ns", "b")
		require.True(t, apierrors.IsNotFound(err))
	})
}

func TestAcquireReturnsAtOnceWhileTheServerHangs(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.block = hang()
		began := time.Now()
		l := acquire(t, p, everything)
		p.Status()
		p.Keys()
		l.Status()
		require.Zero(t, time.Since(began))
	})
}

func TestAnotherLeasesEndChangesNothing(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.block = hang()
		ctx, cancel := context.WithCancel(context.Background())
		first, err := p.Acquire(ctx, everything)
		require.NoError(t, err)
		second := acquire(t, p, everything)
		waited := make(chan error, 1)
		go func() { waited <- first.WaitForSync(ctx) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-waited, context.Canceled)
		go func() { waited <- first.WaitForSync(context.Background()) }()
		synctest.Wait()
		first.Release()
		require.ErrorIs(t, <-waited, informerpool.ErrReleased)
		close(s.block)
		require.NoError(t, second.WaitForSync(context.Background()))
		require.Equal(t, 1, s.count("stream"))
	})
}

func TestReleaseIsIdempotentAndPerHandle(t *testing.T) {
	bubble(t, nil, func(t *testing.T, _ *modelServer, p *informerpool.Pool) {
		first, second := acquireSynced(t, p, everything), acquireSynced(t, p, everything)
		for range 3 {
			first.Release()
		}
		time.Sleep(long)
		require.True(t, second.HasSynced())
		_, err := first.Get("ns", "a")
		require.ErrorIs(t, err, informerpool.ErrReleased)
		_, _, err = first.List(informerpool.Query{})
		require.ErrorIs(t, err, informerpool.ErrReleased)
		require.ErrorIs(t, first.WaitForSync(context.Background()), informerpool.ErrReleased)
		require.Equal(t, 1, second.Status().Leases)
		require.ErrorIs(t, p.Subscribe(newRecorder()).Add(first), informerpool.ErrReleased)
	})
}

func TestLingerCostsNoRequest(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		for range 5 {
			acquireSynced(t, p, everything).Release()
			time.Sleep(informerpool.DefaultLinger - time.Second)
		}
		require.Equal(t, 1, s.count("stream"))
		require.Len(t, p.Keys(), 1)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Empty(t, p.Keys())
		acquireSynced(t, p, everything)
		require.Equal(t, 2, s.count("stream"))
	})
}

func TestAcquireAtTheEndOfTheLingerIsAlive(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		for i := range 200 {
			acquireSynced(t, p, everything).Release()
			time.Sleep(informerpool.DefaultLinger) // up to the very moment the timer fires
			l := acquire(t, p, everything)
			require.NoError(t, l.WaitForSync(context.Background()))
			s.put("ns", "a", i)
			synctest.Wait()
			require.Equal(t, s.state(nil), contents(t, l))
			l.Release()
			if i%2 == 0 {
				time.Sleep(long)
			}
		}
	})
}

func TestReleaseNowSkipsTheLingerButNotOtherLeases(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		first, second := acquireSynced(t, p, everything), acquireSynced(t, p, everything)
		first.ReleaseNow()
		first.Release()
		after(time.Second)
		require.True(t, second.HasSynced())
		require.Len(t, p.Keys(), 1)
		second.ReleaseNow()
		require.Empty(t, p.Keys())
		_, _, err := second.List(informerpool.Query{})
		require.ErrorIs(t, err, informerpool.ErrReleased)
		acquireSynced(t, p, everything)
		require.Equal(t, 2, s.count("stream"))
	})
}

func TestReacquireDoesNotWaitForTheDyingInformer(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { o.Linger = -1 }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.fail = func(string) error { return errUnreachable }
		l := acquire(t, p, everything)
		time.Sleep(5 * time.Minute) // deep in back-off
		l.Release()
		s.set(func(s *modelServer) { s.fail = nil })
		began := time.Now()
		acquireSynced(t, p, everything)
		require.Zero(t, time.Since(began))
	})
}

func TestWaitersAreReleasedWithThePool(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.block = hang()
		l := acquire(t, p, everything)
		waited := make(chan error, 1)
		go func() { waited <- l.WaitForSync(context.Background()) }()
		synctest.Wait()
		require.NoError(t, p.Close(context.Background()))
		require.ErrorIs(t, <-waited, informerpool.ErrClosed)
		_, err := p.Acquire(context.Background(), everything)
		require.ErrorIs(t, err, informerpool.ErrClosed)
		require.ErrorIs(t, p.Subscribe(newRecorder()).Add(l), informerpool.ErrClosed)
		_, err = l.Get("ns", "a")
		require.ErrorIs(t, err, informerpool.ErrClosed)
		l.Release()
	})
}

func TestInvalidKeysFailBeforeAnyRequest(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		for field, change := range map[string]func(*informerpool.Key){
			"Resource.Resource": func(k *informerpool.Key) { k.Resource.Resource = "" },
			"Resource.Version":  func(k *informerpool.Key) { k.Resource.Version = "" },
			"Resource.Group":    func(k *informerpool.Key) { k.Resource.Group = "a/b" },
			"Namespace":         func(k *informerpool.Key) { k.Namespace = ".." },
			"LabelSelector":     func(k *informerpool.Key) { k.LabelSelector = "a in (" },
			"FieldSelector":     func(k *informerpool.Key) { k.FieldSelector = "metadata.name" },
			"FieldSelector ":    func(k *informerpool.Key) { k.FieldSelector = "metadata.name=x,=y" },
		} {
			k := everything
			change(&k)
			_, err := p.Acquire(context.Background(), k)
			ke, ok := errors.AsType[*informerpool.KeyError](err)
			require.True(t, ok, "%s: %v", field, err)
			require.Equal(t, strings.TrimSpace(field), ke.Field)
		}
		synctest.Wait()
		require.Zero(t, s.count("stream"))
	})
}

func TestSelectorsThatMeanTheSameShareAnInformer(t *testing.T) {
	bubble(t, nil, func(t *testing.T, _ *modelServer, p *informerpool.Pool) {
		a, b := everything, everything
		a.LabelSelector, b.LabelSelector = "x=1,y in (b,a)", "y in (a, b) , x==1"
		a.FieldSelector, b.FieldSelector = "metadata.name=n,spec.x=1", "spec.x==1,metadata.name=n"
		require.Equal(t, acquireSynced(t, p, a).Key(), acquireSynced(t, p, b).Key())
		require.Len(t, p.Keys(), 1)
	})
}

func TestWiderInformerServesNarrowerKeys(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1, "app=x")
		s.put("ns", "b", 1, "app=y")
		s.put("other", "c", 1, "app=x")
		acquireSynced(t, p, everything)
		narrow := in("ns")
		narrow.LabelSelector = "app=x"
		l := acquireSynced(t, p, narrow)
		require.Equal(t, 1, s.count("stream"))
		require.Equal(t, []string{"ns/a"}, sorted(contents(t, l)))
		_, err := l.Get("ns", "b")
		require.True(t, apierrors.IsNotFound(err))
		_, err = l.Get("other", "c")
		require.True(t, apierrors.IsNotFound(err))

		r := newRecorder()
		subscribe(t, p, l, r)
		synctest.Wait()
		require.Equal(t, []string{"Added ns/a@101"}, r.take())
		s.put("ns", "a", 1, "app=y") // leaves the selector
		s.put("ns", "b", 1, "app=x") // enters it
		s.put("other", "d", 1, "app=x")
		synctest.Wait()
		require.ElementsMatch(t, []string{"Deleted ns/a@104", "Added ns/b@105"}, r.take())
		r.requireSound(t)
	})
}

func TestOnlyMetadataFieldsAreEvaluatedHere(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		acquireSynced(t, p, everything)
		byName, byStatus := everything, everything
		byName.FieldSelector = "metadata.name=a"
		byStatus.FieldSelector = "status.phase=Running"
		acquireSynced(t, p, byName)
		require.Equal(t, 1, s.count("stream"))
		acquireSynced(t, p, byStatus)
		require.Equal(t, 2, s.count("stream"))
	})
}

func TestStopIsPrompt(t *testing.T) {
	states := map[string]func(*modelServer){
		"waiting for the cluster": func(s *modelServer) { s.notReady = hang() },
		"server hangs":            func(s *modelServer) { s.block = hang() },
		"refused":                 func(s *modelServer) { s.fail = func(string) error { return errUnreachable } },
		"throttled": func(s *modelServer) {
			s.fail = func(string) error { return apierrors.NewTooManyRequests("later", 86400) }
		},
		"watching": func(*modelServer) {},
		"forbidden": func(s *modelServer) {
			s.fail = func(string) error { return apierrors.NewForbidden(widgets.GroupResource(), "", errors.New("no")) }
		},
	}
	for name, change := range states {
		for _, after := range []time.Duration{0, 10 * time.Second, 10 * time.Minute} {
			t.Run(name+" after "+after.String(), func(t *testing.T) {
				bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
					s.set(change)
					l := acquire(t, p, everything)
					subscribe(t, p, l, newRecorder())
					time.Sleep(after)
				}) // which closes the pool and checks how long that takes
			})
		}
	}
}
