// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
)

// ClusterLog collects cluster events.
type ClusterLog struct {
	t      *testing.T
	Events chan events.Cluster
}

// Follow collects the cluster events from now to the end of the test.
func Follow(t *testing.T, cc *clustercache.ClusterCache) *ClusterLog {
	t.Helper()
	f := &ClusterLog{t: t, Events: make(chan events.Cluster, 10000)}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for e := range cc.ClusterEvents(ctx) {
			f.Events <- e
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return f
}

// Wait returns the next event of one of the types for the cluster, and drops
// those before it.
func (f *ClusterLog) Wait(cluster client.ObjectKey, types ...events.ClusterType) events.Cluster {
	f.t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		select {
		case e := <-f.Events:
			for _, t := range types {
				if e.Cluster == cluster && e.Type == t {
					return e
				}
			}
		case <-limit.C:
			require.FailNow(f.t, "event did not come", "%s of %s", types, cluster)
		}
	}
}

// ObjectLog collects object events.
type ObjectLog struct {
	t      *testing.T
	Events chan events.Object
}

// FollowObjects collects the object events from now to the end of the test.
func FollowObjects(t *testing.T, cc *clustercache.ClusterCache, spec events.Selection) *ObjectLog {
	t.Helper()
	f := &ObjectLog{t: t, Events: make(chan events.Object, 10000)}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	seq, err := cc.ObjectEvents(ctx, spec)
	require.NoError(t, err)
	done.Go(func() {
		for e := range seq {
			f.Events <- e
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return f
}

// Wait returns the first event that matches, and those that came before it.
func (f *ObjectLog) Wait(
	want func(events.Object) bool) (events.Object, []events.Object) {
	f.t.Helper()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	var before []events.Object
	for {
		select {
		case e := <-f.Events:
			if want(e) {
				return e, before
			}
			before = append(before, e)
		case <-limit.C:
			require.FailNow(f.t, "event did not come", "before: %v", before)
		}
	}
}

// WaitAll waits until there was an event of each name, and drops the others.
func (f *ObjectLog) WaitAll(names ...string) {
	f.t.Helper()
	missing := map[string]bool{}
	for _, name := range names {
		missing[name] = true
	}
	f.Wait(func(e events.Object) bool {
		delete(missing, e.Object().GetName())
		return len(missing) == 0
	})
}

// Named matches the events of an object.
func Named(cluster client.ObjectKey, name string) func(events.Object) bool {
	return func(e events.Object) bool { return e.Cluster == cluster && e.Object().GetName() == name }
}

// Take returns the types and names of the events so far.
func (f *ObjectLog) Take() (received []string) {
	for len(f.Events) > 0 {
		e := <-f.Events
		received = append(received, string(e.Type)+" "+e.Object().GetName())
	}
	return received
}
