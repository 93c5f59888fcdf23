// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"fmt"
	"time"
)

// Direction is the half of the traffic that a fault affects.
type Direction int

// Directions.
const (
	Both     Direction = iota // both halves
	ToServer                  // data sent by clients
	ToClient                  // data sent by the server
)

// faults is one immutable setting of all switches. To change a switch, the
// whole setting is replaced and the old one's changed is closed, which wakes
// all goroutines that wait in the old setting.
type faults struct {
	blackhole [ToClient + 1]bool // indexed by ToServer and ToClient
	delay     time.Duration
	rate      int // bytes per second; 0 means unlimited
	cut       *cut
	changed   chan struct{}
}

// cut is one call of CutAfter. Its identity makes connections start counting
// anew.
type cut struct{ after int64 }

// Blackhole silently drops the traffic of a direction, as a network partition
// does: the sockets stay open, and neither side is notified. Data sent before
// may still arrive; data sent after Blackhole returned does not. New
// connections are accepted, but the server learns of them only after the fault
// ends. Like packets that TCP retransmits, the withheld bytes are delivered
// when the fault ends.
func (p *Proxy) Blackhole(d Direction) {
	p.change(func(f *faults) {
		f.blackhole[ToServer] = f.blackhole[ToServer] || d != ToClient
		f.blackhole[ToClient] = f.blackhole[ToClient] || d != ToServer
	})
}

// Delay makes every byte arrive d later, in both directions, without limiting
// the throughput. 0 ends the fault.
func (p *Proxy) Delay(d time.Duration) {
	p.change(func(f *faults) { f.delay = d })
}

// Throttle limits every connection to the given number of bytes per second in
// each direction. 0 ends the fault.
func (p *Proxy) Throttle(bytesPerSecond int) {
	p.change(func(f *faults) { f.rate = bytesPerSecond })
}

// CutAfter closes every connection, present and future, once n more bytes have
// reached its client: exactly n arrive, then a FIN. If n is 0, the FIN replaces
// the next byte.
func (p *Proxy) CutAfter(n int64) {
	p.change(func(f *faults) { f.cut = &cut{after: n} })
}

// Heal ends all faults and accepts connections again. It fails only after
// Close, or if listening on the port fails.
func (p *Proxy) Heal() error {
	p.change(func(f *faults) { *f = faults{} })
	if err := p.listen(); err != nil {
		return fmt.Errorf("heal the proxy: %w", err)
	}
	return nil
}

// change replaces the setting with a modified copy.
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
