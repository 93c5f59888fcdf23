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

// TestTimersOfManyFireTogether: those that are due within the pause after
// another fire at its end, whatever is set meanwhile. One that is due at once
// does not wait.
func TestTimersOfManyFireTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, began := NewTimers(), time.Now()
		fired := map[time.Duration]time.Duration{}
		set := func(at time.Duration) {
			q.Set(NewTimer(func() { fired[at] = time.Since(began) }), began.Add(at))
		}
		for _, at := range []time.Duration{1000, 1010, 1049, 2000, 2049} {
			set(at * time.Millisecond)
		}
		go q.Run(t.Context())

		time.Sleep(1005 * time.Millisecond)
		set(1020 * time.Millisecond) // the first one
		time.Sleep(time.Second)
		set(2005 * time.Millisecond) // now
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, map[time.Duration]time.Duration{
			1000 * time.Millisecond: 1000 * time.Millisecond,
			1010 * time.Millisecond: 1050 * time.Millisecond,
			1020 * time.Millisecond: 1050 * time.Millisecond,
			1049 * time.Millisecond: 1050 * time.Millisecond,
			2000 * time.Millisecond: 2000 * time.Millisecond,
			2005 * time.Millisecond: 2005 * time.Millisecond,
			2049 * time.Millisecond: 2055 * time.Millisecond,
		}, fired)
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
