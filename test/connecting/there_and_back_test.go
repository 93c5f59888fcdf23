// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/fleet"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

// TestHazardProxySwitchesThereAndBack: a proxy that keeps connections leads to
// one cluster and the other, by turns. The epoch of a read is that of the
// cluster that answered.
func TestHazardProxySwitchesThereAndBack(t *testing.T) {
	ofList := func(cc *clustercache.ClusterCache, t *testing.T, opts ...client.ListOption) (string, []string) {
		var list corev1.ConfigMapList
		var from clustercache.Origin
		if cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &list, append(opts, &from)...) != nil {
			return "", nil
		}
		var in []string
		for _, item := range list.Items {
			in = append(in, item.Data["in"])
		}
		return from.Epoch, in
	}
	ways := map[string]func(cc *clustercache.ClusterCache, t *testing.T) (string, []string){
		"list": func(cc *clustercache.ClusterCache, t *testing.T) (string, []string) { return ofList(cc, t) },
		"live list": func(cc *clustercache.ClusterCache, t *testing.T) (string, []string) {
			return ofList(cc, t, clustercache.LiveOnly)
		},
		"cached list": func(cc *clustercache.ClusterCache, t *testing.T) (string, []string) {
			return ofList(cc, t, clustercache.CacheOnly, clustercache.MaxStaleness(time.Hour))
		},
		"live get": func(cc *clustercache.ClusterCache, t *testing.T) (string, []string) {
			for _, name := range []string{"one", "four"} {
				var from clustercache.Origin
				var got corev1.ConfigMap
				key := client.ObjectKey{Namespace: "default", Name: name}
				if cc.Cluster(fleettest.Key("a")).Reader().Get(t.Context(), key, &got, clustercache.LiveOnly,
					&from) == nil {
					return from.Epoch, []string{got.Data["in"]}
				}
			}
			return "", nil
		},
		"fleet": func(cc *clustercache.ClusterCache, t *testing.T) (epoch string, in []string) {
			for answer, err := range fleet.ByCluster(t.Context(), cc, &corev1.ConfigMap{}, clustercache.LiveOnly) {
				if err != nil {
					return "", nil
				}
				epoch = answer.Origin.Epoch
				for item := range answer.Items() {
					o, err := item.Object()
					require.NoError(t, err)
					in = append(in, o.Data["in"])
				}
			}
			return epoch, in
		},
	}
	for name, tc := range map[string]struct{ secure, cuts bool }{
		"http1, watches stay": {}, "http1, watches are cut": {cuts: true},
		"http2, watches stay": {secure: true}, "http2, watches are cut": {secure: true, cuts: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, proxy, a, b := fleettest.BehindProxy(t, tc.secure)
				reads, wrong := map[string]int{}, map[string]int{}
				for turn := range repeat.Times(40) {
					proxy.Move([]*fleettest.API{b, a}[turn%2])
					if tc.cuts {
						proxy.Cut()
					}
					for range 10 {
						time.Sleep(300 * time.Millisecond)
						for way, read := range ways {
							epoch, in := read(cc, t)
							for _, uid := range in {
								require.Equal(t, in[0], uid, "of two clusters: %v", in)
							}
							if len(in) > 0 {
								reads[way]++
							}
							if len(in) > 0 && epoch[:len(in[0])] != in[0] {
								wrong[way]++
							}
						}
					}
				}
				t.Log(reads)
				require.Empty(t, wrong)
				require.NotZero(t, reads["live get"])
			})
		})
	}
}

// TestHazardFormerClusterReturnsAfterAnOutage: a name leads to a standby
// cluster, and back to the first one once the standby has failed. That another
// cluster answered before says nothing about the one that has returned.
func TestHazardFormerClusterReturnsAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		fleettest.Synced(t, cc, api)
		api.Become("uid-b")
		time.Sleep(5 * time.Second)
		require.Contains(t, fleettest.Status(t, cc).Epoch, "uid-b")
		require.NoError(t, fleettest.Get(t, cc, clustercache.LiveOnly))

		api.Die()
		time.Sleep(time.Minute)
		require.False(t, fleettest.Status(t, cc).Connected)
		api.Become("uid-a")
		api.Live()
		require.NoError(t, cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))
		require.Contains(t, fleettest.Status(t, cc).Epoch, "uid-a")
		require.NoError(t, fleettest.Get(t, cc, clustercache.LiveOnly))
		time.Sleep(5 * time.Second)
		require.NoError(t, fleettest.Get(t, cc, clustercache.CacheOnly))
	})
}
