// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

const (
	widePath   = "/api/v1/configmaps"
	narrowPath = "/api/v1/namespaces/default/configmaps"
)

// twoInformers runs a test with a cluster that has one informer for a namespace
// and one for the whole kind.
func twoInformers(t *testing.T, test func(t *testing.T, p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		p := &pair{t: t, cc: cc, api: api, narrow: fleettest.Watch(t, cc, client.InNamespace("default"))}
		require.NoError(t, p.narrow.WaitForSync(t.Context()))
		p.wide = fleettest.Watch(t, cc)
		require.NoError(t, p.wide.WaitForSync(t.Context()))
		require.Equal(t, 1, api.Watching(widePath))
		require.Equal(t, 1, api.Watching(narrowPath))
		test(t, p)
	})
}

// pair is two informers that cover the same reads.
type pair struct {
	t            *testing.T
	cc           *clustercache.ClusterCache
	api          *fleettest.API
	narrow, wide *clustercache.Watch
}

// readAs is an option for both Get and List.
type readAs interface {
	client.GetOption
	client.ListOption
}

// get returns the value of an object by Get, or "" if the object does not
// exist.
func (p *pair) get(name string, options ...readAs) (string, error) {
	var as []client.GetOption
	for _, o := range options {
		as = append(as, o)
	}
	o := &corev1.ConfigMap{}
	err := p.cc.Cluster(fleettest.Key("a")).Reader().Get(p.t.Context(),
		client.ObjectKey{Namespace: "default", Name: name},
		o, as...)
	return o.Data["value"], client.IgnoreNotFound(err)
}

// list is get, by List.
func (p *pair) list(name string, options ...readAs) (string, error) {
	as := []client.ListOption{client.InNamespace("default")}
	for _, o := range options {
		as = append(as, o)
	}
	list := &corev1.ConfigMapList{}
	err := p.cc.Cluster(fleettest.Key("a")).Reader().List(p.t.Context(), list, as...)
	for _, o := range list.Items {
		if o.Name == name {
			return o.Data["value"], err
		}
	}
	return "", err
}

// reads are the ways to read.
func (p *pair) reads() map[string]func(string, ...readAs) (string, error) {
	return map[string]func(string, ...readAs) (string, error){"get": p.get, "list": p.list}
}

// shows requires that every read in every mode shows a value.
func (p *pair) shows(name, value string, modes ...clustercache.ReadMode) {
	p.t.Helper()
	for how, read := range p.reads() {
		for _, mode := range modes {
			got, err := read(name, mode)
			require.NoError(p.t, err, "%s %s", how, mode)
			require.Equal(p.t, value, got, "%s %s", how, mode)
		}
	}
}

// stale requires that no read is answered from the cache alone.
func (p *pair) stale(name string) {
	p.t.Helper()
	for how, read := range p.reads() {
		got, err := read(name, clustercache.CacheOnly)
		require.ErrorIs(p.t, err, clustercache.ErrStale, "%s: %q", how, got)
	}
}

// change updates one object, creates one and deletes one, while the watches of
// a path lag.
func (p *pair) change(lagging string) {
	p.api.Lag(lagging)
	p.api.Put("one", "changed", nil)
	p.api.Put("new", "made", nil)
	p.api.Delete("two")
	synctest.Wait()
}

// TestHazardReadsGoBackToAnInformerThatLags: once the informer that is ahead,
// whichever that is, has answered a read, the other one answers no read with an
// earlier state.
func TestHazardReadsGoBackToAnInformerThatLags(t *testing.T) {
	for name, lagging := range map[string]string{"the wide one lags": widePath, "the narrow one lags": narrowPath} {
		t.Run(name, func(t *testing.T) {
			twoInformers(t, func(t *testing.T, p *pair) {
				p.change(lagging)
				newest := clustercache.NotOlderThan(strconv.Itoa(p.api.Version()))
				for _, read := range p.reads() {
					got, err := read("one", clustercache.CacheOnly, newest)
					require.NoError(t, err)
					require.Equal(t, "changed", got)
				}
				before := p.api.Total()
				for range 2 {
					p.shows("one", "changed", clustercache.PreferCache, clustercache.CacheOnly)
					p.shows("new", "made", clustercache.PreferCache, clustercache.CacheOnly)
					p.shows("two", "", clustercache.PreferCache, clustercache.CacheOnly)
				}
				require.Equal(t, before, p.api.Total(), "a cached read sent a request")
				p.shows("one", "changed", clustercache.AutoWatch)
			})
		})
	}
}

// TestHazardObjectThatAnotherWatchShowedGoesUnheard: an object that a read
// returned from the watch that is ahead is known to the lagging watch, too. Its
// handlers get the object's delete, although the object was created and deleted
// before they saw it. They get no event for objects that no read has returned.
func TestHazardObjectThatAnotherWatchShowedGoesUnheard(t *testing.T) {
	for name, shown := range map[string]bool{"shown": true, "not shown": false} {
		twoInformers(t, func(t *testing.T, p *pair) {
			for how, read := range p.reads() {
				busy, events := make(chan struct{}), []informerpool.Event(nil)
				handle, err := p.narrow.AddEventHandler(informerpool.HandlerFunc(func(e informerpool.Event) {
					if e.Type == informerpool.Updated {
						<-busy
					}
					if e.Object().GetName() == "new" {
						events = append(events, e)
					}
				}))
				require.NoError(t, err)
				synctest.Wait()
				p.api.Lag(narrowPath)
				p.api.Put("one", how, nil)
				p.api.Put("new", "made", nil)
				synctest.Wait()
				if shown {
					got, err := read("new", clustercache.CacheOnly)
					require.NoError(t, err)
					require.Equal(t, "made", got)
				}
				p.api.Delete("new")
				synctest.Wait()
				before := p.api.Total()
				p.api.Lag("")
				synctest.Wait()
				close(busy)
				synctest.Wait()
				require.Equal(t, before, p.api.Total(), "the watch brings it, no request does")
				if !shown {
					require.Empty(t, events, "%s %s", name, how)
				} else {
					require.Len(t, events, 1, "%s %s", name, how)
					require.Equal(t, informerpool.Deleted, events[0].Type)
				}
				require.NoError(t, handle.Close(t.Context()))
			}
		})
	}
}

// TestHazardObjectOfAListByFieldGoesUnheard: the same for a watch by a field
// other than the name, and a list by that field.
func TestHazardObjectOfAListByFieldGoesUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		inDefault := client.MatchingFields{"metadata.namespace": "default"}
		lags := fleettest.Watch(t, cc, client.InNamespace("default"), inDefault)
		require.NoError(t, lags.WaitForSync(t.Context()))
		require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
		busy, events := make(chan struct{}), []informerpool.EventType(nil)
		handle, err := lags.AddEventHandler(informerpool.HandlerFunc(func(e informerpool.Event) {
			if e.Type == informerpool.Updated {
				<-busy
			}
			if e.Object().GetName() == "new" {
				events = append(events, e.Type)
			}
		}))
		require.NoError(t, err)
		synctest.Wait()

		api.Lag(narrowPath)
		api.Put("one", "changed", nil)
		api.Put("new", "made", nil)
		synctest.Wait()
		var list corev1.ConfigMapList
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &list,
			client.InNamespace("default"), inDefault, clustercache.CacheOnly))
		require.True(t, slices.ContainsFunc(list.Items, func(o corev1.ConfigMap) bool { return o.Name == "new" }))
		api.Delete("new")
		api.Lag("")
		synctest.Wait()
		close(busy)
		synctest.Wait()
		require.Equal(t, []informerpool.EventType{informerpool.Deleted}, events)
		require.NoError(t, handle.Close(t.Context()))
	})
}

// TestHazardReadsGoBackWhenAWatchIsClosed: a lagging watch does not answer with
// an earlier state than a closed watch has shown. It answers again once it has
// caught up.
func TestHazardReadsGoBackWhenAWatchIsClosed(t *testing.T) {
	for name, of := range map[string]string{"a change": "one", "a new one": "new", "a deletion": "two"} {
		t.Run(name, func(t *testing.T) {
			for lagging, closed := range map[string]func(p *pair) *clustercache.Watch{
				widePath:   func(p *pair) *clustercache.Watch { return p.narrow },
				narrowPath: func(p *pair) *clustercache.Watch { return p.wide },
			} {
				twoInformers(t, func(t *testing.T, p *pair) {
					p.change(lagging)
					want := map[string]string{"one": "changed", "new": "made"}[of]
					p.shows(of, want, clustercache.CacheOnly)
					require.NoError(t, closed(p).Close(t.Context()))
					p.stale(of)
					p.shows(of, want, clustercache.PreferCache)
					time.Sleep(time.Second)
					p.stale(of)

					p.api.Lag("")
					synctest.Wait()
					before := p.api.Total()
					p.shows(of, want, clustercache.CacheOnly, clustercache.PreferCache)
					require.Equal(t, before, p.api.Total(), "a cached read sent a request")
				})
			}
		})
	}
}

// TestHazardReadsGoBackWhenAnInformerIsRefused: the same if the server revokes
// the permission of the watch that is ahead.
func TestHazardReadsGoBackWhenAnInformerIsRefused(t *testing.T) {
	twoInformers(t, func(t *testing.T, p *pair) {
		p.change(narrowPath)
		p.shows("one", "changed", clustercache.CacheOnly)
		p.api.FailIf(http.StatusForbidden, func(r *http.Request) bool { return r.URL.Path == widePath })
		p.api.Cut()
		time.Sleep(10 * time.Second)
		require.True(t, apierrors.IsForbidden(p.wide.Status().LastError), "%v", p.wide.Status().LastError)
		for _, name := range []string{"one", "new", "two"} {
			if name != "one" { // the list is stale as a whole
				_, err := p.get(name, clustercache.CacheOnly)
				require.ErrorIs(t, err, clustercache.ErrStale, name)
				continue
			}
			p.stale(name)
			p.shows(name, "changed", clustercache.PreferCache)
		}
		p.api.Lag("")
		synctest.Wait()
		for name, value := range map[string]string{"one": "changed", "new": "made", "two": ""} {
			p.shows(name, value, clustercache.CacheOnly)
		}
	})
}

// TestHazardInformerWithoutNewsIsNotBehind: an informer answers if it lacks
// nothing that another one has shown, although its version is lower.
func TestHazardInformerWithoutNewsIsNotBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		narrow := client.MatchingLabels{"app": "x"}
		require.NoError(t, fleettest.Watch(t, cc, narrow).WaitForSync(t.Context()))
		wide := fleettest.Watch(t, cc)
		require.NoError(t, wide.WaitForSync(t.Context()))
		require.Equal(t, 2, api.Watching(widePath))
		api.Put("two", "changed", map[string]any{"app": "y"})
		synctest.Wait()
		read := func() {
			list := &corev1.ConfigMapList{}
			require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), list, narrow,
				clustercache.CacheOnly))
			require.Len(t, list.Items, 1)
			require.NoError(t, fleettest.Get(t, cc, clustercache.CacheOnly))
		}
		read()
		require.NoError(t, wide.Close(t.Context()))
		read()
		time.Sleep(time.Second)
		read()
	})
}

// TestHazardInformerOfOneObjectIsNotBehind: the same if the narrow informer
// selects one object by name, and another object changed.
func TestHazardInformerOfOneObjectIsNotBehind(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache) {
		c.Store(fleettest.ColoredConfigMap("one", "blue"), fleettest.ColoredConfigMap("two", "blue"))
		narrow := []client.ListOption{client.InNamespace("default"), client.MatchingFields{"metadata.name": "one"}}
		require.NoError(t, fleettest.Watch(t, cc, narrow...).WaitForSync(t.Context()))
		wide := fleettest.Watch(t, cc)
		require.NoError(t, wide.WaitForSync(t.Context()))
		c.Store(fleettest.ColoredConfigMap("two", "red"))
		synctest.Wait()
		require.NoError(t, wide.Close(t.Context()))
		for range 2 {
			list := &corev1.ConfigMapList{}
			require.NoError(t, cc.Cluster(c.Key()).Reader().List(t.Context(), list, append(narrow,
				clustercache.CacheOnly)...))
			require.Len(t, list.Items, 1)
			time.Sleep(time.Second)
		}
	})
}

// TestCachedGetCostsTheSameWithTwoInformers: choosing between them does not
// allocate.
func TestCachedGetCostsTheSameWithTwoInformers(t *testing.T) {
	twoInformers(t, func(t *testing.T, p *pair) {
		measure := func() float64 {
			o, r, one := &corev1.ConfigMap{}, p.cc.Cluster(fleettest.Key("a")).Reader(),
				client.ObjectKey{Namespace: "default", Name: "one"}
			synctest.Wait()
			least := math.Inf(1)
			for range 5 { // concurrent allocations of the process are counted, too
				least = min(least, testing.AllocsPerRun(100, func() { _ = r.Get(t.Context(), one, o) }))
			}
			return least
		}
		both := measure()
		require.NoError(t, p.wide.Close(t.Context()))
		require.InDelta(t, measure(), both, 0.5)
	})
}
