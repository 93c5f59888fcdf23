// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package declaring_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/conditions"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/clustercache/watchset"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

var gadgetRequests = clustercachetest.Resource("gadgets")

// syncedDoors are all ways in which a user learns whether a watch of gadgets is
// synced.
type syncedDoors struct {
	t      *testing.T
	f      *clustercachetest.Fleet
	c      *clustercachetest.Cluster
	cc     *clustercache.ClusterCache
	w      *clustercache.Watch
	events *watchLog
	set    *watchset.Set
	multi  cache.Informer
}

func gadget(name, color string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gadgets)
	o.SetNamespace("default")
	o.SetName(name)
	o.Object["color"] = color
	return o
}

func openDoors(t *testing.T, f *clustercachetest.Fleet, c *clustercachetest.Cluster) *syncedDoors {
	t.Helper()
	d := &syncedDoors{t: t, f: f, c: c, cc: f.ClusterCache()}
	d.events = watchesOf(t, d.cc)
	var err error
	d.w, err = d.cc.Cluster(c.Key()).Watch(t.Context(), clustercache.Kind(gadgets))
	require.NoError(t, err)
	d.declare()

	d.set, err = watchset.New(d.cc, watchset.Options{
		Handle: func(context.Context, watchset.Event) error { return nil },
	})
	require.NoError(t, err)
	t.Cleanup(d.set.Stop)
	_, err = d.set.Replace(t.Context(), map[string]watchset.Entry{
		"gadgets": {Cluster: c.Key(), GVK: gadgets},
	})
	require.NoError(t, err)

	cl, err := multicluster.New(d.cc, multicluster.Options{OnlyWatched: true}).Cluster(c.Key())
	require.NoError(t, err)
	d.multi, err = cl.GetCache().GetInformer(t.Context(), gadget("", ""), cache.BlockUntilSynced(false))
	require.NoError(t, err)

	return d
}

func (d *syncedDoors) declare() clustercache.Declaration {
	return fleettest.Declare(d.t, d.cc, fleettest.Owner("one"),
		clustercache.Target{Cluster: d.c.Key(), Kind: clustercache.Kind(gadgets)})
}

// answered returns why the cache does not answer reads of all gadgets, and of
// one; and whether it answers reads that the API server may answer, too.
func (d *syncedDoors) answered() (why error, cached bool) {
	origin := &clustercache.Origin{}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gadgets)
	r := d.cc.Cluster(d.c.Key()).Reader()
	listed := r.List(d.t.Context(), list, clustercache.CacheOnly)
	got := r.Get(d.t.Context(), client.ObjectKey{Namespace: "default", Name: "x"}, gadget("", ""),
		clustercache.CacheOnly)
	if apierrors.IsNotFound(got) && clustercache.ReasonOf(got) == "NotFound" {
		got = nil
	}
	require.Equal(d.t, listed == nil, got == nil, "list: %v, get: %v", listed, got)
	err := r.List(d.t.Context(), list, origin)
	return listed, err == nil && origin.Cached
}

// say returns what each door says.
func (d *syncedDoors) say() map[string]bool {
	declared := d.cc.Declared(fleettest.Owner("one"))
	require.Len(d.t, declared, 1)
	out := map[string]bool{
		"Watch.HasSynced":      d.w.HasSynced(),
		"Watch.Status":         d.w.Status().Informer.Synced,
		"Declared":             declared[0].Synced,
		"Declaration.Synced":   d.declare().Synced,
		"events.Watch.Synced":  d.events.last("Gadget").Synced,
		"Serving":              d.cc.Cluster(d.c.Key()).Serving(clustercache.Kind(gadgets)) == nil,
		"multicluster":         d.multi.HasSynced(),
		"Watch.WaitForSync":    d.waits(d.w.WaitForSync),
		"WaitForSync of owner": d.waits(d.waitForOwner),
	}
	for _, u := range d.cc.Usage().Uses {
		out["Usage"] = u.Synced
	}
	if all, err := d.cc.Cluster(d.c.Key()).WatchStatuses(); err == nil {
		require.Len(d.t, all, 1)
		out["WatchStatuses"] = all[0].Informer.Synced
	}
	if s, err := d.cc.Cluster(d.c.Key()).Status(); err == nil {
		out["Status.Synced"] = s.Synced == 1
	}

	return out
}

func (d *syncedDoors) waitForOwner(ctx context.Context) error {
	return d.cc.WaitForSync(ctx, fleettest.Owner("one"))
}

// waits reports whether a wait succeeds at once. Its error names the cluster,
// the kind and the cause.
func (d *syncedDoors) waits(wait func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Microsecond)
	defer cancel()
	err := wait(ctx)
	if err == nil {
		return true
	}
	require.ErrorContains(d.t, err, d.c.Key().String())
	require.ErrorContains(d.t, err, gadgets.Kind)
	if errors.Is(err, context.DeadlineExceeded) {
		require.Greater(d.t, len(err.Error()), len(context.DeadlineExceeded.Error())+60, "no cause in %q", err)
	}
	return false
}

// compare compares what the doors say with what reads return.
func (d *syncedDoors) compare(at time.Duration) (synced bool) {
	synctest.Wait()
	why, cached := d.answered()
	require.Equal(d.t, why == nil, cached, "after %s: in mode CacheOnly: %v", at, why)
	for door, says := range d.say() {
		require.Equal(d.t, why == nil, says, "after %s: %s, and a read returns %v", at, door, why)
	}

	state, ok := d.set.Status("gadgets")
	require.True(d.t, ok)
	if state.State == watchset.Synced {
		require.NoError(d.t, why, "after %s: watchset", at)
	}
	for kind, c := range map[string]metav1.Condition{
		"declared": conditions.WatchesSynced(d.cc.Declared(fleettest.Owner("one")), 1),
		"watched":  conditions.WatchesSynced([]status.Watch{d.w.Status()}, 1),
	} {
		if c.Status == metav1.ConditionTrue {
			require.NoError(d.t, why, "after %s: condition of what is %s", at, kind)
		}
	}

	return why == nil
}

// TestSyncedMeansThatReadsAreAnswered in every state of a cluster and of a
// watch, at every moment, and whatever says it.
func TestSyncedMeansThatReadsAreAnswered(t *testing.T) {
	forbid := func(d *syncedDoors) {
		d.c.Fail(clustercachetest.Status(http.StatusForbidden), gadgetRequests)
	}
	for name, s := range map[string]struct {
		before func(c *clustercachetest.Cluster)
		after  []func(d *syncedDoors)
		end    bool // whether it is synced in the end
	}{
		"never connected": {before: (*clustercachetest.Cluster).Disconnect},
		"unknown cluster": {before: (*clustercachetest.Cluster).Remove},
		"connected later": {
			before: (*clustercachetest.Cluster).Disconnect,
			after:  []func(d *syncedDoors){func(d *syncedDoors) { d.c.Connect() }},
			end:    true,
		},
		"no first list": {before: func(c *clustercachetest.Cluster) {
			c.Fail(clustercachetest.Status(http.StatusServiceUnavailable), gadgetRequests)
		}},
		"forbidden from the beginning": {before: func(c *clustercachetest.Cluster) {
			c.Fail(clustercachetest.Status(http.StatusForbidden), gadgetRequests)
		}},
		"synced": {end: true},
		"disconnected": {
			after: []func(d *syncedDoors){func(d *syncedDoors) { d.c.Disconnect() }},
		},
		"hung": {
			after: []func(d *syncedDoors){func(d *syncedDoors) { d.c.Hang() }},
		},
		"disconnected and back": {
			after: []func(d *syncedDoors){
				func(d *syncedDoors) { d.c.Disconnect() },
				func(d *syncedDoors) { d.c.Connect() },
			},
			end: true,
		},
		"connections reset": {
			after: []func(d *syncedDoors){func(d *syncedDoors) { d.c.Reset() }},
			end:   true,
		},
		"credentials revoked": {
			after: []func(d *syncedDoors){func(d *syncedDoors) { d.c.Revoke(); d.c.Reset() }},
		},
		"watch forbidden": {after: []func(d *syncedDoors){forbid}},
		"watch forbidden, then disconnected and back": {
			after: []func(d *syncedDoors){
				forbid,
				func(d *syncedDoors) { d.c.Disconnect() },
				func(d *syncedDoors) { d.c.Connect() },
			},
		},
		"disconnected, then forbidden and back": {
			after: []func(d *syncedDoors){
				func(d *syncedDoors) { d.c.Disconnect() },
				func(d *syncedDoors) { forbid(d); d.c.Connect() },
			},
		},
		"watch fails": {
			after: []func(d *syncedDoors){func(d *syncedDoors) {
				d.c.Fail(clustercachetest.Status(http.StatusServiceUnavailable), gadgetRequests)
			}},
		},
		"silent": {
			after: []func(d *syncedDoors){func(d *syncedDoors) { d.c.SetStale(true, clustercache.Kind(gadgets)) }},
		},
		"kind removed": {
			after: []func(d *syncedDoors){func(d *syncedDoors) {
				require.NoError(d.t, d.c.Client().Delete(d.t.Context(), gadgetDefinition()))
			}},
		},
		"kind removed and installed again": {
			after: []func(d *syncedDoors){
				func(d *syncedDoors) {
					require.NoError(d.t, d.c.Client().Delete(d.t.Context(), gadgetDefinition()))
				},
				func(d *syncedDoors) {
					require.NoError(d.t, d.c.Client().Create(d.t.Context(), gadgetDefinition()))
				},
			},
			end: true,
		},
		"cluster removed": {
			after: []func(d *syncedDoors){func(d *syncedDoors) { d.c.Remove() }},
		},
		"another cluster": {
			after: []func(d *syncedDoors){func(d *syncedDoors) { d.c.NewEpoch(gadgetDefinition()) }},
			end:   true,
		},
		"another cluster without the kind": {
			after: []func(d *syncedDoors){func(d *syncedDoors) { d.c.NewEpoch() }},
		},
		"another cluster that forbids": {
			after: []func(d *syncedDoors){func(d *syncedDoors) { forbid(d); d.c.NewEpoch(gadgetDefinition()) }},
		},
		"history rolled back": {
			after: []func(d *syncedDoors){func(d *syncedDoors) {
				at := d.c.Snapshot()
				require.NoError(d.t, d.c.Client().Create(d.t.Context(), gadget("later", "red")))
				time.Sleep(time.Second)
				d.c.Rollback(at)
			}},
			end: true,
		},
		"over budget from the beginning": {before: func(c *clustercachetest.Cluster) {
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				c.Store(gadget(name, "red"))
			}
		}},
		"over budget later": {
			after: []func(d *syncedDoors){func(d *syncedDoors) {
				for _, name := range []string{"a", "b", "c", "d", "e"} {
					require.NoError(d.t, d.c.Client().Create(d.t.Context(), gadget(name, "red")))
				}
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := clustercachetest.Options{}
				o.Cache.Informers.MaxObjects = 4
				f := clustercachetest.New(t, o)
				c := f.Add("fleet/a")
				c.Store(gadgetDefinition(), gadget("x", "red"))
				if s.before != nil {
					s.before(c)
				}
				d := openDoors(t, f, c)
				synced := d.follow(10 * time.Second)
				for _, change := range s.after {
					change(d)
					synced = d.follow(10 * time.Minute)
				}
				require.Equal(t, s.end, synced)

				d.w.Release()
				require.False(t, d.w.HasSynced())
				require.ErrorIs(t, d.w.WaitForSync(t.Context()), clustercache.ErrReleased)
			})
		})
	}
}

// follow compares for a time, often at first; with -short a fifth as often.
func (d *syncedDoors) follow(during time.Duration) (synced bool) {
	step, often := 10*time.Millisecond, time.Duration(repeat.Times(20))
	for at := time.Duration(0); at < during; at += step {
		step = min(max(step, at/often), 100*time.Second/often)
		synced = d.compare(at)
		time.Sleep(step)
	}
	return synced
}

// TestWaitForSyncWaitsUntilReadsAreAnswered and not only until a first list:
// through a state in which they are not, of a watch that had synced, and
// whether or not anything else observes the watch.
func TestWaitForSyncWaitsUntilReadsAreAnswered(t *testing.T) {
	for name, begin := range map[string]func(c *clustercachetest.Cluster) (end func()){
		"disconnected": func(c *clustercachetest.Cluster) func() {
			c.Disconnect()
			return c.Connect
		},
		"hung": func(c *clustercachetest.Cluster) func() {
			c.Hang()
			return c.Connect
		},
		"credentials revoked": func(c *clustercachetest.Cluster) func() {
			c.Revoke()
			c.Reset()
			return c.Rotate
		},
		"watch fails": func(c *clustercachetest.Cluster) func() {
			return c.Fail(clustercachetest.Status(http.StatusServiceUnavailable), gadgetRequests)
		},
		"silent": func(c *clustercachetest.Cluster) func() {
			c.SetStale(true, clustercache.Kind(gadgets))
			return func() { c.SetStale(false, clustercache.Kind(gadgets)) }
		},
		"another cluster that fails": func(c *clustercachetest.Cluster) func() {
			heal := c.Fail(clustercachetest.Status(http.StatusServiceUnavailable), gadgetRequests)
			c.NewEpoch(gadgetDefinition())
			return heal
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := clustercachetest.New(t, clustercachetest.Options{})
				c := f.Add("fleet/a")
				c.Store(gadgetDefinition(), gadget("x", "red"))
				d := &syncedDoors{t: t, f: f, c: c, cc: f.ClusterCache()}
				var err error
				d.w, err = d.cc.Cluster(c.Key()).Watch(t.Context(), clustercache.Kind(gadgets))
				require.NoError(t, err)
				d.declare()
				require.NoError(t, d.w.WaitForSync(t.Context()))
				end := begin(c)
				time.Sleep(10 * time.Minute)
				why, _ := d.answered()
				require.Error(t, why)

				returned := make(chan error, 2)
				for _, wait := range []func(context.Context) error{d.w.WaitForSync, d.waitForOwner} {
					go func() {
						err := wait(t.Context())
						if err == nil {
							err, _ = d.answered()
						}
						returned <- err
					}()
				}
				time.Sleep(time.Hour)
				require.Empty(t, returned, "it returned while reads failed")
				end()
				time.Sleep(10 * time.Minute)
				for range 2 {
					select {
					case err := <-returned:
						require.NoError(t, err)
					default:
						require.FailNow(t, "still waiting")
					}
				}
			})
		})
	}
}

// TestWaitForSyncReturnsARefusalAtOnce also of a watch that has synced before,
// and waits again when it is called again.
func TestWaitForSyncReturnsARefusalAtOnce(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		w, err := cc.Cluster(c.Key()).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
		heal := c.Fail(clustercachetest.Status(http.StatusForbidden), configMaps)
		time.Sleep(time.Minute)
		err = w.WaitForSync(t.Context())
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		named, ok := errors.AsType[*clustercache.ClusterError](err)
		require.True(t, ok)
		require.Equal(t, c.Key(), named.Cluster)
		require.Equal(t, fleettest.ConfigMap, named.GVK)
		heal()
		time.Sleep(time.Minute)
		require.NoError(t, w.WaitForSync(t.Context()))

		c.Disconnect()
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = w.WaitForSync(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, clustercache.ErrNotConnected)
		require.True(t, clustercache.IsWaiting(err))
		require.Equal(t, "Unreachable", clustercache.ReasonOf(err))
		require.ErrorContains(t, err, "connection refused")
	})
}

// TestHazardDebtOfAWatchIsPaidUnheard: while a watch lacks what a wider one has
// shown and that was released then, it answers no read and is not synced. What
// follows is heard, though the informer itself does not change.
func TestHazardDebtOfAWatchIsPaidUnheard(t *testing.T) {
	const narrowPath = "/api/v1/namespaces/default/configmaps"
	paidUnheard := func(t *testing.T, begin func(*testing.T, *clustercache.ClusterCache) (end func())) {
		cc, api, _ := fleettest.OneCluster(t)
		calls, watches := ownersOf(t, cc), watchesOf(t, cc)
		narrow := status.WatchKey{
			Cluster:   fleettest.Key("a"),
			GVK:       fleettest.ConfigMap,
			Namespace: "default",
		}
		declare := func() clustercache.Declaration {
			return fleettest.Declare(t, cc, fleettest.Owner("one"),
				fleettest.Target("a", "ConfigMap", client.InNamespace("default")))
		}
		declare()
		require.NoError(t, cc.WaitForSync(t.Context(), fleettest.Owner("one")))
		end := begin(t, cc)
		api.Lag(narrowPath)
		api.Put("one", "2", nil)
		synctest.Wait()
		calls.take(time.Second)
		require.True(t, declare().Synced)

		require.True(t, watches.lastOf(narrow).Synced)

		end()
		synctest.Wait()
		require.ErrorIs(t, fleettest.Get(t, cc, clustercache.CacheOnly), clustercache.ErrStale)
		require.False(t, declare().Synced)
		require.False(t, watches.lastOf(narrow).Synced)
		require.Equal(t, one, calls.take(time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := cc.WaitForSync(ctx, fleettest.Owner("one"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, clustercache.ErrStale)

		api.Lag("")
		require.NoError(t, cc.WaitForSync(t.Context(), fleettest.Owner("one")))
		require.NoError(t, fleettest.Get(t, cc, clustercache.CacheOnly))
		require.True(t, declare().Synced)
		require.True(t, watches.lastOf(narrow).Synced)
	}
	for name, begin := range map[string]func(*testing.T, *clustercache.ClusterCache) (end func()){
		"of a user": func(t *testing.T, cc *clustercache.ClusterCache) func() {
			t.Helper()
			w := fleettest.Watch(t, cc)
			require.NoError(t, w.WaitForSync(t.Context()))
			return w.Release
		},
		"of reads": func(t *testing.T, cc *clustercache.ClusterCache) func() {
			t.Helper()
			all := &corev1.ConfigMapList{}
			require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), all, clustercache.AutoWatch))
			time.Sleep(10*time.Minute - 5*time.Second) // IdleTimeout
			return func() { time.Sleep(10 * time.Second) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { paidUnheard(t, begin) })
		})
	}
}

// lastOf returns the last event of a watch.
func (l *watchLog) lastOf(key status.WatchKey) (e events.Watch) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, event := range l.events {
		if event.Key == key {
			e = event
		}
	}
	return e
}

// TestAnotherClusterThatAnswersForAWhileIsTold: while another cluster has
// answered in place of the expected one, no read is answered, and all who
// observe the watch are told when that begins and ends.
func TestAnotherClusterThatAnswersForAWhileIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleettest.NewFleet(t, 1, nil)
		api := apis[0]
		owners, received := ownersOf(t, cc), watchesOf(t, cc)
		fleettest.Declare(t, cc, fleettest.Owner("one"), fleettest.Target("a", "ConfigMap"))
		w := fleettest.Watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		time.Sleep(time.Minute)
		require.True(t, received.last("ConfigMap").Synced)
		owners.take(0)

		var others atomic.Int64
		api.Set(func(r *http.Request) http.HandlerFunc {
			if r.URL.Path != "/api/v1/namespaces/kube-system" {
				return nil
			}
			if others.Add(1) == 1 {
				return func(w http.ResponseWriter, _ *http.Request) {
					fleettest.Answer(w, map[string]any{"kind": "Namespace", "apiVersion": "v1",
						"metadata": map[string]any{"name": "kube-system", "uid": "other"}})
				}
			}
			return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
		})
		for others.Load() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		state := fleettest.Status(t, cc)
		require.NotEqual(t, status.PhaseDisconnected, state.Phase)
		require.False(t, w.HasSynced())
		require.ErrorContains(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &corev1.ConfigMapList{},
			clustercache.CacheOnly), "another cluster answers")
		require.False(t, received.last("ConfigMap").Synced)
		require.Equal(t, one, owners.take(0))

		waited := make(chan error, 1)
		go func() { waited <- w.WaitForSync(t.Context()) }()
		synctest.Wait()
		require.Empty(t, waited)
		api.Heal()
		time.Sleep(20 * time.Second)
		require.Equal(t, state.Epoch, fleettest.Status(t, cc).Epoch, "it was never left")
		require.Len(t, waited, 1)
		require.NoError(t, <-waited)
		require.True(t, received.last("ConfigMap").Synced)
		require.Equal(t, one, owners.take(0))
	})
}
