// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

func connections() []Behaviour {
	return []Behaviour{
		{Name: "a reconnect causes no list and no news", run: reconnect},
		{Name: "what was missed while disconnected arrives once", run: missed},
		{Name: "reads of a disconnected cluster fail, or come from the cache if that is allowed",
			run: disconnectedReads},
		{Name: "rotated credentials cause no list and no news", run: rotation},
		{Name: "an older history is another epoch", run: rollback, Destroys: true},
		{Name: "another cluster at the address is another epoch, and what was there is deleted", run: replaced,
			Destroys: true},
		{Name: "a cluster that the resolver forgets is unknown", run: removed, Destroys: true},
	}
}

// settled creates two objects, watches them and waits for their events.
func (e *env) settled() *feed {
	e.create("red", "a", "b")
	e.watch()
	f := e.follow()
	f.expectAny("Added a red", "Added b red")
	return f
}

func reconnect(e *env) {
	f := e.settled()
	lists := e.cluster.Lists("configmaps")
	e.cluster.Disconnect()
	e.phase(status.PhaseDisconnected)
	e.cluster.Connect()
	e.phase(status.PhaseReady)
	e.create("red", "c")
	f.expect("Added c red")
	require.Equal(e, lists, e.cluster.Lists("configmaps"))
	s := e.status()
	require.Equal(e, 2, s.Connects)
	require.Zero(e, s.HistoryResets)
}

func missed(e *env) {
	f := e.settled()
	e.cluster.Disconnect()
	e.phase(status.PhaseDisconnected)
	e.paint("a", "blue")
	e.paint("a", "green")
	e.delete("b")
	e.create("red", "c")
	e.cluster.Connect()
	e.phase(status.PhaseReady)
	e.create("red", "last")
	seen := map[string]int{}
	for {
		select {
		case event := <-f.events:
			seen[event]++
		case <-time.After(limit):
			require.FailNow(e, "the last event did not come", "%v", seen)
		}
		if seen["Added last red"] > 0 {
			break
		}
	}
	delete(seen, "Updated a blue") // may be merged with the next event
	require.Equal(e, map[string]int{
		"Updated a green": 1,
		"Deleted b red":   1,
		"Added c red":     1,
		"Added last red":  1,
	}, seen)
}

func disconnectedReads(e *env) {
	e.settled()
	e.cluster.Disconnect()
	e.phase(status.PhaseDisconnected)
	got := &corev1.ConfigMap{}
	require.ErrorIs(e, e.reader().Get(e.Context(), e.named("a"), got), clustercache.ErrNotConnected)
	require.ErrorIs(e, e.reader().Get(e.Context(), e.named("a"), got, clustercache.CacheOnly),
		clustercache.ErrNotConnected)
	require.ErrorIs(e, e.client().Create(e.Context(), e.configMap("c", "red")), clustercache.ErrNotConnected)
	var origin clustercache.Origin
	require.NoError(e, e.reader().Get(e.Context(), e.named("a"), got, clustercache.CacheOnly,
		clustercache.MaxStaleness(time.Hour), &origin))
	require.False(e, origin.Connected)
	require.Equal(e, "red", got.Data["color"])
	err := e.reader().Get(e.Context(), e.named("a"), got, clustercache.CacheOnly,
		clustercache.MaxStaleness(time.Nanosecond))
	require.ErrorIs(e, err, clustercache.ErrStale)
	s := e.status()
	require.False(e, s.Connected)
	require.Equal(e, "Unreachable", s.Reason)
	require.Error(e, s.LastError)
	e.cluster.Connect()
	e.phase(status.PhaseReady)
	require.NoError(e, e.status().LastError)
}

func rotation(e *env) {
	f := e.settled()
	lists := e.cluster.Lists("configmaps")
	revision := e.status().Revision
	e.cluster.Rotate()
	e.eventually(func() bool { return e.status().Revision != revision }, "the new credentials are in use")
	e.create("red", "c")
	f.expect("Added c red")
	require.NoError(e, e.client().Create(e.Context(), e.configMap("d", "red")))
	f.expect("Added d red")
	require.Equal(e, lists, e.cluster.Lists("configmaps"))
	s := e.status()
	require.Equal(e, 1, s.Connects)
	require.Equal(e, status.PhaseReady, s.Phase)
}

func rollback(e *env) {
	f := e.settled()
	back := e.cluster.Snapshot()
	e.create("red", "c")
	e.paint("a", "blue")
	e.delete("b")
	f.expect("Added c red", "Updated a blue", "Deleted b red")
	e.grow()
	uid, epoch := e.status().UID, e.status().Epoch
	back()
	f.skipTo("Updated a red", "Deleted c red", "Added b red")
	e.eventually(func() bool { return e.status().Epoch != epoch && e.status().Phase == status.PhaseReady },
		"another epoch")
	require.Equal(e, uid, e.status().UID)
	e.paint("a", "green")
	f.expect("Updated a green")
}

// grow makes the history longer than what a server writes on its own when it
// starts: a history that has advanced further than the informer cannot be
// distinguished from an intact one.
func (e *env) grow() {
	for i := range 300 {
		cm := e.configMap("last", strconv.Itoa(i))
		if i == 0 {
			require.NoError(e, e.admin.Create(e.Context(), cm))
		}
		require.NoError(e, e.admin.Update(e.Context(), cm))
	}
	require.NoError(e, e.admin.Delete(e.Context(), e.configMap("last", "")))
}

func replaced(e *env) {
	f := e.settled()
	before := e.status()
	e.cluster.Replace()
	e.namespace()
	e.create("blue", "b")
	f.skipTo("Deleted a red", "Deleted b red", "Added b blue")
	e.phase(status.PhaseReady)
	after := e.status()
	require.NotEqual(e, before.UID, after.UID)
	require.NotEqual(e, before.Epoch, after.Epoch)
	require.Positive(e, after.HistoryResets)
	e.eventually(func() bool {
		list := &corev1.ConfigMapList{}
		err := e.reader().List(e.Context(), list, clustercache.CacheOnly, client.InNamespace(e.ns))
		return err == nil && len(list.Items) >= 1
	}, "the new cluster's objects are read")
	require.Equal(e, []string{"b"}, e.names(clustercache.CacheOnly))
}

func removed(e *env) {
	e.settled()
	e.cluster.Remove()
	e.eventually(func() bool {
		err := e.reader().Get(e.Context(), e.named("a"), &corev1.ConfigMap{})
		return errors.Is(err, clustercache.ErrUnknownCluster)
	}, "unknown")
}
