// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package timetable_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/timetable"
)

// TestEarliestIsFirstWhateverIsSetAndRemoved compares a table with a plain map.
func TestEarliestIsFirstWhateverIsSetAndRemoved(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var table timetable.Table[int]
		var all [20]timetable.Entry[int]
		model := map[*timetable.Entry[int]]time.Time{}
		for range 500 {
			e, at := &all[r.IntN(len(all))], start.Add(time.Duration(r.IntN(1000))*time.Second)
			switch r.IntN(4) {
			case 0:
				table.Remove(e)
				delete(model, e)
			case 1:
				due := table.PopDue(at)
				if due == nil {
					require.Empty(t, dueBy(model, at))
					break
				}
				require.False(t, due.Listed())
				require.Contains(t, dueBy(model, at), due)
				delete(model, due)
			default:
				table.Set(e, at)
				model[e] = at
			}
			requireSame(t, model, &table)
		}
	}
}

// dueBy returns the earliest entries of a model, if they are due at now.
func dueBy(model map[*timetable.Entry[int]]time.Time, now time.Time) []*timetable.Entry[int] {
	var first []*timetable.Entry[int]
	for e, at := range model {
		switch {
		case at.After(now) || len(first) > 0 && at.After(model[first[0]]):
		case len(first) > 0 && at.Equal(model[first[0]]):
			first = append(first, e)
		default:
			first = []*timetable.Entry[int]{e}
		}
	}
	return first
}

func requireSame(t *testing.T, model map[*timetable.Entry[int]]time.Time, table *timetable.Table[int]) {
	t.Helper()
	require.Equal(t, len(model), table.Len())
	if len(model) == 0 {
		require.Nil(t, table.First())
		return
	}
	first := table.First()
	require.True(t, first.Listed())
	for e, at := range model {
		require.True(t, e.Listed())
		require.Equal(t, at, e.At())
		require.False(t, at.Before(first.At()))
	}
}
