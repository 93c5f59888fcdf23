// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

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
		if cc.Reader(key("a")).List(t.Context(), &list, &from) != nil {
			continue
		}
		for _, item := range list.Items {
			require.Contains(t, from.Epoch, item.Data["in"])
		}
	}
}

// behindTwo returns a watched cluster behind a proxy over HTTP/2, and another
// one.
func behindTwo(t *testing.T, lead func(f *front, a, b *fakeAPI)) (cc *clustercache.ClusterCache, proxy *front, a, b *fakeAPI) {
	t.Helper()
	a, b = twoClusters(t)
	proxy = newFront(t, true, a)
	lead(proxy, a, b)
	d := newDirectory()
	d.set(key("a"), proxy.config())
	o := silent(d)
	o.Informers.StallTimeout = time.Hour // the server sends no bookmarks
	cc = start(t, o)
	require.NoError(t, watch(t, cc).WaitForSync(t.Context()))
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
				cc, proxy, a, b := behindTwo(t, func(f *front, a, b *fakeAPI) {
					f.connContext = func(ctx context.Context, _ net.Conn) context.Context {
						if made.Add(1) == misled {
							return context.WithValue(ctx, ledTo{}, b)
						}
						return context.WithValue(ctx, ledTo{}, a)
					}
					f.choose = func(r *http.Request) *fakeAPI {
						to, _ := r.Context().Value(ledTo{}).(*fakeAPI)
						return to
					}
				})
				made.Store(0)
				proxy.reset()
				b.put("seven", "1", nil)
				a.put("eight", "1", nil)
				neverMixed(t, cc)
				require.Equal(t, []string{"uid-a"}, origins(t, cc))
				require.Equal(t, 4, status(t, cc).Objects)
			})
		})
	}
}

// TestHazardProxySwitchesWithTheWatch: a proxy switches to another cluster
// between the proof that admits a watch and the watch itself.
func TestHazardProxySwitchesWithTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var armed, switched atomic.Bool
		cc, proxy, _, b := behindTwo(t, func(f *front, a, b *fakeAPI) {
			f.choose = func(r *http.Request) *fakeAPI {
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
		proxy.reset()
		b.put("seven", "1", nil)
		neverMixed(t, cc)
		require.Equal(t, []string{"uid-b"}, origins(t, cc))
		require.Contains(t, status(t, cc).Epoch, "uid-b")
	})
}
