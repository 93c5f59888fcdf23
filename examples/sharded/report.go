// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
)

// Events of a replica besides those of its slots, which are Warm, Gained,
// Draining, Lost and Cool.
const (
	// refused: the library refused to send a write.
	refused = "Refused"
	// read: the replica has read its caches.
	read = "Read"
)

// report is what a replica prints about an event, as a line of JSON.
type report struct {
	Time    time.Time `json:"time"`
	Event   string    `json:"event"`
	Slot    int       `json:"slot,omitempty"`
	Token   int64     `json:"token,omitempty"`
	Cluster string    `json:"cluster,omitempty"` // Refused
	Widget  string    `json:"widget,omitempty"`  // Refused
	Read    []reading `json:"read,omitempty"`    // Read
}

// reading is what a cache contains of a widget.
type reading struct {
	Cluster    string `json:"cluster"`
	Widget     string `json:"widget"`
	Generation int64  `json:"generation"`
}

// reader reads the widgets of all clusters that the replica knows, owned or
// not, from time to time.
type reader struct {
	clusters *clustercache.ClusterCache
	every    time.Duration
	say      func(report)
}

// Start implements manager.Runnable.
func (r *reader) Start(ctx context.Context) error {
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	for {
		r.say(report{Event: read, Read: r.read(ctx)})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// read leaves out clusters that cannot be read now.
func (r *reader) read(ctx context.Context) []reading {
	var all []reading
	for _, key := range r.clusters.Clusters() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(widgetKind)
		if err := r.clusters.Cluster(key).Reader().List(ctx, list, client.InNamespace(widgetNamespace)); err != nil {
			continue
		}
		for _, o := range list.Items {
			all = append(all, reading{
				Cluster:    key.Name,
				Widget:     o.GetName(),
				Generation: o.GetGeneration(),
			})
		}
	}
	return all
}
