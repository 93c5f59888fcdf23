// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
)

// behindProxy returns a connected cluster that can be replaced behind its
// proxy, with ConfigMaps watched and all kinds known.
func behindProxy(t *testing.T, secure bool) (cc *clustercache.ClusterCache, proxy *front, a, b *fakeAPI) {
	t.Helper()
	a, b = twoClusters(t)
	proxy = newFront(t, secure, a)
	d := newDirectory()
	d.set(key("a"), proxy.config())
	o := silent(d)
	o.Informers.StallTimeout = time.Hour // the server sends no bookmarks
	cc = start(t, o)
	require.NoError(t, watch(t, cc).WaitForSync(t.Context()))
	return cc, proxy, a, b
}

func syncs(t *testing.T, cc *clustercache.ClusterCache, obj client.Object, within time.Duration) error {
	t.Helper()
	w, err := cc.Watch(t.Context(), key("a"), obj)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return w.WaitForSync(ctx)
}

func notAWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "true" }

// TestHazardBusyServerKeepsInformersOut: a server that answers 429 for minutes
// to everything but watches identifies itself by a watch. New informers begin,
// ended ones continue, and another cluster is detected.
func TestHazardBusyServerKeepsInformersOut(t *testing.T) {
	for name, secure := range map[string]bool{"http1": false, "http2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, proxy, a, b := behindProxy(t, secure)
				time.Sleep(20 * time.Second)
				a.failIf(http.StatusTooManyRequests, notAWatch)
				time.Sleep(2 * time.Minute)
				require.NoError(t, syncs(t, cc, &corev1.Secret{}, 5*time.Second))
				require.Equal(t, "Throttled", status(t, cc).Reason)
				proxy.cut()
				proxy.reset()
				a.put("five", "1", nil)
				time.Sleep(10 * time.Second)
				require.Equal(t, 1, a.watching(pathOf("ConfigMap")))
				require.Zero(t, status(t, cc).HistoryResets)

				b.failIf(http.StatusTooManyRequests, notAWatch)
				proxy.move(b)
				proxy.cut()
				time.Sleep(time.Minute)
				require.Contains(t, status(t, cc).Epoch, "uid-b")
				require.Equal(t, []string{"uid-b"}, origins(t, cc))
			})
		})
	}
}

// TestHazardRefusedQuestionKeepsInformersOut: the identity query hits a limit
// that lists do not, in either form. While there is no other reason for doubt,
// informers continue for five minutes. A watch that ended early is such a
// reason.
func TestHazardRefusedQuestionKeepsInformersOut(t *testing.T) {
	identity := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/namespaces") }
	synctest.Test(t, func(t *testing.T) {
		cc, proxy, a, _ := behindProxy(t, true)
		time.Sleep(20 * time.Second)
		a.failIf(http.StatusTooManyRequests, identity)
		time.Sleep(90 * time.Second)
		require.NoError(t, syncs(t, cc, &corev1.Secret{}, 20*time.Second))
		require.Error(t, write(t, cc), "a write never goes on without a proof")

		proxy.cut()
		time.Sleep(20 * time.Second)
		require.Zero(t, a.watching(pathOf("Secret")))
		require.ErrorContains(t, syncs(t, cc, &corev1.Service{}, 20*time.Second), "")
		a.heal()
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, a.watching(pathOf("Secret")))

		a.failIf(http.StatusTooManyRequests, identity)
		time.Sleep(7 * time.Minute)
		require.Error(t, syncs(t, cc, &corev1.Endpoints{}, 20*time.Second)) //nolint:staticcheck // as good as any
	})
}
