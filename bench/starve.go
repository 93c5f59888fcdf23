// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/fleetcache/fleetcache/bench/internal/fleetserver"
	"github.com/fleetcache/fleetcache/bench/internal/subjects"
	"github.com/fleetcache/fleetcache/bench/measure"
)

// A starved process runs for running, and then stands still for standing, as one
// whose container has used up its share of a core.
const (
	running  = 10 * time.Millisecond
	standing = 90 * time.Millisecond
)

// starve starves a process until ctx or the process ends.
func starve(ctx context.Context, p *os.Process) error {
	for {
		for _, turn := range []struct {
			signal syscall.Signal
			lasts  time.Duration
		}{{syscall.SIGCONT, running}, {syscall.SIGSTOP, standing}} {
			err := p.Signal(turn.signal)
			if errors.Is(err, os.ErrProcessDone) {
				return nil
			}
			if err != nil {
				return err
			}
			select {
			case <-time.After(turn.lasts):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// starved measures how often clusters are dialed in a first sync for which there
// is a tenth of a core: a time-out that ends because the process itself was late
// makes another connection, and the sync longer.
func (p plan) starved(ctx context.Context, r *report) error {
	for _, s := range []string{subjects.Fleetcache, subjects.Typed} {
		if p.only != "" && p.only != s {
			continue
		}
		f, err := p.watchingFleet(ctx, p.starvedClusters, p.fleetObjects, measure.Task{
			Work:    measure.WorkFleet,
			Subject: s,
			Kinds:   fleetserver.Kinds(),
			Objects: p.fleetObjects,
			Starved: true,
		})
		if err != nil {
			return err
		}
		var dials *bound
		if s == subjects.Fleetcache {
			dials = atMost(1.3)
		}
		work := fmt.Sprintf("first sync of %d clusters with a tenth of a core: ", p.starvedClusters)
		r.add(work+"dials per cluster", s, f["sync/opened"]/float64(p.starvedClusters), "connections", dials)
		r.add(work+"elapsed", s, f["sync/elapsed"], "s", nil)
	}
	return nil
}
