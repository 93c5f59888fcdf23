// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build upgrades

package e2e_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestUpgrades replaces the API server of a cluster with other versions, on the
// same port and with the same data, under synced informers.
func TestUpgrades(t *testing.T) {
	for _, chain := range [][]string{
		{"1.33", "1.34", "1.35", "1.36", "1.35", "1.34", "1.33"},
		{"1.33", "1.34", "1.36", "1.34", "1.33"},
		{"1.33", "1.36", "1.33"},
		{"1.34", "1.33", "1.36"},
	} {
		t.Run(strings.Join(chain, " to "), func(t *testing.T) { upgrades(t, chain) })
	}
}

func upgrades(t *testing.T, chain []string) {
	c := testenv.Start(t, 1, testenv.WithKubernetes(chain[0]), testenv.WithCRDs(partsAndSites()...))[0]
	o, r := newOracle(t, c.Config()), newRemote(t, c.Config(), c.Name())
	settle(t, o)
	r.settle(t)
	s := watching(t, one(c.Config()), nil)
	all := follow(t, starting(t, one(c.Config()), nil), cluster, r)
	s.equals(cluster, o, patience)
	require.Empty(t, s.deletes(cluster))
	for i, version := range chain[1:] {
		require.NoError(t, c.RestartAs(t.Context(), testenv.Version(version)))
		o.put(t, "changed", version) // before the informers have received anything
		o.remove(t, "gone")
		r.touch(t, version)
		s.ready(cluster)
		took := s.equals(cluster, o, healed)
		all.s.ready(cluster)
		all.equals(healed)
		require.Equal(t, map[string]int{"gone": i + 1}, s.deletes(cluster), "nothing else was deleted")
		fresh(t, s)
		o.put(t, "gone", version)
		s.equals(cluster, o, healed)
		t.Logf("%s: equal %s after the first contact", version, took)
		require.Eventually(t, func() bool {
			status, err := s.Cluster(cluster).Status()
			return err == nil && strings.HasPrefix(status.ServerVersion, "v"+version+".")
		}, 2*time.Minute, 100*time.Millisecond, "the status shows the server's version")
	}
	status, err := s.Cluster(cluster).Status()
	require.NoError(t, err)
	require.Zero(t, status.HistoryResets)
	all.nothingDeleted(t, namespace+`/"gone"`)
}

// deviceClass is a kind that 1.34 serves but 1.33 does not.
var deviceClass = schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: "DeviceClass"}

// TestSkewedPairs lets two API servers of different versions take turns behind
// one address.
func TestSkewedPairs(t *testing.T) {
	for _, pair := range [][2]string{{"1.33", "1.34"}, {"1.34", "1.36"}, {"1.35", "1.36"}} {
		t.Run(pair[0]+" and "+pair[1], func(t *testing.T) { skewed(t, pair) })
	}
}

func skewed(t *testing.T, pair [2]string) {
	c := testenv.Start(t, 1, testenv.WithKubernetes(pair[0]), testenv.WithCRDs(partsAndSites()...))[0]
	newer, err := c.AddReplica(t.Context(), testenv.Version(pair[1]))
	require.NoError(t, err)
	o, r := newOracle(t, c.Config()), newRemote(t, c.Config(), c.Name())
	settle(t, o)
	r.settle(t)
	g := c.Gateway(t)
	require.NoError(t, g.SetBackend(newer))
	s := watching(t, one(g.Config()), nil)
	all := follow(t, starting(t, one(g.Config()), nil), cluster, r)
	s.equals(cluster, o, patience)

	class := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	class.SetGroupVersionKind(deviceClass)
	class.SetName("class")
	writes, err := s.Cluster(cluster).Client()
	require.NoError(t, err)
	require.NoError(t, writes.Create(t.Context(), class))
	w, err := s.Cluster(cluster).Watch(t.Context(), clustercache.Kind(deviceClass))
	require.NoError(t, err)
	classes := &tools{present: map[string]bool{}}
	_, err = w.AddEventHandler(classes)
	require.NoError(t, err)
	require.NoError(t, w.WaitForSync(t.Context()))
	require.Eventually(t, func() bool { return slices.Equal(classes.names(), []string{"class"}) }, patience,
		10*time.Millisecond)

	for i := range 10 {
		backends := []*testenv.APIServer{c.APIServer, newer}
		if i%3 == 2 {
			backends = backends[1:]
		}
		require.NoError(t, g.SetBackend(backends...))
		g.EndStreams()
		o.put(t, "changed", pair[i%2])
		r.touch(t, pair[i%2]+" again")
		s.equals(cluster, o, healed)
		all.equals(healed)
		fresh(t, s)
		<-time.After(2 * time.Second) // several attempts at the kind that only one of them serves
	}
	require.Empty(t, s.deletes(cluster))
	all.nothingDeleted(t)
	require.Empty(t, classes.deletes(), "what one server does not know is not deleted")
	status, err := s.Cluster(cluster).Status()
	require.NoError(t, err)
	require.Zero(t, status.HistoryResets)
}

// touch changes one object of each selection.
func (r remote) touch(t *testing.T, value string) {
	t.Helper()
	for _, s := range selections() {
		require.NoError(t, r.put(t.Context(), s, "n-0", value, "a"))
	}
}

// nothingDeleted requires that no delete was delivered, except for objects that
// the test itself removed.
func (e *estate) nothingDeleted(t *testing.T, removed ...string) {
	t.Helper()
	for _, f := range e.followers {
		_, deleted, _ := f.told()
		for at := range deleted {
			require.Contains(t, removed, at, f.selection)
		}
	}
}
