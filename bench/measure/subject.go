// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Subject is a library that watches clusters.
type Subject interface {
	// Watch starts informers of the kinds in all clusters and returns when they
	// have synced. It is called with more kinds later on.
	Watch(ctx context.Context, kinds []Kind) error
	// Count returns how many objects of the kind the caches of all clusters
	// hold.
	Count(ctx context.Context, kind Kind) (int, error)
	// ResourceVersion returns the version of an object in the cache.
	ResourceVersion(ctx context.Context, m Mark) (string, error)
	// Stop ends everything that the Subject has started, and waits for that.
	Stop() error
}

// Open makes a Subject for the clusters, which have not been connected to
// before.
type Open func(ctx context.Context, clusters []Cluster) (Subject, error)

// Task is what is measured.
type Task struct {
	// Work is WorkKind, WorkFleet, WorkEvents or WorkOperator.
	Work    string
	Subject string
	// Clusters are the clusters, unless Control is set.
	Clusters []Cluster
	// Control is the URL of the control of a fleet.
	Control string
	// First is a kind without objects: what a Subject does for the first kind
	// in a cluster is not charged to the kinds that are measured.
	First Kind
	Kinds []Kind
	// Objects is the number of objects per kind and cluster. For WorkKind,
	// Counts has the number for each of Kinds instead.
	Objects int
	Counts  []int
	// Rest is how long the fleet is observed at rest, and how long with
	// changes.
	Rest time.Duration
	// Outages are the lengths of the outages. Without any, the fleet is not
	// disturbed at all, as with a number of clusters that shows growth.
	Outages []time.Duration
	// Starved means that the process that measures gets little of the processor.
	Starved bool
	// Rates are how many objects change per second, for WorkEvents and, of all
	// clusters together, WorkOperator, which takes the first.
	Rates []float64
	// Gets is how many objects an operator reads after a change.
	Gets []int
	// Patience bounds the wait for anything.
	Patience time.Duration
}

// Names of works.
const (
	WorkKind     = "kind"
	WorkFleet    = "fleet"
	WorkEvents   = "events"
	WorkOperator = "operator"
)

// Figures are the results of a measurement, by name.
type Figures map[string]float64

// Main reads a Task, measures and writes Figures.
func Main(ctx context.Context, in io.Reader, out io.Writer, open func(name string) (Open, error)) error {
	var t Task
	if err := json.NewDecoder(in).Decode(&t); err != nil {
		return err
	}
	f, err := t.Run(ctx, open)
	if err != nil {
		return fmt.Errorf("%s: %w", t.Subject, err)
	}
	return json.NewEncoder(out).Encode(f)
}

// Run measures.
func (t Task) Run(ctx context.Context, open func(name string) (Open, error)) (Figures, error) {
	o, err := open(t.Subject)
	if err != nil {
		return nil, err
	}
	switch t.Work {
	case WorkKind:
		return t.kind(ctx, o)
	case WorkEvents:
		return t.events(ctx, o)
	case WorkOperator:
		return t.operator(ctx, o)
	case WorkFleet:
		r := fleetRun{Task: t, control: Control{URL: t.Control}, figures: Figures{}}
		return r.figures, r.run(ctx, o)
	}
	return nil, fmt.Errorf("no work %q", t.Work)
}

// kind measures one or several kinds in one cluster.
func (t Task) kind(ctx context.Context, open Open) (Figures, error) {
	s, err := open(ctx, t.Clusters)
	if err != nil {
		return nil, err
	}
	if err := s.Watch(ctx, []Kind{t.First}); err != nil {
		return nil, err
	}
	before := Settle()
	if err := ResetPeak(); err != nil {
		return nil, err
	}
	resident, _, err := RSS()
	if err != nil {
		return nil, err
	}
	cpu, began := CPU(), time.Now()
	if err := s.Watch(ctx, t.Kinds); err != nil {
		return nil, err
	}
	took, used := time.Since(began), CPU()-cpu
	_, peak, err := RSS()
	if err != nil {
		return nil, err
	}
	after := Settle()
	n := 0
	for i, k := range t.Kinds {
		have, err := s.Count(ctx, k)
		if err != nil {
			return nil, err
		}
		if have < t.Counts[i] || have > t.Counts[i]+foreign {
			return nil, fmt.Errorf("%d objects of %s instead of %d", have, k.Kind, t.Counts[i])
		}
		n += have
	}

	return Figures{
		"heap":        (after.Heap - before.Heap) / float64(n),
		"stack":       (after.Stack - before.Stack) / float64(n),
		"cpu":         used.Seconds() / float64(n),
		"elapsed":     took.Seconds(),
		"peak":        (peak - resident) / float64(n),
		"allocations": (after.Allocations - before.Allocations) / float64(n),
		"allocated":   (after.Allocated - before.Allocated) / float64(n),
		"objects":     float64(n),
	}, s.Stop()
}

// foreign is how many objects of a kind a cluster has of its own.
const foreign = 20
