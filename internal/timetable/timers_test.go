// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package timetable

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
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
