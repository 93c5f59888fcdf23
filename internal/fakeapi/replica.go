// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"slices"
	"time"
)

// moment records when the history reached a version.
type moment struct {
	rv int64
	at time.Time
}

// Lag has matching requests served by a simulated second server of the same
// cluster, whose watch cache lags behind by the given time. Lists of the newest
// state, gets and writes behave as on any server. A watch shows what the
// lagging server knows; if it resumes from a later version, it delivers nothing
// until the server has reached that version. A lag of 0 ends this.
func (s *Server) Lag(by time.Duration, match func(*Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.late == nil {
		s.moments = nil
	}
	s.lag, s.late = by, match
	if by == 0 {
		s.late = nil
	}
}

// Hold has the changes of matching watches wait until the next call. A match of
// nil holds none. Lists, and the objects with which a streamed list begins, are
// not affected.
func (s *Server) Hold(match func(*Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.held = match
	for _, t := range s.tables {
		t.wake()
	}
}

// lateness returns the lag of the server that the request reaches.
func (x *exchange) lateness() time.Duration {
	x.mu.Lock()
	late, lag := x.late, x.lag
	x.mu.Unlock()

	if late == nil || x.req.Admin || !late(x.req) {
		return 0
	}
	return lag
}

// nextVersion advances the history by one version.
func (s *store) nextVersion() {
	s.rv++
	if s.late != nil {
		s.moments = append(s.moments, moment{s.rv, time.Now()})
	}
}

// versionBefore returns the version that the history had reached the given time
// ago. A history that was restored since then has no past.
func (s *store) versionBefore(d time.Duration) int64 {
	then, rv := time.Now().Add(-d), s.rv
	for i := len(s.moments) - 1; i >= 0 && s.moments[i].rv <= s.rv && s.moments[i].at.After(then); i-- {
		rv = s.moments[i].rv - 1
	}
	return rv
}

// pause waits for d or the end of ctx. It reports whether it waited for d.
func pause(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Replay makes the open watches of matching kinds repeat changes that they have
// already shown, as a broken proxy does: count changes, beginning back changes
// ago.
func (s *Server) Replay(match func(*Kind) bool, back, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		if !match(st.table.kind) || st.req.Admin {
			continue
		}
		shown := st.table.after(0, st.reached)
		shown = shown[max(len(shown)-back, 0):]
		st.again = slices.Clone(shown[:min(count, len(shown))])
	}

	for _, t := range s.tables {
		t.wake()
	}
}
