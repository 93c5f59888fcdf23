// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import "slices"

// Share is how much a replica has of what it should have.
type Share struct {
	// Planned reports whether the plan has the replica.
	Planned bool
	// Unowned is how many slots it should own and does not.
	Unowned int
	// Cold is how many slots it owns or stands by for with caches that are not
	// filled.
	Cold int
}

// Share returns the replica's share at the last call of [Replica.Next].
func (r *Replica) Share() Share {
	s, id := step{Replica: r}, r.ID()
	out := Share{Planned: id != "" && slices.Contains(r.followed.ids, id)}
	if !out.Planned {
		return out
	}
	for n := range r.slots {
		slot := &r.slots[n]
		if slot.owned == 0 && s.owner(n) == id {
			out.Unowned++
		}
		if slot.warm && !slot.warmed {
			out.Cold++
		}
	}
	return out
}
