// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fleetcache/fleetcache/bench/measure"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// plan determines how much is measured.
type plan struct {
	pods        int
	connections int  // for idle informers
	informers   int  // on each connection
	wait        bool // for bookmarks
	rounds      int  // of each measurement that needs a process of its own
	reads       int  // rounds of each read
	readTime    string
	profile     string
	only        string // a subject, or empty

	seed     uint64
	replicas int // Pods that share labels and an owner
	// clusters is the size of our fleet, and peerClusters of one that all
	// subjects bear; growth and peerGrowth are further sizes, at which only
	// what grows is measured.
	clusters, peerClusters int
	growth, peerGrowth     []int
	// restarted is the size of the fleet whose operator is started again.
	restarted int
	// light leaves out what takes minutes: outages of the peers' fleets, most
	// subjects of fleets, and most kinds.
	light        bool
	fleetObjects int // per kind and cluster
	// starvedClusters is the size of the fleet of a starved operator.
	starvedClusters int
	// readClusters is the size of the fleet whose objects are read, and
	// readObjects their number per kind and cluster.
	readClusters, readObjects int
	rest                      time.Duration
	outages                   []time.Duration
	patience                  time.Duration // bounds each wait for a fleet
	rates                     []float64     // changes per second, for events
	kindObjects               int           // of each kind in one cluster
	smallKinds                int           // of a few objects each
	objectGrowth              []int         // objects of one kind
}

// Both plans measure the same things. The figures of short are less precise,
// and costs that do not grow with the number of objects weigh more in them.
var (
	full = plan{
		pods:        4000,
		connections: 3,
		informers:   90,
		wait:        true,
		rounds:      3,
		reads:       15,
		readTime:    "100ms",

		clusters:        1000,
		peerClusters:    20,
		growth:          []int{10, 50, 200, 1000},
		peerGrowth:      []int{5, 10, 30},
		restarted:       100,
		starvedClusters: 100,
		fleetObjects:    100,
		readClusters:    50,
		readObjects:     200,
		rest:            30 * time.Second,
		outages:         []time.Duration{5 * time.Second, 20 * time.Second},
		patience:        5 * time.Minute,
		rates:           []float64{5, 500},
		kindObjects:     2000,
		smallKinds:      boundedKinds,
		objectGrowth:    []int{1000, 3000, 10000, 30000},
	}
	short = plan{
		pods:        1000,
		connections: 2,
		informers:   40,
		rounds:      1,
		reads:       5,
		readTime:    "30ms",

		light:           true,
		clusters:        20,
		peerClusters:    3,
		growth:          []int{5, 10},
		peerGrowth:      []int{1, 2},
		restarted:       10,
		starvedClusters: 5,
		fleetObjects:    20,
		readClusters:    3,
		readObjects:     50,
		rest:            time.Second,
		outages:         []time.Duration{time.Second},
		patience:        time.Minute,
		rates:           []float64{20},
		kindObjects:     200,
		smallKinds:      40,
		objectGrowth:    []int{200, 500},
	}
)

// String describes what is measured, without which subject.
func (p plan) String() string {
	p.profile, p.only = "", ""
	return fmt.Sprintf("%+v", plain(p))
}

// plain is a plan without its methods.
type plain plan

// task returns the task for a child.
func (p plan) task(work string, s subject, on measure.Cluster, count int) task {
	return task{
		Work:        work,
		Subject:     s.name,
		Cluster:     on,
		Count:       count,
		Connections: p.connections,
		Wait:        p.wait,
		Rounds:      p.reads,
		RoundTime:   p.readTime,
		Profile:     p.profile,
	}
}

// subjects returns the subjects to measure.
func (p plan) subjects() []subject {
	return slices.DeleteFunc(slices.Clone(single), func(s subject) bool { return p.only != "" && s.name != p.only })
}

// mine returns the bound if the subject is ours with our own transport, or else
// nil: bounds do not apply to client-go's costs.
func mine(s subject, b *bound) *bound {
	if s.name == ours {
		return b
	}
	return nil
}

// isOurs reports whether the subject is ours, with any transport.
func isOurs(s subject) bool { return s.name == ours || s.name == oursRest }

func (p plan) idle(ctx context.Context, on measure.Cluster, r *report) error {
	results, err := p.idleAll(ctx, on)
	if err != nil {
		return err
	}
	add := func(work, unit string, b *bound, value func(measure.Figures) float64) {
		for _, s := range p.subjects() {
			r.add(work, s.name, value(results[s.name]), unit, mine(s, b))
		}
	}
	// One or two goroutines of extra connections, which a client opened during
	// the rush, are not part of an informer.
	whole := func(name string) func(measure.Figures) float64 {
		return func(f measure.Figures) float64 { return math.Round(f[name]*10) / 10 }
	}
	sum := func(prefix string) func(measure.Figures) float64 {
		return func(f measure.Figures) float64 { return (f[prefix+"heap"] + f[prefix+"stack"]) / kib }
	}
	add("idle informer: goroutines", "goroutines", atMost(2), whole("informer/goroutines"))
	add("idle informer: heap and stack", "KiB", atMost(12), sum("informer/"))
	add("idle informer: heap", "KiB", nil, func(f measure.Figures) float64 { return f["informer/heap"] / kib })
	add("idle informer: heap spans", "KiB", nil, func(f measure.Figures) float64 { return f["informer/inuse"] / kib })
	add("idle informer: stack", "KiB", nil, func(f measure.Figures) float64 { return f["informer/stack"] / kib })
	add("informer after an object came and went: heap and stack", "KiB", nil, sum("churned/"))
	add("extra handler: goroutines", "goroutines", atMost(0), whole("handler/goroutines"))
	add("extra handler: heap and stack", "KiB", nil, sum("handler/"))

	return nil
}

// idleAll measures all subjects at the same time: they mostly wait, and memory
// does not depend on speed.
func (p plan) idleAll(ctx context.Context, on measure.Cluster) (map[string]measure.Figures, error) {
	all := p.subjects()
	measured := make([]measure.Figures, len(all))
	g, ctx := errgroup.WithContext(ctx)
	for i, s := range all {
		g.Go(func() (err error) {
			measured[i], err = p.task("idle", s, on, p.informers).inChild(ctx)
			return err
		})
	}

	err := g.Wait()
	results := map[string]measure.Figures{}
	for i, s := range all {
		results[s.name] = measured[i]
	}

	return results, err
}

// repeat measures every subject several times, in turn, and returns the
// medians.
func (p plan) repeat(
	ctx context.Context, work string, on measure.Cluster, count int,
) (map[string]measure.Figures, error) {
	values := map[string]map[string][]float64{}
	for range p.rounds {
		for _, s := range p.subjects() {
			f, err := p.task(work, s, on, count).inChild(ctx)
			if err != nil {
				return nil, err
			}
			if values[s.name] == nil {
				values[s.name] = map[string][]float64{}
			}
			for name, v := range f {
				values[s.name][name] = append(values[s.name][name], v)
			}
		}
	}

	medians := map[string]measure.Figures{}
	for s, byName := range values {
		medians[s] = measure.Figures{}
		for name, v := range byName {
			medians[s][name] = median(v)
		}
	}

	return medians, nil
}

func (p plan) sync(ctx context.Context, on measure.Cluster, r *report) error {
	results, err := p.repeat(ctx, "sync", on, p.pods)
	if err != nil {
		return err
	}
	for _, s := range p.subjects() {
		r.add("live heap per pod", s.name, results[s.name]["heap"]/kib, "KiB", mine(s, atMost(1.3)))
	}
	least := map[string]*bound{crUnstructured: atLeast(35), crStripped: atLeast(18), crTyped: atLeast(10)}
	for _, s := range p.subjects() {
		if !isOurs(s) && p.only == "" {
			r.add("live heap per pod: times ours", s.name, results[s.name]["heap"]/results[ours]["heap"], "times",
				least[s.name])
		}
	}
	for _, s := range p.subjects() {
		r.add("initial sync: processor time", s.name, results[s.name]["cpu"], "s", nil)
	}
	for _, s := range p.subjects() {
		if !isOurs(s) && p.only == "" {
			b := map[string]*bound{crUnstructured: atLeast(8)}[s.name]
			r.add("initial sync: processor time: times ours", s.name, results[s.name]["cpu"]/results[ours]["cpu"],
				"times", b)
		}
	}

	for _, s := range p.subjects() {
		r.add("initial sync: elapsed", s.name, results[s.name]["elapsed"], "s", nil)
	}

	return nil
}

func (p plan) peak(ctx context.Context, on measure.Cluster, r *report) error {
	results, err := p.repeat(ctx, "peak", on, p.pods)
	if err != nil {
		return err
	}
	for _, s := range p.subjects() {
		f := results[s.name]
		r.add("initial sync: peak heap", s.name, f["peak"]/mib, "MiB", mine(s, atMost(1.5*f["steady"]/mib+32)))
	}
	for _, s := range p.subjects() {
		r.add("initial sync: heap afterwards", s.name, results[s.name]["steady"]/mib, "MiB", nil)
	}
	return nil
}

// read reports the readings of both sides and their ratios.
func (p plan) read(ctx context.Context, on measure.Cluster, r *report) error {
	f, err := p.task("read", subject{name: "all"}, on, 0).inChild(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{
		intoUnstructured, intoTypedHot, intoTypedShared, intoTyped, intoTypedInTurn, intoMetadata,
		bareUnstructured, bareMetadata, getOnly,
		nameInHandler, labelInHandler,
		ofDeployment + intoTypedHot, ofDeployment + intoTypedShared, ofDeployment + intoTyped,
		ofDeployment + intoTypedInTurn, ofSecret + intoMetadata, listTyped,
	} {
		r.add("read", ours+": "+name, f[name], "ns", longest[name])
	}
	for _, name := range []string{
		peerUnstructured, peerTyped, peerMetadata, peerName, peerLabel,
		ofDeployment + peerTyped, ofSecret + peerMetadata, peerList,
	} {
		r.add("read", "controller-runtime: "+name, f[name], "ns", nil)
	}
	for _, c := range comparisons {
		r.add("read: ours / controller-runtime's", c.name(), f[c.name()], "times", c.bound)
	}

	return nil
}
