// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
)

// Owners returns which replica has what, since when, and why not, by all Leases
// of a group: those with the label fleetcache.github.io/sharding=NAME. now is
// compared with the clocks of the replicas. It does no I/O. The error is an
// [*OptionError] if the Lease of the group is not among them.
func Owners(leases []coordinationv1.Lease, now time.Time) (*ownership.Group, error) {
	charter, members, slots := sorted(leases)
	if charter.Slots < 1 || charter.Slots > maxSlots {
		err := errors.New("the Lease of the group is required, and is not among them")
		return nil, &OptionError{Field: "leases", Err: err}
	}
	all := make([]protocol.Lease, charter.Slots)
	for _, l := range slots {
		if l.Slot >= 0 && l.Slot < len(all) {
			all[l.Slot] = l
		}
	}
	return newRoster(now, members, all).group(), nil
}

// Owners returns which replica has what, since when, and why not, as this
// replica sees the Leases. It does no I/O, and waits for no more than one step
// of the protocol.
func (s *Sharding) Owners(ctx context.Context) *ownership.Group {
	select {
	case <-s.joining:
	default:
		return &ownership.Group{Trouble: "this replica does not run, or the hub has not answered it yet"}
	}
	seen := make(chan *ownership.Group, 1)
	select {
	case s.inbox <- func(now time.Time) { seen <- s.owners(now) }:
		return <-seen
	case <-s.ended:
		return &ownership.Group{Trouble: "this replica has ended"}
	case <-ctx.Done():
		return &ownership.Group{Trouble: context.Cause(ctx).Error()}
	}
}

func (s *Sharding) owners(now time.Time) *ownership.Group {
	members, slots := s.replica.Leases()
	r := newRoster(now, members, slots)
	r.taken = s.told
	g := r.group()
	until := s.replica.Until()
	switch {
	case s.replica.ID() == "":
		g.Trouble = "this replica has not joined the group yet, or has left it"
		return g
	case until.IsZero():
		g.Trouble = "this replica has not renewed its Lease yet"
	case !before(now, until):
		g.Trouble = fmt.Sprintf("this replica has not reached the hub for %s", brief(now.Sub(until)+s.options.ownFor()))
	default:
		return g
	}
	// What it sees of the others may be as old as that.
	for i := range g.Replicas {
		g.Replicas[i].Owned = 0
	}
	for n := range g.Slots {
		g.Slots[n].Owner, g.Slots[n].Reason = "", "unknown: "+g.Trouble
	}
	return g
}

// roster derives who has what from Leases.
type roster struct {
	now     time.Time
	members []protocol.Lease
	byID    map[string]*protocol.Lease
	slots   []protocol.Lease // by number; one without a UID does not exist
	plan    protocol.Plan
	taken   map[string]bool // names of slots' Leases that others have
}

func newRoster(now time.Time, members, slots []protocol.Lease) *roster {
	r := &roster{
		now:     now,
		members: members,
		byID:    map[string]*protocol.Lease{},
		slots:   slots,
		plan:    planOf(members, len(slots)),
	}
	for i := range members {
		r.byID[idOf(&members[i])] = &members[i]
	}
	return r
}

func idOf(m *protocol.Lease) string { return protocol.HolderID(m.Name, m.UID) }

func (r *roster) group() *ownership.Group {
	g := &ownership.Group{Slots: make([]ownership.Holding, len(r.slots))}
	owned, standbys := map[string]int{}, map[string]int{}
	for n := range r.slots {
		slot := &g.Slots[n]
		*slot = ownership.Holding{
			Slot:  n,
			Since: r.slots[n].Since,
			Token: r.slots[n].Token,
		}
		if n < len(r.plan.Counts) {
			slot.Weight = r.plan.Counts[n]
		}
		holder := r.slots[n].Holder
		if m := r.byID[holder]; m != nil && !r.silent(m) {
			slot.Owner = m.Identity
			owned[holder]++
		}
		for _, rank := range r.plan.Standbys {
			if rank[n] < 0 {
				continue
			}
			id := r.plan.Members[rank[n]]
			if m := r.byID[id]; m != nil && id != holder {
				slot.Standbys = append(slot.Standbys, m.Identity)
				standbys[id]++
			}
		}
		slot.Reason = r.reason(n)
	}
	for i := range r.members {
		m := &r.members[i]
		g.Replicas = append(g.Replicas, ownership.Replica{
			Identity: m.Identity,
			Since:    m.Created,
			Renewed:  m.Renewed,
			Owned:    owned[idOf(m)],
			StandsBy: standbys[idOf(m)],
			State:    r.state(m),
		})
	}
	if !slices.ContainsFunc(r.members, func(m protocol.Lease) bool { return !r.silent(&m) }) {
		g.Trouble = "no replica renews its Lease: none runs, or none reaches the hub"
	}
	slices.SortStableFunc(g.Replicas, func(a, b ownership.Replica) int {
		return strings.Compare(a.Identity, b.Identity)
	})
	return g
}

// silent reports whether a member owns nothing any more.
func (r *roster) silent(m *protocol.Lease) bool { return r.now.Sub(m.Renewed) >= ownFor(m.TTL) }

func (r *roster) state(m *protocol.Lease) string {
	switch {
	case r.silent(m):
		return "silent"
	case m.Leaving:
		return "leaving"
	case m.Draining:
		return "draining"
	case !slices.Contains(r.plan.Members, idOf(m)):
		return "joining"
	}
	return ""
}

// reason returns why a slot has no owner, or is about to get another.
func (r *roster) reason(n int) string {
	slot, heirID := &r.slots[n], r.plan.Owner(n)
	holder, heir := r.byID[slot.Holder], r.byID[heirID]
	switch {
	case holder != nil && r.silent(holder):
		return fmt.Sprintf("%s; others take over after %s", r.silence(holder, "has it"), brief(holder.TTL))
	case holder != nil && heir == nil:
		return ""
	case holder != nil && heirID == slot.Holder && holder.Leaving:
		return holder.Identity + " leaves"
	case holder != nil && heirID == slot.Holder:
		return ""
	case holder != nil && r.silent(heir):
		return r.silence(heir, "is to get it")
	case holder != nil && heir.Warm.Has(n):
		return heir.Identity + " gets it once the work on it has ended"
	case holder != nil:
		return heir.Identity + " gets it once its caches are filled"
	case r.taken[slot.Name]:
		return fmt.Sprintf("the name of its Lease, %s, is taken by another program", slot.Name)
	case len(r.members) == 0:
		return "no replica runs"
	case heirID == "":
		return "no replica has planned yet"
	case heir == nil:
		return "the replica that is to have it has gone"
	case r.silent(heir):
		return r.silence(heir, "is to have it")
	case heir.Leaving:
		return heir.Identity + " is to have it, and leaves"
	}
	return heir.Identity + " is to have it, and has not taken it yet"
}

func (r *roster) silence(m *protocol.Lease, role string) string {
	return fmt.Sprintf("%s %s, and has not renewed its Lease for %s", m.Identity, role, brief(r.now.Sub(m.Renewed)))
}

func brief(d time.Duration) time.Duration { return d.Round(time.Second) }
