// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"cmp"
	"slices"
)

const (
	// perCluster is the load of a cluster, in that of a slot by itself: slots
	// are spread before it is known what is in them.
	perCluster = 16
	// unit is the load of a slot by itself. It makes fractions of loads whole
	// numbers, which are the same on all machines.
	unit = 1 << 10
	// uneven is the deviation from its share, in percent, beyond which slots and
	// seats of standbys are moved between members; even is where that stops.
	uneven, even = 10, 5
	// lopsided is how much more than its share, in percent, a member may have
	// after another one has gone, and it has taken over from that as a standby.
	lopsided = 15
)

// crew is the members that get slots.
type crew struct {
	identities []string
	weights    []int // of members: their shares; those with 0 get nothing
}

// seats are the members that should have each slot, as indexes, or -1.
type seats struct {
	owners   []int
	standbys [][]int // by rank, then by slot
}

func (s seats) clone() seats {
	out := seats{owners: slices.Clone(s.owners)}
	for _, rank := range s.standbys {
		out.standbys = append(out.standbys, slices.Clone(rank))
	}
	return out
}

func (s seats) equal(o seats) bool {
	return slices.Equal(s.owners, o.owners) && slices.EqualFunc(s.standbys, o.standbys, slices.Equal[[]int])
}

// has reports whether a member has a seat of a slot.
func (s seats) has(slot, member int) bool {
	return s.owners[slot] == member || s.rank(slot, member) >= 0
}

// rank returns that of a standby, or -1. A vacant seat is that of member -1.
func (s seats) rank(slot, member int) int {
	return slices.IndexFunc(s.standbys, func(rank []int) bool { return rank[slot] == member })
}

// assign returns the seats of a plan, given those that members have; counts has
// the clusters of each slot, or nothing.
//
//  1. An owner stays. Of a slot without one, the first standby becomes it; if
//     there is none, the member with the highest score for the slot (rendezvous
//     hashing) that has room for it (bounded loads).
//  2. While a load of owned slots deviates too much from a member's share, slots
//     move from those with the most to those with the least: first slots for
//     which these stand by, whose owner and standby change places.
//  3. A standby stays. Seats that are vacant go to members that hold too little,
//     since they have just joined, or, with fill, to any.
//  4. Once no seat is vacant, and while the load that members hold deviates too
//     much, or would do so for the owned load after one of them has gone,
//     standbys move.
//
// The result is a fixed point: assign(assign(...)) moves nothing, but for slots
// that waited in the second step. Hashing alone would keep the loads below a
// bound, but not above one, and would move slots between members that stay
// whenever one comes or goes.
func assign(members crew, have seats, counts []int, fill bool) seats {
	a := newAssignment(members, have, counts)
	if len(a.able) == 0 {
		return a.seats
	}
	if fill {
		clear(a.taken)
	}
	a.placeFree()
	a.level()
	if fill {
		a.fill(a.able)
	}
	for !fill && a.fill(a.short()) {
	}
	if !a.waits() {
		a.levelHeld()
		a.spread()
	}
	return a.seats
}

// succeed returns the seats of a plan without members that have gone: see the
// first step of [assign]. A plan without standbys gets some.
func succeed(members crew, have seats, counts []int, standbys int) seats {
	planned := len(have.standbys) > 0
	for !planned && len(have.standbys) < standbys {
		have.standbys = append(have.standbys, slices.Repeat([]int{-1}, len(have.owners)))
	}
	a := newAssignment(members, have, counts)
	if len(a.able) > 0 {
		a.placeFree()
		if !planned {
			a.fill(a.able)
		}
	}
	return a.seats
}

type assignment struct {
	crew
	seats
	able    []int // members with a weight
	hashes  []uint64
	loads   []int // of slots
	total   int
	owned   []int   // loads of the slots that members own
	held    []int   // and of those that they stand by for besides
	heirs   [][]int // by owner, then by first standby: the loads of their slots
	taken   []bool  // slots that a standby takes over from an owner that has gone
	weighed int     // the sum of weights
}

func newAssignment(members crew, have seats, counts []int) *assignment {
	n := len(members.identities)
	a := &assignment{
		crew:   members,
		seats:  have.clone(),
		loads:  make([]int, len(have.owners)),
		hashes: make([]uint64, n),
		owned:  make([]int, n),
		held:   make([]int, n),
		heirs:  make([][]int, n),
		taken:  make([]bool, len(have.owners)),
	}
	if !slices.ContainsFunc(a.weights, func(w int) bool { return w > 0 }) {
		a.weights = slices.Repeat([]int{1}, n) // someone has to
	}
	for m := range n {
		a.hashes[m] = hash(a.identities[m])
		a.heirs[m] = make([]int, n)
		if a.weights[m] > 0 {
			a.able = append(a.able, m)
			a.weighed += a.weights[m]
		}
	}
	for s := range a.loads {
		a.loads[s] = unit
		if s < len(counts) {
			a.loads[s] += unit * perCluster * counts[s]
		}
		a.total += a.loads[s]
		a.admit(s)
	}
	return a
}

// admit counts the seats of a slot, without those of members that get nothing.
func (a *assignment) admit(slot int) {
	taken := []int{a.owners[slot]}
	for _, rank := range a.standbys {
		taken = append(taken, rank[slot])
	}
	gets := func(m int) bool { return m >= 0 && a.weights[m] > 0 }
	owner := taken[0]
	var standbys []int
	for _, m := range taken[1:] {
		if gets(m) && m != owner && !slices.Contains(standbys, m) {
			standbys = append(standbys, m)
		}
	}
	if !gets(owner) {
		owner = -1
		if len(standbys) > 0 {
			owner, standbys = standbys[0], standbys[1:]
			a.taken[slot] = true
		}
	}
	a.owners[slot] = owner
	for i := range a.standbys {
		a.standbys[i][slot] = -1
		if i < len(standbys) {
			a.standbys[i][slot] = standbys[i]
		}
	}
	a.count(slot, 1)
}

// count adds the load of a slot to those of its members, or takes it away.
func (a *assignment) count(slot, sign int) {
	load := sign * a.loads[slot]
	owner := a.owners[slot]
	if owner >= 0 {
		a.owned[owner] += load
		a.held[owner] += load
	}
	for i, rank := range a.standbys {
		if m := rank[slot]; m >= 0 {
			a.held[m] += load
			if i == 0 && owner >= 0 {
				a.heirs[owner][m] += load
			}
		}
	}
}

// share returns a member's share of a load, by its weight.
func (a *assignment) share(member, load int) int { return load * a.weights[member] / a.weighed }

func (a *assignment) shares(load int) []int {
	out := make([]int, len(a.weights))
	for m := range out {
		out[m] = a.share(m, load)
	}
	return out
}

// sum returns the loads of all members that get something.
func (a *assignment) sum(loads []int) (sum int) {
	for _, m := range a.able {
		sum += loads[m]
	}
	return sum
}

// within reports whether the loads of members deviate from their shares by at
// most a number of percent.
func (a *assignment) within(loads []int, percent int) bool {
	sum := a.sum(loads)
	return !slices.ContainsFunc(a.able, func(m int) bool {
		share := a.share(m, sum)
		return 100*max(loads[m]-share, share-loads[m]) > percent*share
	})
}

// byExcess returns the members by how much their loads exceed their shares.
func (a *assignment) byExcess(loads []int) (order []int, excess func(m int) int) {
	sum := a.sum(loads)
	excess = func(m int) int { return loads[m] - a.share(m, sum) }
	order = slices.Clone(a.able)
	slices.SortFunc(order, func(m, n int) int { return cmp.Or(cmp.Compare(excess(m), excess(n)), cmp.Compare(m, n)) })
	return order, excess
}

// placeFree places slots without an owner, the heaviest first.
func (a *assignment) placeFree() {
	shares := a.shares(a.total)
	for _, s := range a.vacant(a.owners) {
		best, highest, least := -1, uint64(0), a.able[0]
		for _, m := range a.able {
			if a.owned[m]-shares[m] < a.owned[least]-shares[least] {
				least = m
			}
			if 100*(a.owned[m]+a.loads[s]) <= (100+even)*shares[m] {
				if score := a.score(m, s); best < 0 || score > highest {
					best, highest = m, score
				}
			}
		}
		if best < 0 {
			best = least
		}
		a.owners[s] = best
		a.count(s, 1)
	}
}

// vacant returns the slots whose seat is vacant, the heaviest first.
func (a *assignment) vacant(rank []int) []int {
	var out []int
	for s, m := range rank {
		if m < 0 {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(s, t int) int {
		return cmp.Or(cmp.Compare(a.loads[t], a.loads[s]), cmp.Compare(s, t))
	})
	return out
}

// level moves slots until the owned loads are even, if they are uneven now. Each
// move makes two loads more equal, so it ends.
func (a *assignment) level() {
	if a.within(a.owned, uneven) {
		return
	}
	for !a.within(a.owned, even) && a.move() {
	}
}

// move moves one slot from the most loaded member that has a suitable one to
// the least loaded member, and reports whether it found one. A slot that does
// not suit the least loaded member suits no other.
func (a *assignment) move() bool {
	order, excess := a.byExcess(a.owned)
	slots := byMember(len(a.identities), a.owners)
	to := order[0]
	for _, from := range slices.Backward(order) {
		free := slices.DeleteFunc(slots[from], func(s int) bool { return a.taken[s] && a.rank(s, to) < 0 })
		s := a.movable(free, excess(from)-excess(to), func(s, t int) int {
			return cmp.Or(cmp.Compare(a.cheap(s, to), a.cheap(t, to)), cmp.Compare(a.loads[s], a.loads[t]),
				cmp.Compare(a.score(to, s), a.score(to, t)))
		})
		if s >= 0 {
			a.hand(s, to)
			return true
		}
	}
	return false
}

// byMember returns the slots of each member in a rank of seats.
func byMember(members int, rank []int) [][]int {
	out := make([][]int, members)
	for s, m := range rank {
		if m >= 0 {
			out[m] = append(out[m], s)
		}
	}
	return out
}

// cheap returns how little it costs that a member gets a slot: most, if it
// stands by for it, and then, if the former owner can stay as a standby.
func (a *assignment) cheap(slot, member int) int {
	switch {
	case a.rank(slot, member) >= 0:
		return 2
	case a.rank(slot, -1) >= 0:
		return 1
	}
	return 0
}

// movable returns the slot to move between two members whose loads have a
// difference, or -1: of those that do not reverse the difference, the best by
// compare; but none that is much lighter than others, since light ones can even
// out what is left. If all reverse it, it is the lightest, provided that it
// lessens the difference by its own load: to swap heavy slots is not worth it.
func (a *assignment) movable(slots []int, difference int, compare func(s, t int) int) int {
	heaviest, lightest := 0, -1
	for _, s := range slots {
		load := a.loads[s]
		if 2*load <= difference {
			heaviest = max(heaviest, load)
		}
		if 3*load <= 2*difference && (lightest < 0 || load < a.loads[lightest]) {
			lightest = s
		}
	}
	if heaviest == 0 {
		return lightest
	}
	best := -1
	for _, s := range slots {
		fits := 2*a.loads[s] <= difference && perCluster*a.loads[s] >= heaviest
		if fits && (best < 0 || compare(s, best) > 0) {
			best = s
		}
	}
	return best
}

// hand makes a member the owner of a slot. If it stood by for it, it changes
// places with the owner. Otherwise the owner becomes a standby on a vacant seat,
// or on that of a standby that holds much more.
func (a *assignment) hand(slot, to int) {
	from := a.owners[slot]
	a.count(slot, -1)
	a.owners[slot] = to
	rank := cmp.Or(a.rank(slot, to)+1, a.rank(slot, -1)+1) - 1
	if rank < 0 {
		_, excess := a.byExcess(a.held)
		most := excess(from) + 2*a.loads[slot]
		for i := range a.standbys {
			if e := excess(a.standbys[i][slot]); e > most {
				rank, most = i, e
			}
		}
	}
	if rank >= 0 {
		a.standbys[rank][slot] = from
	}
	a.count(slot, 1)
}

// short returns the members that hold much less than their shares.
func (a *assignment) short() []int {
	sum := a.sum(a.held)
	return slices.DeleteFunc(slices.Clone(a.able), func(m int) bool {
		share := a.share(m, sum)
		return 100*(share-a.held[m]) <= uneven*share
	})
}

// fill gives vacant seats to some members, the most even way, and reports
// whether it gave any. If these are all members, it leaves no seat vacant that
// one of them can have; others get no more than their shares.
func (a *assignment) fill(members []int) (filled bool) {
	all := len(members) == len(a.able)
	shares := a.shares(a.total * (1 + min(len(a.standbys), len(a.able)-1)))
	for i, rank := range a.standbys {
		for _, s := range a.vacant(rank) {
			best, least := -1, -1
			for _, m := range members {
				if a.has(s, m) {
					continue
				}
				if least < 0 || a.held[m]*a.weights[least] < a.held[least]*a.weights[m] {
					least = m
				}
				fits := 100*(a.held[m]+a.loads[s]) <= (100+even)*shares[m]
				if fits && (best < 0 || a.compareHeirs(s, i, m, best) > 0) {
					best = m
				}
			}
			if best < 0 && all {
				best = least
			}
			if best >= 0 {
				filled = true
				a.seat(s, i, best)
			}
		}
	}
	return filled
}

// waits reports whether a seat is vacant that a member could have.
func (a *assignment) waits() bool {
	for s := range a.loads {
		if a.rank(s, -1) >= 0 && slices.ContainsFunc(a.able, func(m int) bool { return !a.has(s, m) }) {
			return true
		}
	}
	return false
}

// seat gives a member the seat of a standby.
func (a *assignment) seat(slot, rank, member int) {
	a.count(slot, -1)
	a.standbys[rank][slot] = member
	a.count(slot, 1)
}

// compareHeirs compares two members that may stand by for a slot: that is better
// which would own less after it has taken over all that it stands by for of the
// slot's owner; then that with the higher score.
func (a *assignment) compareHeirs(slot, rank, m, n int) int {
	after := func(m int) int {
		if rank > 0 {
			return 0
		}
		return a.owned[m] + a.heirs[a.owners[slot]][m]
	}
	if c := cmp.Compare(after(n)*a.weights[m], after(m)*a.weights[n]); c != 0 {
		return c
	}
	return cmp.Compare(a.score(m, slot), a.score(n, slot))
}

// levelHeld moves standbys until what members hold is even, if it is uneven now.
func (a *assignment) levelHeld() {
	if len(a.standbys) == 0 || a.within(a.held, uneven) {
		return
	}
	for !a.within(a.held, even) && a.moveStandby() {
	}
}

func (a *assignment) moveStandby() bool {
	order, excess := a.byExcess(a.held)
	for i, rank := range a.standbys {
		slots := byMember(len(a.identities), rank)
		for _, from := range slices.Backward(order) {
			for _, to := range order {
				if s := a.movableStandby(slots[from], i, from, to, excess(from)-excess(to)); s >= 0 {
					a.seat(s, i, to)
					return true
				}
			}
		}
	}
	return false
}

// movableStandby returns the slot whose standby is to be another member, or -1:
// one of an owner whose slots the former has more of.
func (a *assignment) movableStandby(slots []int, rank, from, to, difference int) int {
	gain := func(s int) int {
		if rank > 0 {
			return 0
		}
		heirs := a.heirs[a.owners[s]]
		return heirs[from] - heirs[to]
	}
	free := slices.DeleteFunc(slices.Clone(slots), func(s int) bool { return a.has(s, to) })
	return a.movable(free, difference, func(s, t int) int {
		return cmp.Or(cmp.Compare(gain(s), gain(t)), cmp.Compare(a.loads[s], a.loads[t]),
			cmp.Compare(a.score(to, s), a.score(to, t)))
	})
}

// spread moves first standbys of owners whose slots would make the load of one
// that takes over lopsided, as long as what members hold stays even.
func (a *assignment) spread() {
	if len(a.standbys) == 0 || !a.within(a.held, uneven) {
		return
	}
	for again := true; again; { // one may make room for another
		again = false
		for _, owner := range a.able {
			for a.relieve(owner) {
				again = true
			}
		}
	}
}

// relieve moves one standby of an owner, and reports whether it did.
func (a *assignment) relieve(owner int) bool {
	others := a.weighed - a.weights[owner]
	after := func(m int) int { return a.owned[m] + a.heirs[owner][m] }
	excess := func(m int) int { return after(m) - a.total*a.weights[m]/others }
	order := slices.DeleteFunc(slices.Clone(a.able), func(m int) bool { return m == owner })
	if len(order) < 2 {
		return false
	}
	slices.SortFunc(order, func(m, n int) int { return cmp.Or(cmp.Compare(excess(m), excess(n)), cmp.Compare(m, n)) })
	sum := a.sum(a.held)
	for _, from := range slices.Backward(order) {
		if 100*excess(from) <= lopsided*a.total*a.weights[from]/others {
			continue
		}
		var slots []int
		for s, m := range a.standbys[0] {
			if m == from && a.owners[s] == owner {
				slots = append(slots, s)
			}
		}
		for _, to := range order {
			free := slices.DeleteFunc(slices.Clone(slots), func(s int) bool {
				load := a.loads[s]
				return a.has(s, to) || 2*load > excess(from)-excess(to) ||
					100*(a.held[to]+load) > (100+uneven)*a.share(to, sum) ||
					100*(a.held[from]-load) < (100-uneven)*a.share(from, sum)
			})
			s := a.movable(free, excess(from)-excess(to), func(s, t int) int {
				return cmp.Or(cmp.Compare(a.loads[s], a.loads[t]), cmp.Compare(a.score(to, s), a.score(to, t)))
			})
			if s >= 0 {
				a.seat(s, 0, to)
				return true
			}
		}
	}
	return false
}

// score is the rendezvous score of a member for a slot.
func (a *assignment) score(member, slot int) uint64 {
	return mix(a.hashes[member] ^ mix(uint64(slot)+1))
}

// SlotOf returns the slot of a key, of slots many. It is part of the charter's
// format: all members must compute the same.
func SlotOf(key string, slots int) int { return int(hash(key) % uint64(slots)) }

// hash is FNV-1a, mixed so that all of its bits depend on all of s.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}

// mix is the finalizer of splitmix64.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
