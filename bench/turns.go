// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"

	"github.com/fleetcache/fleetcache/bench/internal/subjects"
	"github.com/fleetcache/fleetcache/bench/measure"
)

// turns are the measurements of the subjects, by name, one for each turn that a
// subject had.
type turns map[string][]measure.Figures

// median returns the median of a figure over the turns of a subject, if it had
// any.
func (t turns) median(subject, figure string) (float64, bool) {
	var values []float64
	for _, f := range t[subject] {
		values = append(values, f[figure])
	}
	if len(values) == 0 {
		return 0, false
	}
	return median(values), true
}

// ratio returns the median of a subject's figure divided by that which the peer
// had in the same turn, if both had any.
func (t turns) ratio(subject, peer, figure string) (float64, bool) {
	var values []float64
	for i := range min(len(t[subject]), len(t[peer])) {
		values = append(values, t[subject][i][figure]/t[peer][i][figure])
	}
	if len(values) == 0 {
		return 0, false
	}
	return median(values), true
}

// inTurns measures all subjects. Ours and the typed peer, whose ratio has a
// bound, have as many turns as there are rounds, one directly after the other,
// so that a machine that is busy with something else slows down both. A peer
// that fails is noted and has no further turn.
func (p plan) inTurns(
	ctx context.Context, measureOne func(subject string, round int) (measure.Figures, error),
	note func(subject, why string),
) (turns, error) {
	var pair, others []string
	for _, s := range p.fleetSubjects() {
		if s == subjects.Fleetcache || s == subjects.Typed {
			pair = append(pair, s)
		} else {
			others = append(others, s)
		}
	}

	taken, failed := turns{}, map[string]bool{}
	for round := range p.rounds {
		names := pair
		if round == 0 {
			names = slices.Concat(pair, others)
		}
		for _, s := range names {
			if failed[s] {
				continue
			}
			f, err := measureOne(s, round)
			if err != nil && s != subjects.Fleetcache && ctx.Err() == nil {
				note(s, err.Error())
				failed[s] = true
				continue
			}
			if err != nil {
				return nil, err
			}
			taken[s] = append(taken[s], f)
		}
		slices.Reverse(pair)
	}

	return taken, nil
}
