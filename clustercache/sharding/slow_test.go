// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// slowHub is a transport that carries out writes late.
type slowHub struct {
	next http.RoundTripper
	by   atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (h *slowHub) RoundTrip(request *http.Request) (*http.Response, error) {
	if d := h.by.Load(); d > 0 && request.Method != http.MethodGet {
		select {
		case <-time.After(time.Duration(d)):
		case <-request.Context().Done(): // a server gives up with its client
			return nil, request.Context().Err()
		}
	}
	return h.next.RoundTrip(request)
}

// TestHazardHubIsSlow: writes that take seconds cost nothing but slowness. A
// group is founded, keeps what it owns, and a new replica gets its share.
func TestHazardHubIsSlow(t *testing.T) {
	for _, by := range []time.Duration{3100 * time.Millisecond, 5 * time.Second, 7 * time.Second} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, 60)
				g.options.Slots = 16
				hub := &slowHub{next: g.config.Transport}
				hub.by.Store(int64(by))
				g.config.Transport = hub
				g.start(2)
				defer g.stop()
				time.Sleep(8*by + 20*time.Second)
				synctest.Wait()
				counts, _ := g.owned()
				lists := g.replicas[0].others.Load() + g.replicas[1].others.Load()
				for range 60 {
					time.Sleep(time.Second)
					synctest.Wait()
					now, without := g.owned()
					require.Zero(t, without)
					require.Equal(t, counts, now)
				}
				require.Equal(t, lists, g.replicas[0].others.Load()+g.replicas[1].others.Load(), "lists")

				g.start(1)
				time.Sleep(20*by + time.Minute)
				synctest.Wait()
				counts, without := g.owned()
				require.Zero(t, without)
				require.InDelta(t, 20, counts[2], 6)
			})
		})
	}
}

// TestHazardAnswersToOneReplicaAreLate: its writes are carried out, and its
// watch shows them.
func TestHazardAnswersToOneReplicaAreLate(t *testing.T) {
	for _, by := range []time.Duration{3100 * time.Millisecond, 5 * time.Second, time.Minute} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, 60)
				g.options.Slots = 16
				g.start(1) // the eldest
				defer g.stop()
				g.waitOwned(10 * time.Second)
				g.start(2)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				before, _ := g.owned()

				g.replicas[0].slow.Store(int64(by))
				for range 120 {
					time.Sleep(time.Second)
					synctest.Wait()
					counts, without := g.owned()
					require.Zero(t, without)
					require.Equal(t, before, counts)
				}
				g.start(1)
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				counts, without := g.owned()
				require.Zero(t, without)
				require.InDelta(t, 15, counts[3], 6, "the eldest plans")
				g.replicas[0].slow.Store(0)
			})
		})
	}
}
