// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/informerpool"
)

// userAgent is the user agent that the API servers see.
const userAgent = "fleetcache-fleettop"

// monitor watches kinds in every cluster of a resolver, and changes nothing.
type monitor struct {
	clusters *clustercache.ClusterCache
	meter    meter
}

// newMonitor returns a monitor for the clusters of a resolver, which must list
// them. It does no I/O. While the monitor runs, it calls changed with each
// change of a cluster's phase, one at a time.
func newMonitor(
	clusters resolver.Resolver, kinds []schema.GroupVersionKind, changed func(string), o clustercache.Options,
) (*monitor, error) {
	o.Resolver, o.Discover, o.UserAgent = clusters, true, userAgent
	o.Informers.DropManagedFields = true
	o.Informers.Transforms = map[schema.GroupResource]informerpool.TransformFunc{{}: keepMetadata}
	cc, err := clustercache.New(o)
	if err != nil {
		return nil, err
	}
	m := &monitor{clusters: cc}
	selection := events.Selection{Watch: true}
	for _, kind := range kinds {
		selection.Kinds = append(selection.Kinds, clustercache.Kind(kind))
	}
	objects, err := cc.Subscribe(selection, m.meter.count)
	if err != nil {
		return nil, err
	}
	phases, err := cc.SubscribeClusters(func(e events.Cluster) {
		if e.Initial || e.Type == events.Relabeled {
			return
		}
		text := clusterName(e.Cluster) + " is " + string(e.Phase)
		if e.Reason != "" {
			text += ": " + e.Reason
		}
		changed(text)
	})
	if err != nil {
		return nil, err
	}
	objects.Start() // delivers from Start of the ClusterCache to its end
	phases.Start()

	return m, nil
}

// keepMetadata removes everything else of an object before it is cached.
func keepMetadata(u *unstructured.Unstructured) error {
	for field := range u.Object {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata"}, field) {
			delete(u.Object, field)
		}
	}
	return nil
}

// run watches until ctx ends, and returns when everything has stopped.
func (m *monitor) run(ctx context.Context) error { return m.clusters.Start(ctx) }

// frame returns the state of every cluster, worst first. It does no I/O.
func (m *monitor) frame() frame {
	f := frame{at: time.Now()}
	for _, s := range m.clusters.Statuses() {
		r := row{snapshot: s, at: f.at}
		r.events, r.rate = m.meter.read(s.Cluster, f.at)
		f.rows = append(f.rows, r)
	}
	slices.SortFunc(f.rows, worstFirst)
	return f
}
