// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestReadsOfWhatWasRefusedGoLive: one object that cannot be cached is neither
// missing nor does it affect reads of others.
func TestReadsOfWhatWasRefusedGoLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		api.Put("one", "1", nil)
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		o := fleettest.Silent(d)
		o.Informers.MaxObjectBytes = 4096
		cc := fleettest.Start(t, o)
		w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
		read := func(name string, opts ...client.GetOption) (value string, cached bool, err error) {
			var origin clustercache.Origin
			var cm corev1.ConfigMap
			err = cc.Cluster(fleettest.Key("a")).Reader().Get(t.Context(),
				client.ObjectKey{Namespace: "default", Name: name},
				&cm, append(opts, &origin)...)
			return cm.Data["value"], origin.Cached, err
		}
		list := func(opts ...client.ListOption) (items int, cached bool, err error) {
			var origin clustercache.Origin
			var l corev1.ConfigMapList
			err = cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &l, append(opts, &origin)...)
			return len(l.Items), origin.Cached, err
		}

		huge := strings.Repeat("<", 5000)
		api.Put("huge", huge, nil)
		synctest.Wait()
		value, cached, err := read("huge")
		require.NoError(t, err)
		require.False(t, cached)
		require.Equal(t, huge, value)
		items, cached, err := list()
		require.NoError(t, err)
		require.False(t, cached)
		require.Equal(t, 2, items)
		_, cached, err = list(client.InNamespace("another"))
		require.NoError(t, err)
		require.True(t, cached, "it is none of its objects")
		_, _, err = read("huge", clustercache.CacheOnly)
		require.ErrorIs(t, err, clustercache.ErrStale)
		require.ErrorIs(t, err, informerpool.ErrRefused)
		_, _, err = list(clustercache.CacheOnly)
		require.ErrorIs(t, err, informerpool.ErrRefused)

		api.Put("one", "2", nil)
		synctest.Wait()
		value, cached, err = read("one")
		require.NoError(t, err)
		require.True(t, cached)
		require.Equal(t, "2", value)

		api.Put("one", huge, nil)
		synctest.Wait()
		value, cached, err = read("one")
		require.NoError(t, err)
		require.False(t, cached)
		require.Equal(t, huge, value, "not the state before")
		api.Delete("huge")
		api.Put("one", "3", nil)
		time.Sleep(time.Second)
		_, cached, err = list()
		require.NoError(t, err)
		require.True(t, cached)
	})
}

// TestHazardRefusedObjectIsAcceptedWhileAListIsSelected: the cache gets an
// object that it lacked between the look at its objects and the end of a list.
// The list is not answered without the object.
func TestHazardRefusedObjectIsAcceptedWhileAListIsSelected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var selecting atomic.Pointer[func()]
		cc, api, _ := fleettest.OneCluster(t, func(o *clustercache.Options) {
			o.Informers.MaxObjectBytes = 4096
			o.Indexes[0].Values = func(client.Object) []string {
				if accept := selecting.Swap(nil); accept != nil {
					(*accept)()
				}
				return []string{"x"}
			}
		})
		require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
		api.Put("huge", strings.Repeat("<", 5000), nil)
		synctest.Wait()
		accept := func() {
			api.Put("huge", "small", nil)
			synctest.Wait()
		}
		selecting.Store(&accept)
		list := &corev1.ConfigMapList{}
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), list,
			client.MatchingFieldsSelector{Selector: fields.OneTermNotEqualSelector("app", "z")}))
		require.Len(t, list.Items, 3)
		require.Nil(t, selecting.Load())
	})
}
