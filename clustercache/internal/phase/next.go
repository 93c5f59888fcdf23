// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package phase

import "time"

// Next returns the state after e, and the actions that follow from it.
func Next(cfg Config, s State, e Event, now time.Time) (State, []Action) {
	m := machine{
		cfg:   cfg,
		State: s,
		e:     e,
		now:   now,
	}
	switch e.Kind {
	case Asked:
		if m.Running == None && (m.Phase == Gone || (m.Phase == Pending && m.Gen == 0)) {
			m.Faults = Faults{} // of the cluster's previous existence
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
		// Once per revision: if one more query of the resolver finds nothing
		// new, a second would not either.
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
	case Broken:
		m.broken()
	case Torn:
		m.torn()
	case RolledBack:
		if m.Connected {
			m.do(Renew)
		}
	case Removed:
		m.gone()
		m.Faults = Faults{Attempt: Failure{Reason: e.Reason}}
	case Resolved:
		if m.Running == Connect && e.Gen == m.Gen && m.Phase == Pending {
			m.enter(Connecting)
		}
	}
	m.Failure = m.counts(m.Connected)

	if m.Connected && m.Running != Connect && m.ResolveAt.IsZero() && cfg.ResolveInterval > 0 {
		m.ResolveAt = m.after(now, cfg.ResolveInterval)
	}
	return m.State, m.actions
}

// machine is one call of Next.
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

// after returns the time d after from, or up to a fifth of d earlier.
func (m *machine) after(from time.Time, d time.Duration) time.Time {
	return from.Add(d - time.Duration(m.e.Jitter*float64(d)/5))
}

// backoff returns the time of the next try. The delay doubles with each failed
// try, and up to half of it is random, so that the clusters do not all
// reconnect at the same moment. A cluster that was connected is tried more
// often at first: most outages are short, and a cluster must not be away for
// much longer than its server.
func (m *machine) backoff() time.Time {
	d := m.cfg.RetryBase << min(max(m.Tries-1, 0), 16)
	d = min(d, m.cfg.RetryMax)
	if !m.LostSince.IsZero() {
		d = min(d, max(3*m.cfg.RetryBase, m.now.Sub(m.LostSince)/8))
	}
	return m.now.Add(d - time.Duration(m.e.Jitter*float64(d)/2))
}

// connect starts an attempt. It cancels a running probe, which is due again if
// the attempt does not query the server.
func (m *machine) connect() {
	if m.Running == Probe {
		m.do(Cancel)
	}
	if m.Connected && m.ProbeAt.IsZero() {
		m.ProbeAt = m.nextProbe()
	}
	// An attempt that only queries the resolver proves nothing about the
	// server. It must not replace the probe it canceled, or a steady stream of
	// changes would hide a dead server. A probe that is due later stays so: no
	// change makes a server fail faster.
	m.Replaces = m.Replaces || m.Running == Probe
	// A retry of the resolver, and a change, do not change the phase until the
	// resolver has access to a cluster that waits for it.
	if m.e.Kind == Asked || m.Phase == Gone && m.e.Kind != Tick {
		m.enter(Connecting)
	}
	m.Gen++
	m.Running, m.RetryAt, m.ResolveAt, m.ProbeStart = Connect, time.Time{}, time.Time{}, m.now
	m.do(StartConnect)
}

// ask starts an attempt before it is due, since the resolver may have other
// access. The access that failed last keeps its pause: that it was reported
// makes no server answer.
func (m *machine) ask() {
	held := m.RetryAt
	m.connect()
	m.Held = held
}

// changed does not end a running attempt: the resolver may be working for it,
// and most changes are irrelevant. The attempt is notified instead, and finds
// out by itself whether the address it waits for is still the right one.
func (m *machine) changed() {
	m.Changes++
	if m.Running == Connect {
		m.do(Notify)
		return
	}
	m.ask()
}

// doubt starts an attempt that queries the server. An attempt that already runs
// may have done so before the doubt arose.
func (m *machine) doubt() {
	m.Prove = true
	if m.Running != Connect {
		m.connect()
	}
}

// unrecognized leaves the connection in use, since its running watches may be
// healthy.
func (m *machine) unrecognized() {
	if !m.Connected {
		return
	}
	m.Unrecognized, m.Identity = true, m.failure()
	m.enter(Degraded)
}

func (m *machine) recognized() {
	if !m.Unrecognized {
		return
	}
	m.Unrecognized, m.Identity = false, Failure{}
	if m.Failures == 0 && (m.Successes > 0 || m.Probing == Failure{}) {
		m.enter(Ready)
		m.Probing = Failure{}
	}
}

// outdated reports whether there were changes that the ended attempt did not
// see.
func (m *machine) outdated() bool { return m.e.Changes < m.Changes }

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
	case due(m.RetryAt):
		m.connect()
	case m.Connected && m.Running == None && due(m.ResolveAt):
		m.ask()
	case m.Connected && m.Running == None && due(m.ProbeAt):
		if m.TornAt.IsZero() {
			m.Spurious = 0
		} else {
			m.Spurious++
		}
		if alive := m.e.Life; alive.After(m.TornAt) && m.lives() {
			m.Spurious = 0
			m.ProbeAt = m.after(alive, m.cfg.ProbeInterval)
			if !m.ProbeAt.After(m.now) {
				m.ProbeAt = alive.Add(m.cfg.ProbeInterval)
			}
			return
		}
		m.probe()
	}
}

func (m *machine) endGrace() {
	if m.GraceGone {
		m.gone()
		// The cluster may be created again, so query a resolver that does not
		// report changes.
		m.RetryAt = m.after(m.now, m.cfg.ResolveRetry)
		return
	}

	if m.Running == Probe {
		m.do(Cancel)
		m.Gen++
		m.Running = None
	}
	m.down(Pending)
	m.Tried = ""
	m.RetryAt = m.after(m.now, m.cfg.ResolveRetry)
}

func (m *machine) gone() {
	if m.Running != None {
		m.do(Cancel)
		m.Gen++ // ignore the result of the attempt
		m.Running = None
	}
	if m.Connected {
		m.down(Gone)
	}
	m.enter(Gone)
	m.RetryAt, m.Tries, m.Prove, m.Tried, m.Held = time.Time{}, 0, false, "", time.Time{}
	m.SilentAt, m.Silent, m.Missed, m.LostSince = time.Time{}, false, 0, time.Time{}
	m.Failed, m.FailedSince = 0, time.Time{}
	if m.Known {
		m.Known = false
		m.do(Evict)
	}
}

// down ends a connection and enters p.
func (m *machine) down(p Phase) {
	m.Connected, m.Unrecognized, m.Replaces, m.Failures, m.Successes = false, false, false, 0, 0
	m.Probing, m.Identity = Failure{}, Failure{}
	m.ProbeAt, m.ResolveAt, m.GraceUntil, m.GraceGone = time.Time{}, time.Time{}, time.Time{}, false
	m.LostSince = m.now
	m.enter(p)
	m.do(Down)
}

// failure returns the failure that the event reports.
func (m *machine) failure() Failure { return Failure{m.e.Err, m.e.Reason} }

func (m *machine) succeeded() {
	if m.Running == None || m.e.Gen != m.Gen {
		return
	}
	was := m.Running
	m.Running, m.Held = None, time.Time{}
	switch {
	case was == Probe:
		m.ProbeEnd, m.LastProbe, m.Failures = m.now, m.now, 0
		m.answered(m.now)
		m.Successes++
		if m.Successes >= m.cfg.SuccessThreshold {
			m.Probing = Failure{}
			if m.Phase == Degraded && !m.Unrecognized {
				m.enter(Ready)
			}
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

// proven records that the server answered to the attempt's access, which is in
// use from now on.
func (m *machine) proven() {
	m.ProbeEnd, m.LastProbe, m.Failures, m.Successes, m.Spurious = m.now, m.now, 0, 0, 0
	m.answered(m.now)
	m.Tries, m.Tried, m.Faults, m.Unrecognized = 0, "", Faults{}, false
	m.Revision, m.Rejected, m.Prove, m.Replaces = m.e.Revision, "", false, false
	m.GraceUntil, m.GraceGone = time.Time{}, false
	if m.e.Alive {
		m.Probing = m.failure()
		m.enter(Degraded)
	} else {
		m.enter(Ready)
	}
	switch {
	case !m.Connected:
		m.Connected, m.Known, m.LostSince = true, true, time.Time{}
		m.do(Up)
	case m.e.NewEpoch:
		m.do(Renew)
	}

	m.ProbeAt = m.after(m.now, m.cfg.ProbeInterval)
}

// unchanged records that the resolver had nothing new. That is no sign of life:
// the next probe stays due when it was.
func (m *machine) unchanged() {
	m.Tries = 0
	m.GraceUntil, m.GraceGone = time.Time{}, false
	m.lift()
	m.Attempt = Failure{}
	if m.Phase == Ready {
		m.Probing = Failure{}
	}
	if m.Prove { // doubt arose meanwhile
		m.connect()
	}
}

// record records why an attempt to connect failed, or why a connection ended. A
// refusal outlasts failures of another kind: a server that rejects the
// credentials, and then cannot be reached, has not accepted them.
func (m *machine) record() {
	switch m.e.Class {
	case Rejected, Policy:
		m.Refusal, m.RefusedBy, m.Attempt = m.failure(), m.e.Class, Failure{}
		return
	case NoAccess, NoCluster:
		m.lift()
	}
	m.Attempt = m.failure()
}

// lift ends a refusal.
func (m *machine) lift() { m.Refusal, m.RefusedBy = Failure{}, Trouble }

func (m *machine) failed() {
	if m.Running == None || m.e.Gen != m.Gen {
		return
	}
	was, held, tries := m.Running, m.Held, m.Tries
	m.Running, m.Held = None, time.Time{}
	if m.e.Class == Same && !held.IsZero() {
		m.RetryAt = held
		if m.outdated() {
			m.ask()
		}
		return
	}
	if was == Connect {
		m.tried()
	}
	switch {
	case m.aliveInUse(was):
		m.ProbeEnd, m.LastProbe = m.now, m.now
		m.answered(m.now)
	case was == Probe || m.e.Revision != "": // the server was queried
		m.ProbeEnd = m.now
		m.unanswered()
	case !m.Connected && !m.e.Early && !m.outdated() && (held.IsZero() || m.Failed == 0):
		m.countFailed()
	}
	m.Prove = m.Prove || m.e.Class == Rejected
	if was == Connect && m.e.Revision != "" && m.RefusedBy == Policy {
		m.lift() // policy let the attempt pass
	}
	switch {
	case was == Connect && m.outdated():
		m.connect()
		if m.e.Revision == "" {
			m.Held = held
		}
	case was == Probe && m.e.Class == Rejected && m.Rejected != m.Revision:
		m.Rejected, m.Probing = m.Revision, m.failure()
		m.connect()
	case was == Probe:
		m.missed()
	case m.Connected:
		m.refreshFailed()
	default:
		m.connectFailed()
	}
	if !held.IsZero() && m.e.Revision == "" && m.Running == None {
		m.Tries, m.RetryAt = min(m.Tries, tries), earliest(m.RetryAt, held)
	}
}

// tried records the access of an attempt that failed. A resolver that failed
// itself may still give the access of before.
func (m *machine) tried() {
	if m.e.Revision != "" || m.e.Class == NoAccess || m.e.Class == NoCluster {
		m.Tried = m.e.Revision
	}
}

// refreshFailed keeps the connection in use, unless the failure is that of its
// own access.
func (m *machine) refreshFailed() {
	own := m.e.Revision != "" && m.e.Revision == m.Revision
	if !own || m.e.Class == Rejected {
		m.record() // missed records the others
	}
	if m.e.Class != NoAccess && m.e.Class != NoCluster {
		m.GraceUntil, m.GraceGone = time.Time{}, false // access exists again, although it does not work
	}

	switch {
	case m.e.Class == NoAccess || m.e.Class == NoCluster:
		// Secrets are also rotated by deleting and creating them.
		m.GraceGone = m.e.Class == NoCluster
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
	m.record()
	switch m.e.Class {
	case NoAccess:
		m.enter(Pending)
		m.RetryAt = m.after(m.now, m.cfg.ResolveRetry)
	case NoCluster:
		m.gone()
		m.RetryAt = m.after(m.now, m.cfg.ResolveRetry)
	case Policy:
		m.enter(Refused)
		m.RetryAt = m.after(m.now, m.cfg.RetryMax)
	case Busy: // other clients get through, so the pause does not grow
		m.enter(Disconnected)
		m.RetryAt = m.after(m.now, 3*m.cfg.RetryBase)
	default:
		if m.RefusedBy != Policy { // which was not asked this time
			m.enter(Disconnected)
		}
		m.Tries++
		m.RetryAt = m.backoff()
	}
}
