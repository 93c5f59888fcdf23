// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// noon is when the stories of these tests begin.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

var (
	eastDoor = widget{"east", "door"}
	westDoor = widget{"west", "door"}
)

func TestWriteAfterATakeoverIsAnIntrusion(t *testing.T) {
	gains := []gain{
		{at(0), "east", "replica-0", 1},
		{at(0), "west", "replica-1", 1},
		{at(20), "east", "replica-1", 2},
		{at(40), "east", "replica-0", 3},
	}
	late := write{at(21), "replica-0", eastDoor}
	early := write{at(39), "replica-0", eastDoor}
	never := write{at(5), "replica-2", westDoor}
	all := []write{
		{at(1), "replica-0", eastDoor},
		{at(19), "replica-0", eastDoor},
		{at(20), "replica-1", eastDoor},
		late,
		early,
		{at(40), "replica-0", eastDoor},
		{at(50), "replica-1", westDoor},
		never,
	}
	require.Equal(t, []write{late, early, never}, intruders(all, gains))

	// Reports of two replicas may arrive in another order.
	gains[0], gains[2] = gains[2], gains[0]
	require.Equal(t, []write{late, early, never}, intruders(all, gains))
}

func TestEachWidgetHasToBeWrittenOnce(t *testing.T) {
	widgets := []widget{eastDoor, westDoor}
	first, second := write{at(1), "replica-0", eastDoor}, write{at(2), "replica-1", westDoor}
	require.NoError(t, once([]write{first, second}, widgets))
	require.ErrorContains(t, once([]write{first}, widgets), "door of west was written 0 times")
	require.ErrorContains(t, once([]write{first, second, {at(3), "replica-1", eastDoor}}, widgets),
		"door of east was written 2 times, by [replica-0 replica-1]")

	all := []write{first, second}
	require.Equal(t, []write{second}, between(all, at(2), at(3)))
	require.Equal(t, []write{first}, between(all, at(0), at(2)))
}

func TestMovesAreCounted(t *testing.T) {
	before := map[string]string{"east": "replica-0", "west": "replica-1"}
	require.Zero(t, moved(before, before))
	require.Equal(t, 1, moved(before, map[string]string{"east": "replica-0", "west": "replica-0"}))
	require.Equal(t, 1, moved(before, map[string]string{"east": "replica-0"}))
	require.Equal(t, 1, owns(before, "replica-1"))
}

// TestRecordFollowsOwners has the reports of two replicas overlap.
func TestRecordFollowsOwners(t *testing.T) {
	r := newRecord(map[int]string{3: "east", 5: "west"})
	next := r.next()
	r.add("replica-0", report{at(0), "Gained", 3, 1, "", "", nil})
	<-next
	r.add("replica-0", report{Time: at(0), Event: "Gained", Slot: 4, Token: 1}) // has no cluster
	r.add("replica-1", report{Time: at(1), Event: "Warm", Slot: 3})
	require.Equal(t, map[string]string{"east": "replica-0"}, r.owners())
	require.Equal(t, [][]string{
		{"CLUSTER", "OWNER", "TOKEN", "STANDBYS"},
		{"east", "replica-0", "1", "replica-1"},
		{"west", "-", "-", ""},
	}, r.table())

	r.add("replica-0", report{Time: at(2), Event: "Draining", Slot: 3, Token: 1})
	r.add("replica-1", report{Time: at(4), Event: "Gained", Slot: 3, Token: 2})
	r.add("replica-0", report{Time: at(3), Event: "Lost", Slot: 3, Token: 1})
	require.Equal(t, map[string]string{"east": "replica-1"}, r.owners())
	require.Equal(t, time.Second, r.drained("replica-0"))
	require.Len(t, r.gains(), 2)
	r.gone("replica-1")
	require.Empty(t, r.table()[1][3])

	r.add("replica-0", report{Event: refused, Cluster: "east", Widget: "door"})
	require.Equal(t, 1, r.refusals("replica-0"))
	r.add("replica-0", report{Event: read, Read: []reading{{"east", "door", 7}}})
	r.add("replica-1", report{Event: read, Read: []reading{{"east", "door", 6}, {"west", "door", 1}}})
	require.Equal(t, map[widget]int64{eastDoor: 7, westDoor: 1}, r.reads())
}
