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
	for _, s := range p.fleetSubjects() {
		if s == subjects.ClusterAPI {
			r.note(fmt.Sprintf("events, %g per second: processor time per event", p.rates[0]), s,
				"its informers are those of controller-runtime/typed")
			continue
		}
		f, err := p.eventsOf(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		for _, rate := range p.rates {
			add := func(what, figure, unit string, times float64) {
				value := f[fmt.Sprintf("%s-%g", figure, rate)] * times
				r.add(fmt.Sprintf("events, %g per second: %s", rate, what), s, value, unit, nil)
			}
			add("processor time per event, beyond a raw watch", "cpu", "µs", 1e6)
			add("delay beyond a raw watch, median", "p50", "ms", 1e3)
			add("delay beyond a raw watch, p99", "p99", "ms", 1e3)
			add("delivered one by one", "delivered", "%", 100)
		}
	}

	return nil
}

func (p plan) eventsOf(ctx context.Context, subject string) (f measure.Figures, err error) {
	url, stop, err := startFleet(ctx, fleetserver.Options{
		Clusters: 1,
		Objects:  eventPods,
		Replicas: p.replicas,
		Seed:     p.seed,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()

	return watching(ctx, measure.Task{
		Work:     measure.WorkEvents,
		Subject:  subject,
		Control:  url,
		Kinds:    fleetserver.Kinds()[:1],
		Rates:    p.rates,
		Rest:     max(p.rest/3, 2*time.Second),
		Patience: p.patience,
	})
}
