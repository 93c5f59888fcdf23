// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

// TestHazardRemovalOfAClusterIsTakenForDeletes guards against handlers that
// receive the deletes of some of the cluster's objects, different ones each
// time, although none was deleted. The handlers are busy, so that the removal
// and the deletes come in every order; the cluster is back while they are
// delivered, or afterwards. A provider that is late ends the engagement after
// all deletes were due.
func TestHazardRemovalOfAClusterIsTakenForDeletes(t *testing.T) {
	for _, late := range []time.Duration{0, 2 * time.Minute} {
		for _, after := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond, time.Minute} {
			t.Run(fmt.Sprintf("back after %v, provider late by %v", after, late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testRemoval(t, late, after) })
			})
		}
	}
}

func testRemoval(t *testing.T, late, after time.Duration) {
	f := newFleet(t, multicluster.Options{})
	api := f.add("a")
	for i := range 64 {
		api.put(fmt.Sprint("o", i), "1")
	}
	p := newProvider(f, multicluster.ProviderOptions{Clusters: func(k client.ObjectKey) bool {
		if k == key("holds up") {
			time.Sleep(late)
		}
		return true
	}})
	to, made := calls()
	engage(t, p, to)
	engaged, byHand := &record{}, &record{}
	_, err := informer(t, next(t, made).cl, &corev1.ConfigMap{}).AddEventHandler(slow(engaged))
	require.NoError(t, err)
	_, err = informer(t, f.cluster("a"), &corev1.ConfigMap{}).AddEventHandler(slow(byHand))
	require.NoError(t, err)
	time.Sleep(time.Minute)
	require.Len(t, engaged.take(), 66)
	for i := range 8 {
		api.put(fmt.Sprint("o", i), "2")
	}

	f.add("holds up")
	for !f.known("holds up") {
		time.Sleep(time.Millisecond)
	}
	synctest.Wait()
	f.d.set(key("a"), nil)
	for f.known("a") {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(after)
	f.d.set(key("a"), api.Config())
	time.Sleep(time.Hour)
	require.True(t, f.known("a"))
	for _, events := range [][]string{engaged.take(), byHand.take()} {
		for _, e := range events {
			require.False(t, strings.HasPrefix(e, "delete"), "%s", e)
		}
	}
}

// TestHazardRemovalIsHiddenByTheNextCluster: while a provider is busy with
// another cluster, a cluster is removed, and one that was created in its place
// is lost and comes back. What was engaged is not that cluster: it lacks the
// deletes of the objects of the first.
func TestHazardRemovalIsHiddenByTheNextCluster(t *testing.T) {
	for _, losses := range []int{0, 1, 2} {
		t.Run(fmt.Sprintf("lost %d times", losses), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, multicluster.Options{})
				f.add("a")
				to, made := calls()
				engage(t, newProvider(f, multicluster.ProviderOptions{Clusters: func(k client.ObjectKey) bool {
					if k == key("holds up") {
						time.Sleep(time.Hour)
					}
					return true
				}}), to)
				first := next(t, made)
				f.add("holds up")
				time.Sleep(time.Second)

				f.d.set(key("a"), nil)
				for f.known("a") {
					time.Sleep(time.Second)
				}
				other := serve(f.servers, "uid-other")
				other.put("three", "3")
				f.d.set(key("a"), other.Config())
				time.Sleep(time.Minute)
				for range losses {
					other.Disconnect()
					time.Sleep(time.Minute)
					other.Connect()
					time.Sleep(time.Minute)
				}
				require.True(t, f.known("a"))
				require.NoError(t, first.ctx.Err(), "the provider is late")

				time.Sleep(10 * time.Hour)
				require.Error(t, first.ctx.Err())
				second := next(t, made)
				for second.name != first.name {
					second = next(t, made)
				}
				require.NotSame(t, first.cl, second.cl)
				require.NoError(t, second.ctx.Err())
			})
		})
	}
}

// known reports whether a cluster is known, and not gone.
func (f *fleet) known(name string) bool {
	s, err := f.cc.Cluster(key(name)).Status()
	return err == nil && s.Phase != status.PhaseGone
}

// slow takes its time for each event.
func slow(r *record) toolscache.ResourceEventHandler {
	h := r.handler()
	pause := func() { time.Sleep(10 * time.Millisecond) }
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { pause(); h.OnAdd(obj, initial) },
		UpdateFunc: func(before, after any) { pause(); h.OnUpdate(before, after) },
		DeleteFunc: func(obj any) { pause(); h.OnDelete(obj) },
	}
}
