// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
)

// epoch is the hub's time zero. The clocks of processes begin elsewhere.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// process is a replica with its clock, its watch, and the work that it does.
type process struct {
	w        *world
	identity string
	name     string
	replica  *protocol.Replica
	rate     float64 // of its clock
	boot     time.Duration
	paused   bool
	dead     bool
	cut      bool // cannot reach the hub
	deaf     bool // its watch shows nothing
	silenced bool // nothing of the hub reaches it, though what it sends arrives
	waiting  []func()
	wakeups  int
	counts   []int
	drain    time.Duration // the most that it takes
	warming  time.Duration // the most that filling the caches of a slot takes
	lag      time.Duration // the most that its watch is behind
	late     time.Duration // how long answers to its writes take
	path     time.Duration // the most that its way to the hub takes beyond the latency
	old      bool          // it runs an earlier version
	filled   map[int]bool  // its caches, by slot
	cold     int           // gains of slots whose caches were not filled
	work     bool          // it writes to remote clusters
	losses   map[int]int   // by slot
	ended    map[int]bool  // slots whose ownership the clock ended, unannounced

	position  int  // in the hub's log
	listing   bool // has to list
	delivers  bool
	refreshes int
}

// start starts a process.
func (w *world) start(identity string, rate float64) *process {
	w.starts++
	p := &process{
		w:        w,
		identity: identity,
		name:     fmt.Sprintf("%s-%d", identity, w.starts),
		rate:     rate,
		boot:     w.now,
		listing:  true,
		drain:    500 * time.Millisecond,
		losses:   map[int]int{},
		ended:    map[int]bool{},
		filled:   map[int]bool{},
	}
	cfg := w.config
	cfg.Member = p.name
	p.replica = protocol.New(cfg)
	w.processes = append(w.processes, p)
	p.watch()
	p.step()
	return p
}

// clock is the time that the process reads.
func (p *process) clock() time.Time { return p.clockAt(p.w.now) }

func (p *process) clockAt(t time.Duration) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(float64(t-p.boot) * p.rate))
}

// do calls f on the process, later if it is stopped.
func (p *process) do(f func()) {
	switch {
	case p.dead:
	case p.paused:
		p.waiting = append(p.waiting, f)
	default:
		for n := range p.w.slots {
			token, _ := p.replica.Holds(n)
			if _, ok := p.owns(n); token != 0 && !ok {
				p.ended[n] = true
			}
		}
		f()
		p.step()
	}
}

func (p *process) pause() { p.paused = true }

func (p *process) resume() {
	p.paused = false
	waiting := p.waiting
	p.waiting = nil
	// What waited is handled in any order: timers, answers, frames of the watch
	// and drains come from goroutines of their own.
	p.w.rand.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
	for _, f := range waiting {
		p.do(f)
	}
	p.watch()
}

func (p *process) kill() {
	p.dead = true
	p.w.processes = slices.DeleteFunc(p.w.processes, func(q *process) bool { return q == p })
}

// step calls Next until nothing is due, and does what it says.
func (p *process) step() {
	var wake time.Time
	for again := true; again; {
		var actions []protocol.Action
		restore := func() {}
		switch {
		case p.w.broken == gainsAfterQuit:
			restore = p.replica.GainsAfterQuit()
		case p.w.broken == gainsByAnOldView:
			p.replica.ForgetEnd()
			p.replica.RenewUnheard()
		case p.old:
			p.replica.ForgetEnd()
		}
		actions, wake = p.replica.Next(p.clock())
		restore()
		again = len(actions) > 0
		for _, a := range actions {
			if a.Kind.Writes() {
				p.send(a)
			} else {
				p.act(a)
			}
		}
	}
	p.w.checkOwners(p)
	for n := range p.ended {
		if _, ok := p.owns(n); ok {
			p.w.fail("%s owns slot %d again, which the clock had ended, and has not said so", p.name, n)
		}
	}
	if p.replica.Left() {
		p.w.log(fmt.Sprintf("%s has left", p.identity))
		p.kill()
		return
	}
	if p.w.broken == renewsTooOften {
		p.replica.RenewSoon(p.clock())
	}
	if wake.IsZero() {
		return
	}
	p.wakeups++
	number := p.wakeups
	in := time.Duration(float64(wake.Sub(p.clock()))/p.rate) + time.Microsecond
	p.w.after(in, func() {
		if number == p.wakeups {
			p.do(func() {})
		}
	})
}

// send sends a write to the hub.
func (p *process) send(a protocol.Action) {
	w := p.w
	sent := p.clock()
	answered := false
	answer := func(o protocol.Outcome) {
		p.do(func() {
			if !answered {
				answered = true
				if w.broken == readsTheClockLate {
					sent = p.clock()
				}
				p.replica.Answer(p.clock(), sent, a, o)
				if w.broken == refusalRevokes && a.Kind == protocol.Renew && o == protocol.Refused {
					p.replica.Revoke()
				}
			}
		})
	}
	if p.old {
		a.Renewal = 0 // it does not number them
		a.Plan.Standbys, a.Weight, a.Loads, a.Draining = nil, 0, nil, nil
	}
	w.after(w.config.OwnFor, func() { answer(protocol.Unknown) })
	if p.unreachable() || w.rand.Float64() < w.weather.lost {
		return
	}
	there := w.upTo(w.weather.latency) + w.upTo(p.path) + w.weather.slow
	if a.Kind == protocol.Bury {
		there += w.weather.deletions
	}
	if w.rand.Float64() < w.weather.late {
		there += w.upTo(40 * time.Second)
	}
	restores := w.hub.restores
	w.after(there, func() {
		if w.hub.restores != restores {
			return // its connection has ended
		}
		if w.broken == takesWithoutDeletion && a.Kind == protocol.Bury {
			if l, ok := w.hub.leases[a.Name]; ok {
				p.do(func() { p.replica.Forget(l) })
			}
			return
		}
		o := w.serve(p, a)
		if p.unreachable() || p.silenced || w.rand.Float64() < w.weather.lost {
			return
		}
		back := w.upTo(w.weather.latency) + w.upTo(p.path) + p.late
		if w.rand.Float64() < w.weather.late {
			back += w.upTo(5 * time.Second)
		}
		w.after(back, func() { answer(o) })
	})
}

// serve carries out a write, or does not, and returns what is answered.
func (w *world) serve(p *process, a protocol.Action) protocol.Outcome {
	switch w.lie(p) {
	case failed:
		return protocol.Unknown
	case committed:
		w.apply(p, a)
		return protocol.Unknown
	case lost:
		if a.Kind == protocol.Renew {
			return protocol.Unknown // it does not show what was written
		}
		return protocol.Done
	case lateCommit:
		restores := w.hub.restores
		w.after(w.upTo(10*time.Second), func() {
			if w.hub.restores == restores {
				w.apply(p, a)
			}
		})
		return protocol.Unknown
	}
	refused, committed := w.refuse(p)
	switch {
	case !refused:
		return w.apply(p, a)
	case committed:
		w.apply(p, a)
	}
	return protocol.Refused
}

func (p *process) unreachable() bool { return p.cut || p.w.now < p.w.weather.away }

// watch delivers the changes that the process has not seen, in their order.
func (p *process) watch() {
	if p.delivers || p.dead {
		return
	}
	if !p.listing && p.position == len(p.w.hub.log) {
		return
	}
	p.delivers = true
	until := len(p.w.hub.log)
	p.w.after(p.w.upTo(p.w.weather.latency)+p.w.upTo(p.lag)+p.w.upTo(p.path), func() {
		if p.dead {
			return
		}
		if p.unreachable() || p.silenced || p.deaf && !p.listing {
			// A watch that fails lists again; one that is deaf, or silenced,
			// shows nothing, and is noticed by its silence alone.
			p.listing = p.listing || p.unreachable()
			p.w.after(time.Second, func() { p.delivers = false; p.watch() })
			return
		}
		p.do(func() {
			for more := true; more && !p.dead; more = p.position < until {
				p.deliver()
				p.step()
			}
			p.delivers = false
			p.watch()
		})
	})
}

func (p *process) deliver() {
	hub := &p.w.hub
	if p.listing {
		var all []protocol.Lease
		for _, l := range hub.leases {
			all = append(all, p.reads(l))
		}
		p.listing, p.position = false, len(hub.log)
		p.replica.Replace(p.clock(), all)
		return
	}
	if p.position >= len(hub.log) {
		return
	}
	c := hub.log[p.position]
	p.position++
	if c.deleted {
		p.replica.Forget(c.lease)
	} else {
		p.replica.Observe(p.clock(), p.reads(c.lease))
	}
}

// reads returns a Lease as the process reads it. An earlier version knows
// neither numbers of renewals nor weights and standbys, and places slots in
// another way.
func (p *process) reads(l protocol.Lease) protocol.Lease {
	if p.old && l.Role == protocol.Member {
		l.Renewal, l.Identity = 0, "earlier/"+l.Identity
		l.Plan.Standbys, l.Weight, l.Loads, l.Draining = nil, 0, nil, false
	}
	return l
}

// act carries out what concerns the process alone.
func (p *process) act(a protocol.Action) {
	w := p.w
	switch a.Kind {
	case protocol.Gain:
		w.moves++
		w.last = w.now
		g := grant{slot: a.Slot, token: a.Token}
		if _, known := w.first[g]; !known {
			w.first[g] = w.now
			if a.Token <= w.tokens[a.Slot] {
				w.fail("%s gained slot %d with token %d after %d", p.name, a.Slot, a.Token, w.tokens[a.Slot])
			}
			w.tokens[a.Slot] = max(w.tokens[a.Slot], a.Token)
		}
		if !p.filled[a.Slot] {
			p.cold++
		}
		if p.work {
			p.labor(a.Slot, a.Token)
		}
	case protocol.Lose:
		p.losses[a.Slot]++
		delete(p.ended, a.Slot)
	case protocol.Cool:
		p.filled[a.Slot] = false
	case protocol.Warm:
		w.fills[a.Slot]++
		p.w.after(w.upTo(p.warming), func() {
			p.do(func() {
				p.filled[a.Slot] = true
				p.replica.Warmed(a.Slot, a.Token)
			})
		})
	case protocol.Drain:
		p.w.after(w.upTo(p.drain), func() { p.do(func() { p.replica.Drained(a.Slot, a.Token) }) })
	case protocol.Refresh:
		p.refreshes++
		p.listing, p.deaf = true, false
		p.watch()
	default:
	}
	names := map[protocol.Kind]string{
		protocol.Gain:  "gains",
		protocol.Drain: "drains",
		protocol.Lose:  "loses",
		protocol.Warm:  "stands by for",
		protocol.Cool:  "no longer stands by for",
	}
	if name := names[a.Kind]; name != "" {
		w.log(fmt.Sprintf("%s %s %d", p.identity, name, a.Slot))
	} else {
		w.log(fmt.Sprintf("%s lists again", p.identity))
	}
}

// owns reports whether the process owns a slot now, by its own clock.
func (p *process) owns(n int) (int64, bool) {
	token, _ := p.replica.Holds(n)
	return token, token != 0 && p.clock().Before(p.replica.Until())
}

// labor writes to the slot's clusters for as long as the process owns it by the
// token.
func (p *process) labor(n int, token int64) {
	w := p.w
	w.after(w.upTo(4*time.Second), func() {
		p.do(func() {
			if held, ok := p.owns(n); !ok || held != token {
				return
			}
			deadline := p.replica.Until()
			takes := w.upTo(3 * time.Second)
			if w.rand.IntN(4) == 0 {
				takes = w.upTo(60 * time.Second) // a cluster that hangs
			}
			x := write{
				grant:    grant{slot: n, token: token},
				loss:     p.losses[n],
				took:     takes,
				deadline: deadline,
			}
			w.after(takes, func() { p.arrive(x) })
			p.labor(n, token)
		})
	})
}

// onTheWire is how long a write may be under way that nothing ends any more,
// because the process is stopped.
const onTheWire = 3 * time.Second

// write is a write to a remote cluster.
type write struct {
	grant
	loss     int // losses of the slot before it was sent
	took     time.Duration
	deadline time.Time
}

// arrive is a write that reaches a remote cluster, unless its deadline or the
// loss of the slot has ended it before.
func (p *process) arrive(x write) {
	late := !p.clock().Before(x.deadline) && (!p.paused || x.took > onTheWire)
	if (late || p.losses[x.slot] != x.loss) && p.w.broken != writesWithoutDeadline {
		return
	}
	if later := p.w.tokens[x.slot]; later > x.token {
		p.w.fail("a write of %s arrived with token %d in slot %d, after %d was owned", p.name, x.token, x.slot, later)
	}
}
