// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
)

// world is a hub and its replicas in virtual time. Everything that happens is
// an event of its queue, so a seed fixes a run completely.
type world struct {
	rand  *rand.Rand
	slots int
	now   time.Duration // the true time
	queue events
	count int

	hub       hub
	processes []*process
	starts    int // of processes
	config    protocol.Config
	weather   weather
	broken    broken

	log      func(line string)
	failures []string
	moves    int   // gains
	fills    []int // of caches, by slot
	tokens   []int64
	first    map[grant]time.Duration // when a token was first owned
	last     time.Duration           // of the last gain
}

// grant is one ownership of a slot.
type grant struct {
	slot  int
	token int64
}

// weather is what happens to requests.
type weather struct {
	latency    time.Duration // the most a request takes each way
	slow       time.Duration // how long the hub takes to carry out a write
	lost, late float64       // probabilities, each way
	deletions  time.Duration // how long deletions take to reach the hub
	away       time.Duration // until when the hub does not answer
	refusals   refusals
	gray       gray
}

// refusals are writes that are answered as if their condition were not met,
// although it is: by a gateway, or by the hub after the commit.
type refusals struct {
	until     time.Duration
	share     float64  // of the writes
	committed float64  // of these
	of        *process // nil: of all
}

// gray is a hub, or a gateway before it, whose answers say something else than
// what happened.
type gray struct {
	until time.Duration
	share float64  // of the writes
	of    *process // nil: of all
}

// lie is how an answer differs from what happened.
type lie uint8

const (
	honest     lie = iota
	failed         // not carried out, and an error
	committed      // carried out, and an error
	lost           // not carried out, and a success
	lateCommit     // carried out after an error was answered
)

// lie returns what happens to a write.
func (w *world) lie(p *process) lie {
	g := w.weather.gray
	if w.now >= g.until || g.of != nil && g.of != p || w.rand.Float64() >= g.share {
		return honest
	}
	return failed + lie(w.rand.IntN(4))
}

// refuse reports whether a write is refused in this way, and whether it is
// carried out all the same.
func (w *world) refuse(p *process) (refused, committed bool) {
	r := w.weather.refusals
	if w.now >= r.until || r.of != nil && r.of != p || w.rand.Float64() >= r.share {
		return false, false
	}
	return true, w.rand.Float64() < r.committed
}

// broken is a rule of the protocol that is not followed, which the oracles must
// notice.
type broken uint8

const (
	sound broken = iota
	takesWithoutDeletion
	readsTheClockLate
	writesWithoutDeadline
	gainsAfterQuit
	buriesAnyVersion
	refusalRevokes
	renewsTooOften
	gainsByAnOldView
)

type event struct {
	at   time.Duration
	seq  int
	call func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func newWorld(seed uint64, slots int) *world {
	w := &world{
		rand:   rand.New(rand.NewPCG(seed, 1)),
		slots:  slots,
		hub:    hub{leases: map[string]protocol.Lease{}},
		tokens: make([]int64, slots),
		fills:  make([]int, slots),
		first:  map[grant]time.Duration{},
		log:    func(string) {},
		config: protocol.Config{
			Charter:   "charter",
			Slot:      func(n int) string { return "slot-" + strconv.Itoa(n) },
			Slots:     slots,
			Renew:     2 * time.Second,
			OwnFor:    10 * time.Second,
			DeadAfter: 15 * time.Second,
			Settle:    3 * time.Second,
			WarmFor:   20 * time.Second,
			DrainFor:  10 * time.Second,
			Standbys:  1,
			Return:    time.Minute,
		},
		weather: weather{latency: 20 * time.Millisecond},
	}
	return w
}

func (w *world) at(t time.Duration, call func()) {
	w.count++
	heap.Push(&w.queue, event{
		at:   max(t, w.now),
		seq:  w.count,
		call: call,
	})
}

func (w *world) after(d time.Duration, call func()) { w.at(w.now+d, call) }

// run lets time pass.
func (w *world) run(d time.Duration) {
	end := w.now + d
	for len(w.queue) > 0 && w.queue[0].at <= end {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.call()
	}
	w.now = end
}

func (w *world) fail(format string, args ...any) {
	w.failures = append(w.failures, fmt.Sprintf("%v: ", w.now)+fmt.Sprintf(format, args...))
}

// upTo returns a random duration.
func (w *world) upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(w.rand.Int64N(int64(d) + 1))
}

// checkOwners is the oracle of one owner.
func (w *world) checkOwners(p *process) {
	for n := range w.slots {
		if _, ok := p.owns(n); !ok {
			continue
		}
		for _, q := range w.processes {
			if _, ok := q.owns(n); ok && q != p {
				w.fail("slot %d is owned by %s and by %s", n, p.name, q.name)
			}
		}
	}
}

// owner returns the process that owns a slot, or nil.
func (w *world) owner(n int) *process {
	for _, p := range w.processes {
		if _, ok := p.owns(n); ok && !p.paused {
			return p
		}
	}
	return nil
}
