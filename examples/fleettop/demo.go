// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/informerpool"
)

// reconnectEvery speeds up the demonstration: it caps the time between two
// attempts to reach a cluster that is stopped (default 30 s).
const reconnectEvery = 2 * time.Second

// stopped is the cluster whose API server is stopped.
const stopped = "west"

// demo is the demonstration on clusters that run on this machine.
type demo struct {
	story.Story

	fleet   *fleet.Fleet
	top     *top
	length  time.Duration
	writers map[string]*writer
	writing sync.WaitGroup

	seen observations
}

// observations are frames that were drawn, and what was true meanwhile.
type observations struct {
	steady, down, back, end frame

	// silent is how long the API server had been stopped when down was drawn.
	silent time.Duration
	// objects are those that the API servers have at the end, and written the
	// writes that they have accepted.
	objects, written map[string]int
}

// showLocal starts clusters, shows them for a time, and checks what was shown.
func showLocal(
	ctx context.Context, local fleet.Local, out *story.Printer, show display, length time.Duration, log logr.Logger,
) (err error) {
	if length == 0 {
		length = demoLength
	}
	f, err := local.Start(ctx, out, "Four clusters", "hub", "east", "north", stopped)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()

	d := &demo{
		Story:   story.Story{Printer: out},
		fleet:   f,
		length:  length,
		writers: map[string]*writer{},
	}
	if err := d.setUp(ctx, show, log); err != nil {
		return err
	}
	watch := func(ctx context.Context) error { return d.top.during(ctx, d.perform) }
	return d.Tell(ctx,
		story.Chapter{Title: "The fleet, for " + length.String(), Tell: watch},
		story.Chapter{Title: "What it has shown was right", Tell: d.judge},
	)
}

// setUp creates objects in the clusters, writers, and the top.
func (d *demo) setUp(ctx context.Context, show display, log logr.Logger) error {
	configs := map[client.ObjectKey]*rest.Config{}
	for i, c := range d.fleet.Clusters() {
		w := &writer{cluster: c, objects: 10 * (i + 1), every: time.Second / time.Duration(i+1)}
		if err := furnish(ctx, c, w.objects); err != nil {
			return err
		}
		d.writers[c.Name()] = w
		configs[client.ObjectKey{Name: c.Name()}] = c.Config()
	}
	d.Say("each has ConfigMaps now; they will change, from one a second in hub to four a second in west")
	clusters, err := resolver.Static(configs)
	if err != nil {
		return err
	}
	d.top, err = newTop(clusters, defaultKinds(), show, clustercache.Options{
		Logger:        log,
		MaxBackoff:    reconnectEvery,
		RetryInterval: reconnectEvery,
		Informers:     informerpool.Options{MaxBackoff: reconnectEvery},
	})
	return err
}

// perform changes the clusters while they are shown: the API server of one is
// stopped after a quarter of the time, and started again after half of it.
func (d *demo) perform(ctx context.Context) error {
	begin := time.Now()
	write, stopWriting := context.WithCancel(ctx)
	defer d.writing.Wait()
	defer stopWriting()
	for _, w := range d.writers {
		d.writing.Go(func() { w.run(write) })
	}
	var err error
	if d.seen.steady, err = d.await(ctx, "all clusters Ready, with events", healthy); err != nil {
		return err
	}
	if err := story.Sleep(ctx, time.Until(begin.Add(d.length/4))); err != nil {
		return err
	}

	if err := d.stopOne(ctx, begin.Add(d.length/2)); err != nil {
		return err
	}
	if d.seen.back, err = d.await(ctx, "all clusters Ready again, with events", healthy); err != nil {
		return err
	}
	if err := story.Sleep(ctx, time.Until(begin.Add(d.length))); err != nil {
		return err
	}

	stopWriting()
	d.writing.Wait()
	return d.settle(ctx)
}

// stopOne stops an API server until a time, and for as long as it takes to be
// shown.
func (d *demo) stopOne(ctx context.Context, end time.Time) error {
	cluster := d.writers[stopped].cluster
	d.top.note("the API server of " + stopped + " is killed")
	if err := cluster.Kill(); err != nil { //nolint:contextcheck // a kill waits for nothing
		return err
	}
	killed := time.Now()
	_, err := d.await(ctx, stopped+" Disconnected", func(f frame) error {
		if r := f.row(stopped); r.Phase != status.PhaseDisconnected || f.at.Before(killed) {
			return errors.New(shown(r))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := story.Sleep(ctx, time.Until(end)); err != nil {
		return err
	}
	d.seen.down = d.top.drawn()
	d.seen.silent = d.seen.down.at.Sub(killed)
	d.top.note("the API server of " + stopped + " is started again")

	return cluster.StartAPIServer(ctx)
}

// settle waits until what is shown is what the API servers have.
func (d *demo) settle(ctx context.Context) (err error) {
	d.seen.objects, d.seen.written = map[string]int{}, map[string]int{}
	for name, w := range d.writers {
		if d.seen.objects[name], err = countObjects(ctx, w.cluster); err != nil {
			return err
		}
		d.seen.written[name] = w.written()
	}
	ended := time.Now()
	d.seen.end, err = d.await(ctx, "a frame after the last write", func(f frame) error {
		for name, objects := range d.seen.objects {
			r, written := f.row(name), d.seen.written[name]
			if r.Objects != objects || 10*r.events < 8*written {
				return fmt.Errorf("%s, %d events; there are %d objects, and %d writes",
					shown(r), r.events, objects, written)
			}
		}
		if f.at.Sub(ended) < time.Second {
			return errors.New("none yet") // the last events may be on their way
		}
		return nil
	})
	return err
}

// await waits until a frame is drawn that check accepts, and returns that.
func (d *demo) await(ctx context.Context, expected string, check func(frame) error) (accepted frame, err error) {
	_, err = d.Await(ctx, d.top.interval()+story.Patience, expected, func() error {
		accepted = d.top.drawn()
		return check(accepted)
	})
	return accepted, err
}

// healthy returns an error unless all clusters are in order, and change.
func healthy(f frame) error {
	if len(f.rows) == 0 {
		return errors.New("no cluster")
	}
	for _, r := range f.rows {
		if r.Phase != status.PhaseReady || r.reason() != "" || r.rate == 0 {
			return errors.New(shown(r))
		}
	}
	return nil
}

// shown returns a row as one line.
func shown(r row) string {
	all := r.cells()
	return strings.Join(strings.Fields(strings.Join(all[:], " ")), " ")
}
