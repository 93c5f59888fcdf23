// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/events"
)

// sweepAt is the least labelFilter.sweepAt.
const sweepAt = 64

// labelFilter lets the events of clusters pass whose labels match. One
// goroutine at a time uses it.
type labelFilter struct {
	labels   func(cluster client.ObjectKey) (labels map[string]string, known bool)
	known    func() []client.ObjectKey
	selector labels.Selector // nil lets all pass
	seen     map[client.ObjectKey]clusterSeen
	sweepAt  int // number of clusters at which those that are gone are forgotten
}

// clusterSeen is what a labelFilter knows of a cluster since its last event.
type clusterSeen struct {
	selected bool
	// withheld means that its state is to be delivered when it enters by an
	// event other than a connect or disconnect, which supersede the state except
	// for the owner. gained means that it is to be delivered in any case. Both
	// are false of a cluster that is selected.
	withheld, gained bool
}

func newLabelFilter(
	labelsOf func(client.ObjectKey) (map[string]string,
		bool), known func() []client.ObjectKey, selector labels.Selector,
) *labelFilter {
	return &labelFilter{
		labels:   labelsOf,
		known:    known,
		selector: selector,
		seen:     map[client.ObjectKey]clusterSeen{},
		sweepAt:  sweepAt,
	}
}

// passes reports whether the cluster of an event is selected, or was at its last
// event; and whether it enters the selection after events that still describe
// it, but were withheld.
func (f *labelFilter) passes(e events.Cluster) (passes, missed bool) {
	if f.selector == nil {
		return true, false
	}
	have, known := f.labels(e.Cluster)
	before := f.seen[e.Cluster]
	flips := e.Type == events.Connected || e.Type == events.Disconnected
	switch {
	case known && f.selector.Matches(labels.Set(have)):
		f.note(e.Cluster, clusterSeen{selected: true})
		return true, before.gained || before.withheld && !flips
	case e.Type == events.Removed:
		delete(f.seen, e.Cluster)
	case before.selected && (!known || e.Type == events.Disconnected):
		// The cluster may be gone: Removed follows.
	case before.selected:
		f.note(e.Cluster, clusterSeen{withheld: true, gained: true}) // all is to be delivered once it is back
	default:
		before.withheld = true
		before.gained = before.gained || e.Type == events.Gained
		f.note(e.Cluster, before)
	}

	return before.selected, false
}

// note remembers a cluster. One that was never connected ends without an event;
// such clusters are forgotten when many have been added.
func (f *labelFilter) note(cluster client.ObjectKey, now clusterSeen) {
	f.seen[cluster] = now
	if len(f.seen) < f.sweepAt {
		return
	}
	present := map[client.ObjectKey]bool{cluster: true}
	for _, key := range f.known() {
		present[key] = true
	}
	maps.DeleteFunc(f.seen, func(key client.ObjectKey, _ clusterSeen) bool { return !present[key] })

	f.sweepAt = max(sweepAt, 2*len(f.seen))
}
