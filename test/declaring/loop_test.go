// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package declaring_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// runaway is the number of calls at which a loop is stopped, so that the test
// ends.
const runaway = 300

// loop is a controller of the hub: a queue, a worker, and a DeclarerSource.
type loop struct {
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	mu    sync.Mutex // protects calls
	calls int
}

// newLoop runs a controller for owners of a kind until the test ends. If names of
// controllers are given, it is called for what these declared.
func newLoop(
	t *testing.T, cc *clustercache.ClusterCache, kind schema.GroupVersionKind,
	run func(ctx context.Context, name client.ObjectKey) error, controllers ...string,
) *loop {
	t.Helper()
	l := &loop{queue: fleettest.QueueOf[reconcile.Request](t)}
	s := controller.DeclarerSource(cc, controller.EnqueueDeclarer(kind, controllers...))
	require.NoError(t, s.Start(t.Context(), l.queue))
	var worker sync.WaitGroup
	worker.Go(func() {
		for {
			r, shutdown := l.queue.Get()
			if shutdown {
				return
			}
			l.mu.Lock()
			l.calls++
			stop := l.calls > runaway
			l.mu.Unlock()

			if stop {
				l.queue.Forget(r)
			} else if err := run(context.Background(), r.NamespacedName); err != nil {
				l.queue.AddRateLimited(r)
			} else {
				l.queue.Forget(r)
			}
			l.queue.Done(r)
		}
	})
	t.Cleanup(func() {
		l.queue.ShutDown()
		worker.Wait()
		require.NoError(t, s.Close(context.Background()))
	})

	return l
}

// request is what a change of the owner itself leads to.
func (l *loop) request(name client.ObjectKey) { l.queue.Add(reconcile.Request{NamespacedName: name}) }

// take returns the number of calls since the last one, after a time.
func (l *loop) take(after time.Duration) int {
	time.Sleep(after)
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.calls
	l.calls = 0
	return n
}
