// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package phase_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
)

// The cases of test/clusterapi that the pure function decides. A test there
// looks for them by name.

// connectedState returns the state of a cluster that was just connected, and
// the time of its first probe.
func connectedState(t *testing.T) (phase.Config, phase.State, time.Time) {
	t.Helper()
	config := cfg
	config.ProbeInterval, config.ResolveInterval = 20*time.Second, 0
	s, actions := phase.Next(config, phase.State{}, phase.Event{Kind: phase.Asked}, start)
	require.Equal(t, []phase.Action{phase.StartConnect}, actions)
	s, actions = phase.Next(config, s, phase.Event{Kind: phase.Succeeded, Gen: s.Gen, Revision: "a"}, start)
	require.Equal(t, []phase.Action{phase.Up}, actions)
	return config, s, start.Add(config.ProbeInterval)
}

// TestClusterAPICase11UnauthorizedProbe: a 401 on a probe is no missed probe,
// and the resolver is queried without a wait.
func TestClusterAPICase11UnauthorizedProbe(t *testing.T) {
	config, s, now := connectedState(t)
	s, actions := phase.Next(config, s, phase.Event{Kind: phase.Tick}, now)
	require.Equal(t, []phase.Action{phase.StartProbe}, actions)
	refused := phase.Event{Kind: phase.Failed, Gen: s.Gen, Class: phase.Rejected, Err: errors.New("401")}
	s, actions = phase.Next(config, s, refused, now)
	require.Equal(t, []phase.Action{phase.StartConnect}, actions)
	require.Zero(t, s.Failures)
	require.True(t, s.Connected)
}

// TestClusterAPICase30DueTimes: the first attempt is due at once, and a probe
// when the rest of its interval is over.
func TestClusterAPICase30DueTimes(t *testing.T) {
	config, s, due := connectedState(t) // the attempt began at once
	require.Equal(t, due, s.Deadline())
	for at, want := range map[time.Duration][]phase.Action{
		5 * time.Second:  nil,
		20 * time.Second: {phase.StartProbe},
		60 * time.Second: {phase.StartProbe},
	} {
		now := start.Add(at)
		next, actions := phase.Next(config, s, phase.Event{Kind: phase.Tick}, now)
		require.Equal(t, want, actions, "%s of %s", at, config.ProbeInterval)
		if want == nil {
			require.Equal(t, 15*time.Second, next.Deadline().Sub(now))
		}
	}
	// A sign of life 5 s ago leaves 15 s of the interval.
	next, actions := phase.Next(config, s, phase.Event{Kind: phase.Tick, Life: due.Add(-5 * time.Second)}, due)
	require.Empty(t, actions)
	require.Equal(t, 15*time.Second, next.Deadline().Sub(due))
}

// TestClusterAPICase31EarliestDeadline: the earliest of several due times
// counts, and none means never. It differs in that sources have no failure
// windows, whose minimum would have to be found. The due times of one cluster
// remain of the case; cases 22 to 26 prove that zero options have defaults.
func TestClusterAPICase31EarliestDeadline(t *testing.T) {
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	require.Zero(t, phase.State{}.Deadline())
	due := func(connected bool, probe, retry, grace time.Time) phase.State {
		return phase.State{
			Connected: connected,
			Attempts:  phase.Attempts{RetryAt: retry},
			Probes:    phase.Probes{ProbeAt: probe},
			Grace:     phase.Grace{GraceUntil: grace},
		}
	}
	never := time.Time{}
	require.Equal(t, at(3), due(true, at(3), never, never).Deadline())
	require.Equal(t, at(1), due(true, at(3), at(2), at(1)).Deadline())
	require.Equal(t, at(2), due(true, at(3), at(2), at(4)).Deadline())
	require.Equal(t, at(2), due(false, at(1), at(2), never).Deadline(), "no probe without a connection")
	connecting := phase.State{Attempts: phase.Attempts{Running: phase.Connect, RetryAt: at(1)}}
	require.Zero(t, connecting.Deadline(), "the end of the attempt comes next")
}
