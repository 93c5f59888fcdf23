// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
)

// Start takes part in the group until ctx ends or Close is called. Then it
// drains all slots, for up to Options.DrainTimeout, leaves the group, and
// returns nil, or [ErrNotLeft] if the hub did not answer. It implements
// controller-runtime's Runnable.
//
// A hub that does not answer is no error: the replica owns nothing meanwhile. A
// [*GroupError] indicates that the replica cannot belong to the group, a
// [*NameError] that the name of the group is taken, and a [*PermissionError]
// that the hub does not permit what it needs to do. None of these has joined.
func (s *Sharding) Start(ctx context.Context) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer close(s.done)

	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	s.work.Go(func() { s.watcher.run(run) })
	s.work.Go(s.notifier.run)
	if s.options.ClusterWeight != nil {
		s.work.Go(func() { s.weigh(run) })
	}
	err := s.permitted(ctx)
	if err == nil {
		err = s.loop(ctx, run)
	}

	close(s.ended)
	cancel()
	s.abandon()
	s.notifier.stop()
	s.work.Wait()

	return err
}

func (s *Sharding) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case s.mu.started:
		return ErrStarted
	case s.mu.closed:
		return ErrClosed
	}
	s.mu.started = true
	return nil
}

// Close makes Start leave the group, and waits until it has returned, or until
// ctx ends. A Sharding that was not started cannot be started any more. Close
// may be called several times.
func (s *Sharding) Close(ctx context.Context) error {
	s.mu.Lock()
	started := s.mu.started
	if !s.mu.closed {
		s.mu.closed = true
		close(s.closing)
	}
	s.mu.Unlock()

	if !started {
		return nil
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// loop is the only user of the replica.
func (s *Sharding) loop(ctx, run context.Context) error {
	close(s.joining)
	timer := time.NewTimer(0)
	defer timer.Stop()
	asked, closing := ctx.Done(), s.closing
	var limit <-chan time.Time
	for {
		wake := s.turn(run)
		if err := s.excluded(); err != nil {
			return err
		}
		if s.replica.Left() {
			return nil
		}
		// Without a time to wake, something else has to happen first.
		timer.Stop()
		if !wake.IsZero() {
			timer.Reset(time.Until(wake))
		}
		select {
		case f := <-s.inbox:
			f(time.Now())
			continue
		case <-timer.C:
			continue
		case <-limit:
			return ErrNotLeft
		case <-asked:
		case <-closing:
		}
		asked, closing = nil, nil
		limit = time.After(s.options.DrainTimeout + s.options.writeTimeout())
		s.replica.Leave(time.Now())
	}
}

// excluded returns why the replica cannot belong to the group.
func (s *Sharding) excluded() error {
	charter, mismatch := s.replica.Mismatch()
	switch {
	case s.refused != nil:
		return s.refused
	case !mismatch:
		return nil
	case charter.Program != "" && charter.Program != s.options.Program:
		return &NameError{
			Namespace: s.options.Namespace,
			Lease:     charter.Name,
			Owner:     fmt.Sprintf("the group of program %q", charter.Program),
			Group:     s.options.Name,
			Program:   s.options.Program,
		}
	}
	return &GroupError{
		Group:    s.options.Name,
		Lease:    charter.Name,
		Slots:    charter.Slots,
		Format:   charter.Format,
		Selector: charter.Selector,
	}
}

// post has f called by the loop. It gives up when the loop has ended.
func (s *Sharding) post(ctx context.Context, f func(now time.Time)) {
	select {
	case s.inbox <- f:
	case <-ctx.Done():
	case <-s.ended:
	}
}

// turn does what is due, and returns when to do so again.
func (s *Sharding) turn(run context.Context) time.Time {
	s.replica.SetCounts(*s.counts.Load())
	s.replica.SetLoads(*s.loads.Load())
	if draining := s.drain.Swap(nil); draining != nil {
		s.replica.SetDraining(*draining)
	}
	for {
		now := time.Now()
		if until := s.replica.Until(); now.Before(until) && !before(now, until) {
			s.log.Info("the wall clock is ahead of the monotonic one; was the machine suspended?")
			s.replica.Expire()
		}
		actions, wake := s.replica.Next(now)
		s.publish(actions)
		if len(actions) == 0 {
			s.share.Store(new(s.replica.Share()))
			return wake
		}

		for _, a := range actions {
			switch {
			case a.Kind.Writes():
				s.send(run, a)
			case a.Kind == protocol.Refresh:
				s.log.Info("the watch of leases is behind; they are listed again")
				select {
				case s.watcher.refresh <- struct{}{}:
				default:
				}
			}
		}
	}
}

// publish makes the results of a turn visible before the writes that follow
// from them are sent: nothing is owned any more once it is released.
func (s *Sharding) publish(actions []protocol.Action) {
	old := s.table.Load()
	t := &table{until: s.replica.Until(), slots: old.slots}
	local := slices.DeleteFunc(slices.Clone(actions), func(a protocol.Action) bool {
		return a.Kind.Writes() || a.Kind == protocol.Refresh
	})
	if len(local) == 0 {
		if !t.until.Equal(old.until) {
			s.table.Store(t)
		}
		return
	}

	t.slots = slices.Clone(old.slots)
	var lost []context.CancelFunc
	for _, a := range local {
		slot := &t.slots[a.Slot]
		switch a.Kind {
		case protocol.Gain:
			ctx, cancel := context.WithCancel(context.Background())
			slot.token, slot.lose = a.Token, cancel
			slot.onLoss = func(f func()) func() bool { return context.AfterFunc(ctx, f) }
		case protocol.Drain:
			slot.draining = true
		case protocol.Lose:
			lost = append(lost, slot.lose)
			*slot = holding{}
		default:
		}
	}
	for n := range t.slots {
		t.slots[n].standsBy = s.replica.StandsBy(n)
	}
	s.table.Store(t)
	for _, lose := range lost {
		lose()
	}
	for _, a := range local {
		s.log.V(1).Info(eventTypes[a.Kind].String(), "slot", a.Slot, "token", a.Token)
		s.notifier.add(a)
	}
}

// abandon ends all ownership when Start ends.
func (s *Sharding) abandon() {
	s.share.Store(&protocol.Share{})
	old := s.table.Swap(&table{slots: make([]holding, s.options.Slots)})
	for n, slot := range old.slots {
		if slot.token != 0 {
			slot.lose()
			s.notifier.add(protocol.Action{Kind: protocol.Lose, Slot: n, Token: slot.token})
		}
	}
}

// finished reports to the protocol that all subscribers are done with a Warm or
// a Draining.
func (s *Sharding) finished(t EventType, slot int, token int64) {
	s.post(context.Background(), func(time.Time) {
		if t == Warm {
			s.replica.Warmed(slot, token)
		} else {
			s.replica.Drained(slot, token)
		}
	})
}
