// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

// dials counts the connections to a proxy.
type dials struct{ made, open atomic.Int32 }

// countedConn is a connection that is counted.
type countedConn struct {
	net.Conn

	d      *dials
	closed atomic.Bool
}

func (c *countedConn) Close() error {
	if !c.closed.Swap(true) {
		c.d.open.Add(-1)
	}
	return c.Conn.Close()
}

func (d *dials) through(to *fleettest.Front) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := to.Net.Dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		d.made.Add(1)
		d.open.Add(1)
		return &countedConn{Conn: c, d: d}, nil
	}
}

// TestClusterHasOneConnectionAtRest: watches, probes, identity queries,
// discovery and reads share it. A write opens another one for half a minute. The
// same holds after all connections were cut.
func TestClusterHasOneConnectionAtRest(t *testing.T) {
	for name, netHTTP := range map[string]bool{"own": false, "net/http": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d dials
				proxy := fleettest.NewFront(t, true, fleettest.NewAPI(t, "uid-a"))
				config := proxy.Config()
				config.Dial = d.through(proxy)
				directory := fleettest.NewDirectory()
				directory.Set(fleettest.Key("a"), config)
				o := fleettest.Silent(directory)
				o.NetHTTP = netHTTP
				cc := fleettest.Start(t, o)
				require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
				writer, err := cc.Cluster(fleettest.Key("a")).Client()
				require.NoError(t, err)
				reader := cc.Cluster(fleettest.Key("a")).Reader()

				for range 2 {
					time.Sleep(2 * time.Minute)
					d.made.Store(0)
					for range repeat.Times(300) {
						time.Sleep(time.Second)
						var list corev1.ConfigMapList
						require.NoError(t, reader.List(t.Context(), &list, clustercache.LiveOnly))
						require.EqualValues(t, 1, d.open.Load())
					}
					require.Zero(t, d.made.Load())

					require.NoError(t, writer.Create(t.Context(), &corev1.ConfigMap{
						ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "new-"},
					}))
					time.Sleep(31 * time.Second)
					require.EqualValues(t, 1, d.open.Load())

					d.made.Store(0)
					proxy.Reset()
					time.Sleep(10 * time.Second)
					require.EqualValues(t, 1, d.open.Load())
					if !netHTTP {
						require.EqualValues(t, 1, d.made.Load(), "the query that proves it needs no other one")
					}
				}
			})
		})
	}
}
