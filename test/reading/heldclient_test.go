// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// heldClients returns one of each kind of client that a user can keep.
func heldClients(t *testing.T, cc *clustercache.ClusterCache) map[string]client.Client {
	t.Helper()
	cached, err := cc.Cluster(fleettest.Key("a")).Client()
	require.NoError(t, err)
	live, err := cc.Cluster(fleettest.Key("a")).LiveClient()
	require.NoError(t, err)
	config, err := cc.Cluster(fleettest.Key("a")).TransportConfig()
	require.NoError(t, err)
	mapper, err := cc.Cluster(fleettest.Key("a")).RESTMapper()
	require.NoError(t, err)
	own, err := client.New(config, client.Options{Mapper: mapper})
	require.NoError(t, err)
	return map[string]client.Client{"Client": cached, "LiveClient": live, "TransportConfig": own}
}

// TestHazardHeldClientWritesToAnotherCluster: clients that were obtained and
// used long ago send no write, of any kind, to the cluster that replaced theirs
// behind a proxy, until the status reports that cluster.
func TestHazardHeldClientWritesToAnotherCluster(t *testing.T) {
	for name, secure := range map[string]bool{"http1": false, "http2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, proxy, _, b := fleettest.BehindProxy(t, secure)
				held := heldClients(t, cc)
				all := func(each func(what string, err error)) {
					for way, w := range podWrites() {
						for name, c := range held {
							if way == "get scale" {
								continue
							}
							one := &unstructured.Unstructured{}
							one.SetGroupVersionKind(fleettest.ConfigMap)
							one.SetNamespace("default")
							one.SetName("one")
							each(name+" "+way, w.do(t, c, one))
						}
					}
				}
				sent := 0
				all(func(what string, _ error) {
					sent++
					require.Equal(t, sent, proxy.Wrote("uid-a"), what)
				})
				require.Positive(t, sent)
				time.Sleep(time.Hour)

				// The new cluster does not identify itself, so that the epoch
				// stays.
				b.FailWith(-1, "/kube-system")
				proxy.Move(b)
				time.Sleep(61 * time.Second)
				require.Contains(t, fleettest.Status(t, cc).Epoch, "uid-a")
				all(func(what string, err error) {
					require.Error(t, err, what)
					require.Zero(t, proxy.Wrote("uid-b"), what)
				})
				require.Equal(t, sent, proxy.Wrote("uid-a"))

				b.Heal()
				time.Sleep(time.Minute)
				require.Contains(t, fleettest.Status(t, cc).Epoch, "uid-b")
				all(func(string, error) {})
				require.Equal(t, sent, proxy.Wrote("uid-b"))
				require.Equal(t, sent, proxy.Wrote("uid-a"))
			})
		})
	}
}
