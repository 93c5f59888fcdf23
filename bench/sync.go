// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// idleSpan is how long a process is watched doing nothing, to know what that
// costs.
const idleSpan = 300 * time.Millisecond

// initialSync measures the processor time an initial sync takes, and the heap
// its objects then live in.
func initialSync(ctx context.Context, t task) (figures, error) {
	w, err := t.openPods(ctx)
	if err != nil {
		return nil, err
	}
	before := settle()
	stop, err := t.profileCPU()
	if err != nil {
		return nil, err
	}
	idle := busy()
	time.Sleep(idleSpan)
	cpu, began := busy(), time.Now()
	idle = cpu - idle
	if err := w.watch(ctx, pods, ""); err != nil {
		return nil, err
	}
	took := time.Since(began)
	cpu = busy() - cpu
	stop()
	after := settle()
	if err := t.profile("synced"); err != nil {
		return nil, err
	}
	return figures{
		"heap":    (after.heap - before.heap) / float64(t.Count),
		"cpu":     (cpu - time.Duration(float64(idle)*float64(took)/float64(idleSpan))).Seconds(),
		"elapsed": took.Seconds(),
	}, t.complete(ctx, w)
}

// peak measures how high the heap of the whole process gets during the initial
// sync, beside what it is afterwards. It is no part of initialSync because
// looking costs processor time.
func peak(ctx context.Context, t task) (figures, error) {
	w, err := t.openPods(ctx)
	if err != nil {
		return nil, err
	}
	settle()
	s := startSampler()
	err = w.watch(ctx, pods, "")
	highest := s.end()
	if err != nil {
		return nil, err
	}
	return figures{"peak": highest, "steady": settle().heap}, t.complete(ctx, w)
}

// openPods opens the subject and lets it do once what is done once per process
// and per connection.
func (t task) openPods(ctx context.Context) (watcher, error) {
	w, err := t.open()
	if err != nil {
		return nil, err
	}
	return w, w.watch(ctx, configMaps, "idle-first")
}

// complete checks that what was measured did its work; until then it is not
// garbage either.
func (t task) complete(ctx context.Context, w watcher) error {
	n, err := w.count(ctx)
	if err == nil && n != t.Count {
		err = fmt.Errorf("%s has %d objects instead of %d", t.Subject, n, t.Count)
	}
	return err
}

// busy returns the processor time the process has taken, in user and kernel
// mode.
func busy() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it can only fail for a bad argument
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
