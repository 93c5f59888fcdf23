// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

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
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

func syncs(t *testing.T, cc *clustercache.ClusterCache, obj client.Object, within time.Duration) error {
	t.Helper()
	w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), obj)
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
				cc, proxy, a, b := fleettest.BehindProxy(t, secure)
				time.Sleep(20 * time.Second)
				a.FailIf(http.StatusTooManyRequests, notAWatch)
				time.Sleep(2 * time.Minute)
				require.NoError(t, syncs(t, cc, &corev1.Secret{}, 5*time.Second))
				require.Equal(t, "Throttled", fleettest.Status(t, cc).Reason)
				proxy.Cut()
				proxy.Reset()
				a.Put("five", "1", nil)
				time.Sleep(10 * time.Second)
				require.Equal(t, 1, a.Watching(fleettest.PathOf("ConfigMap")))
				require.Zero(t, fleettest.Status(t, cc).HistoryResets)

				b.FailIf(http.StatusTooManyRequests, notAWatch)
				proxy.Move(b)
				proxy.Cut()
				time.Sleep(time.Minute)
				require.Contains(t, fleettest.Status(t, cc).Epoch, "uid-b")
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
		cc, proxy, a, _ := fleettest.BehindProxy(t, true)
		time.Sleep(20 * time.Second)
		a.FailIf(http.StatusTooManyRequests, identity)
		time.Sleep(90 * time.Second)
		require.NoError(t, syncs(t, cc, &corev1.Secret{}, 20*time.Second))
		require.Error(t, write(t, cc), "a write never goes on without a proof")

		proxy.Cut()
		time.Sleep(20 * time.Second)
		require.Zero(t, a.Watching(fleettest.PathOf("Secret")))
		require.ErrorContains(t, syncs(t, cc, &corev1.Service{}, 20*time.Second), "")
		a.Heal()
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, a.Watching(fleettest.PathOf("Secret")))

		a.FailIf(http.StatusTooManyRequests, identity)
		time.Sleep(7 * time.Minute)
		require.Error(t, syncs(t, cc, &corev1.Endpoints{}, 20*time.Second)) //nolint:staticcheck // as good as any
	})
}
