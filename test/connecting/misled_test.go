// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// ledTo is the context key of the server to which a proxy leads a connection.
type ledTo struct{}

// neverMixed requires that no list of the next minutes has objects of the other
// cluster, either with those of the first or instead of them, in the first
// one's name.
func neverMixed(t *testing.T, cc *clustercache.ClusterCache) {
	t.Helper()
	for range 150 {
		time.Sleep(time.Second)
		var list corev1.ConfigMapList
		var from clustercache.Origin
		if cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &list, &from) != nil {
			continue
		}
		for _, item := range list.Items {
			require.Contains(t, from.Epoch, item.Data["in"])
		}
	}
}

// behindTwo returns a watched cluster behind a proxy over HTTP/2, and another
// one.
func behindTwo(t *testing.T, lead func(f *fleettest.Front, a, b *fleettest.API)) (cc *clustercache.ClusterCache,
	proxy *fleettest.Front, a, b *fleettest.API) {
	t.Helper()
	a, b = fleettest.TwoClusters(t)
	proxy = fleettest.NewFront(t, true, a)
	lead(proxy, a, b)
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), proxy.Config())
	o := fleettest.Silent(d)
	o.Informers.StallTimeout = time.Hour // the server sends no bookmarks
	cc = fleettest.Start(t, o)
	require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
	time.Sleep(10 * time.Second)
	return cc, proxy, a, b
}

// TestHazardConnectionOfWatchesLeadsElsewhere: after a cut, an address leads
// one connection of a client to another cluster. If that is the connection of
// the watches, none of its content is accepted, and another connection is made.
func TestHazardConnectionOfWatchesLeadsElsewhere(t *testing.T) {
	for misled := int64(1); misled <= 4; misled++ {
		t.Run(fmt.Sprint(misled), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var made atomic.Int64 // connections since the cut
				made.Store(-100)
				cc, proxy, a, b := behindTwo(t, func(f *fleettest.Front, a, b *fleettest.API) {
					f.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
						if made.Add(1) == misled {
							return context.WithValue(ctx, ledTo{}, b)
						}
						return context.WithValue(ctx, ledTo{}, a)
					}
					f.Choose = func(r *http.Request) *fleettest.API {
						to, _ := r.Context().Value(ledTo{}).(*fleettest.API)
						return to
					}
				})
				made.Store(0)
				proxy.Reset()
				b.Put("seven", "1", nil)
				a.Put("eight", "1", nil)
				neverMixed(t, cc)
				require.Equal(t, []string{"uid-a"}, origins(t, cc))
				require.Equal(t, 4, fleettest.Status(t, cc).Objects)
			})
		})
	}
}

// TestHazardProxySwitchesWithTheWatch: a proxy switches to another cluster
// between the proof that admits a watch and the watch itself.
func TestHazardProxySwitchesWithTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var armed, switched atomic.Bool
		cc, proxy, _, b := behindTwo(t, func(f *fleettest.Front, a, b *fleettest.API) {
			f.Choose = func(r *http.Request) *fleettest.API {
				if armed.Load() && r.URL.Query().Get("watch") == "true" {
					switched.Store(true)
				}
				if switched.Load() {
					return b
				}
				return a
			}
		})
		armed.Store(true)
		proxy.Reset()
		b.Put("seven", "1", nil)
		neverMixed(t, cc)
		require.Equal(t, []string{"uid-b"}, origins(t, cc))
		require.Contains(t, fleettest.Status(t, cc).Epoch, "uid-b")
	})
}
