// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

// haltedFor is how long slots may be without an owner after the hub's trouble
// has ended, if no replica has died.
const haltedFor = 20 * time.Second

// TestHubTroubleHaltsNoGroup lets a hub refuse writes that it should carry out,
// or has carried out, answer what has not happened, lose writes and answers, and
// delay them, and what watches show, by up to ten seconds: those of one replica
// or of all, of groups of one to five, in any overlap. The way to a replica gets
// slow, and then lost, or what the hub says does not reach it, though the hub
// hears it. No slot ever has two owners, and each has one again within haltedFor
// after the end of the trouble. If nothing reaches one replica, that goes on, and
// the others have its slots within silencedFor.
//
//	go test ./clustercache/sharding/internal/protocol -run TestHubTrouble -seeds 10000
func TestHubTroubleHaltsNoGroup(t *testing.T) {
	if *only != 0 {
		s := newTrouble(*only)
		s.w.log = func(line string) { t.Logf("%v %s", s.w.now.Truncate(time.Millisecond), line) }
		s.troubles()
		require.Empty(t, s.w.failures)
		return
	}
	for i := range repeat.Times(*seeds) {
		seed := *from + uint64(i)
		s := newTrouble(seed)
		s.troubles()
		require.Empty(t, s.w.failures, "seed %d", seed)
	}
}

func newTrouble(seed uint64) *simulation {
	s := newSimulation(seed)
	s.replicas, s.mixed = 1+int(seed%5), false // earlier versions do not believe their watch
	return s
}

// troubles lets one trouble of the hub follow the other.
func (s *simulation) troubles() {
	w := s.w
	for i := range s.replicas {
		s.start(i)
	}
	for _, p := range w.processes {
		p.drain, p.warming = 500*time.Millisecond, 5*time.Second
	}
	w.run(time.Minute)
	for range 3 {
		for range 1 + w.rand.IntN(3) {
			s.trouble()
			w.run(w.upTo(5 * time.Second))
		}
		for w.now < s.disturbed { // what begins later disturbs for longer
			w.run(s.disturbed - w.now)
		}
		halted := map[int]bool{} // slots that have had no owner since
		for n := range w.slots {
			halted[n] = true
		}
		within := haltedFor
		if slices.ContainsFunc(w.processes, func(p *process) bool { return p.silenced }) {
			within = silencedFor
		}
		for range int(within / time.Second) {
			w.run(time.Second)
			maps.DeleteFunc(halted, func(n int, _ bool) bool { return w.owner(n) != nil })
		}
		for n := range halted {
			w.fail("slot %d has no owner %v after the trouble", n, within)
		}
		w.requireHandedOver()
	}
}

// requireHandedOver requires that each slot without an owner is just on its way
// from one to another, as is usual while replicas come to have equal shares.
func (w *world) requireHandedOver() {
	under := map[int]bool{}
	for n := range w.slots {
		under[n] = w.owner(n) == nil
	}
	for range 5 {
		w.run(time.Second)
		maps.DeleteFunc(under, func(n int, unowned bool) bool { return !unowned || w.owner(n) != nil })
	}
	for n := range under {
		w.fail("slot %d is handed over for longer than 5 s", n)
	}
}

// trouble is one trouble of the hub, which ends by itself.
func (s *simulation) trouble() {
	w := s.w
	victim := s.victim()
	p := victim
	if w.rand.IntN(2) == 0 {
		p = nil
	}
	d := w.upTo([]time.Duration{3 * time.Second, 12 * time.Second, 40 * time.Second}[w.rand.IntN(3)])
	switch w.rand.IntN(10) {
	case 0, 1:
		s.refuse(p, d)
	case 4:
		s.late(p, w.upTo(30*time.Second), d)
	case 5:
		s.slow(w.upTo(10*time.Second), d)
	case 6:
		s.gray(p, d)
	case 7:
		for _, q := range w.processes {
			if p == nil || p == q {
				s.detour(q, w.upTo(4*time.Second), d)
			}
		}
	case 8:
		s.fade(victim)
	case 9:
		s.silence(victim, w.upTo(2*time.Minute))
	case 2:
		w.weather.lost = w.rand.Float64()
		w.after(d, func() { w.weather.lost = 0 })
		w.log(fmt.Sprintf("requests are lost for %v", d))
		s.disturb(d)
	default:
		w.weather.latency = w.upTo(10 * time.Second)
		w.after(d, func() { w.weather.latency = 20 * time.Millisecond })
		w.log(fmt.Sprintf("requests take up to %v for %v", w.weather.latency, d))
		s.disturb(d + 2*w.weather.latency) // each way
	}
}

// TestHazardSlotIsTakenAfterTheReplicaHasQuit: a hub that is slow carries out a
// take that the replica has given up, after the deletion of its member Lease was
// sent. The answer to that is lost. Others, who see the deletion, take the slot
// as well: the replica must not own it, whatever its clock says.
func TestHazardSlotIsTakenAfterTheReplicaHasQuit(t *testing.T) {
	w := newWorld(1, 1)
	cfg := w.config
	cfg.Member = "a"
	r := protocol.New(cfg)
	now := epoch
	member := protocol.Lease{Role: protocol.Member, Name: "a", UID: "uid", TTL: cfg.DeadAfter}
	revision := 1
	show := func() {
		revision++
		member.Revision = strconv.Itoa(revision)
		r.Observe(now, member)
	}
	// next lets time pass until an action of a kind. Renewals succeed.
	next := func(kind protocol.Kind) (found protocol.Action) {
		t.Helper()
		for began := now; found.Name == "" && now.Sub(began) < time.Minute; now = now.Add(100 * time.Millisecond) {
			actions, _ := r.Next(now)
			for _, a := range actions {
				switch a.Kind {
				case kind:
					found = a
				case protocol.Renew:
					r.Answer(now, now, a, protocol.Done)
					member.Leaving, member.Plan, member.Warm = a.Leaving, a.Plan, a.Warm
					show()
				}
			}
		}
		require.NotEmpty(t, found.Name)
		return found
	}

	r.Replace(now, []protocol.Lease{{
		Role:     protocol.Charter,
		Name:     cfg.Charter,
		UID:      "charter",
		Revision: "1",
		Format:   protocol.Format,
		Slots:    1,
	}})
	r.Answer(now, now, next(protocol.Join), protocol.Done)
	show()
	take := next(protocol.Take)
	r.Answer(now, now, take, protocol.Unknown)
	r.Leave(now)
	quit := next(protocol.Quit)

	r.Observe(now, protocol.Lease{
		Role:     protocol.Slot,
		Name:     cfg.Slot(0),
		UID:      "slot",
		Revision: "1000",
		Holder:   take.Holder,
		Token:    take.Token,
	})
	gained := func() bool {
		actions, _ := r.Next(now)
		return slices.ContainsFunc(actions, func(a protocol.Action) bool { return a.Kind == protocol.Gain })
	}
	require.True(t, now.Before(r.Until()), "its clock lets it own slots")
	require.False(t, gained())
	r.Answer(now, now, quit, protocol.Unknown)
	require.False(t, gained())
}

// TestHazardRefusedRenewalIsNoProof: the Lease is there, and the answer says
// otherwise. The replica looks, and owns its slots for as long as it renews in
// time, whether answers say so or its view.
func TestHazardRefusedRenewalIsNoProof(t *testing.T) {
	for _, committed := range []float64{0, 1} {
		w, p := alone(t)
		w.weather.refusals = refusals{until: w.now + 3*time.Second, share: 1, committed: committed}
		w.run(3 * time.Second)
		requireOwns(t, w, p, 4)
		require.Equal(t, 1, p.refreshes)
		w.run(time.Minute)
		requireOwns(t, w, p, 4)
		require.Equal(t, 1, p.refreshes)
		require.Zero(t, p.losses[0])

		w.weather.refusals.until = w.now + 30*time.Second
		w.run(15 * time.Second)
		requireOwns(t, w, p, 4*int(committed))
		w.run(15*time.Second + w.config.Renew + time.Second)
		requireOwns(t, w, p, 4)
	}
}
