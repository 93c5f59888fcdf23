// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// replace changes the content of an object, unseen by any watch.
func replace(s *pooltest.Server, name string, change func(*pooltest.Object)) {
	s.Set(func(s *pooltest.Server) {
		n := types.NamespacedName{Namespace: "ns", Name: name}
		o := s.Objects[n]
		change(&o)
		s.Objects[n] = o
	})
}

// values returns the values of objects.
func values(t *testing.T, l *informerpool.Lease) map[string]any {
	t.Helper()
	objects, _, err := l.List(informerpool.Query{})
	require.NoError(t, err)
	out := map[string]any{}
	for _, o := range objects {
		u := &unstructured.Unstructured{}
		require.NoError(t, o.Into(u))
		out[u.GetName()], _, _ = unstructured.NestedFieldNoCopy(u.Object, "spec", "value")
	}
	return out
}

// TestContentThatAListChangedUnderOneVersionIsKept: a list shows a new default
// in a definition, under the version that is on disk.
func TestContentThatAListChangedUnderOneVersionIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(10), newMemory()
		first := start(t, s, disk, nil)
		l := first.synced()
		time.Sleep(round)
		replace(s, "w1", func(o *pooltest.Object) { o.Value = 1000 })
		s.Cut(apierrors.NewResourceExpired("too old"))
		time.Sleep(2 * round)
		want := values(t, l)
		require.EqualValues(t, 1000, want["w1"])

		second := start(t, s, first.killed(disk), nil)
		require.Equal(t, want, values(t, second.synced()))
		require.Equal(t, int64(1), restored(second))
	})
}

// TestWhatIsNotKeptAnyMoreIsDeleted, not merely unused.
func TestWhatIsNotKeptAnyMoreIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(5), newMemory()
		first := start(t, s, disk, nil)
		first.synced()
		first.stop()
		require.Equal(t, 6, disk.count())
		second := start(t, s, disk, func(o *informerpool.Options, _ *persist.Options) {
			o.Transforms = map[schema.GroupResource]informerpool.TransformFunc{
				pooltest.Widgets.GroupResource(): func(*unstructured.Unstructured) error { return nil },
			}
		})
		defer second.stop()
		synctest.Wait()
		require.Zero(t, disk.count())
	})
}

// size returns the bytes of all records.
func (m *memory) size() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, records := range m.buckets {
		for key, record := range records {
			n += len(key) + len(record)
		}
	}
	return n
}

// TestGrowingStateKeepsTheBound: the room of the state that it replaces counts
// once, also if it is written in many transactions.
func TestGrowingStateKeepsTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := pooltest.NewServer(), newMemory()
		put := func(from, to int) {
			for i := range to - from {
				s.Put("ns", fmt.Sprint("w", from+i), i, "noise="+pooltest.Noise(from+i, 600))
			}
		}
		put(0, 3000)
		const bound = 2 << 20
		first := start(t, s, disk, func(_ *informerpool.Options, o *persist.Options) { o.MaxBytes = bound })
		defer first.stop()
		first.synced()
		time.Sleep(round)
		require.Greater(t, disk.size(), bound/2)
		put(3000, 6000)
		time.Sleep(round)
		require.LessOrEqual(t, disk.size(), bound)
	})
}

// TestDroppedStateDoesNotWaitForALongRound: a process that is killed within the
// round would leave it to the next one.
func TestDroppedStateDoesNotWaitForALongRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := pooltest.NewServer(), newMemory()
		slow := func(_ *informerpool.Options, o *persist.Options) { o.BytesPerSecond = 20_000 }
		first := start(t, s, disk, slow)
		defer first.stop()
		for n := range 20 {
			namespace := fmt.Sprint("ns", n)
			for i := range 500 {
				s.Put(namespace, fmt.Sprint("w", i), i, "noise="+pooltest.Noise(i, 600))
			}
			pooltest.AcquireSynced(t, first.pool, pooltest.In(namespace))
		}
		kept := func() map[string]bool {
			disk.mu.Lock()
			defer disk.mu.Unlock()
			ids := map[string]bool{}
			for of := range disk.buckets["headers"] {
				ids[of] = true
			}
			return ids
		}
		time.Sleep(round)
		before := kept()
		require.NotEmpty(t, before)
		require.Less(t, len(before), 6, "the round goes on")
		first.keeper.DropCluster(pooltest.Everything.Cluster, errors.New("wrong"))
		time.Sleep(2 * time.Minute)
		require.Less(t, len(kept()), 15, "the round goes on")
		for of := range kept() {
			require.NotContains(t, before, of)
		}
	})
}
