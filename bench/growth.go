// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/fleetcache/fleetcache/bench/internal/fleetserver"
	"github.com/fleetcache/fleetcache/bench/internal/subjects"
	"github.com/fleetcache/fleetcache/bench/measure"
)

// Works of growth, which the plots show.
const (
	growingMemory     = "growth: resident memory of %d clusters"
	growingHeap       = "growth: live heap of %d clusters"
	growingGoroutines = "growth: goroutines of %d clusters"
)

// growing measures fleets of several sizes, and fits lines to what grows.
func (p plan) growing(ctx context.Context, r *report) error {
	for _, s := range p.fleetSubjects() {
		sizes := p.peerGrowth
		if s == subjects.Fleetcache {
			sizes = p.growth
		}
		var n, memory, heap, goroutines []float64
		for _, size := range sizes {
			f, err := p.fleetOf(ctx, s, size, false)
			if err != nil && s != subjects.Fleetcache && ctx.Err() == nil {
				r.note(fmt.Sprintf(growingMemory, size), s, err.Error())
				continue
			}
			if err != nil {
				return err
			}
			r.add(fmt.Sprintf(growingMemory, size), s, f["rss"]/mib, "MiB", nil)
			r.add(fmt.Sprintf(growingHeap, size), s, f["heap"]/mib, "MiB", nil)
			r.add(fmt.Sprintf(growingGoroutines, size), s, f["goroutines"], "goroutines", nil)
			n, memory = append(n, float64(size)), append(memory, f["rss"]/mib)
			heap, goroutines = append(heap, f["heap"]/mib), append(goroutines, f["goroutines"])
		}
		if len(n) < 2 {
			continue
		}

		objects := fmt.Sprintf("%d objects", p.fleetObjects*len(fleetserver.Kinds()))
		for _, y := range []struct {
			name, unit string
			values     []float64
			bound      *bound
		}{
			{"resident memory", "MiB", memory, nil},
			{"live heap", "MiB", heap, nil},
			{"goroutines", "goroutines", goroutines, atMost(6.1)},
		} {
			l := fit(n, y.values)
			if s != subjects.Fleetcache {
				y.bound = nil
			}
			r.add(fmt.Sprintf("growth: %s per cluster of %s", y.name, objects), s, l.slope, y.unit, y.bound)
			r.add(fmt.Sprintf("growth: %s without a cluster", y.name), s, l.start, y.unit, nil)
			r.add(fmt.Sprintf("growth: %s, share that the line explains", y.name), s, l.explains, "R²", nil)
		}
	}

	return nil
}

// line is a straight line.
type line struct {
	slope, start float64
	// explains is the share of the variance that the line explains (R²).
	explains float64
}

// fit returns the line through the points with the least squares.
func fit(x, y []float64) line {
	n := float64(len(x))
	var sx, sy, sxx, sxy, syy float64
	for i := range x {
		sx, sy = sx+x[i], sy+y[i]
		sxx, sxy, syy = sxx+x[i]*x[i], sxy+x[i]*y[i], syy+y[i]*y[i]
	}
	dx, dy, dxy := n*sxx-sx*sx, n*syy-sy*sy, n*sxy-sx*sy
	l := line{explains: 1}
	if dx > 0 {
		l.slope = dxy / dx
	}
	l.start = (sy - l.slope*sx) / n
	if dx > 0 && dy > 0 {
		l.explains = dxy * dxy / (dx * dy)
	}

	return l
}

// idleFleets is how much larger the larger of two fleets is.
const idleFleets = 3

// idleClusters measures what a cluster costs in which there is next to nothing:
// one object of each kind. It is the difference between fleets of two sizes, so
// that what a process needs for the first cluster does not count.
func (p plan) idleClusters(ctx context.Context, r *report) error {
	p.fleetObjects = 1
	for _, s := range p.fleetSubjects() {
		small, err := p.fleetOf(ctx, s, p.peerClusters, false)
		var large measure.Figures
		if err == nil {
			large, err = p.fleetOf(ctx, s, idleFleets*p.peerClusters, false)
		}
		if err != nil && s != subjects.Fleetcache && ctx.Err() == nil {
			r.note("idle cluster of 5 informers: heap and stack", s, err.Error())
			continue
		}
		if err != nil {
			return err
		}
		each := func(name string) float64 {
			return (large[name] - small[name]) / float64((idleFleets-1)*p.peerClusters)
		}
		add := func(what string, value float64, unit string, b *bound) {
			if s != subjects.Fleetcache {
				b = nil
			}
			r.add("idle cluster of 5 informers: "+what, s, value, unit, b)
		}
		add("heap and stack", (each("heap")+each("stack"))/kib, "KiB", atMost(90_000.0/kib))
		add("heap", each("heap")/kib, "KiB", nil)
		add("stack", each("stack")/kib, "KiB", nil)
		add("goroutines", each("goroutines"), "goroutines", atMost(6))
		add("connections", each("connections"), "connections", atMost(1))
		add("share of a core at rest", each("rest/cpu")*100, "%", nil)
	}

	return nil
}
