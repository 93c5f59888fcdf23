// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
)

const (
	demoNamespace = "demo"
	// writeTimeout bounds a write to a cluster that is stopped meanwhile.
	writeTimeout = 2 * time.Second
)

func configMap(i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: demoNamespace,
		Name:      fmt.Sprintf("config-%d", i),
	}}
}

// furnish creates a number of ConfigMaps in a cluster.
func furnish(ctx context.Context, c fleet.Cluster, n int) error {
	var objects []client.Object
	for i := range n {
		objects = append(objects, configMap(i))
	}
	return fleet.Create(ctx, c.Client(), demoNamespace, objects...)
}

// writer changes the ConfigMaps of a cluster, one after the other.
type writer struct {
	cluster fleet.Cluster
	objects int
	every   time.Duration

	mu     sync.Mutex // protects writes
	writes int
}

// run writes until ctx ends. Writes that fail, as those to a stopped cluster,
// are not counted.
func (w *writer) run(ctx context.Context) {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout) // no write is left in doubt
		patch := fmt.Appendf(nil, `{"data":{"change":"%d"}}`, i)
		err := w.cluster.Client().Patch(bounded, configMap(i%w.objects), client.RawPatch(types.MergePatchType, patch))
		cancel()
		if err == nil {
			w.mu.Lock()
			w.writes++
			w.mu.Unlock()
		}
	}
}

// written returns how many writes have succeeded.
func (w *writer) written() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

// countObjects returns how many objects of the default kinds an API server has.
func countObjects(ctx context.Context, c fleet.Cluster) (n int, err error) {
	for _, kind := range defaultKinds() {
		list := &metav1.PartialObjectMetadataList{}
		kind.Kind += "List"
		list.SetGroupVersionKind(kind)
		if err := c.Client().List(ctx, list); err != nil {
			return 0, err
		}
		n += len(list.Items)
	}
	return n, nil
}
