// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// largest returns a group of 100 replicas with 10,000 clusters as its eldest
// member sees it. It has planned, and all slots are held.
func largest(tb testing.TB, slots, standbys int) (r *Replica, now time.Time) {
	tb.Helper()
	const members = 100
	now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	name := func(i int) string { return fmt.Sprintf("stamper-member-%02d", i) }
	r = New(Config{
		Charter:   "stamper",
		Member:    name(0),
		Slot:      func(n int) string { return "stamper-slot-" + strconv.Itoa(n) },
		Slots:     slots,
		Renew:     2 * time.Second,
		OwnFor:    10 * time.Second,
		DeadAfter: 15 * time.Second,
		Standbys:  standbys,
	})
	r.SetCounts(spread(10_000, slots))
	leases := []Lease{{Role: Charter, Name: "stamper", UID: "charter", Format: Format, Slots: slots}}
	for i := range members {
		leases = append(leases, Lease{
			Role:     Member,
			Name:     name(i),
			UID:      "uid-" + name(i),
			Revision: "1",
			Created:  now.Add(time.Duration(i) * time.Second),
			Identity: fmt.Sprintf("stamper-%d", i),
			TTL:      15 * time.Second,
		})
	}
	r.Replace(now, leases)

	// The plan is carried out as soon as it is known.
	for turn := range 20 {
		actions, _ := r.Next(now)
		for _, a := range actions {
			switch a.Kind {
			case Renew:
				r.Answer(now, now, a, Done)
				l := r.members[0].Lease
				l.Revision, l.Renewal, l.Plan = strconv.Itoa(turn+2), a.Renewal, a.Plan
				r.Observe(now, l)
			case Drain:
				r.Drained(a.Slot, a.Token)
			}
		}
		if len(r.published.Members) == members {
			break
		}
	}
	require.Len(tb, r.published.Members, members)
	for n, owner := range r.published.Owners {
		r.Observe(now, Lease{
			Role:     Slot,
			Name:     r.slots[n].Name,
			UID:      "uid-" + strconv.Itoa(n),
			Revision: "1",
			Slot:     n,
			Holder:   r.published.Members[owner],
			Token:    1,
		})
	}
	r.Next(now)

	return r, now
}

// BenchmarkNext measures the call that follows when a group of 100 replicas
// loses a member: the eldest plans anew, and finds who stands by for each slot.
func BenchmarkNext(b *testing.B) {
	for _, slots := range []int{256, 1024, 4096} {
		for standbys := range 3 {
			b.Run(fmt.Sprintf("slots=%d/standbys=%d", slots, standbys), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					r, now := largest(b, slots, standbys)
					r.Forget(r.members[50].Lease)
					b.StartTimer()
					r.Next(now)
				}
			})
		}
		b.Run(fmt.Sprintf("slots=%d/at rest", slots), func(b *testing.B) {
			r, now := largest(b, slots, 1)
			for b.Loop() {
				r.Next(now)
			}
		})
	}
}

// TestHazardPlanOf100ReplicasTakesLong: the goroutine that plans renews the
// Lease as well. Loads are uneven with few slots, which took 0.6 s. The bound is
// for slow machines: [BenchmarkNext] has the figures.
func TestHazardPlanOf100ReplicasTakesLong(t *testing.T) {
	for _, slots := range []int{256, 1024, 4096} {
		best := time.Hour
		for range 3 {
			r, now := largest(t, slots, 1)
			r.Forget(r.members[50].Lease)
			begin := time.Now()
			r.Next(now)
			best = min(best, time.Since(begin))
		}
		require.Less(t, best, 250*time.Millisecond, "%d slots", slots)
	}
}
