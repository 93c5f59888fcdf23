// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"slices"
	"time"
)

// moment is when the history reached a version.
type moment struct {
	rv int64
	at time.Time
}

// Lag has the requests that match served by another server of the same cluster,
// whose watch cache is so far behind. Lists of the newest state, and what is
// got and written, are what they are on any server; a watch shows what that
// server knows, and one that resumes from a later version is told of nothing
// before it. A lag of 0 ends that.
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

// lagOf returns how far behind the server is that a request gets to.
func (s *Server) lagOf(req *Request) time.Duration {
	s.mu.Lock()
	late, lag := s.late, s.lag
	s.mu.Unlock()
	if late == nil || req.Admin || !late(req) {
		return 0
	}
	return lag
}

// nextVersion takes the history one version further.
func (s *Server) nextVersion() {
	s.rv++
	if s.late != nil {
		s.moments = append(s.moments, moment{s.rv, time.Now()})
	}
}

// versionBefore returns how far the history had come so long ago. One that was
// restored since has no past.
func (s *Server) versionBefore(d time.Duration) int64 {
	then, rv := time.Now().Add(-d), s.rv
	for i := len(s.moments) - 1; i >= 0 && s.moments[i].rv <= s.rv && s.moments[i].at.After(then); i-- {
		rv = s.moments[i].rv - 1
	}
	return rv
}

// pause waits, and reports whether ctx lasted.
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

// Replay has the open watches of the kinds that match repeat changes that they
// have shown, as a broken proxy does: so many of them, from so far back.
func (s *Server) Replay(match func(*Kind) bool, back, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		if !match(st.table.kind) || st.request.Admin {
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
