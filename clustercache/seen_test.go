// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
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
			return r.Get(ctx, key, clustercache.Kind(configMap))
		},
		"list": func(ctx context.Context, r client.Reader, _ client.ObjectKey) error {
			return r.List(ctx, &corev1.ConfigMapList{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			fakeFleet(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet, c *clustercachetest.Cluster, cc *clustercache.ClusterCache) {
				c.Store(coloured("gone", "blue"), coloured("kept", "blue"))
				feed := followObjects(t, cc, clustercache.ObjectFeed{Kinds: configMaps})
				heal := c.Fail(clustercachetest.Status(http.StatusInternalServerError), clustercachetest.Verb("watch"))
				r, synced, err := cc.WatchAndRead(t.Context(), c.Key(), configMap)
				require.NoError(t, err)
				require.False(t, synced)
				require.NoError(t, read(t.Context(), r, client.ObjectKeyFromObject(coloured("gone", ""))))
				require.NoError(t, c.Client().Delete(t.Context(), coloured("gone", "")))
				heal()
				time.Sleep(time.Minute)
				var events []string
				for len(feed.events) > 0 {
					e := <-feed.events
					events = append(events, string(e.Type)+" "+e.Object().GetName())
				}
				require.ElementsMatch(t, []string{"Added kept", "Deleted gone"}, events)
			})
		})
	}
}
