// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/fleetcache/fleetcache/bench/internal/fleetserver"
	"github.com/fleetcache/fleetcache/bench/internal/subjects"
	"github.com/fleetcache/fleetcache/bench/measure"
)

// smallObjects is how many objects there are of each of many kinds.
const smallObjects = 5

// boundedKinds is the number of kinds for which the bound is meant.
const boundedKinds = 300

// smallSets measures many kinds with few objects of each, as a cluster has them
// that serves the custom kinds of many operators. The subjects take turns.
func (p plan) smallSets(ctx context.Context, r *report) (err error) {
	url, stop, err := startFleet(ctx, fleetserver.Options{
		Clusters: 1,
		Objects:  smallObjects,
		Custom:   p.smallKinds,
		Replicas: 1,
		Seed:     p.seed,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	clusters, err := measure.Control{URL: url}.Clusters(ctx)
	if err != nil {
		return err
	}
	t := measure.Task{
		Work:     measure.WorkKind,
		Clusters: clusters,
		First:    fleetserver.Kinds()[0],
		Kinds:    fleetserver.Custom(p.smallKinds),
	}
	for range t.Kinds {
		t.Counts = append(t.Counts, smallObjects)
	}

	names := []string{subjects.Fleetcache, subjects.Unstructured, subjects.Stripped}
	taken := turns{}
	for range p.rounds {
		for _, s := range names {
			if p.only != "" && p.only != s {
				continue
			}
			t.Subject = s
			f, err := watching(ctx, t)
			if err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
			f["memory"] = f["heap"] + f["stack"]
			taken[s] = append(taken[s], f)
		}
	}
	p.smallRows(r, names, taken)

	return nil
}

func (p plan) smallRows(r *report, names []string, taken turns) {
	work := fmt.Sprintf("%d kinds of %d objects: ", p.smallKinds, smallObjects)
	for _, x := range []struct {
		what, figure, unit string
		times              float64
	}{
		{"live heap per kind", "heap", "KiB", smallObjects / 1024.0},
		{"live heap and stack per kind", "memory", "KiB", smallObjects / 1024.0},
		{"sync: processor time per object", "cpu", "µs", 1e6},
	} {
		for _, s := range names {
			if v, ok := taken.median(s, x.figure); ok {
				r.add(work+x.what, s, v*x.times, x.unit, nil)
			}
		}
	}
	for _, x := range []struct {
		what, figure string
		bound        *bound
	}{
		{"live heap: times ours", "heap", atLeast(5)},
		{"live heap and stack: times ours", "memory", nil},
	} {
		for _, s := range names[1:] {
			b := x.bound
			if s != subjects.Unstructured || p.smallKinds < boundedKinds {
				b = nil
			}
			if v, ok := taken.ratio(s, subjects.Fleetcache, x.figure); ok {
				r.add(work+x.what, s, v, "times", b)
			}
		}
	}
}
