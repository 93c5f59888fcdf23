// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

var (
	seeds = flag.Int("seeds", 100, "how many seeds to simulate, and a fifth of them with -short")
	from  = flag.Uint64("from", 1, "the first seed")
	only  = flag.Uint64("seed", 0, "simulate this seed alone, and print what happens")
)

const (
	// ownedWithin is how long a slot may be without an owner while nothing
	// disturbs: death is detected within 15 s by a slow clock; then come a
	// deletion, a take, and their changes.
	ownedWithin = 20 * time.Second
	// handedOverWithin is how long a slot is without an owner when it moves: a
	// release, the take, and their changes, each with the highest latency.
	handedOverWithin = 3 * time.Second
	// settledWithin is when the last slot has moved: a minute after a member has
	// gone there is a plan for good, and some slots wait for the caches of their
	// heir, and are drained.
	settledWithin = 100 * time.Second
)

// TestSimulation runs 3 to 10 replicas with up to 10,000 clusters through
// faults, with these oracles:
//
//   - a slot never has two owners, each by its own clock, and its tokens grow;
//   - an ownership that the clock has ended is announced as lost before it is
//     announced as gained, and never goes on;
//   - no write arrives at a remote cluster by a token older than one that was
//     owned before, unless it was on the wire of a stopped process;
//   - while nothing disturbs, every slot is owned again within ownedWithin and
//     eight times the latency, and from then on without a gap but for
//     handedOverWithin;
//   - while nothing disturbs, no slot moves after settledWithin, and nothing is
//     written but renewals;
//   - in the end the slots are spread evenly.
//
// Clusters are requests of their slots: the counts, which the replicas do not
// agree about, decide how slots are spread.
//
//	go test ./clustercache/sharding/internal/protocol -run TestSimulation -seeds 10000
//	go test ./clustercache/sharding/internal/protocol -run TestSimulation -seed 4711 -v
func TestSimulation(t *testing.T) {
	if *only != 0 {
		s := newSimulation(*only)
		s.w.log = func(line string) { t.Logf("%v %s", s.w.now.Truncate(time.Millisecond), line) }
		s.run()
		require.Empty(t, s.w.failures)
		return
	}
	const parts = 8
	for part := range parts {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			for i := part; i < repeat.Times(*seeds); i += parts {
				seed := *from + uint64(i)
				s := newSimulation(seed)
				s.run()
				require.Empty(t, s.w.failures, "seed %d", seed)
			}
		})
	}
}

// TestOraclesNoticeABrokenProtocol breaks one rule at a time, for the faults of
// TestSimulation, or for those of TestHubTroubleHaltsNoGroup. An oracle that fails
// for none of these would prove nothing.
func TestOraclesNoticeABrokenProtocol(t *testing.T) {
	for _, test := range []struct {
		rule    broken
		trouble bool
		want    string
		seed    uint64 // the first one
		often   func(*simulation, *process)
	}{
		{takesWithoutDeletion, false, "is owned by", 9, nil},
		{takesWithoutDeletion, true, "is owned by", 53, nil},
		{readsTheClockLate, false, "is owned by", 1, func(s *simulation, p *process) {
			s.late(p, 9*time.Second, 20*time.Second)
			s.w.after(s.w.upTo(20*time.Second), func() { s.cut(p, 40*time.Second) })
		}},
		{readsTheClockLate, true, "is owned by", 11, nil},
		{gainsByAnOldView, false, "is owned by", 53, func(s *simulation, p *process) {
			s.restore()
			p.do(func() { p.replica.SetDraining(true) }) // others own its slots when it is to own them again
			for _, q := range s.w.processes {
				q.lag = 4 * time.Second
			}
		}},
		{writesWithoutDeadline, false, "a write of", 1, nil},
		{refusalRevokes, false, "has no owner", 15, nil},
		{refusalRevokes, true, "has no owner", 3, nil},
		{renewsTooOften, false, "writes at rest", 1, nil},
	} {
		t.Run(fmt.Sprint(test.rule, test.trouble), func(t *testing.T) {
			t.Parallel()
			failure := func(seed uint64, rule broken) string {
				s, run := newSimulation(seed), (*simulation).run
				if test.trouble {
					s, run = newTrouble(seed), (*simulation).troubles
				}
				s.w.broken, s.often = rule, test.often
				run(s)
				i := slices.IndexFunc(s.w.failures, func(f string) bool { return strings.Contains(f, test.want) })
				if i < 0 {
					return ""
				}
				return s.w.failures[i]
			}
			for seed := test.seed; seed < test.seed+100; seed++ {
				if f := failure(seed, test.rule); f != "" {
					t.Logf("seed %d: %s", seed, f)
					require.Empty(t, failure(seed, sound))
					return
				}
			}
			t.Fatal("no seed shows it")
		})
	}
}

// simulation is a world with faults.
type simulation struct {
	w         *world
	replicas  int
	clusters  []int           // by slot
	disturbed time.Duration   // until when
	moves     int             // at the last check
	owned     []time.Duration // by slot, when it had an owner last
	storms    int
	mixed     bool          // some replicas run an earlier version
	last      *process      // that a fault met
	written   int           // by the hub, when it came to rest
	rest      time.Duration // when it did; 0 while it does not
	resting   int           // how many replicas there were

	often func(*simulation, *process) // half of the faults, if it is set
}

func newSimulation(seed uint64) *simulation {
	r := rand.New(rand.NewPCG(seed, 2))
	w := newWorld(seed, 8+r.IntN(25))
	w.config.Standbys = r.IntN(3)
	w.weather.latency = []time.Duration{time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond}[r.IntN(3)]
	s := &simulation{
		w:        w,
		replicas: 3 + r.IntN(3),
		clusters: make([]int, w.slots),
		owned:    make([]time.Duration, w.slots),
	}
	if r.IntN(5) == 0 {
		s.replicas = 3 + r.IntN(8)
	}
	s.mixed = r.IntN(4) == 0
	for range r.IntN([]int{10, 100, 1_000, 10_000}[r.IntN(4)]) {
		s.clusters[r.IntN(w.slots)]++
	}
	return s
}

// run simulates minutes of faults, and then calm.
func (s *simulation) run() {
	w := s.w
	for i := range s.replicas {
		w.after(w.upTo(5*time.Second), func() { s.start(i) })
	}
	s.disturb(5 * time.Second)
	w.after(0, s.watch)
	for range 2 + w.rand.IntN(8) {
		w.run(w.upTo(40 * time.Second))
		for range []int{1, 1, 2, 4}[w.rand.IntN(4)] {
			s.fault()
		}
		if w.rand.IntN(4) == 0 && !s.mixed {
			s.quiet()
		}
	}
	w.run(max(0, s.disturbed-w.now) + settledWithin + time.Minute)
	s.checkSpread()
}

// start starts a replica, unless it runs already.
func (s *simulation) start(i int) {
	identity := fmt.Sprintf("r%d", i)
	if slices.ContainsFunc(s.w.processes, func(p *process) bool { return p.identity == identity }) {
		return
	}
	p := s.w.start(identity, 0.95+0.1*s.w.rand.Float64())
	p.work = true
	p.old = s.mixed && s.w.rand.IntN(2) == 0
	p.counts = s.opinion()
	if s.w.rand.IntN(8) == 0 {
		p.drain = []time.Duration{time.Minute, time.Hour}[s.w.rand.IntN(2)]
	}
	p.warming = 5 * time.Second
	if s.w.rand.IntN(8) == 0 {
		p.warming = time.Hour
	}
	p.do(func() { p.replica.SetCounts(p.counts) })
}

// opinion is the counts that a replica knows of: some clusters are missing.
func (s *simulation) opinion() []int {
	out := slices.Clone(s.clusters)
	for n := range out {
		if out[n] > 0 && s.w.rand.IntN(3) == 0 {
			out[n] = s.w.rand.IntN(out[n] + 1)
		}
	}
	return out
}

// disturb extends the time until which anything may be due to a fault.
func (s *simulation) disturb(d time.Duration) { s.disturbed = max(s.disturbed, s.w.now+d) }

// victim returns the process that a fault meets: half of the time the one that
// the last fault has met, since what two faults do to one process is seldom what
// they do to two.
func (s *simulation) victim() *process {
	if s.last == nil || s.last.dead || s.w.rand.IntN(2) == 0 {
		s.last = s.w.processes[s.w.rand.IntN(len(s.w.processes))]
	}
	return s.last
}

// fault lets something happen, which ends by itself.
func (s *simulation) fault() {
	w := s.w
	if len(w.processes) == 0 {
		return
	}
	p := w.processes[w.rand.IntN(len(w.processes))]
	if s.often != nil && w.rand.IntN(2) == 0 {
		s.often(s, p)
		return
	}
	faults := []func(){
		func() { s.stop(p, w.upTo(time.Minute)) },
		func() { s.stop(p, w.upTo(time.Minute)) },
		func() { s.stop(p, 9*time.Second+w.upTo(8*time.Second)) },
		func() { s.restart(p, w.upTo(40*time.Second)) },
		func() { s.flap(p, 2+w.rand.IntN(5)) },
		func() { s.leave(p) },
		func() { s.cut(p, w.upTo(40*time.Second)) },
		func() { s.away(w.upTo(time.Minute)) },
		func() { s.away(w.upTo(20 * time.Second)) },
		func() { s.storm(w.upTo(time.Minute)) },
		func() { s.storm(w.upTo(time.Minute)) },
		func() { p.deaf = true; s.disturb(20 * time.Second) },
		func() { s.refuse(p, w.upTo(20*time.Second)) },
		func() { s.refuse(nil, w.upTo(20*time.Second)) },
		func() { s.late(p, w.upTo(30*time.Second), w.upTo(time.Minute)) },
		func() { s.slow(w.upTo(10*time.Second), w.upTo(time.Minute)) },
		func() { s.gray(p, w.upTo(20*time.Second)) },
		func() { s.gray(nil, w.upTo(20*time.Second)) },
		func() { s.detour(p, w.upTo(4*time.Second), w.upTo(time.Minute)) },
		func() { s.restore() },
		func() { s.recount() },
		func() {
			s.storm(40 * time.Second)
			for _, q := range slices.Clone(w.processes) {
				s.stop(q, w.upTo(30*time.Second))
			}
		},
	}
	faults[w.rand.IntN(len(faults))]()
}

func (s *simulation) stop(p *process, d time.Duration) {
	if p.paused {
		return
	}
	s.disturb(d)
	s.w.log(fmt.Sprintf("%s is stopped for %v", p.identity, d))
	p.pause()
	s.w.after(d, func() {
		if !p.dead {
			s.w.log(fmt.Sprintf("%s continues", p.identity))
			p.resume()
		}
	})
}

func (s *simulation) restart(p *process, in time.Duration) {
	if p.dead {
		return
	}
	s.w.log(fmt.Sprintf("%s is killed", p.identity))
	p.kill()
	s.again(p, in)
}

func (s *simulation) again(p *process, in time.Duration) {
	s.disturb(in)
	var i int
	_, _ = fmt.Sscanf(p.identity, "r%d", &i)
	s.w.after(in, func() { s.start(i) })
}

// flap kills a replica as often as it comes back.
func (s *simulation) flap(p *process, times int) {
	s.restart(p, time.Second)
	s.disturb(21 * time.Second)
	if times == 0 {
		return
	}
	s.w.after(time.Second+s.w.upTo(20*time.Second), func() {
		for _, q := range s.w.processes {
			if q.identity == p.identity {
				s.flap(q, times-1)
				return
			}
		}
	})
}

// leave ends a replica as SIGTERM does; it starts again.
func (s *simulation) leave(p *process) {
	s.w.log(fmt.Sprintf("%s is asked to leave", p.identity))
	p.do(func() { p.replica.Leave(p.clock()) })
	s.disturb(15 * time.Second)
	s.w.after(15*time.Second, func() {
		if !p.dead {
			p.kill() // it was cut off, for example
		}
		s.again(p, s.w.upTo(10*time.Second))
	})
}

func (s *simulation) cut(p *process, d time.Duration) {
	s.disturb(d)
	s.w.log(fmt.Sprintf("%s is cut off for %v", p.identity, d))
	p.cut = true
	s.w.after(d, func() { p.cut = false })
}

func (s *simulation) away(d time.Duration) {
	s.disturb(d)
	s.w.log(fmt.Sprintf("the hub is away for %v", d))
	s.w.weather.away = max(s.w.weather.away, s.w.now+d)
}

// storm has requests and answers lost and late.
func (s *simulation) storm(d time.Duration) {
	w := s.w
	s.storms++
	number := s.storms
	w.weather.lost, w.weather.late = 0.4*w.rand.Float64(), 0.4*w.rand.Float64()
	s.disturb(d + 45*time.Second) // writes arrive up to 40 s late
	w.log(fmt.Sprintf("storm for %v", d))
	w.after(d, func() {
		if number == s.storms {
			w.weather.lost, w.weather.late = 0, 0
		}
	})
}

// refuse has writes of a process, or of all, refused.
func (s *simulation) refuse(p *process, d time.Duration) {
	w := s.w
	w.weather.refusals = refusals{
		until:     w.now + d,
		share:     []float64{0.3, 1}[w.rand.IntN(2)],
		committed: []float64{0, 0.5, 1}[w.rand.IntN(3)],
		of:        p,
	}
	s.disturb(d)
	w.log(fmt.Sprintf("writes are refused for %v", d))
}

// late has answers to the writes of a process, or of all, take long. The writes
// are carried out at once, and the watch shows them.
func (s *simulation) late(p *process, by, d time.Duration) {
	if p == nil {
		for _, q := range s.w.processes {
			s.late(q, by, d)
		}
		return
	}
	p.late = by
	s.w.after(d, func() { p.late = 0 })
	s.disturb(d + min(by, s.w.config.OwnFor))
	s.w.log(fmt.Sprintf("answers to %s take %v for %v", p.identity, by, d))
}

// slow has the hub take long to carry out writes.
func (s *simulation) slow(by, d time.Duration) {
	w := s.w
	w.weather.slow = by
	w.after(d, func() { w.weather.slow = 0 })
	s.disturb(d + by)
	w.log(fmt.Sprintf("writes take %v for %v", by, d))
}

// gray has answers to a process, or to all, say something else than what
// happened.
func (s *simulation) gray(p *process, d time.Duration) {
	w := s.w
	w.weather.gray = gray{
		until: w.now + d,
		share: []float64{0.3, 1}[w.rand.IntN(2)],
		of:    p,
	}
	// One that believes that it has left leaves its Lease; one that believes
	// that it has joined finds out when it sees nothing of that.
	s.disturb(d + 15*time.Second)
	w.log(fmt.Sprintf("answers are wrong for %v", d))
}

// detour has all between a process and the hub take long, each way.
func (s *simulation) detour(p *process, by, d time.Duration) {
	p.path = by
	s.w.after(d, func() { p.path = 0 })
	s.disturb(d + 2*by)
	s.w.log(fmt.Sprintf("the way to %s takes up to %v for %v", p.identity, by, d))
}

// fade has the way between a process and the hub get long, and then lost: the
// last that it hears is old.
func (s *simulation) fade(p *process) {
	w, d := s.w, 20*time.Second
	if w.rand.IntN(2) == 0 {
		s.late(p, w.upTo(9*time.Second), d)
	} else {
		s.detour(p, w.upTo(9*time.Second), d)
	}
	w.after(w.upTo(d), func() { s.cut(p, d+w.upTo(d)) })
}

// silence has nothing of the hub reach a process: neither answers, nor what its
// watch, which does not end, should show. What it sends reaches the hub.
func (s *simulation) silence(p *process, d time.Duration) {
	s.w.log(fmt.Sprintf("nothing reaches %s for %v", p.identity, d))
	p.silenced, p.deaf = true, true
	s.w.after(d, func() { p.silenced = false })
	if slices.ContainsFunc(s.w.processes, func(q *process) bool { return !q.silenced }) {
		d = min(d, s.w.config.OwnFor) // the others take its slots
	}
	s.disturb(d)
}

// restore sets the hub back to a backup, while its API servers do not run for
// longer than anything is owned.
func (s *simulation) restore() {
	w := s.w
	if s.mixed || w.now < w.weather.away {
		return // earlier versions may have two owners then
	}
	w.log("the hub is backed up")
	backup, revision := maps.Clone(w.hub.leases), w.hub.revision
	in := w.upTo(30 * time.Second)
	s.disturb(in)
	w.after(in, func() {
		s.away(11*time.Second + w.upTo(20*time.Second)) // clocks are up to 5 % slow
		back := w.weather.away
		w.at(back, func() {
			w.log("the hub is set back")
			w.hub.leases, w.hub.revision = backup, revision
			w.hub.restores++
			for n := range w.slots {
				w.tokens[n] = backup[w.config.Slot(n)].Token - 1 // its owner may gain it again
			}
			clear(w.first)
			for _, p := range w.processes {
				p.listing = true
				p.watch()
			}
			s.disturb(ownedWithin) // members of the past are dead
		})
	})
}

// recount changes what the replicas know of the clusters.
func (s *simulation) recount() {
	for range 1 + s.w.rand.IntN(1_000) {
		s.clusters[s.w.rand.IntN(s.w.slots)]++
	}
	for _, p := range s.w.processes {
		p.do(func() { p.replica.SetCounts(s.opinion()) })
	}
	s.disturb(5 * time.Second)
}

// watch checks every second what has to hold while nothing disturbs.
func (s *simulation) watch() {
	w := s.w
	calm := w.now - s.disturbed
	s.checkWrites(calm)
	for n := range w.slots {
		if w.owner(n) != nil {
			s.owned[n] = w.now
		}
		within := ownedWithin + 8*w.weather.latency
		if without := w.now - s.owned[n]; calm > within && without > handedOverWithin {
			holder := "no process"
			for _, p := range w.processes {
				h, token := p.replica.Holder(n)
				holder = fmt.Sprintf("%s, token %d", h, token)
			}
			w.fail("slot %d has no owner for %v, %v after the last fault; held by %s", n, without, calm, holder)
		}
	}
	if calm > settledWithin && w.moves != s.moves {
		w.fail("a slot moved %v after the last fault", calm)
	}
	s.moves = w.moves
	if len(w.failures) == 0 {
		w.after(time.Second, s.watch)
	}
}

// checkWrites compares the writes of a group at rest with those that it needs.
func (s *simulation) checkWrites(calm time.Duration) {
	w := s.w
	if calm <= settledWithin || s.rest == 0 || s.resting != len(w.processes) {
		s.rest, s.written, s.resting = 0, w.hub.writes, len(w.processes)
		if calm > settledWithin {
			s.rest = w.now
		}
		return
	}
	most := 0.0
	for _, p := range w.processes {
		most += 2 + float64(w.now-s.rest)*p.rate/float64(w.config.Renew)
	}
	if written := w.hub.writes - s.written; float64(written) > most {
		w.fail("%d writes at rest in %v by %d replicas", written, w.now-s.rest, s.resting)
		s.rest = 0
	}
}

// weights returns the loads of slots by the counts of the eldest member, which
// makes the plan; their sum; and the heaviest.
func (s *simulation) weights() (weights []int, total, heaviest int) {
	var plan protocol.Plan
	for _, l := range s.w.hub.leases {
		if l.Role == protocol.Member && len(l.Plan.Owners) > 0 {
			plan = l.Plan
		}
	}
	for n := range s.w.slots {
		weight := 1
		if len(plan.Counts) > 0 {
			weight += 16 * plan.Counts[n]
		}
		weights = append(weights, weight)
		total += weight
		heaviest = max(heaviest, weight)
	}
	return weights, total, heaviest
}

// checkSpread compares the loads.
func (s *simulation) checkSpread() {
	w := s.w
	weights, total, heaviest := s.weights()
	loads := map[*process]int{}
	for n, weight := range weights {
		loads[w.owner(n)] += weight
	}
	for _, p := range w.processes {
		mean := total / len(w.processes)
		if deviation := max(loads[p]-mean, mean-loads[p]); deviation > mean/10+heaviest {
			w.fail("%s has a load of %d, the mean is %d", p.name, loads[p], mean)
		}
	}
}
