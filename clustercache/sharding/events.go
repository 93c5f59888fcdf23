// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"slices"
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
// call that runs at that moment is not waited for; slots no longer wait for the
// subscriber.
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
	state       []Event // by slot: the last of Gained and Draining
	warm        []int64 // by slot: the token of the Warm, or 0

	mu struct {
		sync.Mutex
		queue   []func() // what run has to do, in order
		stopped bool
		// waiting are the subscribers that a Warm or Draining waits for.
		waiting map[topic]*wait
	}
}

// topic is what subscribers are waited for: a Warm or Draining of a slot.
type topic struct {
	event EventType
	slot  int
}

// wait is the subscribers that have not called Done.
type wait struct {
	token int64 // of the action
	by    map[*subscriber]bool
}

func newNotifier(s *Sharding) *notifier {
	n := &notifier{
		s:     s,
		wake:  make(chan struct{}, 1),
		state: make([]Event, s.options.Slots),
		warm:  make([]int64, s.options.Slots),
	}
	n.mu.waiting = map[topic]*wait{}
	return n
}

func (n *notifier) add(a protocol.Action) { n.push(func() { n.deliver(a) }) }

func (n *notifier) subscribe(sub *subscriber) { n.push(func() { n.welcome(sub) }) }

func (n *notifier) push(do func()) {
	n.mu.Lock()
	n.mu.queue = append(n.mu.queue, do)
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

		for _, do := range queue {
			do()
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
		if token := n.warm[slot]; token != 0 {
			n.join(topic{Warm, slot}, token, sub)
			n.call(sub, n.finishable(sub, Event{Type: Warm, Slot: slot}, token))
		}
		if last.Token == 0 {
			continue
		}
		n.call(sub, Event{Type: Gained, Slot: slot, Token: last.Token})
		if last.Type == Draining && n.join(topic{Draining, slot}, last.Token, sub) {
			n.call(sub, n.finishable(sub, last, last.Token))
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
	case Warm:
		n.warm[e.Slot], e.Token = a.Token, 0
	case Cool:
		n.warm[e.Slot] = 0
	case Gained, Draining:
		n.state[e.Slot] = e
	case Lost:
		n.state[e.Slot] = Event{}
	}
	n.subscribers = slices.DeleteFunc(n.subscribers, func(sub *subscriber) bool { return sub.ended.Load() })
	if e.Type != Warm && e.Type != Draining {
		for _, sub := range n.subscribers {
			n.call(sub, e)
		}
		return
	}

	n.begin(topic{e.Type, e.Slot}, a.Token)
	for _, sub := range n.subscribers {
		n.call(sub, n.finishable(sub, e, a.Token))
	}
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

// finishable returns the event with sub's Done.
func (n *notifier) finishable(sub *subscriber, e Event, token int64) Event {
	return e.WithDone(func() { n.finish(topic{e.Type, e.Slot}, token, sub) })
}

// begin begins to wait for all subscribers.
func (n *notifier) begin(x topic, token int64) {
	w := &wait{token: token, by: map[*subscriber]bool{}}
	for _, sub := range n.subscribers {
		w.by[sub] = true
	}
	n.mu.Lock()
	n.mu.waiting[x] = w
	n.mu.Unlock()
	n.finish(x, token, nil)
}

// join waits for one more subscriber. It reports false if the wait has ended.
func (n *notifier) join(x topic, token int64, sub *subscriber) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.mu.waiting[x]
	if w == nil || w.token != token {
		return false
	}
	w.by[sub] = true
	return true
}

// finish ends the wait for a subscriber.
func (n *notifier) finish(x topic, token int64, sub *subscriber) {
	n.mu.Lock()
	w := n.mu.waiting[x]
	if w == nil || w.token != token {
		n.mu.Unlock()
		return
	}
	delete(w.by, sub)
	over := len(w.by) == 0
	if over {
		delete(n.mu.waiting, x)
	}
	n.mu.Unlock()

	if over {
		n.s.finished(x.event, x.slot, token)
	}
}

// forget ends all waits for a subscriber.
func (n *notifier) forget(sub *subscriber) {
	n.mu.Lock()
	waits := map[topic]int64{}
	for x, w := range n.mu.waiting {
		if w.by[sub] {
			waits[x] = w.token
		}
	}
	n.mu.Unlock()
	for x, token := range waits {
		n.finish(x, token, sub)
	}
}
