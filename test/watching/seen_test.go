// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watching_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardObjectReadLiveAndGoneBeforeTheFirstList: a controller that acted on
// an object it read receives the object's deletion, though no event ever
// announced the object.
func TestHazardObjectReadLiveAndGoneBeforeTheFirstList(t *testing.T) {
	for name, read := range map[string]func(context.Context, client.Reader, client.ObjectKey) error{
		"get": func(ctx context.Context, r client.Reader, key client.ObjectKey) error {
			return r.Get(ctx, key, &corev1.ConfigMap{})
		},
		"metadata": func(ctx context.Context, r client.Reader, key client.ObjectKey) error {
			return r.Get(ctx, key, clustercache.Kind(fleettest.ConfigMap))
		},
		"list": func(ctx context.Context, r client.Reader, _ client.ObjectKey) error {
			return r.List(ctx, &corev1.ConfigMapList{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
				c *clustercachetest.Cluster, cc *clustercache.ClusterCache) {
				c.Store(fleettest.ColoredConfigMap("gone", "blue"), fleettest.ColoredConfigMap("kept", "blue"))
				feed := fleettest.FollowObjects(t, cc, events.Selection{Kinds: fleettest.ConfigMaps})
				heal := c.Fail(clustercachetest.Status(http.StatusInternalServerError), clustercachetest.Verb("watch"))
				r, synced, err := cc.Cluster(c.Key()).WatchAndRead(t.Context(), fleettest.ConfigMap)
				require.NoError(t, err)
				require.False(t, synced)
				require.NoError(t, read(t.Context(),
					r, client.ObjectKeyFromObject(fleettest.ColoredConfigMap("gone", ""))))
				require.NoError(t, c.Client().Delete(t.Context(), fleettest.ColoredConfigMap("gone", "")))
				heal()
				time.Sleep(time.Minute)
				require.ElementsMatch(t, []string{"Added kept", "Deleted gone"}, feed.Take())
			})
		})
	}
}

// clientActs are calls of clients that show an object.
var clientActs = map[string]func(ctx context.Context, cached, live client.Client) error{
	"live get": func(ctx context.Context, _, live client.Client) error {
		return live.Get(ctx, client.ObjectKeyFromObject(fleettest.ColoredConfigMap("old", "")), &corev1.ConfigMap{})
	},
	"live list": func(ctx context.Context, _, live client.Client) error {
		return live.List(ctx, &metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}})
	},
	"create": func(ctx context.Context, cached, _ client.Client) error {
		return cached.Create(ctx, fleettest.ColoredConfigMap("new", "blue"))
	},
	"live create": func(ctx context.Context, _, live client.Client) error {
		return live.Create(ctx, fleettest.ColoredConfigMap("new", "blue"))
	},
	"update": func(ctx context.Context, cached, _ client.Client) error {
		return cached.Update(ctx, fleettest.ColoredConfigMap("old", "red"))
	},
	"patch": func(ctx context.Context, cached, _ client.Client) error {
		return cached.Patch(ctx, fleettest.ColoredConfigMap("old", ""),
			client.RawPatch("application/merge-patch+json", []byte(`{"data":{"a":"b"}}`)))
	},
	"apply": func(ctx context.Context, cached, _ client.Client) error {
		return cached.Apply(ctx, applycorev1.ConfigMap("new", "default"), client.FieldOwner("test"))
	},
	"dry run": func(ctx context.Context, cached, _ client.Client) error {
		return cached.Create(ctx, fleettest.ColoredConfigMap("dry", "blue"), client.DryRunAll)
	},
}

// clientsOf returns the clients of a cluster.
func clientsOf(t *testing.T, cc *clustercache.ClusterCache, c *clustercachetest.Cluster) (cached, live client.Client) {
	t.Helper()
	cached, err := cc.Cluster(c.Key()).Client()
	require.NoError(t, err)
	live, err = cc.Cluster(c.Key()).LiveClient()
	require.NoError(t, err)
	return cached, live
}

// TestHazardObjectThatAClientShowedGoesUnheard: a controller that wrote an
// object, or read it by a LiveClient, receives the object's deletion, though
// the first list lacks the object already.
func TestHazardObjectThatAClientShowedGoesUnheard(t *testing.T) {
	for name, act := range clientActs {
		t.Run(name, func(t *testing.T) {
			fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
				c *clustercachetest.Cluster, cc *clustercache.ClusterCache) {
				c.Store(fleettest.ColoredConfigMap("old", "blue"), fleettest.ColoredConfigMap("kept", "blue"))
				feed := fleettest.FollowObjects(t, cc, events.Selection{Kinds: fleettest.ConfigMaps})
				heal := c.Fail(clustercachetest.Status(http.StatusInternalServerError), clustercachetest.Verb("watch"))
				_, synced, err := cc.Cluster(c.Key()).WatchAndRead(t.Context(), fleettest.ConfigMap)
				require.NoError(t, err)
				require.False(t, synced)
				cached, live := clientsOf(t, cc, c)
				require.NoError(t, act(t.Context(), cached, live))
				want := []string{"Added kept", "Deleted old"}
				if c.Client().Delete(t.Context(), fleettest.ColoredConfigMap("new", "")) == nil {
					want = []string{"Added kept", "Deleted new"}
				}
				if name == "dry run" {
					want = []string{"Added kept"}
				}
				require.NoError(t, c.Client().Delete(t.Context(), fleettest.ColoredConfigMap("old", "")))
				heal()
				time.Sleep(time.Minute)
				require.ElementsMatch(t, want, feed.Take())
			})
		})
	}
}

// TestHazardObjectThatAClientWroteComesAndGoes: while the handler is busy,
// which otherwise merges the two changes to none.
func TestHazardObjectThatAClientWroteComesAndGoes(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache) {
		c.Store(fleettest.ColoredConfigMap("kept", "blue"))
		w, err := cc.Cluster(c.Key()).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
		free, received := make(chan struct{}), make(chan string, 100)
		_, err = w.AddEventHandler(informerpool.HandlerFunc(func(e informerpool.Event) {
			<-free
			received <- string(e.Type) + " " + e.Object().GetName()
		}))
		require.NoError(t, err)
		cached, _ := clientsOf(t, cc, c)
		require.NoError(t, cached.Create(t.Context(), fleettest.ColoredConfigMap("new", "blue")))
		synctest.Wait()
		require.NoError(t, c.Client().Delete(t.Context(), fleettest.ColoredConfigMap("new", "")))
		synctest.Wait()

		// The deletion of what a client lets go of is no second one.
		ends := fleettest.ColoredConfigMap("ends", "blue")
		ends.Finalizers = []string{"test/finalizer"}
		require.NoError(t, cached.Create(t.Context(), ends))
		synctest.Wait()
		close(free)
		synctest.Wait() // or its two changes are merged, too
		require.NoError(t, cached.Delete(t.Context(), fleettest.ColoredConfigMap("ends", "")))
		require.NoError(t, cached.Patch(t.Context(), fleettest.ColoredConfigMap("ends", ""),
			client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
		time.Sleep(5 * time.Minute)
		var told []string
		for len(received) > 0 {
			told = append(told, <-received)
		}
		require.ElementsMatch(t, []string{"Added kept", "Deleted new", "Added ends", "Deleted ends"},
			slices.DeleteFunc(told, func(s string) bool { return s == "Updated ends" }))
	})
}
