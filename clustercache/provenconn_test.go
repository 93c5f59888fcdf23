// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetcache/fleetcache/internal/memnet"
)

// crossroads is an address that leads to one of two proxies.
type crossroads struct {
	old, other *front

	mu sync.Mutex // protects what follows
	to *front
}

func newCrossroads(t *testing.T, secure bool) (*crossroads, *directory) {
	t.Helper()
	a, b := twoClusters(t)
	x, d := &crossroads{old: newFront(t, secure, a), other: newFront(t, secure, b)}, newDirectory()
	x.to = x.old
	config := x.old.config()
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return x.listener().Dial(ctx, network, address)
	}
	d.set(key("a"), config)
	return x, d
}

func (x *crossroads) listener() *memnet.Listener {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.to.net
}

// lead makes new connections go to a proxy, and ends the existing ones.
func (x *crossroads) lead(to *front) {
	x.mu.Lock()
	x.to = to
	x.mu.Unlock()
	x.old.reset()
	x.other.reset()
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
				o := silent(d)
				o.QPS, o.Burst, o.ProbeInterval = 0.2, 1, time.Second
				cc := start(t, o)
				require.NoError(t, cc.Engage(key("a")))
				require.NoError(t, cc.WaitConnected(t.Context(), key("a")))
				require.NoError(t, write(t, cc)) // looks up the kind
				time.Sleep(20 * time.Second)
				require.NoError(t, write(t, cc)) // the next one waits for 5 s
				before := x.old.wrote("uid-a")

				var waiting sync.WaitGroup
				var written, read error
				waiting.Go(func() { written = write(t, cc) })
				waiting.Go(func() { read = cc.Reader(key("a")).List(t.Context(), &corev1.ConfigMapList{}) })
				time.Sleep(time.Second)
				x.other.behind.failWith(-1, "/kube-system")
				x.lead(x.other)
				waiting.Wait()

				require.Error(t, written)
				require.Error(t, read)
				require.Zero(t, x.other.wrote("uid-b"))
				require.Equal(t, before, x.old.wrote("uid-a"))
				require.Zero(t, x.other.behind.count("get "+pathOf("ConfigMap")))

				x.other.behind.heal()
				time.Sleep(2 * time.Minute)
				require.Contains(t, status(t, cc).Epoch, "uid-b")
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
				a, b := twoClusters(t)
				proxy, d := newFront(t, secure, a), newDirectory()
				d.set(key("a"), proxy.config())
				o := silent(d)
				o.QPS, o.Burst, o.RequestTimeout = 0.01, 1, time.Hour
				cc := start(t, o)
				require.NoError(t, cc.Engage(key("a")))
				require.NoError(t, cc.WaitConnected(t.Context(), key("a")))
				require.NoError(t, write(t, cc)) // the next one waits for 100 s
				proxy.move(b)
				b.failWith(-1, "/kube-system")
				require.Error(t, write(t, cc))
				require.Zero(t, proxy.wrote("uid-b"))
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
				o := silent(d)
				o.ProbeInterval = time.Second
				cc := start(t, o)
				require.NoError(t, cc.Engage(key("a")))
				require.NoError(t, cc.WaitConnected(t.Context(), key("a")))
				require.NoError(t, write(t, cc))
				time.Sleep(10 * time.Second)
				x.lead(x.other)
				time.Sleep(1500 * time.Millisecond) // a probe
				x.mu.Lock()
				x.to = x.old // the connections made meanwhile stay
				x.mu.Unlock()
				for range 50 {
					time.Sleep(100 * time.Millisecond)
					before, epoch := x.other.wrote("uid-b"), status(t, cc).Epoch
					if err := write(t, cc); err == nil && x.other.wrote("uid-b") > before {
						require.Contains(t, epoch, "uid-b")
					}
				}
				x.lead(x.old)
				time.Sleep(2 * time.Minute)
				require.Contains(t, status(t, cc).Epoch, "uid-a")
				require.NoError(t, write(t, cc))
			})
		})
	}
}
