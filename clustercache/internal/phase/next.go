// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package phase

import "time"

// Next returns the state after e, and what is to be done about it.
func Next(cfg Config, s State, e Event, now time.Time) (State, []Action) {
	m := machine{cfg: cfg, State: s, e: e, now: now}
	switch e.Kind {
	case Asked:
		if m.Running == None && (m.Phase == Gone || (m.Phase == Pending && m.Gen == 0)) {
			m.Err, m.Reason = nil, "" // of an earlier life
			m.connect()
		}
	case Changed:
		m.changed()
	case Tick:
		m.tick()
	case Succeeded:
		m.succeeded()
	case Failed:
		m.failed()
	case Unauthorized:
		// Once per revision: if asking the resolver again brings nothing new,
		// asking once more would not either.
		if m.Connected && e.Revision == m.Revision && m.Rejected != m.Revision {
			m.Rejected = m.Revision
			m.doubt()
		}
	case Doubted:
		if m.Connected {
			m.doubt()
		}
	case Unrecognized:
		m.unrecognized()
	case Recognized:
		m.recognized()
	case RolledBack:
		if m.Connected {
			m.do(Renew)
		}
	case Removed:
		m.gone()
		m.Err, m.Reason = nil, e.Reason
	}
	if m.Connected && m.Running != Connect && m.ResolveAt.IsZero() && cfg.ResolveInterval > 0 {
		m.ResolveAt = m.after(now, cfg.ResolveInterval)
	}
	return m.State, m.actions
}

// machine is one step under way.
type machine struct {
	State
	cfg     Config
	e       Event
	now     time.Time
	actions []Action
}

func (m *machine) do(a Action) { m.actions = append(m.actions, a) }

func (m *machine) enter(p Phase) {
	if m.Phase != p {
		m.Phase, m.Since = p, m.now
	}
}

// after returns the time d from now, up to a fifth earlier.
func (m *machine) after(from time.Time, d time.Duration) time.Time {
	return from.Add(d - time.Duration(m.e.Jitter*float64(d)/5))
}

// backoff doubles with each failed try. Half of it is random, so that a fleet
// does not come back in step.
func (m *machine) backoff() time.Time {
	d := m.cfg.RetryBase << min(max(m.Tries-1, 0), 16)
	d = min(d, m.cfg.RetryMax)
	return m.now.Add(d - time.Duration(m.e.Jitter*float64(d)/2))
}

// connect starts an attempt. A probe that runs is dropped: if the attempt does
// not answer its question, it is due again.
func (m *machine) connect() {
	if m.Running == Probe {
		m.do(Cancel)
	}
	if m.Connected && m.ProbeAt.IsZero() {
		m.ProbeAt = m.nextProbe()
	}
	// An attempt that only asks the resolver says nothing of the server. It
	// must neither stand for the probe it dropped nor end a streak of failures,
	// or news that keep coming would hide that the server is dead.
	m.Prove = m.Prove || m.Running == Probe || m.Phase == Degraded
	// A retry of the resolver is not worth a change of phase until it brings
	// something.
	if (m.Phase == Pending || m.Phase == Gone) && m.e.Kind != Tick {
		m.enter(Connecting)
	}
	m.Gen++
	m.Running, m.RetryAt, m.ResolveAt, m.ProbeStart = Connect, time.Time{}, time.Time{}, m.now
	m.do(StartConnect)
}

// changed: an attempt that runs is not ended, since the resolver may be at work
// for it, and most news change nothing. It is told, and finds out by itself
// whether the address it waits for is still the right one.
func (m *machine) changed() {
	m.News++
	if m.Running == Connect {
		m.do(Tell)
		return
	}
	m.connect()
}

// doubt starts an attempt that asks the server. One that runs may have looked
// before there was doubt.
func (m *machine) doubt() {
	m.Prove = true
	if m.Running != Connect {
		m.connect()
	}
}

// unrecognized: what serves stays, since a watch that runs may be well.
func (m *machine) unrecognized() {
	if !m.Connected {
		return
	}
	m.Unrecognized = true
	if m.Failures > 0 {
		return // its probes fail, which says more
	}
	m.fail()
	m.enter(Degraded)
}

func (m *machine) recognized() {
	if !m.Unrecognized {
		return
	}
	m.Unrecognized = false
	if m.Failures == 0 {
		m.enter(Ready)
		m.Err, m.Reason = nil, ""
	}
}

// outdated reports whether there was news that the attempt which ended does not
// know.
func (m *machine) outdated() bool { return m.e.News < m.News }

func (m *machine) tick() {
	due := func(t time.Time) bool { return !t.IsZero() && !m.now.Before(t) }
	if due(m.SilentAt) && !m.lives() {
		m.SilentAt, m.Silent = time.Time{}, true
		m.do(Silence)
	}

	switch {
	case m.Running == Connect:
	case m.Connected && due(m.GraceUntil):
		m.endGrace()
	case due(m.RetryAt), m.Connected && m.Running == None && due(m.ResolveAt):
		m.connect()
	case m.Connected && m.Running == None && due(m.ProbeAt):
		if alive := m.e.Life; m.lives() {
			m.ProbeAt = m.after(alive, m.cfg.ProbeInterval)
			if !m.ProbeAt.After(m.now) {
				m.ProbeAt = alive.Add(m.cfg.ProbeInterval)
			}
			return
		}
		m.Gen++
		m.Running, m.ProbeAt, m.ProbeStart = Probe, time.Time{}, m.now
		m.do(StartProbe)
	}
}

// lives reports whether a sign of life stands for a probe, and notes it as an
// answer if so. Where probes fail it does not: a stream may go on while the
// server refuses everything else.
func (m *machine) lives() bool {
	alive := m.e.Life
	if m.Phase != Ready || m.Running != None || !alive.After(m.ProbeEnd) || !m.now.Before(alive.Add(m.cfg.ProbeInterval)) {
		return false
	}
	m.answered(alive)
	return true
}

// answered notes that the server answered a question.
func (m *machine) answered(at time.Time) {
	m.Missed, m.LastSuccess, m.Silent, m.SilentAt = 0, at, false, time.Time{}
	if m.cfg.SilentAfter > 0 {
		m.SilentAt = at.Add(m.cfg.SilentAfter)
	}
}

// unanswered notes that it did not.
func (m *machine) unanswered() {
	m.Missed++
	m.LastProbe = m.now
	if m.cfg.SilentAfter > 0 && m.SilentAt.IsZero() && !m.Silent {
		m.SilentAt = m.now.Add(m.cfg.SilentAfter) // it never answered
	}
}

func (m *machine) endGrace() {
	if m.GraceGone {
		m.gone()
		// It may be made again, and a resolver that reports no changes is
		// asked.
		m.RetryAt = m.after(m.now, m.cfg.ResolveRetry)
		return
	}
	if m.Running == Probe {
		m.do(Cancel)
		m.Gen++
		m.Running = None
	}
	m.down(Pending)
	m.RetryAt = m.after(m.now, m.cfg.ResolveRetry)
}

func (m *machine) gone() {
	if m.Running != None {
		m.do(Cancel)
		m.Gen++ // its result is nobody's any more
		m.Running = None
	}
	if m.Connected {
		m.down(Gone)
	}
	m.enter(Gone)
	m.RetryAt, m.Tries, m.Prove = time.Time{}, 0, false
	m.SilentAt, m.Silent, m.Missed = time.Time{}, false, 0
	if m.Known {
		m.Known = false
		m.do(Evict)
	}
}

// down ends a connection and enters p.
func (m *machine) down(p Phase) {
	m.Connected, m.Unrecognized, m.Failures, m.Successes = false, false, 0, 0
	m.ProbeAt, m.ResolveAt, m.GraceUntil, m.GraceGone = time.Time{}, time.Time{}, time.Time{}, false
	m.enter(p)
	m.do(Down)
}

func (m *machine) fail() { m.Err, m.Reason = m.e.Err, m.e.Reason }

func (m *machine) succeeded() {
	if m.Running == None || m.e.Gen != m.Gen {
		return
	}
	was := m.Running
	m.Running = None
	switch {
	case was == Probe:
		m.ProbeEnd, m.LastProbe, m.Failures = m.now, m.now, 0
		m.answered(m.now)
		m.Successes++
		if m.Phase == Degraded && m.Successes >= m.cfg.SuccessThreshold && !m.Unrecognized {
			m.enter(Ready)
			m.Err, m.Reason = nil, ""
		}
		m.ProbeAt = m.nextProbe()
		return
	case m.e.Unproven && m.Connected:
		m.unchanged()
	default:
		m.proven()
	}
	if m.outdated() {
		m.connect()
	}
}

// proven: the server answered to the access that is in use from now on.
func (m *machine) proven() {
	m.ProbeEnd, m.LastProbe, m.Failures, m.Successes = m.now, m.now, 0, 0
	m.answered(m.now)
	m.Tries, m.Err, m.Reason, m.Unrecognized = 0, nil, "", false
	m.Revision, m.Rejected, m.Prove = m.e.Revision, "", false
	m.GraceUntil, m.GraceGone = time.Time{}, false
	m.enter(Ready)
	switch {
	case !m.Connected:
		m.Connected, m.Known = true, true
		m.do(Up)
	case m.e.NewEpoch:
		m.do(Renew)
	}
	m.ProbeAt = m.after(m.now, m.cfg.ProbeInterval)
}

// unchanged: the resolver had nothing new. That is no sign of life: the next
// probe comes when it would have come.
func (m *machine) unchanged() {
	m.Tries = 0
	m.GraceUntil, m.GraceGone = time.Time{}, false
	if m.Phase == Ready {
		m.Err, m.Reason = nil, ""
	}
	if m.Prove { // doubt arose meanwhile
		m.connect()
	}
}

// nextProbe counts from the start of the last one: a probe that hangs until its
// time-out does not delay the verdict.
func (m *machine) nextProbe() time.Time {
	t := m.after(m.ProbeStart, m.cfg.ProbeInterval)
	if t.Before(m.now) {
		return m.now
	}
	return t
}

func (m *machine) failed() {
	if m.Running == None || m.e.Gen != m.Gen {
		return
	}
	was := m.Running
	m.Running = None
	if was == Probe || m.e.Revision != "" { // the server was asked
		m.ProbeEnd = m.now
		m.unanswered()
	}
	m.Prove = m.Prove || m.e.Class == Rejected
	switch {
	case was == Connect && m.outdated():
		m.connect()
	case was == Probe && m.e.Class == Rejected && m.Rejected != m.Revision:
		m.Rejected = m.Revision
		m.fail()
		m.connect()
	case was == Probe:
		m.missed()
	case m.Connected:
		m.refreshFailed()
	default:
		m.connectFailed()
	}
}

// missed counts a failed probe of the connection in use.
func (m *machine) missed() {
	m.fail()
	m.Failures++
	m.Successes = 0
	if m.Failures < m.cfg.FailureThreshold {
		m.enter(Degraded)
		m.ProbeAt = m.nextProbe()
		return
	}
	m.down(Disconnected)
	m.Tries = 1
	m.RetryAt = m.backoff()
}

// refreshFailed: the connection in use stays unless the failure is its own.
func (m *machine) refreshFailed() {
	m.fail()
	own := m.e.Revision != "" && m.e.Revision == m.Revision
	if m.e.Class != NoAccess && m.e.Class != Unknown {
		m.GraceUntil, m.GraceGone = time.Time{}, false // there is access again, if not a good one
	}
	switch {
	case m.e.Class == NoAccess || m.e.Class == Unknown:
		// Secrets are rotated by delete and create, too.
		m.GraceGone = m.e.Class == Unknown
		if m.GraceUntil.IsZero() {
			m.GraceUntil = m.now.Add(m.cfg.Grace)
		}
		m.RetryAt = m.after(m.now, m.cfg.ResolveRetry)
	case m.e.Class == Policy:
		m.RetryAt = m.after(m.now, m.cfg.RetryMax)
	case own && m.e.Class == Rejected:
		m.down(Disconnected)
		m.Tries = 1
		m.RetryAt = m.backoff()
		return
	case own:
		m.missed()
		return
	default:
		m.Tries++
		m.RetryAt = m.backoff()
	}
}

func (m *machine) connectFailed() {
	m.fail()
	switch m.e.Class {
	case NoAccess:
		m.enter(Pending)
		m.RetryAt = m.after(m.now, m.cfg.ResolveRetry)
	case Unknown:
		m.gone()
		m.RetryAt = m.after(m.now, m.cfg.ResolveRetry)
	case Policy:
		m.enter(Refused)
		m.RetryAt = m.after(m.now, m.cfg.RetryMax)
	case Busy: // others get through, and so shall we: the pause does not grow
		m.enter(Disconnected)
		m.RetryAt = m.after(m.now, 3*m.cfg.RetryBase)
	default:
		m.enter(Disconnected)
		m.Tries++
		m.RetryAt = m.backoff()
	}
}
