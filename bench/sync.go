// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/fleetcache/fleetcache/bench/measure"
)

// idleSpan is how long a process is observed doing nothing, to determine the
// cost of that.
const idleSpan = 300 * time.Millisecond

// initialSync measures the CPU time of an initial sync, and the heap that its
// objects then occupy.
func initialSync(ctx context.Context, t task) (measure.Figures, error) {
	w, err := t.openPods(ctx)
	if err != nil {
		return nil, err
	}
	before := measure.Settle()
	stop, err := profileCPU(t.profilePath("cpu"))
	if err != nil {
		return nil, err
	}
	idle := measure.CPU()
	time.Sleep(idleSpan)
	cpu, began := measure.CPU(), time.Now()
	idle = cpu - idle
	if err := w.watch(ctx, pods, ""); err != nil {
		return nil, err
	}
	took := time.Since(began)
	cpu = measure.CPU() - cpu
	if err := stop(); err != nil {
		return nil, err
	}
	after := measure.Settle()
	if err := t.profile("synced"); err != nil {
		return nil, err
	}
	return measure.Figures{
		"heap":    (after.Heap - before.Heap) / float64(t.Count),
		"cpu":     (cpu - time.Duration(float64(idle)*float64(took)/float64(idleSpan))).Seconds(),
		"elapsed": took.Seconds(),
	}, t.complete(ctx, w)
}

// peak measures how much higher the heap of the whole process gets during the
// initial sync than it is afterwards. It is separate from initialSync because
// sampling costs CPU time.
func peak(ctx context.Context, t task) (measure.Figures, error) {
	w, err := t.openPods(ctx)
	if err != nil {
		return nil, err
	}
	measure.Settle()
	s := startSampler()
	err = w.watch(ctx, pods, "")
	highest := s.end()
	if err != nil {
		return nil, err
	}
	return measure.Figures{"peak": highest, "steady": measure.Settle().Heap}, t.complete(ctx, w)
}

// openPods opens the subject and makes it do everything that is done once per
// process and once per connection.
func (t task) openPods(ctx context.Context) (watcher, error) {
	w, err := t.open()
	if err != nil {
		return nil, err
	}
	return w, w.watch(ctx, configMaps, "idle-first")
}

// complete checks that the measured subject did its work, and keeps the subject
// from being garbage until then.
func (t task) complete(ctx context.Context, w watcher) error {
	n, err := w.count(ctx)
	if err == nil && n != t.Count {
		err = fmt.Errorf("%s has %d objects instead of %d", t.Subject, n, t.Count)
	}
	return err
}
