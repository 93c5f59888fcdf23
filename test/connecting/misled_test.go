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
	"k8s.io/apimachinery/pkg/runtime/schema"

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

// TestHazardMisledConnectionEndsBeforeItsProof: after a cut, an address leads
// one connection to another cluster, which answers a watch with its objects and
// closes the connection at once. Nothing is left of that to query then, and all
// other connections lead to the right cluster.
func TestHazardMisledConnectionEndsBeforeItsProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := fleettest.TwoClusters(t)
		proxy := fleettest.NewFront(t, true, a)
		var misleads atomic.Bool
		proxy.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, ledTo{}, c)
		}
		proxy.Answer = func(r *http.Request) http.HandlerFunc {
			if !r.URL.Query().Has("watch") {
				return nil
			}
			if r.URL.Path != fleettest.PathOf("ConfigMap") {
				time.Sleep(100 * time.Millisecond) // so that it is not what the identity is asked after
				return nil
			}
			c, is := r.Context().Value(ledTo{}).(net.Conn)
			if !is || !misleads.CompareAndSwap(true, false) {
				return nil
			}
			return func(w http.ResponseWriter, _ *http.Request) { endsOnceItHasListed(w, c, a.Version()) }
		}
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), proxy.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		unknown := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
		_, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), clustercache.Kind(unknown))
		require.NoError(t, err)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))
		time.Sleep(10 * time.Second)
		misleads.Store(true)
		proxy.Reset()
		_ = fleettest.Watch(t, cc)
		neverMixed(t, cc)
		require.False(t, misleads.Load())
		require.Equal(t, []string{"uid-a"}, origins(t, cc))
		require.Equal(t, 3, fleettest.Status(t, cc).Objects)
	})
}

// endsOnceItHasListed answers a watch that begins with the objects that exist as
// another cluster does, and closes its connection.
func endsOnceItHasListed(w http.ResponseWriter, c net.Conn, version int) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":`+
		`{"namespace":"default","name":"seven","uid":"seven","resourceVersion":"%[1]d"},"data":{"in":"uid-b"}}}`+"\n"+
		`{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"%[1]d",`+
		`"annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", version)
	_ = http.NewResponseController(w).Flush()
	_ = c.Close()
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
