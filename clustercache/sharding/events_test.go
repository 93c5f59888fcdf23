// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/sharding"
)

// diary collects events.
type diary struct {
	mu     sync.Mutex
	events []sharding.Event
}

func (d *diary) note(e sharding.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

// of returns the types of the events of a slot.
func (d *diary) of(slot int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := ""
	for _, e := range d.events {
		if e.Slot == slot {
			out += fmt.Sprintf("%s ", e.Type)
		}
	}
	return out
}

// last returns the last event of a slot.
func (d *diary) last(slot int) sharding.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	var last sharding.Event
	for _, e := range d.events {
		if e.Slot == slot {
			last = e
		}
	}
	return last
}

func TestEventsLeadFromWarmToCool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 1)
		g.options.Slots = 1
		a := g.start(1)[0]
		defer g.stop()
		var early, late diary
		a.Subscribe(early.note)
		g.waitOwned(10 * time.Second)
		a.Subscribe(late.note)
		synctest.Wait()
		require.Equal(t, "Warm Gained ", early.of(0))
		require.Equal(t, "Warm Gained ", late.of(0))

		require.NoError(t, a.Close(t.Context()))
		require.Equal(t, "Warm Gained Draining ", early.of(0)[:21])
		require.Contains(t, early.of(0), "Lost")
		early.last(0).Done()
	})
}

// TestADrainWaitsForAllSubscribers has one that has not finished, one that ends
// its subscription, and one that panics.
func TestADrainWaitsForAllSubscribers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 1)
		g.options.Slots = 1
		a := g.start(1)[0]
		defer g.stop()
		var busy, gone, late diary
		a.Subscribe(busy.note)
		unsubscribe := a.Subscribe(gone.note)
		a.Subscribe(func(sharding.Event) { panic("a subscriber") })
		g.waitOwned(10 * time.Second)

		go func() { _ = a.Close(t.Context()) }()
		time.Sleep(3 * time.Second)
		a.Subscribe(late.note)
		synctest.Wait()
		require.Equal(t, "Warm Gained Draining ", busy.of(0))
		require.Equal(t, "Warm Gained Draining ", late.of(0))
		lease, ok := a.Lease(g.clusters[0])
		require.True(t, ok)
		require.True(t, lease.Draining)
		require.False(t, a.Owns(g.clusters[0]))
		_, cancel, err := a.Context(t.Context(), g.clusters[0])
		require.NoError(t, err)
		cancel()

		unsubscribe()
		unsubscribe()
		late.last(0).Done()
		time.Sleep(time.Second)
		_, ok = a.Lease(g.clusters[0])
		require.True(t, ok)

		busy.last(0).Done()
		busy.last(0).Done()
		synctest.Wait()
		_, ok = a.Lease(g.clusters[0])
		require.False(t, ok)
		a.wg.Wait()
		require.NoError(t, a.err)
		require.NotContains(t, gone.of(0), "Lost")
	})
}

func TestADrainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 1)
		g.options.Slots = 1
		a := g.start(1)[0]
		defer g.stop()
		a.Subscribe(func(sharding.Event) {})
		g.waitOwned(10 * time.Second)

		begin := time.Now()
		require.NoError(t, a.Close(t.Context()))
		a.wg.Wait()
		require.NoError(t, a.err)
		require.InDelta(t, sharding.DefaultDrainTimeout, time.Since(begin), float64(time.Second))
	})
}

// TestStandbysAreThoseWhoTakeOver compares, for every cluster of a replica that
// ends, its standby with its next owner.
func TestStandbysAreThoseWhoTakeOver(t *testing.T) {
	for name, end := range map[string]func(*replica){
		"killed": func(r *replica) { r.cut.Store(true) },
		"closed": func(r *replica) { _ = r.Close(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testStandbys(t, end) })
		})
	}
}

func testStandbys(t *testing.T, end func(*replica)) {
	g := newGroup(t, 300)
	g.options.Standbys = 1
	defer g.stop()
	g.start(3)
	g.waitOwned(10 * time.Second)
	time.Sleep(10 * time.Second)
	gone := g.replicas[2]
	standby := map[int]int{}
	for i, c := range g.clusters {
		if !gone.Owns(c) {
			continue
		}
		for n, r := range g.replicas[:2] {
			if r.StandsBy(c) {
				standby[i] = n
			}
		}
		require.Contains(t, standby, i, "%s has no standby", c)
	}
	require.NotEmpty(t, standby)

	end(gone)
	time.Sleep(15 * time.Second)
	g.waitOwned(5 * time.Second)
	for i, n := range standby {
		require.True(t, g.replicas[n].Owns(g.clusters[i]), "%s", g.clusters[i])
	}
}

// TestPlannedMoveWaitsForTheCachesOfItsHeir has a replica that joins, and says
// late that its caches are filled.
func TestPlannedMoveWaitsForTheCachesOfItsHeir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 300)
		defer g.stop()
		g.start(1)
		g.waitOwned(10 * time.Second)
		b := g.start(1)[0]
		var caches diary
		b.Subscribe(caches.note)
		time.Sleep(25 * time.Second)
		counts, _ := g.owned()
		require.Equal(t, []int{300, 0}, counts)

		for slot := range g.options.Slots {
			if e := caches.last(slot); e.Type == sharding.Warm {
				require.Zero(t, e.Token)
				e.Done()
			}
		}
		time.Sleep(3 * time.Second)
		g.waitOwned(time.Second)
		counts, _ = g.owned()
		require.InDelta(t, 150, counts[1], 20)
	})
}

// TestWaitForCachesIsBounded has a replica that joins, and never says that its
// caches are filled.
func TestWaitForCachesIsBounded(t *testing.T) {
	for name, timeout := range map[string]time.Duration{
		"default": 0,
		"none":    -1,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, 300)
				g.options.WarmTimeout = timeout
				defer g.stop()
				g.start(1)
				g.waitOwned(10 * time.Second)
				begin := time.Now()
				b := g.start(1)[0]
				b.Subscribe(func(e sharding.Event) {
					if e.Type != sharding.Warm {
						e.Done()
					}
				})
				for counts := []int{0, 0}; counts[1] == 0; counts, _ = g.owned() {
					time.Sleep(time.Second)
				}
				wait := sharding.DefaultWarmTimeout
				if timeout < 0 {
					wait = 0
				}
				require.InDelta(t, sharding.DefaultSettleTime+wait, time.Since(begin), float64(3*time.Second))
			})
		})
	}
}
