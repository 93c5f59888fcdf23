// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"sync"
	"sync/atomic"

	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
	"github.com/fleetcache/fleetcache/internal/callback"
)

// EventType is what happened to a slot.
type EventType = ownership.EventType

// Event is a change of a slot.
type Event = ownership.Event

// Types of events.
const (
	// Warm: see [ownership.Warm].
	Warm = ownership.Warm
	// Gained: see [ownership.Gained].
	Gained = ownership.Gained
	// Draining: see [ownership.Draining].
	Draining = ownership.Draining
	// Lost: see [ownership.Lost].
	Lost = ownership.Lost
	// Cool: see [ownership.Cool].
	Cool = ownership.Cool
)

var eventTypes = map[protocol.Kind]EventType{
	protocol.Warm:  Warm,
	protocol.Gain:  Gained,
	protocol.Drain: Draining,
	protocol.Lose:  Lost,
	protocol.Cool:  Cool,
}

// Subscribe has handler called with each event, in their order, one at a time
// for all subscribers; so handler must not block. It begins with events that
// lead to the present state. The returned function ends the subscription. A
// call that runs at that moment is not waited for; drains no longer wait for
// the subscriber.
//
// Events report what was true when they happened: to decide, use
// [Sharding.Owns] and [Sharding.Context].
func (s *Sharding) Subscribe(handler func(Event)) (unsubscribe func()) {
	sub := &subscriber{handler: handler}
	s.notifier.subscribe(sub)
	return func() {
		sub.ended.Store(true)
		s.notifier.forget(sub)
	}
}

type subscriber struct {
	handler func(Event)
	ended   atomic.Bool
}

// notifier delivers events to subscribers, on a goroutine of its own, so that
// no callback delays the protocol.
type notifier struct {
	s    *Sharding
	wake chan struct{} // capacity 1

	// Of run alone:
	subscribers []*subscriber
	state       []Event // by slot: the last of Warm, Gained and Draining
	warm        []bool

	mu struct {
		sync.Mutex
		queue   []notice
		stopped bool
		// waiting are the subscribers that each drain waits for, by slot.
		waiting map[int]*drain
	}
}

// notice is an action, or a new subscriber.
type notice struct {
	action     protocol.Action
	subscriber *subscriber
}

type drain struct {
	token int64
	by    map[*subscriber]bool
}

func newNotifier(s *Sharding) *notifier {
	n := &notifier{
		s:     s,
		wake:  make(chan struct{}, 1),
		state: make([]Event, s.options.Slots),
		warm:  make([]bool, s.options.Slots),
	}
	n.mu.waiting = map[int]*drain{}
	return n
}

func (n *notifier) add(a protocol.Action) { n.push(notice{action: a}) }

func (n *notifier) subscribe(sub *subscriber) { n.push(notice{subscriber: sub}) }

func (n *notifier) push(x notice) {
	n.mu.Lock()
	n.mu.queue = append(n.mu.queue, x)
	n.mu.Unlock()
	n.signal()
}

func (n *notifier) signal() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// stop makes run return once all is delivered.
func (n *notifier) stop() {
	n.mu.Lock()
	n.mu.stopped = true
	n.mu.Unlock()
	n.signal()
}

func (n *notifier) run() {
	for range n.wake {
		n.mu.Lock()
		queue, stopped := n.mu.queue, n.mu.stopped
		n.mu.queue = nil
		n.mu.Unlock()

		for _, x := range queue {
			if x.subscriber != nil {
				n.welcome(x.subscriber)
			} else {
				n.deliver(x.action)
			}
		}
		if stopped {
			return
		}
	}
}

// welcome brings a new subscriber to the present state.
func (n *notifier) welcome(sub *subscriber) {
	n.subscribers = append(n.subscribers, sub)
	for slot, last := range n.state {
		if n.warm[slot] {
			n.call(sub, Event{Type: Warm, Slot: slot})
		}
		if last.Token == 0 {
			continue
		}
		n.call(sub, Event{Type: Gained, Slot: slot, Token: last.Token})
		if last.Type == Draining && n.join(slot, last.Token, sub) {
			n.call(sub, n.draining(sub, last))
		}
	}
}

func (n *notifier) deliver(a protocol.Action) {
	e := Event{
		Type:  eventTypes[a.Kind],
		Slot:  a.Slot,
		Token: a.Token,
		Until: a.Until,
	}
	switch e.Type {
	case Warm, Cool:
		n.warm[e.Slot] = e.Type == Warm
	case Gained, Draining:
		n.state[e.Slot] = e
	case Lost:
		n.state[e.Slot] = Event{}
	}
	n.prune()
	if e.Type == Draining {
		n.begin(e)
	}
	for _, sub := range n.subscribers {
		if e.Type == Draining {
			n.call(sub, n.draining(sub, e))
		} else {
			n.call(sub, e)
		}
	}
}

// prune removes the subscribers that have ended.
func (n *notifier) prune() {
	var rest []*subscriber
	for _, sub := range n.subscribers {
		if !sub.ended.Load() {
			rest = append(rest, sub)
		}
	}
	n.subscribers = rest
}

func (n *notifier) call(sub *subscriber, e Event) {
	if sub.ended.Load() {
		return
	}
	if err := callback.Apart("sharding.Subscribe", func() error { sub.handler(e); return nil }); err != nil {
		n.s.log.Error(err, "subscriber failed", "event", e.Type.String(), "slot", e.Slot)
		e.Done()
	}
}

// draining returns the event with sub's Done.
func (n *notifier) draining(sub *subscriber, e Event) Event {
	return e.WithDone(func() { n.finish(e.Slot, e.Token, sub) })
}

// begin begins a drain that waits for all subscribers.
func (n *notifier) begin(e Event) {
	d := &drain{token: e.Token, by: map[*subscriber]bool{}}
	for _, sub := range n.subscribers {
		d.by[sub] = true
	}
	n.mu.Lock()
	n.mu.waiting[e.Slot] = d
	n.mu.Unlock()
	n.finish(e.Slot, e.Token, nil)
}

// join lets a drain wait for one more subscriber. It reports false if the drain
// has ended.
func (n *notifier) join(slot int, token int64, sub *subscriber) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.mu.waiting[slot]
	if d == nil || d.token != token {
		return false
	}
	d.by[sub] = true
	return true
}

// finish ends the wait of a drain for a subscriber.
func (n *notifier) finish(slot int, token int64, sub *subscriber) {
	n.mu.Lock()
	d := n.mu.waiting[slot]
	if d == nil || d.token != token {
		n.mu.Unlock()
		return
	}
	delete(d.by, sub)
	over := len(d.by) == 0
	if over {
		delete(n.mu.waiting, slot)
	}
	n.mu.Unlock()

	if over {
		n.s.drained(slot, token)
	}
}

// forget ends all waits for a subscriber.
func (n *notifier) forget(sub *subscriber) {
	n.mu.Lock()
	over := map[int]int64{}
	for slot, d := range n.mu.waiting {
		delete(d.by, sub)
		if len(d.by) == 0 {
			over[slot] = d.token
			delete(n.mu.waiting, slot)
		}
	}
	n.mu.Unlock()
	for slot, token := range over {
		n.s.drained(slot, token)
	}
}
