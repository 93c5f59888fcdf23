// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/fleet"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

// fault is what is wrong with a cluster.
type fault int

const (
	none fault = iota
	disconnected
	hung
	forbidden
	broken
	removed
	faults
)

// modeled is a cluster of which the model knows what it stores, and whether it
// can answer.
type modeled struct {
	*clustercachetest.Cluster

	red, all []string // names, sorted
	watched  bool
	fault    fault
}

// TestEachClusterOfARandomFleetIsYieldedOnce reads fleets in random states with
// random options. What is yielded is compared with what was stored.
func TestEachClusterOfARandomFleetIsYieldedOnce(t *testing.T) {
	for seed := range uint64(repeat.Times(30)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's
				f := clustercachetest.New(t, clustercachetest.Options{})
				model := map[client.ObjectKey]*modeled{}
				for i := range 10 {
					m := newModeled(r, f, fmt.Sprintf("c%02d", i))
					model[m.Key()] = m
				}
				cc := f.ClusterCache()
				f.WaitSynced()
				for _, m := range model {
					if m.watched {
						_, err := cc.Cluster(m.Key()).Watch(t.Context(), &corev1.ConfigMap{})
						require.NoError(t, err)
					}
				}
				f.WaitSynced()
				for _, m := range model {
					m.fail()
				}
				time.Sleep(time.Duration(r.IntN(100)) * time.Second)
				synctest.Wait()
				for range 3 {
					readModeled(t, r, cc, model)
				}
			})
		})
	}
}

func newModeled(r *rand.Rand, f *clustercachetest.Fleet, name string) *modeled {
	m := &modeled{watched: r.IntN(2) == 0}
	if r.IntN(2) == 0 {
		m.fault = fault(r.IntN(int(faults)))
	}
	var objects []client.Object
	for i := range r.IntN(4) {
		color := []string{"red", "blue"}[r.IntN(2)]
		o := configMap(fmt.Sprintf("object-%d", i), color)
		objects = append(objects, o)
		m.all = append(m.all, o.Name)
		if color == "red" {
			m.red = append(m.red, o.Name)
		}
	}
	m.Cluster = f.Add(name, objects...)
	return m
}

func (m *modeled) fail() {
	switch m.fault {
	case disconnected:
		m.Disconnect()
	case hung:
		m.Hang()
	case forbidden:
		m.Fail(clustercachetest.Status(403), clustercachetest.Resource("configmaps"))
	case broken:
		m.Fail(errors.New("broken"), clustercachetest.Resource("configmaps"))
	case removed:
		m.Remove()
	}
}

// readModeled reads the fleet once.
func readModeled(t *testing.T, r *rand.Rand, cc *clustercache.ClusterCache, model map[client.ObjectKey]*modeled) {
	t.Helper()
	mode := []clustercache.ReadMode{
		clustercache.PreferCache, clustercache.CacheOnly, clustercache.LiveOnly,
	}[r.IntN(3)]
	o := fleet.Options{
		Sorted:      r.IntN(2) == 0,
		Concurrency: 1 + r.IntN(4),
		Timeout:     time.Duration(1+r.IntN(20)) * time.Second,
	}
	red := r.IntN(2) == 0
	var total fleet.Total
	opts := []client.ListOption{client.InNamespace("default"), mode, o, &total}
	if red {
		opts = append(opts, client.MatchingLabels{"color": "red"})
	}

	began := time.Now()
	var keys []client.ObjectKey
	objects, failed := 0, 0
	for answer, err := range fleet.ByCluster(t.Context(), cc, &corev1.ConfigMap{}, opts...) {
		keys = append(keys, answer.Cluster)
		m := model[answer.Cluster]
		if err != nil {
			failed++
			about, ok := errors.AsType[*clustercache.ClusterError](err)
			require.True(t, ok)
			require.Equal(t, m.Key(), about.Cluster)
			require.False(t, m.fault == none && (m.watched || mode != clustercache.CacheOnly),
				"%s can answer: %v", m.Key(), err)
			continue
		}

		objects += answer.Len()
		require.NotEqual(t, removed, m.fault)
		if m.fault == none {
			require.Equal(t, m.watched && mode != clustercache.LiveOnly, answer.Origin.Cached)
		} else {
			require.True(t, answer.Origin.Cached)
		}
		want := m.all
		if red {
			want = m.red
		}
		var got []string
		for item := range answer.Items() {
			got = append(got, item.Metadata().GetName())
		}
		require.True(t, !o.Sorted || slices.IsSorted(got))
		slices.Sort(got)
		require.Equal(t, want, got)
	}

	require.LessOrEqual(t, time.Since(began), time.Duration(len(model))*o.Timeout)
	require.True(t, !o.Sorted || slices.IsSortedFunc(keys, func(a, b client.ObjectKey) int {
		return slices.Compare([]string{a.Name}, []string{b.Name})
	}))
	require.Equal(t, []int{len(keys), len(keys) - failed, failed, objects},
		[]int{total.Clusters, total.Answered, total.Failed, total.Objects})
	for key, m := range model {
		times := 0
		for _, yielded := range keys {
			if yielded == key {
				times++
			}
		}
		require.True(t, times == 1 || times == 0 && m.fault == removed, "%s is yielded %d times", key, times)
	}
}
