// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/fleetcache/fleetcache/bench/internal/fleetserver"
	"github.com/fleetcache/fleetcache/bench/internal/subjects"
	"github.com/fleetcache/fleetcache/bench/measure"
)

// fewGets and manyGets are how many objects an operator reads after a change.
const (
	fewGets  = 3
	manyGets = 100
)

// operatorRate is the number of changes per second, in all clusters together.
const operatorRate = 50

// operators are the subjects that an operator reads from, each after the peer
// that it is compared with.
var operators = []struct {
	subject, peer string
	// few and many bound the processor time, as a multiple of the peer's.
	few, many *bound
	// resident bounds the resident memory likewise.
	resident *bound
}{
	{subject: subjects.Typed},
	{subjects.Fleetcache, subjects.Typed, atMost(1.4), atMost(1.5), atMost(0.35)},
	{subjects.FleetcacheShared, subjects.Typed, atMost(1), atMost(1.5), atMost(0.35)},
	{subject: subjects.Unstructured},
	{subjects.FleetcacheUnstructured, subjects.Unstructured, atMost(0.6), atMost(1.5), atMost(0.35)},
}

// operator measures what an operator costs that reads after each change. The
// subjects take turns.
func (p plan) operator(ctx context.Context, r *report) error {
	taken := map[string][]measure.Figures{}
	for range p.rounds {
		for _, o := range operators {
			if p.only != "" && p.only != o.subject {
				continue
			}
			f, err := p.operatorOf(ctx, o.subject)
			if err != nil {
				return fmt.Errorf("%s: %w", o.subject, err)
			}
			taken[o.subject] = append(taken[o.subject], f)
		}
	}

	for _, gets := range []int{fewGets, manyGets} {
		of := func(subject, figure string) (values []float64) {
			for _, f := range taken[subject] {
				values = append(values, f[fmt.Sprintf("%s-%d", figure, gets)])
			}
			return values
		}
		add := func(what, subject string, values []float64, times float64, unit string, b *bound) {
			if len(values) == 0 {
				return
			}
			work := fmt.Sprintf("operator of %d clusters, %d Gets and a List per change: %s",
				p.readClusters, gets, what)
			r.add(work, subject, median(values)*times, unit, b)
		}
		ratio := func(what, figure string, bounds func(few, many, resident *bound) *bound) {
			for _, o := range operators {
				ours, peers := of(o.subject, figure), of(o.peer, figure)
				for i := range min(len(ours), len(peers)) {
					ours[i] /= peers[i]
				}
				b := bounds(o.few, o.many, o.resident)
				if p.light { // the process without a cluster weighs more
					b = nil
				}
				add(what, o.subject, ours[:min(len(ours), len(peers))], 1, "times", b)
			}
		}
		for _, o := range operators {
			add("processor time per change", o.subject, of(o.subject, "cpu"), 1e6, "µs", nil)
			add("allocations per change", o.subject, of(o.subject, "allocations"), 1, "allocations", nil)
			add("allocated per change", o.subject, of(o.subject, "allocated"), 1.0/kib, "KiB", nil)
			add("resident memory, mean", o.subject, of(o.subject, "rss"), 1.0/mib, "MiB", nil)
		}
		ratio("processor time, by that of the peer of its form", "cpu", func(few, many, _ *bound) *bound {
			if gets == fewGets {
				return few
			}
			return many
		})
		ratio("resident memory, by that of the peer of its form", "rss",
			func(_, _, resident *bound) *bound { return resident })
	}

	return nil
}

func (p plan) operatorOf(ctx context.Context, subject string) (measure.Figures, error) {
	return p.watchingFleet(ctx, p.readClusters, p.readObjects, measure.Task{
		Work:    measure.WorkOperator,
		Subject: subject,
		Kinds:   fleetserver.Kinds(),
		Objects: p.readObjects,
		Rates:   []float64{operatorRate},
		Gets:    []int{fewGets, manyGets},
		Rest:    p.rest / 2,
	})
}
