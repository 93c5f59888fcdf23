// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

// These are what the replicas promise.
const (
	// takeover is how long clusters may be without an owner after their replica
	// has failed without a word, and after the hub has come back.
	takeover = 20 * time.Second
	// handOver is how long that may take when a replica ends in order, besides
	// its drain.
	handOver = time.Second
	// expiry is how long a replica owns its clusters after its last renewal.
	expiry = 10 * time.Second
)

const (
	// spread is how long it may take until each replica has its share after
	// one has joined, and settle until late writes would have arrived.
	spread = time.Minute
	settle = time.Second
	// stopped is for how long a replica is stopped.
	stopped = time.Minute
	// refusing is for how long the hub refuses renewals. Writes to it take
	// slowness, for as long as slow.
	refusing = 3 * time.Second
	slowness = 5 * time.Second
	slow     = 30 * time.Second
)

// demonstration is one run of it.
type demonstration struct {
	story.Story
	*world
	record   *record
	replicas map[string]*process // those that should run, and the stopped one
	away     time.Duration
}

// show starts the clusters and the replicas, and shows what becomes of them.
func show(ctx context.Context, s settings, out *story.Printer) (err error) {
	names := append([]string{"hub"}, clusterNames...)
	f, err := fleet.Local{}.Start(ctx, out, "A hub and six remote clusters", names...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	w, err := furnish(ctx, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.gate.close()) }()
	slots, err := w.slots()
	if err != nil {
		return err
	}
	d := &demonstration{
		world:    w,
		record:   newRecord(slots),
		replicas: map[string]*process{},
		away:     s.away,
	}
	d.Story = story.Story{Printer: out, Changed: d.record.next}
	defer d.kill()
	return d.run(ctx)
}

func (d *demonstration) run(ctx context.Context) error {
	return d.Tell(ctx,
		story.Chapter{Title: "Three replicas share the clusters", Tell: d.share},
		story.Chapter{Title: "replica-1 is killed (SIGKILL)", Tell: d.killOne},
		story.Chapter{Title: "replica-3 joins", Tell: d.join},
		story.Chapter{
			Title: "replica-2 is stopped (SIGSTOP) for " + stopped.String() + ", and continued",
			Tell:  d.stopOne,
		},
		story.Chapter{
			Title: "The hub answers renewals with 404, and then with 409, for " + refusing.String() + " each",
			Tell:  d.refuse,
		},
		story.Chapter{Title: "Writes to the hub take " + slowness.String(), Tell: d.slowHub},
		story.Chapter{Title: "replica-0 is drained (SIGTERM)", Tell: d.drainOne},
		story.Chapter{Title: "The hub is away for " + d.away.String(), Tell: d.loseHub},
		story.Chapter{Title: "Judgement", Tell: d.judge},
	)
}

// start starts replicas.
func (d *demonstration) start(names ...string) error {
	for _, name := range names {
		p, err := startProcess(identity{name, hubNamespace}, d.kubeconfig, func(r report) { d.record.add(name, r) })
		if err != nil {
			return err
		}
		d.replicas[name] = p
	}
	return nil
}

// kill kills the replicas that are left.
func (d *demonstration) kill() {
	for _, p := range d.replicas {
		p.kill()
	}
}

// alive returns an error if a replica has ended that should run.
func (d *demonstration) alive() error {
	for name, p := range d.replicas {
		if p.ended() {
			return &story.UnmetError{Expected: name + " goes on", Got: fmt.Sprintf("it has ended: %v", p.err)}
		}
	}
	return nil
}

// owned returns an error unless each cluster has an owner, other than those
// that are left out.
func (d *demonstration) owned(without ...string) error {
	owners := d.record.owners()
	for _, c := range clusterNames {
		if owners[c] == "" || slices.Contains(without, owners[c]) {
			return fmt.Errorf("%s has no owner", c)
		}
	}
	return d.alive()
}

// shared returns an error unless each of the replicas has its share of the
// clusters.
func (d *demonstration) shared(replicas ...string) error {
	if err := d.owned(); err != nil {
		return err
	}
	counts := map[string]int{}
	for _, owner := range d.record.owners() {
		counts[owner]++
	}
	for _, name := range replicas {
		if counts[name] != len(clusterNames)/len(replicas) {
			return fmt.Errorf("the owners are %v", counts)
		}
	}
	return nil
}

// settled waits until all widgets are stamped, and then until late writes would
// have arrived.
func (d *demonstration) settled(ctx context.Context, within time.Duration) error {
	_, err := d.Await(ctx, within, "each change reconciled", func() error { return d.stamped(ctx) })
	if err != nil {
		return err
	}
	return story.Sleep(ctx, settle)
}

// reconciled waits until all widgets are stamped, and expects that each was
// written once since begin.
func (d *demonstration) reconciled(ctx context.Context, begin time.Time) error {
	if err := d.settled(ctx, story.Patience); err != nil {
		return err
	}
	return d.onceBetween(begin, time.Now())
}

func (d *demonstration) onceBetween(begin, end time.Time) error {
	all, err := d.written()
	if err != nil {
		return err
	}
	some := between(all, begin, end)
	got := fmt.Sprintf("%d changes, %d writes have arrived", len(d.widgets()), len(some))
	if err := once(some, d.widgets()); err != nil {
		got = err.Error()
	}
	return d.Expect(once(some, d.widgets()) == nil, "each change was reconciled once", got)
}

// who prints which replica has which cluster.
func (d *demonstration) who() { d.Table(d.record.table()) }

// judge ends the replicas, and looks at everything that has reached the remote
// clusters.
func (d *demonstration) judge(context.Context) error {
	names := slices.Sorted(maps.Keys(d.replicas))
	for _, name := range names {
		if err := d.replicas[name].signal(syscall.SIGTERM); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := d.ended(d.replicas[name]); err != nil {
			return err
		}
		delete(d.replicas, name)
	}
	all, err := d.written()
	if err != nil {
		return err
	}
	wrong := intruders(all, d.record.gains())
	err = d.Expect(len(wrong) == 0, "no write of a replica arrived after another one took over",
		fmt.Sprintf("%d of %d", len(wrong), len(all)))
	if err != nil {
		return err
	}
	changes := (int(d.changes) + 1) * len(d.widgets())
	d.Say("%d changes, %d writes, %d times a cluster got an owner", changes, len(all), len(d.record.gains()))
	return nil
}

// ended waits for a replica that was asked to end, and expects that it does so
// in order.
func (d *demonstration) ended(p *process) error {
	begin := time.Now()
	if err := p.wait(); err != nil {
		return &story.UnmetError{Expected: p.name + " ends with status 0", Got: err.Error()}
	}
	d.OK("%s has ended with status 0, %s later", p.name, story.Brief(time.Since(begin)))
	return nil
}
