// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"math"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// burstTime is the time in which as many informers list or are interrupted as may
// list at once, if that is a burst.
const burstTime = 10 * time.Second

// burst lowers GOGC while many informers list or are interrupted, and so connect
// and resume. They allocate several times what they keep, and the heap may grow
// to twice of all that is kept.
type burst struct {
	percent int // Options.BurstGCPercent
	size    int // how many informers are many

	mu     sync.Mutex  // protects the fields below; collector's lock is taken under it
	since  time.Time   // the beginning of what is counted
	seen   int         // informers since then
	last   time.Time   // when one last belonged to a burst
	timer  *time.Timer // set while there is one
	closed bool
}

// grows records that an informer is about to list, or was interrupted. The first
// one of a burst waits until a collection under way has ended.
func (b *burst) grows() {
	if b.percent == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()

	now := time.Now()
	if now.Sub(b.since) >= burstTime {
		b.since, b.seen = now, 0
	}
	if b.seen++; b.seen < b.size || b.closed {
		return
	}
	b.last = now
	if b.timer == nil {
		b.timer = time.AfterFunc(burstTime, b.look)
		collector.enter(b)
	}
}

// look ends the burst if it has not grown for a while.
func (b *burst) look() {
	b.mu.Lock()
	defer b.mu.Unlock()

	left := burstTime - time.Since(b.last)
	switch {
	case b.timer == nil:
	case left > 0:
		b.timer.Reset(left)
	default:
		b.endLocked()
	}
}

// close ends the burst.
func (b *burst) close() {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
		b.endLocked()
	}
}

func (b *burst) endLocked() {
	b.timer = nil
	collector.leave(b)
}

// collector is the process's garbage collector, which the bursts of all pools
// share.
var collector pace

// pace is the lowest percentage that any burst requests.
type pace struct {
	mu     sync.Mutex // protects the fields below
	bursts map[*burst]struct{}
	before int // GOGC without a burst
	set    int // GOGC as it was set here
}

func (p *pace) enter(b *burst) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if len(p.bursts) == 0 {
		p.bursts = map[*burst]struct{}{}
		p.before = current()
		p.set = p.before
	}
	p.bursts[b] = struct{}{}
	p.setLocked()
}

func (p *pace) leave(b *burst) {
	p.mu.Lock()
	defer p.mu.Unlock()

	delete(p.bursts, b)
	p.setLocked()
}

// setLocked sets GOGC to what the bursts request. What was set elsewhere in the
// meantime stays.
func (p *pace) setLocked() {
	want := p.before
	for b := range p.bursts {
		if want >= 0 { // a collector that is off stays so
			want = min(want, b.percent)
		}
	}
	if want != p.set && current() == p.set {
		debug.SetGCPercent(want)
		p.set = want
	}
}

// current returns GOGC, or a negative number if the collector is off.
func current() int {
	gogc := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(gogc)
	if gogc[0].Value.Uint64() > math.MaxInt32 {
		return -1
	}
	return int(gogc[0].Value.Uint64())
}
