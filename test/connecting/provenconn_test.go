// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/memnet"
)

// crossroads is an address that leads to one of two proxies.
type crossroads struct {
	old, other *fleettest.Front

	mu sync.Mutex // protects what follows
	to *fleettest.Front
}

func newCrossroads(t *testing.T, secure bool) (*crossroads, *fleettest.Directory) {
	t.Helper()
	a, b := fleettest.TwoClusters(t)
	x, d := &crossroads{old: fleettest.NewFront(t, secure, a), other: fleettest.NewFront(t, secure, b)},
		fleettest.NewDirectory()
	x.to = x.old
	config := x.old.Config()
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return x.listener().Dial(ctx, network, address)
	}
	d.Set(fleettest.Key("a"), config)
	return x, d
}

func (x *crossroads) listener() *memnet.Listener {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.to.Net
}

// lead makes new connections go to a proxy, and ends the existing ones.
func (x *crossroads) lead(to *fleettest.Front) {
	x.mu.Lock()
	x.to = to
	x.mu.Unlock()
	x.old.Reset()
	x.other.Reset()
}

// TestHazardWriteOverAConnectionThatAProbeMade: an admitted write waits for its
// turn, and meanwhile the address starts to lead to another cluster, which does
// not identify itself. A probe makes a connection there, and the write is given
// it. No byte of the write may be sent, and none of a list.
func TestHazardWriteOverAConnectionThatAProbeMade(t *testing.T) {
	for name, secure := range map[string]bool{"http1": false, "http2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, d := newCrossroads(t, secure)
				o := fleettest.Silent(d)
				o.QPS, o.Burst, o.ProbeInterval = 0.2, 1, time.Second
				cc := fleettest.Start(t, o)
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
				require.NoError(t, cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))
				require.NoError(t, write(t, cc)) // looks up the kind
				time.Sleep(20 * time.Second)
				require.NoError(t, write(t, cc)) // the next one waits for 5 s
				before := x.old.Wrote("uid-a")

				var waiting sync.WaitGroup
				var written, read error
				waiting.Go(func() { written = write(t, cc) })
				waiting.Go(func() {
					read = cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &corev1.ConfigMapList{})
				})
				time.Sleep(time.Second)
				x.other.Behind.FailWith(-1, "/kube-system")
				x.lead(x.other)
				waiting.Wait()

				require.Error(t, written)
				require.Error(t, read)
				require.Zero(t, x.other.Wrote("uid-b"))
				require.Equal(t, before, x.old.Wrote("uid-a"))
				require.Zero(t, x.other.Behind.Count("get "+fleettest.PathOf("ConfigMap")))

				x.other.Behind.Heal()
				time.Sleep(2 * time.Minute)
				require.Contains(t, fleettest.Status(t, cc).Epoch, "uid-b")
				require.NoError(t, write(t, cc))
			})
		})
	}
}

// TestHazardWriteWaitedForLongerThanItsProof: the proof that admitted a write
// is too old when the write is sent. The connections stay.
func TestHazardWriteWaitedForLongerThanItsProof(t *testing.T) {
	for name, secure := range map[string]bool{"http1": false, "http2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := fleettest.TwoClusters(t)
				proxy, d := fleettest.NewFront(t, secure, a), fleettest.NewDirectory()
				d.Set(fleettest.Key("a"), proxy.Config())
				o := fleettest.Silent(d)
				o.QPS, o.Burst, o.RequestTimeout = 0.01, 1, time.Hour
				cc := fleettest.Start(t, o)
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
				require.NoError(t, cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))
				require.NoError(t, write(t, cc)) // the next one waits for 100 s
				proxy.Move(b)
				b.FailWith(-1, "/kube-system")
				require.Error(t, write(t, cc))
				require.Zero(t, proxy.Wrote("uid-b"))
			})
		})
	}
}

// TestHazardAddressLedElsewhereForAMoment: connections that were made while
// another cluster was behind the address for a moment are not proven by a later
// answer of the former cluster.
func TestHazardAddressLedElsewhereForAMoment(t *testing.T) {
	for name, secure := range map[string]bool{"http1": false, "http2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, d := newCrossroads(t, secure)
				o := fleettest.Silent(d)
				o.ProbeInterval = time.Second
				cc := fleettest.Start(t, o)
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
				require.NoError(t, cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))
				require.NoError(t, write(t, cc))
				time.Sleep(10 * time.Second)
				x.lead(x.other)
				time.Sleep(1500 * time.Millisecond) // a probe
				x.mu.Lock()
				x.to = x.old // the connections made meanwhile stay
				x.mu.Unlock()
				for range 50 {
					time.Sleep(100 * time.Millisecond)
					before, epoch := x.other.Wrote("uid-b"), fleettest.Status(t, cc).Epoch
					if err := write(t, cc); err == nil && x.other.Wrote("uid-b") > before {
						require.Contains(t, epoch, "uid-b")
					}
				}
				x.lead(x.old)
				time.Sleep(2 * time.Minute)
				require.Contains(t, fleettest.Status(t, cc).Epoch, "uid-a")
				require.NoError(t, write(t, cc))
			})
		})
	}
}
