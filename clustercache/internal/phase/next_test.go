// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package phase_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
)

var (
	cfg = phase.Config{
		ProbeInterval:    10 * time.Second,
		BrokenPause:      500 * time.Millisecond,
		FailureThreshold: 3,
		SuccessThreshold: 2,
		Grace:            30 * time.Second,
		RetryBase:        time.Second,
		RetryMax:         30 * time.Second,
		ResolveRetry:     10 * time.Second,
		ResolveInterval:  10 * time.Minute,
	}
	start   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	errSome = errors.New("some")
)

// run drives one cluster by hand.
type run struct {
	t   *testing.T
	s   phase.State
	now time.Time
}

func newRun(t *testing.T) *run { return &run{t: t, now: start} }

func (r *run) on(e phase.Event) []phase.Action {
	r.t.Helper()
	if e.Gen == 0 {
		e.Gen = r.s.Gen
	}
	if e.Changes == 0 {
		e.Changes = r.s.Changes
	}
	var actions []phase.Action
	r.s, actions = phase.Next(cfg, r.s, e, r.now)
	return actions
}

// tick advances to the deadline.
func (r *run) tick(life time.Time) []phase.Action {
	r.t.Helper()
	require.False(r.t, r.s.Deadline().IsZero(), "no deadline in %+v", r.s)
	r.now = r.s.Deadline()
	return r.on(phase.Event{Kind: phase.Tick, Life: life})
}

func (r *run) connected() *run {
	r.t.Helper()
	require.Equal(r.t, []phase.Action{phase.StartConnect}, r.on(phase.Event{Kind: phase.Asked}))
	require.Equal(r.t, phase.Connecting, r.s.Phase)
	require.Equal(r.t, []phase.Action{phase.Up}, r.on(phase.Event{Kind: phase.Succeeded, Revision: "a"}))
	require.Equal(r.t, phase.Ready, r.s.Phase)
	return r
}

func (r *run) probeFails() []phase.Action {
	r.t.Helper()
	require.Equal(r.t, []phase.Action{phase.StartProbe}, r.tick(time.Time{}))
	r.now = r.now.Add(5 * time.Second)
	return r.on(phase.Event{Kind: phase.Failed, Err: errSome})
}

func TestDeadPeerIsDisconnectedWithin45Seconds(t *testing.T) {
	for _, jitter := range []float64{0, 0.5, 0.999} {
		r := newRun(t).connected()
		dead := r.now
		for range 2 {
			require.Equal(t, []phase.Action{phase.StartProbe}, r.tick(time.Time{}))
			r.now = r.now.Add(5 * time.Second)
			require.Empty(t, r.on(phase.Event{Kind: phase.Failed, Err: errSome, Jitter: jitter}))
			require.Equal(t, phase.Degraded, r.s.Phase)
		}
		require.Equal(t, []phase.Action{phase.Down}, r.probeFails())
		require.Equal(t, phase.Disconnected, r.s.Phase)
		require.LessOrEqual(t, r.now.Sub(dead), 45*time.Second)
		require.ErrorIs(t, r.s.Err, errSome)
		require.Equal(t, []phase.Action{phase.StartConnect}, r.tick(time.Time{}))
		require.Equal(t, phase.Disconnected, r.s.Phase)
	}
}

func TestDegradedNeedsSuccessesInARowToBeReady(t *testing.T) {
	r := newRun(t).connected()
	for range 20 { // every second probe is lost: neither down nor Ready
		require.Empty(t, r.probeFails())
		r.tick(time.Time{})
		require.Empty(t, r.on(phase.Event{Kind: phase.Succeeded}))
		require.Equal(t, phase.Degraded, r.s.Phase)
	}
	r.tick(time.Time{})
	r.on(phase.Event{Kind: phase.Succeeded})
	require.Equal(t, phase.Ready, r.s.Phase)
	require.NoError(t, r.s.Err)
}

func TestSignsOfLifeSpareProbes(t *testing.T) {
	r := newRun(t).connected()
	for range 50 {
		life := r.s.Deadline().Add(-time.Second)
		require.Empty(t, r.tick(life))
		require.True(t, r.s.Deadline().After(r.now))
	}
	require.Equal(t, []phase.Action{phase.StartProbe}, r.tick(r.now.Add(-time.Minute)))
}

func TestBackoffGrowsToItsMaximumAndChangedCutsIt(t *testing.T) {
	r := newRun(t)
	r.on(phase.Event{Kind: phase.Asked})
	for i := range 40 {
		r.on(phase.Event{Kind: phase.Failed, Err: errSome})
		require.Equal(t, min(time.Second<<min(i, 16), 30*time.Second), r.s.Deadline().Sub(r.now))
		require.Equal(t, []phase.Action{phase.StartConnect}, r.tick(time.Time{}))
	}
	r.on(phase.Event{Kind: phase.Failed, Err: errSome})
	require.Equal(t, []phase.Action{phase.StartConnect}, r.on(phase.Event{Kind: phase.Changed}))
}

func TestNoAccessWaitsWithoutGrowth(t *testing.T) {
	r := newRun(t)
	r.on(phase.Event{Kind: phase.Asked})
	for range 10 {
		require.Empty(t, r.on(phase.Event{Kind: phase.Failed, Class: phase.NoAccess, Err: errSome}))
		require.Equal(t, phase.Pending, r.s.Phase)
		require.Equal(t, cfg.ResolveRetry, r.s.Deadline().Sub(r.now))
		r.tick(time.Time{})
	}
}

func TestConnectedClusterIsResolvedAgain(t *testing.T) {
	r := newRun(t).connected()
	up := r.now
	for i := range 3 {
		for r.s.Running != phase.Connect {
			if slices.Contains(r.tick(r.s.Deadline().Add(-time.Second)), phase.StartProbe) {
				r.on(phase.Event{Kind: phase.Succeeded})
			}
		}
		require.Equal(t, time.Duration(i+1)*cfg.ResolveInterval, r.now.Sub(up))
		probe := r.s.ProbeAt
		require.Empty(t, r.on(phase.Event{Kind: phase.Succeeded, Revision: "a", Unproven: true}))
		require.Equal(t, probe, r.s.ProbeAt, "the resolver's word is no sign of the server's life")
	}
}

// Each change interrupts a probe that hangs, or the attempt that replaced it.
func TestChangesThatKeepComingDoNotHideADeadServer(t *testing.T) {
	r := newRun(t).connected()
	dead := r.now
	due := time.Time{} // when the running attempt has timed out
	for r.s.Connected {
		switch at := r.s.Deadline(); {
		case r.s.Running == phase.None && !at.After(r.now):
			r.on(phase.Event{Kind: phase.Tick})
			due = r.now.Add(5 * time.Second)
		case r.s.Running != phase.None && !due.After(r.now):
			r.on(phase.Event{Kind: phase.Failed, Err: errSome, Revision: "a", Changes: r.s.Changes})
		default:
			r.now = r.now.Add(time.Second)
			gen := r.s.Gen
			r.on(phase.Event{Kind: phase.Changed})
			if r.s.Gen != gen && r.s.Running == phase.Connect {
				if !r.s.Prove && !r.s.Replaces { // the resolver finds nothing new, at once
					r.on(phase.Event{Kind: phase.Succeeded, Revision: "a", Unproven: true, Changes: r.s.Changes})
				} else {
					due = r.now.Add(5 * time.Second)
				}
			}
		}
		require.LessOrEqual(t, r.now.Sub(dead), 45*time.Second, "%+v", r.s)
	}
}

// every yields every event that can make a difference in state s, including
// results of earlier attempts.
func every(s phase.State) []phase.Event {
	var out []phase.Event
	for kind := range phase.Kinds {
		switch kind {
		case phase.Succeeded:
			for _, gen := range []uint64{s.Gen, s.Gen - 1} {
				for _, rev := range []string{"a", "b"} {
					for _, n := range reported(s) {
						out = append(out, phase.Event{Kind: kind, Gen: gen, Revision: rev, Changes: n},
							phase.Event{Kind: kind, Gen: gen, Revision: rev, Changes: n, NewEpoch: true})
						if s.Running == phase.Connect {
							out = append(out, phase.Event{Kind: kind, Gen: gen, Revision: rev, Changes: n, Alive: true,
								Err: errSome})
						}
						if s.Running == phase.Connect && rev == s.Revision {
							out = append(out, phase.Event{Kind: kind, Gen: gen, Revision: rev, Changes: n,
								Unproven: true})
						}
					}
				}
			}
		case phase.Failed:
			for _, gen := range []uint64{s.Gen, s.Gen - 1} {
				for class := range phase.Classes {
					for _, rev := range []string{"", "a", "b"} {
						for _, n := range reported(s) {
							out = append(out, phase.Event{Kind: kind, Gen: gen, Class: class, Revision: rev, Changes: n,
								Err: errSome})
							if class == phase.Trouble {
								out = append(out, phase.Event{Kind: kind, Gen: gen, Class: class, Revision: rev,
									Changes: n, Err: errSome, Alive: true})
							}
						}
					}
				}
			}
		case phase.Resolved:
			out = append(out, phase.Event{Kind: kind, Gen: s.Gen}, phase.Event{Kind: kind, Gen: s.Gen - 1})
		case phase.Unauthorized:
			out = append(out, phase.Event{Kind: kind, Revision: "a"}, phase.Event{Kind: kind, Revision: "b"})
		case phase.Tick:
			out = append(out, phase.Event{Kind: kind}, phase.Event{Kind: kind, Life: s.Deadline().Add(-time.Second)})
		default:
			out = append(out, phase.Event{Kind: kind})
		}
	}
	return out
}

// reported returns the values of Changes that an attempt may have seen.
func reported(s phase.State) []uint64 {
	if s.Changes == 0 {
		return []uint64{0}
	}
	return []uint64{s.Changes, s.Changes - 1}
}

// shape is a state without its ever-growing counters.
type shape struct {
	phase                    phase.Phase
	running                  phase.Attempt
	prove, connected, known  bool
	revision, rejected       string
	failures                 int
	successes, tries         int // 2: more than one
	probing                  bool
	probes, retries, resolve bool
	grace, later, gone       bool
	failed, held             bool
}

func shapeOf(s *phase.State, now time.Time) shape {
	return shape{
		phase:     s.Phase,
		running:   s.Running,
		prove:     s.Prove,
		connected: s.Connected,
		known:     s.Known,
		revision:  s.Revision,
		rejected:  s.Rejected,
		failures:  s.Failures,
		successes: min(s.Successes, 2),
		tries:     min(s.Tries, 2),
		probing:   s.Probing.Err != nil,
		probes:    !s.ProbeAt.IsZero(),
		retries:   !s.RetryAt.IsZero(),
		resolve:   !s.ResolveAt.IsZero(),
		grace:     !s.GraceUntil.IsZero(),
		later:     s.GraceUntil.After(now),
		gone:      s.GraceGone,
		failed:    s.Err != nil,
		held:      !s.Held.IsZero(),
	}
}

func TestEveryStateTimesEveryEventKeepsTheInvariants(t *testing.T) {
	type node struct {
		s   phase.State
		now time.Time
	}
	seen := map[shape]bool{}
	var todo []node
	reach := func(s phase.State, now time.Time) {
		if key := shapeOf(&s, now); !seen[key] {
			seen[key] = true
			todo = append(todo, node{s, now})
		}
	}
	reach(phase.State{}, start)
	edges := 0
	for len(todo) > 0 {
		n := todo[0]
		todo = todo[1:]
		for _, e := range every(n.s) {
			edges++
			now := n.now.Add(time.Second)
			if due := n.s.Deadline(); e.Kind == phase.Tick && due.After(now) {
				now = due
			}
			after, actions := phase.Next(cfg, n.s, e, now)
			check(t, &n.s, &after, e, actions, now)
			reach(after, now)
		}
	}
	t.Logf("%d states, %d edges", len(seen), edges)
	require.Greater(t, len(seen), 100)
}

// check renders an edge only where a rule is broken: rendering each of them
// takes longer than everything else.
func check(t *testing.T, before, after *phase.State, e phase.Event, actions []phase.Action, now time.Time) {
	must := func(holds bool, what string) {
		if !holds {
			require.Fail(t, what, "%+v\n× %+v\n→ %+v %v", *before, e, *after, actions)
		}
	}
	connected, running := before.Connected, before.Running
	ended := (e.Kind == phase.Succeeded || e.Kind == phase.Failed) && e.Gen == before.Gen
	for _, a := range actions {
		switch a {
		case phase.Up:
			must(!connected, "Up twice")
			connected = true
		case phase.Down:
			must(connected, "Down twice")
			connected = false
		case phase.Renew:
			must(connected, "Renew while down")
		case phase.Notify:
			must(running == phase.Connect, "Notify without an attempt to connect")
		case phase.Cancel:
			must(running != phase.None, "Cancel of nothing")
			running = phase.None
		case phase.StartConnect, phase.StartProbe:
			must(running == phase.None || ended, "two attempts")
			must(after.Gen > before.Gen, "old tag")
		case phase.Evict:
			must(!connected, "Evict while up")
		}
	}
	must(connected == after.Connected, "Connected is not what the actions say")
	must(after.Connected == (after.Phase == phase.Ready || after.Phase == phase.Degraded),
		"the phase is not that of the connection")
	late := (e.Kind == phase.Succeeded || e.Kind == phase.Failed) && (!ended || before.Running == phase.None)
	if late && *before != *after {
		require.Equal(t, *before, *after, "a late result counted: %+v", e) // errors may be equal, and not the same
	}
	// A state must lead on: it has an attempt whose result will come or a
	// deadline, or it is that of a cluster that was never requested or is gone.
	idle := after.Phase == phase.Gone || (after.Phase == phase.Pending && after.Gen == 0)
	due := after.Deadline()
	must(after.Running != phase.None || !due.IsZero() || idle, "stuck")
	if e.Kind == phase.Tick && after.Running == phase.None && !due.IsZero() {
		must(due.After(now), "tick without progress")
	}
	if after.Connected && after.Running == phase.None {
		must(!after.ProbeAt.IsZero(), "connected and never probed")
		must(!after.ResolveAt.IsZero(), "connected and never resolved again")
	}
	if e.Unproven && e.Gen == before.Gen && before.Connected {
		must(before.Phase == after.Phase && before.ProbeEnd.Equal(after.ProbeEnd),
			"the resolver's word counted as the server's")
	}
	if e.Alive && e.Kind == phase.Failed {
		must(!slices.Contains(actions, phase.Down), "a server that answers was taken for dead")
	}
	if e.Kind == phase.Changed {
		must(!slices.Contains(actions, phase.Down), "a report ended the connection")
		must(before.Phase == phase.Gone || before.Phase == after.Phase, "a report changed the phase")
		must(before.Running != phase.Connect || !slices.Contains(actions, phase.Cancel), "a resolver was cut short")
	}
	if ended && before.Running == phase.Connect && e.Changes < before.Changes {
		must(after.Running == phase.Connect, "changes were forgotten")
	}
	if ended && e.Kind == phase.Failed && e.Class == phase.Same && !before.Held.IsZero() {
		must(before.Phase == after.Phase && before.Answers == after.Answers && before.Tries == after.Tries,
			"what was not queried has failed")
		must(after.RetryAt.Equal(before.Held) || after.Held.Equal(before.Held), "the pause is lost")
	}
	lost := !after.Connected && after.Known
	must(lost == !after.LostSince.IsZero(), "LostSince of what is not lost")
	if lost && !before.Connected {
		must(before.LostSince.Equal(after.LostSince), "the loss began anew")
	}
	if e.Kind == phase.Broken && before.Connected && before.Running == phase.None &&
		now.Sub(before.ProbeStart) >= cfg.ProbeInterval/2 {
		must(after.Running == phase.Probe, "not probed")
	}
	if e.Kind == phase.Changed || (e.Kind == phase.Asked && before.Phase == phase.Gone) {
		must(after.Running == phase.Connect, "not attempted")
	}
}
