// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

// demo is one run: the operator, its observations, and the story about them.
type demo struct {
	story.Story

	journal  *journal
	operator *operator
}

// newDemo returns a demo whose story waits for reports to the journal.
func newDemo(out *story.Printer, j *journal, operator *operator) demo {
	return demo{Story: story.Story{Printer: out, Changed: j.news}, journal: j, operator: operator}
}

// during runs the operator while show runs, and returns when both have ended.
func (d *demo) during(ctx context.Context, show func(context.Context) error) error {
	var shown time.Time
	err := story.During(ctx, d.operator.run, func(ctx context.Context) error {
		err := show(ctx)
		if _, unmet := errors.AsType[*story.UnmetError](err); unmet {
			d.showClusters()
		}
		shown = time.Now()
		return err
	})
	d.Say("the operator has stopped, %s after its context ended", story.Brief(time.Since(shown)))
	return err
}

func (d *demo) clusters() *clustercache.ClusterCache { return d.operator.clusters }

// showClusters prints the state of the clusters.
func (d *demo) showClusters() {
	d.Table(d.journal.table(d.clusters().Statuses(), time.Now()))
}

// stay prints the state of the clusters from time to time until ctx ends.
func (d *demo) stay(ctx context.Context) {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.showClusters()
		case <-ctx.Done():
			return
		}
	}
}
