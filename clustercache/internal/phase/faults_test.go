// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package phase_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
)

// fault is a failure of an attempt to connect, and how long it counts.
type fault struct {
	phase.Event

	refusal bool // it outlasts the others
	moot    bool // it ends what was refused
	passed  bool // policy let the attempt pass
}

func faults() map[string]fault {
	failed := func(class phase.Class, revision string) phase.Event {
		reason := fmt.Sprintf("%d%s", class, revision)
		return phase.Event{
			Kind:     phase.Failed,
			Class:    class,
			Revision: revision,
			Reason:   reason,
			Err:      errors.New(reason),
		}
	}
	return map[string]fault{
		"rejected":    {Event: failed(phase.Rejected, "b"), refusal: true, passed: true},
		"policy":      {Event: failed(phase.Policy, ""), refusal: true},
		"no access":   {Event: failed(phase.NoAccess, ""), moot: true},
		"unresolved":  {Event: failed(phase.Trouble, "")},
		"timeout":     {Event: failed(phase.Trouble, "b"), passed: true},
		"unreachable": {Event: failed(phase.Unreachable, "b"), passed: true},
		"busy":        {Event: failed(phase.Busy, "b"), passed: true},
	}
}

// TestEveryPairOfFaults: whatever follows a refusal, only what proves the
// contrary ends it, and new access is tried all the same.
func TestEveryPairOfFaults(t *testing.T) {
	for first, a := range faults() {
		for second, b := range faults() {
			for _, connected := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, then %s, connected %t", first, second, connected), func(t *testing.T) {
					r := newRun(t)
					if connected {
						r.connected()
						require.Equal(t, []phase.Action{phase.StartConnect}, r.on(phase.Event{Kind: phase.Changed}))
					} else {
						r.on(phase.Event{Kind: phase.Asked})
					}
					r.on(a.Event)
					require.Equal(t, a.Reason, r.s.Reason)

					require.Equal(t, []phase.Action{phase.StartConnect}, r.on(phase.Event{Kind: phase.Changed}))
					require.Equal(t, a.Reason, r.s.Reason, "new access ends nothing by itself")
					r.on(b.Event)
					stands := a.refusal && !b.refusal && !b.moot && (a.Class != phase.Policy || !b.passed)
					if stands {
						require.Equal(t, a.Reason, r.s.Reason)
						require.ErrorIs(t, r.s.Err, a.Err)
						require.ErrorContains(t, r.s.Err, b.Err.Error())
						require.NotErrorIs(t, r.s.Err, b.Err)
					} else {
						require.Equal(t, phase.Failure{Err: b.Err, Reason: b.Reason}, r.s.Failure)
					}
					if stands && !connected {
						require.Equal(t, a.Class == phase.Policy, r.s.Phase == phase.Refused)
					}

					if connected { // the access in use is none of its business
						r.now = r.now.Add(time.Second)
						require.Equal(t, []phase.Action{phase.StartProbe}, r.on(phase.Event{Kind: phase.Broken}))
						before := r.s.Reason
						r.on(phase.Event{Kind: phase.Failed, Class: phase.Unreachable, Revision: "a", Err: errSome})
						require.ErrorIs(t, r.s.Err, errSome)
						for r.s.Successes < cfg.SuccessThreshold {
							for r.s.Running == phase.None {
								r.tick(time.Time{})
							}
							if r.s.Running == phase.Connect {
								r.on(b.Event)
								continue
							}
							r.on(phase.Event{Kind: phase.Succeeded})
						}
						require.Equal(t, phase.Ready, r.s.Phase)
						require.Equal(t, before, r.s.Reason)
					}

					r.on(phase.Event{Kind: phase.Changed})
					r.on(phase.Event{Kind: phase.Succeeded, Revision: "b"})
					require.Equal(t, phase.Ready, r.s.Phase)
					require.Zero(t, r.s.Failure)
					require.Zero(t, r.s.Faults)
				})
			}
		}
	}
}
