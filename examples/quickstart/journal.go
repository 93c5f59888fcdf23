// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

// manyObjects is how many objects of a cluster are printed one by one when they
// arrive; the rest is counted.
const manyObjects = 12

// journal receives the reconciler's observations. It compares them with earlier
// ones, prints the differences, and wakes the goroutines that wait for them.
// Reading it is safe for concurrent use.
type journal struct {
	out      *story.Printer
	contents bool // print the content of objects, too

	mu       sync.Mutex // protects the fields below
	clusters map[client.ObjectKey]*seenCluster
	changed  chan struct{} // closed and replaced with each report
}

// seenCluster is the observed state of one cluster.
type seenCluster struct {
	phase     status.Phase
	objects   map[request]*unstructured.Unstructured
	reports   int // reconciliations of objects
	unchanged int // those of them that found nothing new
	lastEvent string
	lastTime  time.Time
}

func newJournal(out *story.Printer, contents bool) *journal {
	return &journal{
		out:      out,
		contents: contents,
		clusters: map[client.ObjectKey]*seenCluster{},
		changed:  make(chan struct{}),
	}
}

// report records an observation of a reconciliation. It is called by one
// goroutine, as by a controller with one worker. It prints the line before it
// publishes the observation, so that the story does not run ahead of it.
func (j *journal) report(o observation) {
	j.mu.Lock()
	found := j.clusterLocked(o.cluster).compare(o)
	j.mu.Unlock()
	if found.content && j.contents {
		found.line += ": " + content(o.object)
	}
	if found.line != "" {
		j.out.Say("  %-5s %s", o.cluster.Name, found.line)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.clusterLocked(o.cluster).apply(o, found)
	close(j.changed)
	j.changed = make(chan struct{})
}

func (j *journal) clusterLocked(key client.ObjectKey) *seenCluster {
	c := j.clusters[key]
	if c == nil {
		c = &seenCluster{objects: map[request]*unstructured.Unstructured{}}
		j.clusters[key] = c
	}
	return c
}

// finding is the difference between an observation and the known state.
type finding struct {
	event     string // for the table; empty if there is nothing to show
	line      string // for the story; empty if it would be too much
	content   bool   // print the object's content with the line
	unchanged bool
}

// compare returns the differences between an observation and the known state.
func (c *seenCluster) compare(o observation) finding {
	if o.kind.Empty() {
		return c.comparePhase(o.status)
	}
	before := c.objects[o.request]
	what := fmt.Sprintf("%s %s", o.kind.Kind, strings.TrimPrefix(o.request.object.String(), "/"))
	switch {
	case o.object == nil && before == nil, o.object != nil && before != nil && same(o.object, before):
		return finding{event: what + " did not change", line: what + " did not change", unchanged: true}
	case o.object == nil:
		return finding{event: what + " is gone", line: what + " is gone"}
	case before != nil:
		return finding{event: what + " changed", line: what + " changed", content: true}
	}
	found := finding{event: what + " arrived"}
	switch n := len(c.objects); {
	case n < manyObjects:
		found.line, found.content = what+" arrived", true
	case n == manyObjects:
		found.line = "... and more, which the table counts"
	}
	return found
}

func (c *seenCluster) comparePhase(s status.Cluster) finding {
	if c.phase == s.Phase {
		return finding{}
	}
	line := "is " + string(s.Phase)
	if s.Reason != "" {
		line += " (" + s.Reason + ")"
	}
	return finding{event: line, line: line}
}

// apply adds an observation to the known state.
func (c *seenCluster) apply(o observation, found finding) {
	if found.event != "" {
		c.lastEvent, c.lastTime = found.event, time.Now()
	}
	if o.kind.Empty() {
		c.phase = o.status.Phase
		return
	}
	c.reports++
	if found.unchanged {
		c.unchanged++
	}
	if o.object == nil {
		delete(c.objects, o.request)
	} else {
		c.objects[o.request] = o.object
	}
}

func same(a, b *unstructured.Unstructured) bool {
	return a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
}

// content returns the beginning of an object's content.
func content(u *unstructured.Unstructured) string {
	const longest = 60
	for _, field := range []string{"data", "spec"} {
		if value, ok := u.Object[field]; ok {
			text, err := json.Marshal(value)
			if err == nil && len(text) <= longest {
				return string(text)
			}
			return fmt.Sprintf("(%d bytes)", len(text))
		}
	}
	return "(no content)"
}

// news returns a channel that is closed by the next report.
func (j *journal) news() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.changed
}

// look returns the last observed state of an object; nil if there is none.
func (j *journal) look(r request) *unstructured.Unstructured {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.clusterLocked(r.cluster).objects[r]
}

// counts returns how many objects of a cluster exist, how many times one was
// reconciled, and in how many of these nothing had changed.
func (j *journal) counts(cluster client.ObjectKey) (objects, reports, unchanged int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.clusterLocked(cluster)
	return len(c.objects), c.reports, c.unchanged
}

// totals returns the number of reconciliations of objects in all clusters, and
// of those that found nothing new.
func (j *journal) totals() (reports, unchanged int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for c := range maps.Values(j.clusters) {
		reports += c.reports
		unchanged += c.unchanged
	}
	return reports, unchanged
}

// table returns the state of all clusters.
func (j *journal) table(statuses []status.Cluster, now time.Time) [][]string {
	j.mu.Lock()
	defer j.mu.Unlock()
	slices.SortFunc(statuses, func(a, b status.Cluster) int {
		return strings.Compare(a.Cluster.String(), b.Cluster.String())
	})
	rows := [][]string{{"CLUSTER", "PHASE", "INFORMERS", "OBJECTS", "LAST EVENT"}}
	for _, s := range statuses {
		c, last := j.clusterLocked(s.Cluster), "none"
		if c.lastEvent != "" {
			last = fmt.Sprintf("%s, %.1fs ago", c.lastEvent, now.Sub(c.lastTime).Seconds())
		}
		rows = append(rows, []string{
			strings.TrimPrefix(s.Cluster.String(), "/"),
			string(s.Phase),
			fmt.Sprint(s.Informers),
			fmt.Sprint(s.Objects),
			last,
		})
	}
	return rows
}
