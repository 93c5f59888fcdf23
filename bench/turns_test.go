// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/bench/internal/subjects"
	"github.com/fleetcache/fleetcache/bench/measure"
)

func TestARatioIsThatOfTheSameTurn(t *testing.T) {
	taken := turns{
		subjects.Fleetcache: {{"cpu": 1}, {"cpu": 40}, {"cpu": 9}, {"cpu": 7}},
		subjects.Typed:      {{"cpu": 2}, {"cpu": 40}, {"cpu": 3}},
	}
	ratio, ok := taken.ratio(subjects.Fleetcache, subjects.Typed, "cpu")
	require.True(t, ok)
	require.InDelta(t, 1, ratio, 0)
	value, ok := taken.median(subjects.Typed, "cpu")
	require.True(t, ok)
	require.InDelta(t, 3, value, 0)

	_, ok = taken.ratio(subjects.Fleetcache, subjects.Dynamic, "cpu")
	require.False(t, ok)
	_, ok = taken.median(subjects.Dynamic, "cpu")
	require.False(t, ok)
}

func TestTheSidesOfARatioFollowOneAnother(t *testing.T) {
	var order []string
	notes := map[string]string{}
	taken, err := plan{rounds: 3, light: true}.inTurns(t.Context(), func(s string, _ int) (measure.Figures, error) {
		order = append(order, s)
		if s == subjects.ClusterAPI {
			return nil, errors.New("too slow")
		}
		return measure.Figures{}, nil
	}, func(s, why string) { notes[s] = why })
	require.NoError(t, err)
	require.Equal(t, []string{
		subjects.Fleetcache, subjects.Typed, subjects.ClusterAPI,
		subjects.Typed, subjects.Fleetcache,
		subjects.Fleetcache, subjects.Typed,
	}, order)
	require.Equal(t, map[string]string{subjects.ClusterAPI: "too slow"}, notes)
	require.Len(t, taken[subjects.Fleetcache], 3)

	ours := errors.New("ours")
	_, err = plan{rounds: 3}.inTurns(t.Context(), func(string, int) (measure.Figures, error) { return nil, ours }, nil)
	require.ErrorIs(t, err, ours, "ours has to get there")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = plan{rounds: 3, only: subjects.Typed}.inTurns(ctx,
		func(string, int) (measure.Figures, error) { return nil, ctx.Err() }, nil)
	require.ErrorIs(t, err, context.Canceled, "an interrupted peer is no result")
}
