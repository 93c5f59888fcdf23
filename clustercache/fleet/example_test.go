// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/fleet"
)

// A dashboard counts the Pods of the production clusters by their app, and says
// which part of the fleet its numbers are about. It sends no requests, waits
// for no cluster, and decodes nothing.
func ExampleList() {
	dashboard := func(cc *clustercache.ClusterCache) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var total fleet.Total
			counts := map[string]int{}
			for pod, err := range fleet.List(r.Context(), cc, &corev1.Pod{},
				client.HasLabels{"app"},
				clustercache.CacheOnly, clustercache.MaxStaleness(time.Hour),
				fleet.Options{ClusterSelector: labels.SelectorFromSet(labels.Set{"env": "prod"})}, &total,
			) {
				if err != nil {
					continue // total counts it
				}
				app, _ := pod.Label("app")
				counts[app]++
			}
			// map[web:2991] in 997 of 1000 clusters, oldest 12s; not in map[Unreachable:3]
			_, _ = fmt.Fprintf(w, "%v in %s; not in %v\n", counts, &total, total.Reasons)
		}
	}
	_ = dashboard
}

// A report reads what no informer watches, and decodes it: from all API
// servers, 16 at a time, within a minute. A part of the answer is not enough for
// it.
func ExampleByCluster() {
	capacity := func(ctx context.Context, cc *clustercache.ClusterCache) (map[client.ObjectKey]int64, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		cores := map[client.ObjectKey]int64{}
		for cluster, err := range fleet.ByCluster(ctx, cc, &corev1.Node{}, clustercache.LiveOnly) {
			if err != nil {
				return nil, err // the queries under way are canceled
			}
			for item := range cluster.Items() {
				node, err := item.Object()
				if err != nil {
					return nil, err
				}
				cores[cluster.Cluster] += node.Status.Capacity.Cpu().Value()
			}
		}
		return cores, nil
	}
	_ = capacity
}
