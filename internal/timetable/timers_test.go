// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package timetable

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/repeat"
)

// TestTimersTellHowFarTheyAreBehind: Late includes a timer that has not been
// fired, not only one whose function does not return.
func TestTimersTellHowFarTheyAreBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewTimers()
		require.Zero(t, q.Late(time.Now()))
		q.Set(NewTimer(func() {}), time.Now().Add(time.Minute))
		require.Zero(t, q.Late(time.Now()), "not due yet")
		time.Sleep(3 * time.Minute)
		require.Equal(t, 2*time.Minute, q.Late(time.Now()), "no goroutine runs them")
		q.fireDue(time.Now())
		require.Zero(t, q.Late(time.Now()))
	})
}

// TestHazardTwoSetATimerAtOnce: whichever of two concurrent calls of SetSooner
// comes first, the timer fires at the sooner time.
func TestHazardTwoSetATimerAtOnce(t *testing.T) {
	q, now, stop := NewTimers(), time.Now(), make(chan struct{})
	var others sync.WaitGroup
	for range 2 { // they keep the lock busy, so that it changes hands within a call
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					q.Late(now)
				}
			}
		})
	}
	defer others.Wait()
	defer close(stop)

	for range repeat.Times(20_000) {
		timer := NewTimer(func() {})
		var both sync.WaitGroup
		both.Go(func() { q.SetSooner(timer, now.Add(time.Hour)) })
		both.Go(func() { q.SetSooner(timer, now.Add(time.Minute)) })
		both.Wait()
		require.Equal(t, now.Add(time.Minute), timer.At())
		q.Set(timer, time.Time{})
	}
}
