// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

package guide_test

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/examples/guide"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestNextProcessBeginsWithTheFile: the second one lists nothing, and a third
// one, which finds the file in use, lists.
func TestNextProcessBeginsWithTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := clustercachetest.New(t, clustercachetest.Options{})
		east := fleet.Add("fleet/east", configMap())
		path := filepath.Join(t.TempDir(), "caches", "fleetcache.db")
		begin := func() (end func()) {
			o := clustercache.Options{
				Resolver:          fleet.Resolver(),
				Discover:          true,
				MetricsRegisterer: prometheus.NewRegistry(),
			}
			done := guide.KeepCaches(path, &o)
			cc, err := clustercache.New(o)
			require.NoError(t, err)
			stop := fleettest.Run(t, cc)
			watch, err := cc.Cluster(east.Key()).Watch(t.Context(), &corev1.ConfigMap{})
			require.NoError(t, err)
			require.NoError(t, watch.WaitForSync(t.Context()))
			err = cc.Cluster(east.Key()).Reader().Get(t.Context(), settings, &corev1.ConfigMap{},
				clustercache.CacheOnly)
			require.NoError(t, err)
			return func() {
				stop()
				done()
			}
		}
		listed := func() (n int) {
			for _, r := range east.Requests(clustercachetest.Resource("configmaps")) {
				if r.Initial && !asksForHistory(r) {
					n++
				}
			}
			return n
		}

		begin()()
		require.Equal(t, 1, listed())
		end := begin()
		require.Equal(t, 1, listed())
		begin()()
		require.Equal(t, 2, listed())
		end()
	})
}

// asksForHistory reports whether a request only asks for the server's version:
// it selects an object that does not exist.
func asksForHistory(r clustercachetest.Request) bool {
	return strings.Contains(r.Query, "fleetcache-history")
}
