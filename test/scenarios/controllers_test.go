// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	fleetcontroller "github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// Request is the request type of the controllers in these tests.
type Request = fleetcontroller.Request

// journal counts reconciled or delivered objects, by request.
type journal struct {
	mu     sync.Mutex
	counts map[Request]int
}

func newJournal() *journal { return &journal{counts: map[Request]int{}} }

// Reconcile implements reconcile.TypedReconciler.
func (j *journal) Reconcile(_ context.Context, r Request) (reconcile.Result, error) {
	j.add(r)
	return reconcile.Result{}, nil
}

func (j *journal) add(r Request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counts[r]++
}

func (j *journal) count(r Request) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.counts[r]
}

func (j *journal) total() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, c := range j.counts {
		n += c
	}
	return n
}

// after calls do and waits until each of the requests has arrived once more.
func (j *journal) after(t *testing.T, do func(), requests ...Request) {
	t.Helper()
	before := map[Request]int{}
	for _, r := range requests {
		before[r] = j.count(r)
	}
	do()
	for _, r := range requests {
		eventually(t, r.String(), func() bool { return j.count(r) > before[r] })
	}
}

// mapped maps each object to itself and counts it.
func (j *journal) mapped(ctx context.Context, cluster client.ObjectKey, o client.Object) []Request {
	requests := fleetcontroller.EnqueueObject(ctx, cluster, o)
	for _, r := range requests {
		j.add(r)
	}
	return requests
}

// control runs a controller until the test ends or the returned function is
// called.
func control(t *testing.T, r reconcile.TypedReconciler[Request], workers int,
	sources ...source.TypedSource[Request]) (controller.TypedController[Request], func()) {
	t.Helper()
	c, err := controller.NewTypedUnmanaged("behaviours", controller.TypedOptions[Request]{
		Reconciler: r, MaxConcurrentReconciles: workers, SkipNameValidation: new(true),
	})
	require.NoError(t, err)
	for _, s := range sources {
		require.NoError(t, c.Watch(s))
	}
	return c, fleettest.Run(t, c)
}

// feed selects kinds in one namespace of all clusters, with watches of its own.
func selection(namespace string, kinds ...client.Object) events.Selection {
	return events.Selection{Kinds: kinds, Watch: true,
		Options: []client.ListOption{client.InNamespace(namespace)}}
}
