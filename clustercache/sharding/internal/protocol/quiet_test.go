// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// quiet lets one thing happen to a group at rest, and compares what follows
// with what has to: faults that overlap permit nearly any move.
func (s *simulation) quiet() {
	for calm := s.disturbed + settledWithin; s.w.now < calm; calm = s.disturbed + settledWithin {
		s.w.run(calm - s.w.now) // a replica that flaps disturbs again
	}
	experiments := []func(){s.absence, s.visit, s.abortedVisit, s.growth, s.lateDeletion}
	experiments[s.w.rand.IntN(len(experiments))]()
}

// owners returns the processes that own the slots.
func (s *simulation) owners() []*process {
	out := make([]*process, s.w.slots)
	for n := range out {
		out[n] = s.w.owner(n)
	}
	return out
}

// absence has the hub away. All is as before when it is back.
func (s *simulation) absence() {
	before := s.owners()
	s.away(s.w.upTo(time.Minute))
	s.w.run(s.disturbed - s.w.now + ownedWithin)
	for n, p := range s.owners() {
		if before[n] != p {
			s.w.fail("slot %d has another owner after the hub was away", n)
		}
	}
}

// visit has a replica that dies as soon as it has joined. It gets nothing.
func (s *simulation) visit() {
	p, moves := s.join(), s.w.moves
	s.w.run(s.w.upTo(time.Second))
	s.w.log(fmt.Sprintf("%s is killed", p.identity))
	p.kill()
	s.w.run(ownedWithin)
	if s.w.moves != moves {
		s.w.fail("slots moved because of a replica that died at once")
	}
}

// abortedVisit has a replica that leaves as soon as it has joined. Nothing is
// left of it.
func (s *simulation) abortedVisit() {
	p, moves := s.join(), s.w.moves
	s.w.run(s.w.upTo(time.Second))
	p.do(func() { p.replica.Leave(p.clock()) })
	s.w.run(5 * time.Second)
	_, left := s.w.hub.leases[p.name]
	if left || !p.dead || s.w.moves != moves {
		s.w.fail("%s has left: %v; its lease is there: %v; %d moves", p.name, p.dead, left, s.w.moves-moves)
	}
}

// growth has a replica that joins, fills its caches, and leaves again. What
// moves between the others is little; slots go to the one that joins when its
// caches are filled, and from the one that leaves to those that stood by.
func (s *simulation) growth() {
	before := s.owners()
	p := s.join()
	p.drain, p.warming = 500*time.Millisecond, 5*time.Second
	s.w.run(settledWithin)
	s.checkOthers(p, before)
	if p.cold > 0 {
		s.w.fail("%s gained %d slots before its caches were filled", p.identity, p.cold)
	}

	// Heavy slots leave no even spread, so that plans depend on what has moved.
	before = s.owners()
	standbys := s.standbys()
	_, total, heaviest := s.weights()
	light := heaviest <= total/20
	p.do(func() { p.replica.Leave(p.clock()) })
	s.disturb(0)
	s.w.run(5 * time.Second)
	s.checkOthers(p, before)
	for n, owner := range s.owners() {
		if light && owner != nil && before[n] == p && len(standbys[n]) > 0 && !slices.Contains(standbys[n], owner) {
			s.w.fail("slot %d moved to a replica which did not stand by for it", n)
		}
	}
}

// checkOthers compares the owners with those before p joined or left. Between
// the others moves only what makes their loads even: a member gives away no more
// than it has above the mean after p's slots have moved, and one slot. How much
// that is when slots are light, TestMembersThatComeAndGoMoveTheirShareAlone and
// TestStandbysTakeOverEvenly say.
func (s *simulation) checkOthers(p *process, before []*process) {
	weights, total, heaviest := s.weights()
	given, loads := map[*process]int{}, map[*process]int{}
	for n, owner := range s.owners() {
		if owner == nil && s.w.now-s.owned[n] > handedOverWithin {
			s.w.fail("slot %d has no owner after %s joined or left", n, p.identity)
		}
		if from := before[n]; from == nil || from == owner || from == p || owner == p {
			loads[owner] += weights[n]
			continue
		}
		given[before[n]] += weights[n]
		loads[before[n]] += weights[n]
	}
	mean := total / len(s.w.processes)
	for q, load := range given {
		if load > max(0, loads[q]-mean)+heaviest {
			s.w.fail("%s gave a load of %d to others than %s, and had %d; the mean is %d",
				q.identity, load, p.identity, loads[q], mean)
		}
	}
}

func (s *simulation) standbys() map[int][]*process {
	out := map[int][]*process{}
	for _, p := range s.w.processes {
		for n := range s.w.slots {
			if p.replica.StandsBy(n) {
				out[n] = append(out[n], p)
			}
		}
	}
	return out
}

// lateDeletion has a replica that is stopped until others begin to delete its
// Lease, and continues with a watch that lags while the deletion is under way.
func (s *simulation) lateDeletion() {
	w := s.w
	p := w.processes[w.rand.IntN(len(w.processes))]
	w.weather.deletions = 10 * time.Second
	p.lag = 4 * time.Second
	s.stop(p, 13*time.Second+w.upTo(7*time.Second))
	w.run(ownedWithin)
	w.weather.deletions, p.lag = 0, 0
	s.disturb(0)
}

// join starts one more replica.
func (s *simulation) join() *process {
	taken := map[string]bool{}
	for _, p := range s.w.processes {
		taken[p.identity] = true
	}
	for i := s.replicas; ; i++ {
		if !taken[fmt.Sprintf("r%d", i)] {
			known := maps.Clone(taken)
			s.start(i)
			s.disturb(0)
			for _, p := range s.w.processes {
				if !known[p.identity] {
					return p
				}
			}
		}
	}
}
