// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package loudness_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool/internal/loudness"
)

// allowed returns how many lines about causes are written in an hour with one
// try a second, the first of which is at an hour's beginning.
func allowed(l *loudness.Lines, began time.Time, cause func(i int) string) (lines int) {
	for i := range 3600 {
		if l.Allow(cause(i), began.Add(time.Duration(i)*time.Second)) {
			lines++
		}
	}
	return lines
}

// TestHazardSteadyOddityFillsTheLog: a steady cause has at most five lines an
// hour, whatever numbers it quotes, and a server that makes up causes has no
// more than a bounded number.
func TestHazardSteadyOddityFillsTheLog(t *testing.T) {
	began := time.Now()
	for name, cause := range map[string]func(int) string{
		"same":    func(int) string { return "unexpected EOF" },
		"numbers": func(i int) string { return fmt.Sprintf("stream went from %d to %d", i+7, i) },
	} {
		t.Run(name, func(t *testing.T) {
			var l loudness.Lines
			require.LessOrEqual(t, allowed(&l, began, cause), 5)
			require.LessOrEqual(t, allowed(&l, began.Add(time.Hour), cause), 3)
			require.True(t, l.Allow(cause(0), began.Add(5*time.Hour)), "it is a change of state again")
		})
	}
	var l loudness.Lines
	made := func(i int) string { return fmt.Sprintf("%c%c", 'a'+i%26, 'a'+i/26%26) }
	require.LessOrEqual(t, allowed(&l, began, made), 3*8*3)
}

// TestEachCauseHasLinesOfItsOwn: a cause that is logged already does not
// silence another one.
func TestEachCauseHasLinesOfItsOwn(t *testing.T) {
	var l loudness.Lines
	now := time.Now()
	for range 100 {
		l.Allow("refused", now)
	}
	require.False(t, l.Allow("refused", now))
	require.True(t, l.Allow("reset", now))
}

// TestSharedCauseIsWrittenOnce: a hundred informers report what interrupted
// them, again and again for as long as it lasts.
func TestSharedCauseIsWrittenOnce(t *testing.T) {
	var s loudness.Shared
	now := time.Now()
	report := func(cause string, lasting time.Duration) (lines int) {
		for end := now.Add(lasting); now.Before(end); now = now.Add(time.Second) {
			for i := range 100 {
				if s.First(fmt.Sprintf("%s of port %d", cause, i), now) {
					lines++
				}
			}
		}
		return lines
	}
	require.Equal(t, 1, report("reset", time.Second))
	require.Equal(t, 0, report("reset", 5*time.Minute), "it is the same outage")
	require.Equal(t, 1, report("refused", time.Second), "another cause")
	now = now.Add(time.Minute)
	require.Equal(t, 1, report("reset", time.Second), "another outage")
	require.LessOrEqual(t, report("reset", time.Hour), 6, "another cause may look alike")
}

// TestMadeUpCausesTakeNoMemory: what cannot be remembered is not known to be
// shared.
func TestMadeUpCausesTakeNoMemory(t *testing.T) {
	var s loudness.Shared
	now := time.Now()
	for i := range 1000 {
		require.True(t, s.First(fmt.Sprintf("%c%c", 'a'+i%26, 'a'+i/26), now))
	}
	require.False(t, s.First("aa", now))
	require.True(t, s.First("zz", now))
}
