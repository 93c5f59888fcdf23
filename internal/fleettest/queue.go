// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
)

// QueueOf returns a workqueue for a test to read. It is shut down with the
// test.
func QueueOf[request comparable](t *testing.T) workqueue.TypedRateLimitingInterface[request] {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[request]())
	t.Cleanup(q.ShutDown)
	return q
}

// Queue is a controller's queue that records what is added, and how.
type Queue[request comparable] struct {
	workqueue.TypedRateLimitingInterface[request] // nil: only the methods below are called

	mu   sync.Mutex // protects what follows
	log  []Queued[request]
	Full func(request) // called with each request, without the lock
}

// Queued is a request that was added to a Queue.
type Queued[request comparable] struct {
	Request request
	low     bool
	At      time.Time
}

// Add implements workqueue.TypedInterface.
func (q *Queue[request]) Add(r request) { q.put(r, false) }

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *Queue[request]) AddWithOpts(o priorityqueue.AddOpts, rs ...request) {
	for _, r := range rs {
		q.put(r, o.Priority != nil && *o.Priority == handler.LowPriority)
	}
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *Queue[request]) GetWithPriority() (r request, priority int, shutdown bool) {
	return r, 0, true
}

func (q *Queue[request]) put(r request, low bool) {
	q.mu.Lock()
	q.log = append(q.log, Queued[request]{Request: r, low: low, At: time.Now()})
	q.mu.Unlock()
	if q.Full != nil {
		q.Full(r)
	}
}

// Take waits until the bubble is idle and returns what was added since the last
// call.
func (q *Queue[request]) Take() []Queued[request] {
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	log := q.log
	q.log = nil
	return log
}

// Names returns the names of the taken requests, sorted; a name in parentheses
// has low priority.
func (q *Queue[request]) Names() []string {
	names := []string{}
	for _, x := range q.Take() {
		name := any(x.Request).(controller.Request).Name
		if x.low {
			name = "(" + name + ")"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ConfigMaps selects the kind ConfigMap.
var ConfigMaps = []client.Object{&corev1.ConfigMap{}}

// RequestFor returns the request of an object of the cluster a.
func RequestFor(name string) controller.Request {
	return controller.Request{Cluster: Key("a"), GVK: ConfigMap,
		ObjectKey: client.ObjectKey{Namespace: "default", Name: name}}
}

// NewSource is the set-up of a bubble: a watched cluster with the objects one
// (app=x) and two (app=y).
func NewSource(t *testing.T) (*clustercache.ClusterCache, *API, *Queue[controller.Request]) {
	t.Helper()
	cc, api, _ := OneCluster(t)
	Synced(t, cc, api)
	return cc, api, &Queue[controller.Request]{}
}
