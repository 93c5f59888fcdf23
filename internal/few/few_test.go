// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package few_test

import (
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/few"
)

// TestMapAgreesWithGos: with few entries and with many, and on the way back.
func TestMapAgreesWithGos(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var m few.Map[int, int]
		model := map[int]int{}
		keys := 1 + r.IntN(20)
		for range 500 {
			key := r.IntN(keys)
			if r.IntN(2) == 0 {
				value := r.Int()
				m.Set(key, value)
				model[key] = value
			} else {
				m.Delete(key)
				delete(model, key)
			}
			require.Equal(t, len(model), m.Len())
			require.Equal(t, model, maps.Collect(m.All()))
			require.ElementsMatch(t, slices.Collect(maps.Keys(model)), slices.Collect(m.Keys()))
			require.ElementsMatch(t, slices.Collect(maps.Values(model)), slices.Collect(m.Values()))
			for key := range keys {
				want, has := model[key]
				value, ok := m.Lookup(key)
				require.Equal(t, has, ok)
				require.Equal(t, want, value)
				require.Equal(t, want, m.Get(key))
			}
		}
	}
}

// TestDeleteWhileIterating: each entry is yielded once, whatever is deleted.
func TestDeleteWhileIterating(t *testing.T) {
	for n := range 20 {
		var m few.Set[int]
		for i := range n {
			m.Set(i, struct{}{})
		}
		var seen []int
		for i := range m.All() {
			seen = append(seen, i)
			m.Delete(i)
		}
		slices.Sort(seen)
		require.Len(t, slices.Compact(seen), n)
		require.Zero(t, m)
	}
}

// TestNoSetIsEmpty: neither is a number zero.
func TestNoSetIsEmpty(t *testing.T) {
	var sets few.Sets[string, int]
	var counts few.Map[string, int]
	for i := range 20 {
		few.Add(&sets, "a", i)
		few.Count(&counts, "a", 1)
	}
	set := sets.Get("a")
	require.Equal(t, 20, set.Len())
	require.Equal(t, 20, counts.Get("a"))
	for i := range 20 {
		require.Equal(t, 1, sets.Len())
		require.Equal(t, 1, counts.Len())
		few.Remove(&sets, "a", i)
		few.Remove(&sets, "b", i)
		few.Count(&counts, "a", -1)
	}
	require.Zero(t, sets)
	require.Zero(t, counts)
}

// TestFewEntriesTakeLittle: a map with one entry takes what the entry does.
func TestFewEntriesTakeLittle(t *testing.T) {
	const n = 10_000
	type key [4]string
	var all [n]few.Map[key, *int]
	before := heap()
	for i := range all {
		all[i].Set(key{}, nil)
	}
	each := float64(heap()-before) / n
	runtime.KeepAlive(&all)
	require.Less(t, each, 100.0)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
