// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetcache/fleetcache/bench/internal/fleetserver"
	"github.com/fleetcache/fleetcache/bench/internal/subjects"
	"github.com/fleetcache/fleetcache/bench/measure"
	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/clustercache/persist/bolt"
)

// startArg, as the only argument, makes the program measure a start, and the
// end, of a ClusterCache that may keep its caches.
const startArg = "measure-a-start"

// Metrics that the rows need.
const (
	listsMetric    = "fleetcache_list_requests_total"
	restoresMetric = "fleetcache_restores_total"
)

// startTask is what is started.
type startTask struct {
	Control string
	// Path is the file with the caches; empty for a start without one.
	Path     string
	Patience time.Duration
	// Profile is the path of a CPU profile of the start, or empty.
	Profile string
}

// run measures the start in this process.
func (t startTask) run(ctx context.Context) (f measure.Figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.Patience)
	defer cancel()
	control := measure.Control{URL: t.Control}
	clusters, err := control.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	f = measure.Figures{}
	if err := measure.ResetPeak(); err != nil {
		return nil, err
	}
	stopProfile, err := profileCPU(t.Profile)
	if err != nil {
		return nil, err
	}
	metrics := prometheus.NewRegistry()
	asked, err := control.Counts(ctx)
	if err != nil {
		return nil, err
	}
	cpu, began := measure.CPU(), time.Now()
	var store persist.Store
	counted := &countingStore{}
	if t.Path != "" {
		file, err := bolt.Open(t.Path, bolt.Options{})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		counted.Store = file
		store = counted
	}
	s, err := subjects.Persisting(store, metrics)(context.WithoutCancel(ctx), clusters)
	if err != nil {
		return nil, err
	}
	if err := s.Watch(ctx, fleetserver.Kinds()); err != nil {
		return nil, err
	}
	f["elapsed"], f["cpu"] = time.Since(began).Seconds(), (measure.CPU() - cpu).Seconds()
	if err := stopProfile(); err != nil {
		return nil, err
	}
	if _, f["peak"], err = measure.RSS(); err != nil {
		return nil, err
	}
	if sized, ok := s.(interface{ Bytes() int64 }); ok {
		f["objects"] = float64(sized.Bytes())
	}
	answered, err := control.Counts(ctx)
	if err != nil {
		return nil, err
	}
	if err := gather(metrics, f); err != nil {
		return nil, err
	}
	f["lists"] = f[listsMetric] + float64(answered.Streams-asked.Streams)
	before := measure.Settle()
	f["heap"] = before.Heap
	cpu, began = measure.CPU(), time.Now()
	if err := s.Stop(); err != nil {
		return nil, err
	}
	f["stop/elapsed"], f["stop/cpu"] = time.Since(began).Seconds(), (measure.CPU() - cpu).Seconds()
	f["stop/allocated"] = measure.Settle().Allocated - before.Allocated
	f["stop/written"] = float64(counted.bytes)

	return f, nil
}

// countingStore counts the bytes of the records that are written.
type countingStore struct {
	persist.Store

	bytes int64
}

// Apply implements persist.Store.
func (s *countingStore) Apply(changes []persist.Change) error {
	for _, c := range changes {
		s.bytes += int64(len(c.Key) + len(c.Value))
	}
	return s.Store.Apply(changes)
}

// gather adds the metrics that the rows need.
func gather(metrics prometheus.Gatherer, f measure.Figures) error {
	f[listsMetric], f[restoresMetric] = 0, 0 // there is no metric without any
	families, err := metrics.Gather()
	for _, family := range families {
		name := family.GetName()
		switch name {
		case listsMetric, restoresMetric:
			for _, m := range family.GetMetric() {
				f[name] += m.GetCounter().GetValue()
			}
		}
	}
	return err
}

// start measures one start.
func (p plan) start(ctx context.Context, control, path, name string) (measure.Figures, error) {
	t := startTask{Control: control, Path: path, Patience: p.patience}
	if p.profile != "" {
		t.Profile = filepath.Join(p.profile, "start-"+name+".pprof")
	}
	return inChild(ctx, startArg, t)
}

// starts are the ways to start, each of which needs the ones before.
var starts = []string{"without a file", "with an empty file", "from the file", "from the file, after changes"}

// persist measures starts with and without a file that keeps the caches.
func (p plan) persist(ctx context.Context, r *report) (err error) {
	url, stop, err := startFleet(ctx, fleetserver.Options{
		Clusters: p.restarted,
		Objects:  p.fleetObjects,
		Replicas: p.replicas,
		Seed:     p.seed,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	dir, err := os.MkdirTemp("", "fleetcache-bench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	values := map[string][]float64{}
	for round := range p.rounds {
		path := filepath.Join(dir, fmt.Sprint("caches-", round))
		for i, name := range starts {
			of := path
			switch i {
			case 0:
				of = ""
			case 3:
				if _, err := (measure.Control{URL: url}).Change(ctx); err != nil {
					return err
				}
			}
			f, err := p.start(ctx, url, of, fmt.Sprint(i))
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			for what, v := range f {
				values[name+"/"+what] = append(values[name+"/"+what], v)
			}
			if i == 1 {
				info, err := os.Stat(path)
				if err != nil {
					return err
				}
				values["file"] = append(values["file"], float64(info.Size()))
			}
		}
	}
	p.persistRows(r, func(name string) float64 { return median(values[name]) })

	return nil
}

func (p plan) persistRows(r *report, value func(string) float64) {
	add := func(what string, v float64, unit string, b *bound) {
		r.add(fmt.Sprintf("restart with %d clusters: %s", p.restarted, what), subjects.Fleetcache, v, unit, b)
	}
	plain := starts[0]
	for i, name := range starts {
		add(name+": processor time", value(name+"/cpu"), "s", nil)
		add(name+": peak of resident memory", value(name+"/peak")/mib, "MiB", nil)
		add(name+": elapsed", value(name+"/elapsed"), "s", nil)
		if i < 2 {
			continue
		}
		add(name+": processor time, of that without", value(name+"/cpu")/value(plain+"/cpu"), "times", atMost(0.6))
		add(name+": peak, of that without", value(name+"/peak")/value(plain+"/peak"), "times", atMost(1.2))
		add(name+": lists", value(name+"/lists"), "lists", atMost(0))
		add(name+": restored informers", value(name+"/"+restoresMetric), "informers",
			atLeast(float64(p.restarted*len(fleetserver.Kinds()))))
	}
	written, objects := value(starts[1]+"/stop/written"), value(starts[1]+"/objects")
	add("heap of the objects", objects/mib, "MiB", nil)
	add("file", value("file")/mib, "MiB", nil)
	add("file, of the objects' heap", value("file")/objects, "times", atMost(1.3))
	add("written", written/mib, "MiB", nil)
	add("allocated to write, of what is written", value(starts[1]+"/stop/allocated")/written, "times", atMost(2))
	add("processor time to write", value(starts[1]+"/stop/cpu"), "s", nil)
}
