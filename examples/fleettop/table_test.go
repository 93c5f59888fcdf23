// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/status"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// ready returns the row of a healthy cluster, whose oldest sign of life was
// some time before noon.
func ready(name string, stale time.Duration, objects int, bytes int64, rate float64) row {
	return row{
		snapshot: status.Cluster{
			Cluster:    client.ObjectKey{Name: name},
			Phase:      status.PhaseReady,
			Connected:  true,
			Watches:    3,
			Informers:  3,
			Synced:     3,
			Objects:    objects,
			Bytes:      bytes,
			OldestSeen: noon.Add(-stale),
		},
		at:   noon,
		rate: rate,
	}
}

// unreachable returns the row of a cluster that is disconnected.
func unreachable(name string, stale time.Duration, objects int, bytes int64) row {
	r := ready(name, stale, objects, bytes, 0)
	r.Phase, r.Connected, r.Reason = status.PhaseDisconnected, false, "Unreachable"
	r.LastError = fmt.Errorf("cluster %q: connection refused", name)
	return r
}

// example is a fleet with a cluster of each kind.
func example() frame {
	pending := row{at: noon}
	pending.Cluster = client.ObjectKey{Name: "new"}
	pending.Phase, pending.Reason = status.PhasePending, "NoAccess"
	syncing := ready("north", 2*time.Second, 7, 999, 0.04)
	syncing.Synced = 2
	return frame{at: noon, rows: []row{
		unreachable("west", 65*time.Second, 12345, 5<<20),
		pending,
		syncing,
		ready("east", 999*time.Millisecond, 31, 7<<10, 12.34),
	}}
}

func TestTableIsAligned(t *testing.T) {
	require.Equal(t, strings.TrimPrefix(`
CLUSTER  PHASE         REASON       STALE  INFORMERS  OBJECTS  BYTES  EVENTS/S
west     Disconnected  Unreachable  1m05s          3    12345  5.0Mi       0.0
new      Pending       NoAccess     never          0        0      0       0.0
north    Ready         Syncing         2s        2/3        7    999       0.0
east     Ready                         0s          3       31  7.0Ki      12.3
TOTAL 4  2 Ready                    1m05s        8/9    12383  5.0Mi      12.4

west: connection refused`, "\n"), strings.Join(example().lines(0, 0, nil), "\n"))
}

func TestNarrowTableGivesUpColumnsButNotTheReason(t *testing.T) {
	for width, want := range map[int]string{
		72: `
CLUSTER  PHASE         REASON       STALE  INFORMERS  OBJECTS  EVENTS/S
west     Disconnected  Unreachable  1m05s          3    12345       0.0
new      Pending       NoAccess     never          0        0       0.0
north    Ready         Syncing         2s        2/3        7       0.0
east     Ready                         0s          3       31      12.3
TOTAL 4  2 Ready                    1m05s        8/9    12383      12.4

west: connection refused
a note`,
		36: `
CLUSTER  PHASE         REASON
west     Disconnected  Unreachable
new      Pending       NoAccess
north    Ready         Syncing
east     Ready
TOTAL 4  2 Ready

west: connection refused
a note`,
		20: `
CLUSTER  PHASE     …
west     Disconnect…
new      Pending   …
north    Ready     …
east     Ready
TOTAL 4  2 Ready

west: connection re…
a note`,
	} {
		require.Equal(t, strings.TrimPrefix(want, "\n"),
			strings.Join(example().lines(width, 0, []string{"a note"}), "\n"), "width %d", width)
	}
}

func TestLongNamesAreCutBeforeTheReason(t *testing.T) {
	f := frame{at: noon, rows: []row{unreachable("a-very-long-name-of-a-cluster", time.Second, 0, 0)}}
	require.Equal(t, "a-very-lo…  Disconnected  Unreachable", f.lines(37, 0, nil)[1])
}

func TestFrameFitsIntoAnyTerminal(t *testing.T) {
	f := example()
	for i := range 100 {
		f.rows = append(f.rows, ready(fmt.Sprintf("cluster-%d", i), time.Second, 1, 1, 1))
	}
	for width := 1; width < 100; width += 3 {
		for _, height := range []int{4, 5, 6, 7, 8, 10, 24, 50, 105, 106, 107, 108, 109, 110, 120} {
			text := f.lines(width, height, []string{"one note", "another note"})
			require.LessOrEqual(t, len(text), height, "%d × %d", width, height)
			for _, line := range text {
				require.LessOrEqual(t, utf8.RuneCountInString(line), width, "%d × %d", width, height)
			}
		}
	}
	require.Equal(t, strings.TrimPrefix(`
CLUSTER    PHASE         REASON       STALE  INFORMERS  OBJECTS  EVENTS/S
west       Disconnected  Unreachable  1m05s          3    12345       0.0
new        Pending       NoAccess     never          0        0       0.0
north      Ready         Syncing         2s        2/3        7       0.0
... and 101 more
TOTAL 104  102 Ready                  1m05s    308/309    12483     112.4

west: connection refused`, "\n"), strings.Join(f.lines(78, 8, []string{"a note"}), "\n"))
}

func TestWorstClustersComeFirst(t *testing.T) {
	phase := func(name string, p status.Phase) row {
		return row{snapshot: status.Cluster{Cluster: client.ObjectKey{Name: name}, Phase: p}, at: noon}
	}
	stale := ready("stale", time.Hour, 0, 0, 0)
	stale.Stale = true
	forbidden := ready("forbidden", 0, 0, 0, 0)
	forbidden.Reason, forbidden.LastError = "Forbidden", errors.New("Pod: forbidden")
	degraded := ready("degraded", 0, 0, 0, 0)
	degraded.Phase = status.PhaseDegraded
	want := []row{
		phase("refused", status.PhaseRefused), unreachable("long", time.Hour, 0, 0),
		unreachable("short", time.Minute, 0, 0), phase("gone", status.PhaseGone),
		phase("pending", status.PhasePending), phase("connecting", status.PhaseConnecting),
		degraded, stale, forbidden, ready("a", 0, 0, 0, 0), ready("b", time.Minute, 0, 0, 0),
	}
	for i, a := range want {
		for j, b := range want {
			compared := worstFirst(a, b)
			require.True(t, i < j && compared < 0 || i == j && compared == 0 || i > j && compared > 0,
				"%s and %s: %d", a.Cluster.Name, b.Cluster.Name, compared)
		}
	}
}

func TestTextFromElsewhereCannotControlTheTerminal(t *testing.T) {
	r := unreachable("we\x1b[2Jst", 0, 0, 0)
	r.LastError = errors.New("first\r\n\x1b]0;title\asecond\u202e")
	for _, line := range (frame{at: noon, rows: []row{r}}).lines(0, 0, nil) {
		require.Equal(t, printable(line), strings.Join(strings.Fields(line), " "), "%q", line)
	}
	require.Equal(t, "first ]0;title second", r.why())
}

func TestQuantities(t *testing.T) {
	for d, want := range map[time.Duration]string{
		never:                      "never",
		59999 * time.Millisecond:   "59s",
		time.Minute:                "1m00s",
		time.Hour - 1:              "59m59s",
		25*time.Hour + time.Minute: "1d01h",
		2*time.Hour + time.Minute:  "2h01m",
	} {
		require.Equal(t, want, age(d))
	}
	for bytes, want := range map[int64]string{
		0:         "0",
		999:       "999",
		1000:      "1.0Ki",
		102399:    "100Ki",
		1 << 20:   "1.0Mi",
		300 << 30: "300Gi",
		5 << 40:   "5.0Ti",
	} {
		require.Equal(t, want, size(bytes))
	}
}
