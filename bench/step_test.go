// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/bench/internal/subjects"
)

// counted is a step that counts how often it was measured.
func counted(name string, times map[string]int, err error) step {
	return step{name, func(_ context.Context, r *report) error {
		times[name]++
		r.add(name+": value", ours, float64(times[name]), "s", nil)
		return err
	}}
}

func TestAnInterruptedRunContinues(t *testing.T) {
	times := map[string]int{}
	j := journal{dir: t.TempDir(), plan: "full"}
	failing := errors.New("interrupted")
	steps := []step{counted("one", times, nil), counted("two", times, failing), counted("three", times, nil)}
	results, err := runSteps(t.Context(), steps, j, nil, &report{})
	require.ErrorIs(t, err, failing)
	require.Len(t, results, 2, "what does not depend on the step that fails is measured")

	steps[1] = counted("two", times, nil)
	r := &report{}
	results, err = runSteps(t.Context(), steps, j, nil, r)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"one": 1, "two": 2, "three": 1}, times)
	require.Len(t, results, 3)
	require.Len(t, r.rows, 3, "kept rows are reported, too")

	_, err = runSteps(t.Context(), steps, j, []string{"three"}, &report{})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"one": 1, "two": 2, "three": 2}, times)
}

func TestResultsOfAnotherPlanAreNotUsed(t *testing.T) {
	times := map[string]int{}
	j := journal{dir: t.TempDir(), plan: short.String()}
	steps := []step{counted("one", times, nil)}
	for _, p := range []plan{short, full, full} {
		j.plan = p.String()
		_, err := runSteps(t.Context(), steps, j, nil, &report{})
		require.NoError(t, err)
	}
	require.Equal(t, map[string]int{"one": 2}, times)
}

func TestUnknownRowsAreRefused(t *testing.T) {
	times := map[string]int{}
	_, err := runSteps(t.Context(), []step{counted("one", times, nil)}, journal{}, []string{"none"}, &report{})
	require.ErrorContains(t, err, "there are one")
	require.Empty(t, times)
}

func TestALineFitsItsPoints(t *testing.T) {
	l := fit([]float64{1, 2, 10}, []float64{7, 9, 25})
	require.InDelta(t, 2, l.slope, 1e-9)
	require.InDelta(t, 5, l.start, 1e-9)
	require.InDelta(t, 1, l.explains, 1e-9)
	require.Less(t, fit([]float64{1, 2, 3, 4}, []float64{1, 5, 2, 4}).explains, 0.5)
}

// published returns a publication with rows of all forms.
func published() publication {
	r := &report{}
	for _, n := range []struct{ name, unit string }{
		{"fleet of 20: goroutines per cluster", "goroutines"},
		{"mixed: live heap per object", "B"},
	} {
		r.add(n.name, subjects.Fleetcache, 7, n.unit, atMost(6))
		r.add(n.name, subjects.Typed, 70, n.unit, nil)
		r.note(n.name, subjects.ClusterAPI, "time-out")
	}
	for _, size := range []float64{10, 100} {
		r.add("growth: resident memory of "+number(size)+" clusters", subjects.Fleetcache, size*2, "MiB", nil)
	}

	return publication{Command: "go", objects: 200, Results: []result{{
		Step:    "one",
		Date:    time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Seconds: 100,
		Rows:    r.rows,
	}}}
}

func TestTheTableShowsWhatIsMissedAndWhatIsMissing(t *testing.T) {
	text := published().markdown()
	require.Contains(t, text, "2026-01-02")
	require.Contains(t, text, "| goroutines per cluster | **7** (missed: <= 6) | 70 | – |")
	require.Contains(t, text, "| live heap per object, B | **7** (missed: <= 6) | 70 | – |")
	require.Contains(t, text, subjects.ClusterAPI+" did not get there: time-out.")
	table, source, _ := strings.Cut(published().short(), "\n\n")
	require.Contains(t, source, "2026-01-02")
	for line := range strings.Lines(table) {
		require.Equal(t, 7, strings.Count(line, "|"), line)
	}
	require.Contains(t, source, "a run of 2 min")
	for _, line := range []string{
		"| Live heap per object, mixed kinds, B | 200 objects of one cluster | 7 | 70 | – | – |",
		"| Goroutines per cluster | a fleet of 20, the process's own part included | 7 | 70 | – | – |",
	} {
		require.Contains(t, table, line)
	}
}

func TestThePlotHasTheSizesOfTheFleet(t *testing.T) {
	require.Equal(t, 2, strings.Count(string(published().plot("Memory", "MiB", "resident memory")), "<circle"))
	require.Equal(t, 0, strings.Count(string(published().plot("Goroutines", "", "goroutines")), "<circle"))
}

func TestOnlyWhatIsBetweenTheMarkersIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(path, []byte("before\n"+beginMarker+"old\n"+endMarker+"after\n"), 0o600))
	for range 2 {
		require.NoError(t, fillIn(path, []byte("new\n")))
	}
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "before\n"+beginMarker+"\nnew\n\n"+endMarker+"after\n", string(page))

	require.NoError(t, os.WriteFile(path, []byte("no markers"), 0o600))
	require.ErrorContains(t, fillIn(path, nil), "no markers")
}

func TestPathsOfAMachineAreNotPublished(t *testing.T) {
	require.Equal(t, []string{"-short", "-fleet", "50"},
		withoutPaths([]string{"-out", "/tmp/x", "-short", "-docs=/a/b", "-fleet", "50", "--profile", "/p"}))
}

func TestFlagsChangeThePlan(t *testing.T) {
	c, err := parse([]string{"-fleet", "70", "-peers", "3", "-rows", "fleet,kinds"})
	require.NoError(t, err)
	require.Equal(t, 70, c.plan.clusters)
	require.Equal(t, 70, c.plan.growth[len(c.plan.growth)-1])
	require.Equal(t, 1000, full.growth[len(full.growth)-1])
	require.Equal(t, 3, c.plan.peerClusters)
	require.Equal(t, []string{"fleet", "kinds"}, c.rows)

	c, err = parse([]string{"-short", "-seed", "9"})
	require.NoError(t, err)
	require.True(t, c.plan.light)
	require.EqualValues(t, 9, c.plan.seed)
}
