// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"errors"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardWiderWatchHidesANarrowOne: a list by a field that a narrow watch
// selects stays cached when another watch covers the whole kind, whose informer
// cannot select by the field.
func TestHazardWiderWatchHidesANarrowOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		narrow := []client.ListOption{client.InNamespace("default"), client.MatchingFields{"type": "x"}}
		w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.Secret{}, narrow...)
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
		list := &corev1.SecretList{}
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), list,
			append(narrow, clustercache.CacheOnly)...))

		w, err = cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.Secret{})
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
		before := api.Total()
		for _, mode := range []clustercache.ReadMode{clustercache.CacheOnly, clustercache.PreferCache} {
			var origin clustercache.Origin
			require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), list, append(narrow, mode,
				&origin)...),
				mode)
			require.True(t, origin.Cached, mode)
		}
		require.Equal(t, before, api.Total(), "a cached read sent a request")
	})
}

// TestHazardBusyWideWatchHoldsBackAListThatOnlyTheServerSelects: a list by a
// field that only the API server evaluates was never answered by a watch of the
// whole kind. However far that is ahead, the watch by the field answers.
func TestHazardBusyWideWatchHoldsBackAListThatOnlyTheServerSelects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		narrow := []client.ListOption{client.InNamespace("default"), client.MatchingFields{"type": "x"}}
		byField, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.Secret{}, narrow...)
		require.NoError(t, err)
		wide, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.Secret{})
		require.NoError(t, err)
		for _, w := range []*clustercache.Watch{byField, wide} {
			require.NoError(t, w.WaitForSync(t.Context()))
		}
		require.NoError(t, api.Fake.Seed(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": "y",
			"metadata": map[string]any{"name": "other", "namespace": "default"},
		}}))
		synctest.Wait()
		list := func() error {
			return cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &corev1.SecretList{},
				append(narrow, clustercache.CacheOnly)...)
		}
		require.NoError(t, list())
		require.NoError(t, wide.Close(t.Context()))
		require.NoError(t, list())
		require.NoError(t, byField.WaitForSync(t.Context()))
	})
}

// TestHazardSelectorHasManySpellings: a list with the selector of a watch is
// answered from it, in any spelling of the selector.
func TestHazardSelectorHasManySpellings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _, _ := fleettest.OneCluster(t)
		selector, err := labels.Parse("app in (x)")
		require.NoError(t, err)
		narrow := client.MatchingLabelsSelector{Selector: selector}
		require.NoError(t, fleettest.Watch(t, cc, narrow).WaitForSync(t.Context()))
		for _, spelling := range []client.ListOption{narrow, client.MatchingLabels{"app": "x"}} {
			list := &corev1.ConfigMapList{}
			require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), list, spelling,
				clustercache.CacheOnly))
			require.Len(t, list.Items, 1)
		}
		other := client.MatchingLabels{"app": "y"}
		err = cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &corev1.ConfigMapList{}, other,
			clustercache.CacheOnly)
		require.ErrorIs(t, err, clustercache.ErrNotWatched)
	})
}

// TestHazardLaggingWideWatchHidesWhatALabelShows: a watch by label has delivered
// a state of an object that a watch of the whole kind does not have yet. A Get
// by the object's name, which the wide watch answers otherwise, is not older
// than what the handlers of the other one have received.
func TestHazardLaggingWideWatchHidesWhatALabelShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		labeled := fleettest.Watch(t, cc, client.InNamespace("default"), client.MatchingLabels{"app": "x"})
		require.NoError(t, labeled.WaitForSync(t.Context()))
		require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
		reader, before := cc.Cluster(fleettest.Key("a")).Reader(), &corev1.ConfigMap{}
		key := client.ObjectKey{Namespace: "default", Name: "one"}
		require.NoError(t, reader.Get(t.Context(), key, before, clustercache.CacheOnly))
		api.Lag("/api/v1/configmaps")
		later := api.Put("one", "2", map[string]any{"app": "x"})
		created := api.Put("new", "1", map[string]any{"app": "x"})
		synctest.Wait()
		for name, version := range map[string]string{"one": later, "new": created} {
			got := &corev1.ConfigMap{}
			key.Name = name
			require.NoError(t, reader.Get(t.Context(), key, got, clustercache.CacheOnly))
			require.Equal(t, version, got.ResourceVersion)
		}

		api.Lag("")
		api.Put("one", "3", map[string]any{"app": "y"})
		synctest.Wait()
		got := &corev1.ConfigMap{}
		key.Name = "one"
		require.NoError(t, reader.Get(t.Context(), key, got, clustercache.CacheOnly))
		require.Equal(t, "y", got.Labels["app"])
	})
}

// TestHazardObjectLeavesTheLabelThatHasShownIt: a watch by label, which is ahead
// of one of the whole kind, has answered a Get, and then the object has lost
// the label, or is gone. The wide watch, which has neither state yet, does not
// answer with an earlier one.
func TestHazardObjectLeavesTheLabelThatHasShownIt(t *testing.T) {
	for name, leave := range map[string]func(*fleettest.API){
		"another label": func(api *fleettest.API) { api.Put("one", "3", map[string]any{"app": "y"}) },
		"a deletion":    func(api *fleettest.API) { api.Delete("one") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, api, _ := fleettest.OneCluster(t)
				labeled := fleettest.Watch(t, cc, client.InNamespace("default"), client.MatchingLabels{"app": "x"})
				require.NoError(t, labeled.WaitForSync(t.Context()))
				require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
				get := func() (string, error) {
					got := &corev1.ConfigMap{}
					err := cc.Cluster(fleettest.Key("a")).Reader().Get(t.Context(),
						client.ObjectKey{Namespace: "default", Name: "one"}, got, clustercache.CacheOnly)
					return got.ResourceVersion, err
				}
				api.Lag("/api/v1/configmaps")
				shown := api.Put("one", "2", map[string]any{"app": "x"})
				synctest.Wait()
				got, err := get()
				require.NoError(t, err)
				require.Equal(t, shown, got)

				leave(api)
				synctest.Wait()
				got, err = get()
				require.ErrorIs(t, err, clustercache.ErrStale, "at %s", got)
				require.NoError(t, labeled.Close(t.Context()))
				_, err = get()
				require.ErrorIs(t, err, clustercache.ErrStale)

				api.Lag("")
				synctest.Wait()
				_, err = get()
				require.NotErrorIs(t, err, clustercache.ErrStale)
			})
		})
	}
}

// TestHazardReadBeginsBeforeItsInformerCatchesUp: an informer that lags returns
// an earlier state of an object than another one has shown, and has caught up by
// the time the read asks how far it has come. Reads of one goroutine never go
// back.
func TestHazardReadBeginsBeforeItsInformerCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		named := fleettest.Watch(t, cc, client.InNamespace("default"), client.MatchingFields{"metadata.name": "one"})
		require.NoError(t, named.WaitForSync(t.Context()))
		require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
		ended := make(chan struct{})
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				last := 0
				for reader := cc.Cluster(fleettest.Key("a")).Reader(); ; {
					select {
					case <-ended:
						return
					default:
					}
					got := &metav1.PartialObjectMetadata{}
					got.SetGroupVersionKind(fleettest.ConfigMap)
					err := reader.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, got,
						clustercache.CacheOnly)
					if errors.Is(err, clustercache.ErrStale) {
						continue
					}
					version, _ := strconv.Atoi(got.ResourceVersion)
					if err != nil || version < last {
						assert.Fail(t, "a read failed or went back", "%d after %d: %v", version, last, err)
						return
					}
					last = version
				}
			})
		}
		for n := range 5_000 {
			api.Put("one", strconv.Itoa(n), map[string]any{"app": "x"})
			if n%50 == 0 {
				runtime.Gosched()
			}
		}
		close(ended)
		readers.Wait()
	})
}
