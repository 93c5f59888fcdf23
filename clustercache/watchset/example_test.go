// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset_test

import (
	"context"
	"fmt"
	"log"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/watchset"
)

func ExampleDecode() {
	entries, err := watchset.Decode([]byte(`
settings:
  cluster: fleet/east
  apiVersion: v1
  kind: ConfigMap
  labelSelector: app=shop
`))
	fmt.Println(entries["settings"], err)

	_, err = watchset.Decode([]byte("settings: {cluster: fleet/east, apiVersion: v1, kinds: ConfigMap}"))
	fmt.Println(err)
	// Output:
	// v1 ConfigMap in cluster fleet/east, labels app=shop <nil>
	// line 1: entry "settings": kinds: unknown field
}

// A program without a manager follows documents: each replaces what is watched.
func ExampleSet_Replace() {
	follow := func(ctx context.Context, cc *clustercache.ClusterCache, documents <-chan []byte) error {
		set, err := watchset.New(cc, watchset.Options{
			Handle: func(_ context.Context, e watchset.Event) error {
				log.Print(e.Entry, e.Type, e.Cluster, e.Object().GetName())
				return nil
			},
			OnStatus: func(s watchset.Status) { log.Print(s.Entry, s.State, s.Err) },
		})
		if err != nil {
			return err
		}
		defer set.Stop()
		for document := range documents {
			entries, err := watchset.Decode(document)
			if err == nil {
				_, err = set.Replace(ctx, entries)
			}
			if err != nil {
				log.Print(err) // nothing has changed
			}
		}
		return nil
	}
	_ = follow
}

// The events of a set become requests of a controller of any type: here each
// object requests the entry that selects it.
func ExampleSource() {
	setup := func(mgr ctrl.Manager, set *watchset.Set, reconciler reconcile.Reconciler) error {
		return ctrl.NewControllerManagedBy(mgr).Named("entries").
			WatchesRawSource(watchset.Source(set, func(_ context.Context, e watchset.Event) []reconcile.Request {
				return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: e.Entry}}}
			})).
			Complete(reconciler)
	}
	_ = setup
}
