// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardReleasedWatchWasAhead: what a watch has shown before it was closed
// is not taken back by another watch that lags behind.
func TestHazardReleasedWatchWasAhead(t *testing.T) {
	one := client.ObjectKey{Namespace: "default", Name: "one"}
	for name, c := range map[string]struct {
		ahead, lags []client.ListOption
		held        func(*fakeapi.Request) bool
		change      func(*fleettest.API)
	}{
		"an object has moved to another selection by labels": {
			ahead:  []client.ListOption{client.MatchingLabels{"app": "y"}},
			lags:   []client.ListOption{client.MatchingLabels{"app": "x"}},
			held:   func(r *fakeapi.Request) bool { return strings.Contains(r.Query, "app%3Dx") },
			change: func(api *fleettest.API) { api.Put("one", "1", map[string]any{"app": "y"}) },
		},
		"an object of a namespace was deleted": {
			ahead:  []client.ListOption{client.InNamespace("default")},
			held:   func(r *fakeapi.Request) bool { return r.Namespace == "" },
			change: func(api *fleettest.API) { api.Delete("one") },
		},
		"the only object of a watch by name was deleted": {
			ahead:  []client.ListOption{client.InNamespace("default"), client.MatchingFields{"metadata.name": "one"}},
			held:   func(r *fakeapi.Request) bool { return r.Namespace == "" },
			change: func(api *fleettest.API) { api.Delete("one") },
		},
		"an object is gone that another watch selects by its label": {
			ahead:  []client.ListOption{client.InNamespace("default"), client.MatchingFields{"metadata.name": "one"}},
			lags:   []client.ListOption{client.MatchingLabels{"app": "x"}},
			held:   func(r *fakeapi.Request) bool { return r.Namespace == "" },
			change: func(api *fleettest.API) { api.Delete("one") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, api, _ := fleettest.OneCluster(t)
				first := api.Stored()["one"].GetResourceVersion()
				ahead := fleettest.Watch(t, cc, c.ahead...)
				require.NoError(t, ahead.WaitForSync(t.Context()))
				require.NoError(t, fleettest.Watch(t, cc, c.lags...).WaitForSync(t.Context()))
				api.Fake.Hold(c.held)
				c.change(api)
				synctest.Wait()

				get := func() (version string, err error) {
					got := &corev1.ConfigMap{}
					err = cc.Cluster(fleettest.Key("a")).Reader().Get(t.Context(), one, got, clustercache.CacheOnly)
					return got.ResourceVersion, client.IgnoreNotFound(err)
				}
				version, err := get()
				require.NoError(t, err)
				require.NotEqual(t, first, version)
				require.NoError(t, ahead.Close(t.Context()))
				_, err = get()
				require.ErrorIs(t, err, clustercache.ErrStale)

				api.Fake.Hold(nil)
				synctest.Wait()
				_, err = get()
				require.NotErrorIs(t, err, clustercache.ErrStale)
			})
		})
	}
}
