// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"cmp"
	"slices"
)

const (
	// perCluster is the load of a cluster. A slot has a load of 1 by itself, so
	// that slots are spread before it is known what is in them.
	perCluster = 16
	// uneven is the deviation from the mean, as a fraction, beyond which slots
	// are moved between live members; even is where that stops.
	uneven, even = 1. / 10, 1. / 20
)

// assign returns the member of each slot, as an index of members. holders has
// the member that holds each slot, or -1; counts has the clusters of each slot,
// or nothing.
//
//  1. A slot that is held stays.
//  2. A slot that is free goes to the member with the highest score for it
//     (rendezvous hashing) that has room for it (bounded loads).
//  3. While a load deviates too much from the mean, slots move from the most
//     loaded members to the least loaded.
//
// The result is a fixed point: assign(members, assign(...), counts) moves
// nothing. Hashing alone would keep the loads below a bound, but not above one,
// and would move slots between members that stay whenever one comes or goes.
func assign(members []string, holders, counts []int) []int {
	if len(members) == 0 {
		return slices.Repeat([]int{-1}, len(holders))
	}
	a := &assignment{
		members: members,
		hashes:  make([]uint64, len(members)),
		owners:  slices.Clone(holders),
		weights: make([]int, len(holders)),
		loads:   make([]int, len(members)),
	}
	total := 0
	for i, m := range members {
		a.hashes[i] = hash(m)
	}
	for s := range a.weights {
		a.weights[s] = 1
		if s < len(counts) {
			a.weights[s] += perCluster * counts[s]
		}
		total += a.weights[s]
		if owner := a.owners[s]; owner >= 0 {
			a.loads[owner] += a.weights[s]
		}
	}
	a.mean = float64(total) / float64(len(members))
	a.placeFree()
	a.level()

	return a.owners
}

type assignment struct {
	members []string
	hashes  []uint64
	owners  []int
	weights []int // of slots
	loads   []int // of members
	mean    float64
	slots   [][]int // by member, while level moves them
}

// placeFree places free slots, the heaviest first.
func (a *assignment) placeFree() {
	var free []int
	for s, owner := range a.owners {
		if owner < 0 {
			free = append(free, s)
		}
	}
	slices.SortFunc(free, func(s, t int) int {
		return cmp.Or(cmp.Compare(a.weights[t], a.weights[s]), cmp.Compare(s, t))
	})
	limit := a.mean * (1 + even)
	for _, s := range free {
		best, least := -1, 0
		for m := range a.members {
			if a.loads[m] < a.loads[least] {
				least = m
			}
			if float64(a.loads[m]+a.weights[s]) <= limit && (best < 0 || a.score(m, s) > a.score(best, s)) {
				best = m
			}
		}
		if best < 0 {
			best = least
		}
		a.owners[s] = best
		a.loads[best] += a.weights[s]
	}
}

// level moves slots until the loads are even, if they are uneven now. Each move
// makes two loads more equal, so it ends.
func (a *assignment) level() {
	if a.within(uneven) {
		return
	}
	a.slots = make([][]int, len(a.members))
	for s, owner := range a.owners {
		a.slots[owner] = append(a.slots[owner], s)
	}
	for !a.within(even) && a.move() {
	}
}

func (a *assignment) within(deviation float64) bool {
	return float64(slices.Min(a.loads)) >= a.mean*(1-deviation) &&
		float64(slices.Max(a.loads)) <= a.mean*(1+deviation)
}

// move moves one slot from the most loaded member that has a suitable one to
// the least loaded member, and reports whether it found one. A slot that does
// not suit the least loaded member suits no other.
func (a *assignment) move() bool {
	order := make([]int, len(a.members))
	for m := range order {
		order[m] = m
	}
	slices.SortFunc(order, func(m, n int) int {
		return cmp.Or(cmp.Compare(a.loads[m], a.loads[n]), cmp.Compare(m, n))
	})
	to := order[0]
	for _, from := range slices.Backward(order) {
		slot := a.movable(from, to)
		if slot < 0 {
			continue
		}
		a.owners[slot] = to
		a.loads[from] -= a.weights[slot]
		a.loads[to] += a.weights[slot]
		i, _ := slices.BinarySearch(a.slots[from], slot)
		a.slots[from] = slices.Delete(a.slots[from], i, i+1)
		i, _ = slices.BinarySearch(a.slots[to], slot)
		a.slots[to] = slices.Insert(a.slots[to], i, slot)
		return true
	}
	return false
}

// movable returns the slot to move between two members, or -1: the heaviest
// that does not reverse the difference of the loads, since light ones can even
// out what is left; of equal ones, that with the highest score for its new
// member. If all do, it is the lightest, provided that it lessens the
// difference by its own load: to swap heavy slots is not worth it.
func (a *assignment) movable(from, to int) int {
	difference := a.loads[from] - a.loads[to]
	best, lightest := -1, -1
	for _, s := range a.slots[from] {
		w := a.weights[s]
		if 3*w > 2*difference {
			continue
		}
		if 2*w <= difference && (best < 0 || w > a.weights[best] ||
			w == a.weights[best] && a.score(to, s) > a.score(to, best)) {
			best = s
		}
		if lightest < 0 || w < a.weights[lightest] {
			lightest = s
		}
	}
	if best < 0 {
		return lightest
	}
	return best
}

// score is the rendezvous score of a member for a slot.
func (a *assignment) score(member, slot int) uint64 { return score(a.hashes[member], slot) }

func score(member uint64, slot int) uint64 { return mix(member ^ mix(uint64(slot)+1)) }

// nextInLine returns the members that would take over the slots of each member,
// n of them for each slot. The first is what [assign] yields without the owner,
// the others follow by score.
func nextInLine(members []string, owners, counts []int, n int) [][]int {
	out := make([][]int, len(owners))
	if n <= 0 || len(members) < 2 {
		return out
	}
	hashes := make([]uint64, len(members))
	for m, name := range members {
		hashes[m] = hash(name)
	}
	for gone := range members {
		others := slices.Delete(slices.Clone(members), gone, gone+1)
		holders := make([]int, len(owners))
		for s, owner := range owners {
			holders[s] = owner
			if owner == gone {
				holders[s] = -1
			} else if owner > gone {
				holders[s]--
			}
		}
		after := assign(others, holders, counts)
		for s, owner := range owners {
			if owner != gone {
				continue
			}
			first := after[s]
			if first >= gone {
				first++
			}
			out[s] = append([]int{first}, byScore(members, hashes, s, n-1, gone, first)...)
		}
	}

	return out
}

// byScore returns the n members with the highest scores for a slot, but for
// two.
func byScore(members []string, hashes []uint64, slot, n, not, nor int) []int {
	if n <= 0 {
		return nil
	}
	best, scores := make([]int, 0, n+1), make([]uint64, 0, n+1) // the highest first
	for m := range members {
		x := score(hashes[m], slot)
		if m == not || m == nor || len(best) == n && x < scores[n-1] {
			continue
		}
		i := len(best)
		for i > 0 && (x > scores[i-1] || x == scores[i-1] && members[m] < members[best[i-1]]) {
			i--
		}
		best, scores = slices.Insert(best, i, m), slices.Insert(scores, i, x)
		if len(best) > n {
			best, scores = best[:n], scores[:n]
		}
	}
	return best
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
