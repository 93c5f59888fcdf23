// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/conditions"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

// A reconciler writes the status only if a condition has changed.
func Example() {
	// What cc.Cluster(cluster).Status() and cc.Declared(owner) return.
	snapshot := status.Cluster{Phase: status.PhaseReady, Connected: true}
	declared := []clustercache.Use{{
		Key: status.WatchKey{
			Cluster: client.ObjectKey{Name: "east"},
			GVK:     schema.GroupVersionKind{Group: "cars", Version: "v1", Kind: "Car"},
		},
		LastError: &meta.NoKindMatchError{},
	}}

	var list []metav1.Condition // obj.Status.Conditions
	const generation = 3        // obj.Generation
	for range 2 {
		changed := meta.SetStatusCondition(&list, conditions.ClusterReady(snapshot, generation))
		changed = meta.SetStatusCondition(&list, conditions.WatchesSynced(declared, generation)) || changed
		fmt.Println("write the status:", changed)
	}
	for _, c := range list {
		fmt.Printf("%s=%s %s: %q\n", c.Type, c.Status, c.Reason, c.Message)
	}

	// Output:
	// write the status: true
	// write the status: false
	// ClusterReady=True Ready: ""
	// WatchesSynced=False NotServed: "The cluster does not serve the kind. cars/v1 Car in cluster east (NotServed)"
}
