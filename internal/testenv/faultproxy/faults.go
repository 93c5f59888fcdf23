// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"fmt"
	"time"
)

// Direction says which half of the traffic a fault concerns.
type Direction int

// The directions.
const (
	Both     Direction = iota // both halves
	ToServer                  // what clients send
	ToClient                  // what the server sends
)

// faults is one setting of all switches. It never changes: a switch replaces
// the whole and closes changed, which wakes everybody who waits in the old one.
type faults struct {
	blackhole [ToClient + 1]bool // by ToServer and ToClient
	delay     time.Duration
	rate      int // bytes per second; 0: unlimited
	cut       *cut
	changed   chan struct{}
}

// cut is one call of CutAfter; its identity tells connections to count anew.
type cut struct{ after int64 }

// Blackhole drops the traffic of a direction silently, as a partition does: the
// sockets stay open, and nobody is told. What was sent before may still arrive;
// what is sent after Blackhole returned does not. New connections are accepted,
// and the server hears of them only after the end. Like packets that TCP sends
// again, the bytes held back are delivered when the fault ends.
func (p *Proxy) Blackhole(d Direction) {
	p.change(func(f *faults) {
		f.blackhole[ToServer] = f.blackhole[ToServer] || d != ToClient
		f.blackhole[ToClient] = f.blackhole[ToClient] || d != ToServer
	})
}

// Delay lets every byte arrive d later than it would, in both directions; the
// throughput is not limited by it. 0 switches it off.
func (p *Proxy) Delay(d time.Duration) {
	p.change(func(f *faults) { f.delay = d })
}

// Throttle limits every connection to the given number of bytes per second in
// each direction. 0 switches it off.
func (p *Proxy) Throttle(bytesPerSecond int) {
	p.change(func(f *faults) { f.rate = bytesPerSecond })
}

// CutAfter closes every connection, present and future, when n further bytes
// have reached its client: exactly n arrive, then a FIN. With 0 that comes in
// the place of the next byte.
func (p *Proxy) CutAfter(n int64) {
	p.change(func(f *faults) { f.cut = &cut{after: n} })
}

// Heal ends all faults and accepts connections again. It fails only if the port
// cannot be listened on any more, or after Close.
func (p *Proxy) Heal() error {
	p.change(func(f *faults) { *f = faults{} })
	if err := p.listen(); err != nil {
		return fmt.Errorf("heal the proxy: %w", err)
	}
	return nil
}

// change replaces the setting by a changed copy.
func (p *Proxy) change(edit func(*faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.faults
	next := *old
	edit(&next)
	next.changed = make(chan struct{})
	p.faults = &next
	close(old.changed)
}

// current returns the setting in force.
func (p *Proxy) current() *faults {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}
