// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleetcache/fleetcache/bench/internal/fleetserver"
	"github.com/fleetcache/fleetcache/bench/internal/subjects"
	"github.com/fleetcache/fleetcache/bench/measure"
)

// eventPods is how many Pods the cluster has whose changes are delivered.
const eventPods = 2000

// events measures how changes of Pods reach a handler.
func (p plan) events(ctx context.Context, r *report) error {
	taken, err := p.inTurns(ctx, func(s string, round int) (measure.Figures, error) {
		if s == subjects.ClusterAPI {
			return nil, errSameInformers
		}
		rest := max(p.rest/3, 2*time.Second)
		if round > 0 {
			rest /= 2
		}
		return p.watchingFleet(ctx, 1, eventPods, measure.Task{
			Work:    measure.WorkEvents,
			Subject: s,
			Kinds:   fleetserver.Kinds()[:1],
			Rates:   p.rates,
			Rest:    rest,
		})
	}, func(s, why string) {
		r.note(fmt.Sprintf("events, %g per second: processor time per event", p.rates[0]), s, why)
	})
	if err != nil {
		return err
	}

	for _, rate := range p.rates {
		work := fmt.Sprintf("events, %g per second: ", rate)
		figure := func(name string) string { return fmt.Sprintf("%s-%g", name, rate) }
		for _, x := range []struct {
			what, figure, unit string
			times              float64
		}{
			{"processor time per event, beyond a raw watch", "cpu", "µs", 1e6},
			{"delay beyond a raw watch, median", "p50", "ms", 1e3},
			{"delay beyond a raw watch, p99", "p99", "ms", 1e3},
			{"delivered one by one", "delivered", "%", 100},
		} {
			for _, s := range p.fleetSubjects() {
				if v, ok := taken.median(s, figure(x.figure)); ok {
					r.add(work+x.what, s, v*x.times, x.unit, nil)
				}
			}
		}
		if ratio, ok := taken.ratio(subjects.Fleetcache, subjects.Typed, figure("cpu")); ok {
			b := atMost(1)
			if p.light { // a few dozen events, in one turn
				b = nil
			}
			r.add(work+"processor time per event, ours / typed", subjects.Fleetcache, ratio, "times", b)
		}
	}

	return nil
}

// errSameInformers is why Cluster API's cache has no events of its own.
var errSameInformers = errors.New("its informers are those of " + subjects.Typed)
