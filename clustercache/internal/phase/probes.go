// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package phase

import "time"

// broken starts a probe at once, unless something runs or began a moment ago: a
// burst of broken streams causes one probe. If the server stops only after that
// one was answered, the streams cannot be resumed, which is the next such
// event. The moment grows while streams keep breaking and probes are answered,
// as behind a gateway that lets no watch live.
func (m *machine) broken() {
	if m.Connected && m.Running == None && !m.now.Before(m.afterBroken()) {
		m.Spurious++
		m.probe()
	}
}

// afterBroken returns the earliest time of a probe because of a broken stream.
func (m *machine) afterBroken() time.Time {
	moment := min(m.cfg.BrokenPause<<min(m.Spurious, 16), max(m.cfg.ProbeInterval/2, m.cfg.BrokenPause))
	return m.ProbeStart.Add(moment)
}

// torn has a probe follow after BrokenPause, unless a request is answered
// before: the informers resume their streams within that time. If the server
// refuses them, Broken has a probe follow at once.
func (m *machine) torn() {
	if !m.Connected || m.Running != None {
		return
	}
	at := m.now.Add(m.cfg.BrokenPause)
	if next := m.afterBroken(); next.After(at) {
		at = next
	}
	m.TornAt, m.ProbeAt = m.now, earliest(m.ProbeAt, at)
}

// probe starts a probe.
func (m *machine) probe() {
	m.Gen++
	m.Running, m.ProbeAt, m.ProbeStart, m.TornAt = Probe, time.Time{}, m.now, time.Time{}
	m.do(StartProbe)
}

// lives reports whether a sign of life can replace a probe, and records it as
// an answer if so. It cannot while probes fail: a stream may continue while the
// server refuses everything else.
func (m *machine) lives() bool {
	alive := m.e.Life
	if m.Phase != Ready || m.Running != None || !alive.After(m.ProbeEnd) ||
		!m.now.Before(alive.Add(m.cfg.ProbeInterval)) {
		return false
	}
	m.answered(alive)
	return true
}

// answered records that the server answered a request.
func (m *machine) answered(at time.Time) {
	m.Missed, m.Failed, m.FailedSince = 0, 0, time.Time{}
	if at.After(m.TornAt) {
		m.TornAt = time.Time{}
	}
	m.LastSuccess, m.Silent, m.SilentAt = at, false, time.Time{}
	if m.cfg.SilentAfter > 0 {
		m.SilentAt = at.Add(m.cfg.SilentAfter)
	}
}

// unanswered records that the server did not answer a request.
func (m *machine) unanswered() {
	m.Missed++
	m.countFailed()
	m.LastProbe = m.now
	if m.cfg.SilentAfter > 0 && m.SilentAt.IsZero() && !m.Silent {
		m.SilentAt = m.now.Add(m.cfg.SilentAfter) // it never answered
	}
}

func (m *machine) countFailed() {
	if m.Failed == 0 {
		m.FailedSince = m.now
	}
	m.Failed++
}

// nextProbe returns when the next probe is due.
func (m *machine) nextProbe() time.Time { return m.afterProbe(m.cfg.ProbeInterval) }

// afterProbe counts from the start of the last probe, so that a probe that
// hangs until its timeout does not delay the verdict.
func (m *machine) afterProbe(d time.Duration) time.Time {
	t := m.after(m.ProbeStart, d)
	if t.Before(m.now) {
		return m.now
	}
	return t
}

// aliveInUse reports whether the server of the connection in use answered the
// attempt that failed, and reported that checks of its health fail.
func (m *machine) aliveInUse(was Attempt) bool {
	return m.e.Alive && m.Connected && (was == Probe || m.e.Revision == m.Revision)
}

// missed counts a failed probe of the connection in use. An answer in which the
// server reports what fails in it counts as none: it degrades the cluster for
// as long as that lasts, and what works goes on.
func (m *machine) missed() {
	m.Probing = m.failure()
	m.Failures++
	m.Successes, m.Spurious, m.Replaces = 0, 0, false
	if m.e.Alive {
		m.Failures = 0
	}
	if m.Failures < m.cfg.FailureThreshold {
		m.enter(Degraded)
		m.ProbeAt = m.nextProbe()
		if m.e.Class == Unreachable {
			m.ProbeAt = m.afterProbe(m.cfg.BrokenPause)
		}
		return
	}
	m.record()
	m.down(Disconnected)
	m.Tries, m.Tried = 1, m.Revision
	m.RetryAt = m.backoff()
}
