// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
)

var deeper = flag.Int("deeper", 0, "how many steps more to explore than by default")

// state is a group of two replicas with two slots, its hub, and all that is
// under way between them. It is never changed: a step makes another one. The
// clocks of the replicas run alike.
type state struct {
	now    time.Duration
	leases map[string]protocol.Lease
	uids   int
	limits limits
	sides  [2]*side
}

// limits are how much may happen from a state on.
type limits struct {
	ticks  int
	lies   int // answers that are lost, or say something else than what happened
	leaves int
}

// side is a replica and what is under way to and from it.
type side struct {
	replica  *protocol.Replica
	wake     time.Time
	left     bool
	leaving  bool
	listing  bool
	unseen   []*change // by its watch
	requests []request
	print    uint64
}

// request is a write on its way. It is gone once it was carried out, or has
// failed, and was answered. One that is answered before may be carried out at
// any later time.
type request struct {
	action    protocol.Action
	sent      time.Time
	committed bool
	outcome   protocol.Outcome // if it was committed
	answered  bool
}

// stepKind is what can happen next.
type stepKind uint8

const (
	tick    stepKind = iota // a second passes
	wake                    // a timer of the replica fires, at last
	show                    // the watch shows the next change, or a list all
	commit                  // the hub carries out a request
	answer                  // the request is answered, in whatever way
	leave                   // the replica is asked to leave
	drained                 // the work on a slot that drains has ended
)

func (k stepKind) String() string {
	return [...]string{"tick", "wake", "show", "commit", "answer", "leave", "drained"}[k]
}

type step struct {
	kind    stepKind
	side    int
	request int // or the slot
	outcome protocol.Outcome
}

// say describes a step from a state.
func (s *state) say(t step) string {
	out := fmt.Sprintf("%v %c %v", s.now, 'a'+t.side, t.kind)
	if t.kind == commit || t.kind == answer {
		a := s.sides[t.side].requests[t.request].action
		names := []string{"found", "join", "renew", "take", "release", "bury", "quit"}
		out += fmt.Sprintf(" %s %s", names[a.Kind], a.Name)
	}
	if t.kind == answer {
		out += " " + [...]string{"done", "refused", "unknown"}[t.outcome]
	}
	return out
}

// check explores states.
type check struct {
	config protocol.Config
	broken broken
	seen   map[uint64]int // how many steps were explored from a state
	steps  int
	fair   int // states from which progress was checked
	path   []string
	failed string
}

func newCheck(rule broken) *check {
	return &check{
		broken: rule,
		seen:   map[uint64]int{},
		config: protocol.Config{
			Charter:   "charter",
			Slot:      func(n int) string { return "slot-" + strconv.Itoa(n) },
			Slots:     2,
			Renew:     time.Second,
			OwnFor:    2 * time.Second,
			DeadAfter: 3 * time.Second,
			DrainFor:  time.Second,
		},
	}
}

// begin returns a hub without Leases, and replicas that have not joined.
func (c *check) begin() *state {
	s := &state{leases: map[string]protocol.Lease{}}
	for i := range s.sides {
		cfg := c.config
		cfg.Member = "member-" + string(rune('a'+i))
		s.sides[i] = &side{replica: protocol.New(cfg), listing: true}
		s.sides[i].print = protocol.Fingerprint(s.sides[i].state())
	}
	return s
}

func (s *state) clock() time.Time { return epoch.Add(s.now) }

// state returns all that makes a side what it is, as far as it is not in its
// replica.
func (x *side) state() any {
	return struct {
		wake                   time.Time
		left, leaving, listing bool
		unseen                 []*change
		requests               []request
	}{x.wake, x.left, x.leaving, x.listing, x.unseen, x.requests}
}

func (s *state) print() uint64 {
	out := protocol.Fingerprint([]uint64{uint64(s.now), uint64(s.limits.lies), s.sides[0].print, s.sides[1].print})
	for _, l := range s.leases { // in any order
		out += protocol.Fingerprint(l)
	}
	return out
}

// possible returns all that can happen next.
func (s *state) possible() []step {
	var out []step
	if s.limits.ticks > 0 {
		out = append(out, step{kind: tick})
	}
	for i, x := range s.sides {
		for n, r := range x.requests {
			if !r.committed {
				out = append(out, step{kind: commit, side: i, request: n})
			}
			if r.answered || x.left {
				continue
			}
			for o := range protocol.Unknown + 1 {
				honest := r.committed && o == r.outcome
				if honest || s.limits.lies > 0 && o != protocol.Done {
					out = append(out, step{kind: answer, side: i, request: n, outcome: o})
				}
			}
		}
		if x.left {
			continue
		}
		if !x.wake.IsZero() && !s.clock().Before(x.wake) {
			out = append(out, step{kind: wake, side: i})
		}
		if x.listing || len(x.unseen) > 0 {
			out = append(out, step{kind: show, side: i})
		}
		for n := range 2 {
			if _, drains := x.replica.Holds(n); drains {
				out = append(out, step{kind: drained, side: i, request: n})
			}
		}
		if !x.leaving && s.limits.leaves > 0 {
			out = append(out, step{kind: leave, side: i})
		}
	}
	return out
}

// after returns the state after a step.
func (c *check) after(s *state, t step) *state {
	c.steps++
	next := *s
	if t.kind == tick {
		next.now += time.Second
		next.limits.ticks--
		return &next
	}
	x := *s.sides[t.side]
	x.requests = slices.Clone(x.requests)
	next.sides[t.side] = &x
	if t.kind == commit {
		c.commit(&next, t)
		return &next
	}

	x.replica = x.replica.Clone()
	now := next.clock()
	switch t.kind {
	case show:
		if x.listing {
			x.listing, x.unseen = false, nil
			x.replica.Replace(now, slices.Collect(maps.Values(next.leases)))
			break
		}
		if seen := x.unseen[0]; seen.deleted {
			x.replica.Forget(seen.lease)
		} else {
			x.replica.Observe(now, seen.lease)
		}
		x.unseen = x.unseen[1:]
	case answer:
		r := &x.requests[t.request]
		r.answered = true
		if !r.committed || t.outcome != r.outcome {
			next.limits.lies--
		}
		x.replica.Answer(now, r.sent, r.action, t.outcome)
		x.tidy()
	case drained:
		token, _ := x.replica.Holds(t.request)
		x.replica.Drained(t.request, token)
	case leave:
		x.leaving = true
		next.limits.leaves--
		x.replica.Leave(now)
	}
	c.turn(&x, now)

	return &next
}

// commit has the hub carry out a request.
func (c *check) commit(s *state, t step) {
	x := s.sides[t.side]
	r := &x.requests[t.request]
	a := r.action
	h := hub{leases: maps.Clone(s.leases)}
	h.revision, _ = strconv.Atoi(h.leases[a.Name].Revision) // of the Lease alone, so that more states are equal
	condition := a
	if c.broken == buriesAnyVersion && a.Kind == protocol.Bury {
		condition.Revision = ""
	}
	r.committed, r.outcome = true, h.apply(condition, func() protocol.Lease {
		s.uids++
		l := protocol.Lease{Name: a.Name, UID: "uid" + strconv.Itoa(s.uids), Created: s.clock()}
		switch a.Kind {
		case protocol.Found:
			l.Role, l.Format, l.Slots = protocol.Charter, protocol.Format, c.config.Slots
		case protocol.Join:
			l.Role, l.Identity, l.TTL = protocol.Member, a.Name, c.config.DeadAfter
		default:
			l.Role, l.Slot = protocol.Slot, a.Slot
		}
		return l
	})
	if old := s.leases[a.Name]; a.Kind == protocol.Take && r.outcome == protocol.Done && a.Token <= old.Token {
		c.fail(fmt.Sprintf("slot %d has token %d after %d", a.Slot, a.Token, old.Token))
	}
	x.tidy()
	s.leases = h.leases
	for i := range s.sides {
		y := *s.sides[i]
		for n := range h.log {
			y.unseen = append(slices.Clip(y.unseen), &h.log[n])
		}
		y.print = y.replica.Fingerprint() ^ protocol.Fingerprint(y.state())
		s.sides[i] = &y
	}
}

// tidy forgets requests of which nothing more can come.
func (x *side) tidy() {
	x.requests = slices.DeleteFunc(x.requests, func(r request) bool { return r.committed && r.answered })
}

// turn calls Next until nothing is due.
func (c *check) turn(x *side, now time.Time) {
	for again := true; again; {
		var actions []protocol.Action
		restore := func() {}
		if c.broken == gainsAfterQuit {
			restore = x.replica.GainsAfterQuit()
		}
		actions, x.wake = x.replica.Next(now)
		restore()
		again = len(actions) > 0
		for _, a := range actions {
			if c.broken == takesWithoutDeletion && a.Kind == protocol.Bury {
				x.replica.Forget(protocol.Lease{Role: protocol.Member, Name: a.Name, UID: a.UID})
			}
			switch {
			case a.Kind.Writes():
				x.requests = append(x.requests, request{action: a, sent: now})
			case a.Kind == protocol.Refresh:
				x.listing = true
			case a.Kind == protocol.Warm:
				x.replica.Warmed(a.Slot, a.Token)
			}
		}
	}
	x.left = x.replica.Left()
	x.print = x.replica.Fingerprint() ^ protocol.Fingerprint(x.state())
}

// owns reports whether a side owns a slot, by the true time.
func (s *state) owns(side, slot int) bool {
	x := s.sides[side]
	token, _ := x.replica.Holds(slot)
	return !x.left && token != 0 && s.clock().Before(x.replica.Until())
}

// explore takes each step that is possible, and each that is possible then, up
// to a number of steps.
func (c *check) explore(s *state, depth int) {
	key := s.print()
	if explored, known := c.seen[key]; known && explored >= depth || c.failed != "" {
		return
	}
	if _, known := c.seen[key]; !known {
		c.judge(s, key)
	}
	c.seen[key] = depth
	if depth == 0 {
		return
	}
	for _, t := range s.possible() {
		c.path = append(c.path, s.say(t))
		c.explore(c.after(s, t), depth-1)
		c.path = c.path[:len(c.path)-1]
	}
}

// judge compares a state with what has to hold, and some with what has to
// follow.
func (c *check) judge(s *state, key uint64) {
	for n := range c.config.Slots {
		if s.owns(0, n) && s.owns(1, n) {
			c.fail(fmt.Sprintf("slot %d has two owners", n))
			return
		}
	}
	if key%progressOf != 0 {
		return
	}
	c.fair++
	for _, late := range []bool{false, true} {
		if end := c.calm(s, late); end != "" {
			c.fail(fmt.Sprintf("%s (late: %v)", end, late))
			return
		}
	}
}

func (c *check) fail(why string) {
	if c.failed == "" {
		c.failed = strings.Join(c.path, "\n") + "\n" + why
	}
}

const (
	// progressOf is the number of states of which progress is checked for one.
	progressOf = 64
	// progressWithin bounds it: a replica that is dead or silent is detected, and
	// what it had is taken. A watch that is behind delays that.
	progressWithin = 12 * time.Second
)

// calm lets a state go on without faults, with requests under way that are
// carried out late or lost, and returns what is wrong in the end.
func (c *check) calm(s *state, late bool) string {
	for end := s.now + progressWithin; s.now < end; s = c.after(s, step{kind: tick}) {
		s = c.settle(s, late, nobody)
	}
	return c.unowned(s)
}

// unowned says which slot has no owner, unless all replicas have left.
func (c *check) unowned(s *state) string {
	if s.sides[0].left && s.sides[1].left {
		return ""
	}
	for n := range c.config.Slots {
		if !s.owns(0, n) && !s.owns(1, n) {
			return fmt.Sprintf("slot %d has no owner %v later", n, progressWithin)
		}
	}
	return ""
}

// nobody is a side that does not exist.
const nobody = -1

// settle does all that can be done at the present time, as it should be, but for
// one side that is stopped, and its requests.
func (c *check) settle(s *state, late bool, stopped int) *state {
	for {
		t, ok := s.due(late, stopped)
		if !ok {
			return s
		}
		s = c.after(s, t)
	}
}

// due returns the next step if all goes well.
func (s *state) due(late bool, stopped int) (step, bool) {
	for i, x := range s.sides {
		if i == stopped {
			continue
		}
		for n, r := range x.requests {
			switch {
			case !r.committed && (late || !r.answered):
				return step{kind: commit, side: i, request: n}, true
			case r.committed && !r.answered && !x.left:
				return step{kind: answer, side: i, request: n, outcome: r.outcome}, true
			}
		}
		switch {
		case x.left:
		case x.listing || len(x.unseen) > 0:
			return step{kind: show, side: i}, true
		case !x.wake.IsZero() && !s.clock().Before(x.wake):
			return step{kind: wake, side: i}, true
		}
	}
	return step{}, false
}

// starts are states from which to explore, with the number of steps and what may
// happen meanwhile. What takes many steps to come about while nothing fails is
// where others begin.
var starts = []struct {
	name  string
	steps int
	limits
	of func(*check, *testing.T) *state
}{
	{"a group is founded", 8, limits{ticks: 2, lies: 1}, func(c *check, _ *testing.T) *state { return c.begin() }},
	{"each has a slot", 8, limits{ticks: 3, lies: 1, leaves: 1}, (*check).shared},
	{"a leaves while it takes a slot", 9, limits{lies: 1}, (*check).leaving},
	{"b deletes the lease of a that is back", 8, limits{ticks: 1}, (*check).back},
	{"b deletes the lease of a that has heard late", 7, limits{ticks: 1}, (*check).late},
	{"b deletes the lease of a that is refused", 7, limits{ticks: 1}, (*check).refused},
}

// shared returns a state in which each replica owns a slot, and nothing is due.
func (c *check) shared(t *testing.T) *state {
	t.Helper()
	s := c.begin()
	for range 6 {
		s = c.after(c.settle(s, true, nobody), step{kind: tick})
	}
	s = c.settle(s, true, nobody)
	require.Empty(t, c.unowned(s))
	require.NotEqual(t, s.owns(0, 0), s.owns(0, 1))
	return s
}

// leaving returns a state in which b has given a slot to a, which was asked to
// leave. The take that it has given up, and the deletion of its Lease, are under
// way.
func (c *check) leaving(t *testing.T) *state {
	t.Helper()
	s := c.begin()
	for range 3 {
		s = c.after(c.settle(s, true, 0), step{kind: tick})
	}
	require.True(t, s.owns(1, 0) && s.owns(1, 1))
	sends := func(kind protocol.Kind) bool {
		return slices.ContainsFunc(s.sides[0].requests, func(r request) bool { return r.action.Kind == kind })
	}
	for n := 0; !sends(protocol.Take); n++ {
		require.Less(t, n, 1000)
		next, ok := s.due(true, nobody)
		if !ok {
			next = step{kind: tick}
		}
		s = c.after(s, next)
	}
	for n, r := range s.sides[0].requests {
		if r.action.Kind == protocol.Take {
			s = c.after(s, step{kind: answer, request: n, outcome: protocol.Unknown})
		}
	}
	s = c.after(c.settle(s, false, 0), step{kind: leave})
	for n := 0; !sends(protocol.Quit); n++ {
		require.Less(t, n, 1000)
		next, ok := s.due(false, 1)
		require.True(t, ok)
		s = c.after(s, next)
	}
	return s
}

// late returns a state in which the answer to the last renewal of a took two
// seconds, and it was stopped then until b sent the deletion of its Lease, which
// is under way. A lease is longer here: an answer that comes after the end of
// the ownership begins none, whenever it counts from.
func (c *check) late(t *testing.T) *state {
	t.Helper()
	c.config.OwnFor, c.config.DeadAfter = 4*time.Second, 5*time.Second
	s := c.after(c.shared(t), step{kind: tick})
	s = c.after(s, step{kind: wake})
	require.Equal(t, protocol.Renew, s.sides[0].requests[0].action.Kind)
	s = c.after(s, step{kind: commit})
	for range 2 {
		s = c.after(c.settle(s, true, 0), step{kind: tick})
	}
	s = c.after(s, step{kind: answer, outcome: protocol.Done})
	for range 3 {
		s = c.after(c.settle(s, true, 0), step{kind: tick})
	}
	s = c.after(s, step{kind: wake, side: 1})
	s.requireBurial(t)
	return s
}

// back returns a state in which a was stopped until b sent the deletion of its
// Lease, and has renewed it since: the deletion is under way.
func (c *check) back(t *testing.T) *state {
	t.Helper()
	s := c.after(c.shared(t), step{kind: tick})
	s = c.after(s, step{kind: wake})
	require.Equal(t, protocol.Renew, s.sides[0].requests[0].action.Kind)
	s = c.after(s, step{kind: commit})
	for range 3 {
		s = c.after(c.settle(s, true, 0), step{kind: tick})
	}
	s = c.after(s, step{kind: wake, side: 1})
	s.requireBurial(t)
	s = c.after(s, step{kind: wake})
	s = c.settle(s, true, 1)
	require.True(t, s.owns(0, 0) || s.owns(0, 1))
	return s
}

func (s *state) requireBurial(t *testing.T) {
	t.Helper()
	require.True(t, slices.ContainsFunc(s.sides[1].requests, func(r request) bool {
		return r.action.Kind == protocol.Bury
	}))
}

// refused returns a state in which all renewals of a were refused until b sent
// the deletion of its Lease, which is under way. So are the renewals.
func (c *check) refused(t *testing.T) *state {
	t.Helper()
	s := c.shared(t)
	for range 3 {
		s = c.after(c.settle(s, true, 0), step{kind: tick})
		s = c.after(s, step{kind: wake})
		for n, r := range s.sides[0].requests {
			if !r.answered {
				s = c.after(s, step{kind: answer, request: n, outcome: protocol.Refused})
			}
		}
	}
	s = c.after(s, step{kind: wake, side: 1})
	s.requireBurial(t)
	return s
}

// TestNoInterleavingHasTwoOwners explores all interleavings of requests, whether
// and when the hub carries them out, true and false answers, changes that the
// watches show, timers, and a clock, of two replicas with two slots:
//
//   - no slot has two owners, and each that takes it has a higher token;
//   - from one of progressOf states, each slot has an owner progressWithin later,
//     if nothing fails any more.
//
// A replica that is stopped is one whose steps do not come. One step more takes
// some five times as long:
//
//	go test ./clustercache/sharding/internal/protocol -run NoInterleaving -deeper 1 -v
func TestNoInterleavingHasTwoOwners(t *testing.T) {
	for _, start := range starts {
		t.Run(start.name, func(t *testing.T) {
			t.Parallel()
			c := newCheck(sound)
			depth := start.steps + *deeper
			if testing.Short() {
				depth--
			}
			s := start.of(c, t)
			s.limits = start.limits
			c.explore(s, depth)
			require.Empty(t, c.failed)
			t.Logf("depth %d: %d states, %d steps, progress from %d", depth, len(c.seen), c.steps, c.fair)
		})
	}
}

// TestExplorationNoticesABrokenProtocol breaks one rule at a time.
func TestExplorationNoticesABrokenProtocol(t *testing.T) {
	for rule, from := range map[broken]int{
		gainsAfterQuit:       2,
		buriesAnyVersion:     3,
		takesWithoutDeletion: 3,
	} {
		t.Run(fmt.Sprint(rule), func(t *testing.T) {
			t.Parallel()
			c, start := newCheck(rule), starts[from]
			s := start.of(c, t)
			s.limits = limits{ticks: 1} // no more has to fail
			c.explore(s, start.steps)
			require.Contains(t, c.failed, "two owners")
			t.Logf("%d steps:\n%s", c.steps, c.failed)
		})
	}
}
