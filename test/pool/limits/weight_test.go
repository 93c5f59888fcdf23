// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
	"github.com/fleetcache/fleetcache/internal/wire/wiretest"
)

// heapOf returns how many bytes the result of make keeps alive. A measurement
// counts if the heap is the same before it and after the release: a goroutine
// of an earlier test that the scheduler has not let end yet may hold megabytes
// when this one begins and none when it ends.
func heapOf(t *testing.T, make func() (release func())) int64 {
	t.Helper()
	for range 100 {
		before := pooltest.LiveHeap()
		release := make()
		full := pooltest.LiveHeap()
		release()
		after := pooltest.LiveHeap()
		if d := after - before; -50_000 < d && d < 50_000 {
			return full - after
		}
	}
	require.Fail(t, "the heap is never the same before and after")
	return 0
}

// TestWeightAgreesWithTheHeap: the budgets are only as accurate as the sizes
// that Status reports for objects of very different shapes.
func TestWeightAgreesWithTheHeap(t *testing.T) {
	for name, c := range map[string]struct {
		n    int
		make func(i int) []byte
	}{
		"Pods": {1500, func(i int) []byte { return pooltest.Frame("ADDED", wiretest.Pod(i)) }},
		"Secrets": {1000, func(i int) []byte {
			return pooltest.PodFrame(i, "ns", `},"data":{"k":"`+pooltest.Noise(i, 3000)+`"}}`)
		}},
		"small ones in many namespaces": {8000, func(i int) []byte {
			return pooltest.PodFrame(i, fmt.Sprint("namespace-", i/4), `},"data":{"k":"`+pooltest.Noise(i, 40)+`"}}`)
		}},
		"own labels": {6000, func(i int) []byte {
			return pooltest.PodFrame(i, "ns", `,"labels":{"a":"`+pooltest.Noise(i, 300)+`"}}}`)
		}},
		"shared labels": {6000, func(i int) []byte {
			return pooltest.PodFrame(i, "ns", `,"labels":{"a":"`+pooltest.Noise(i/50, 300)+`"}}}`)
		}},
		"huge labels": {20, func(i int) []byte {
			return pooltest.PodFrame(i, "ns", `,"labels":{"a":"`+pooltest.Noise(i, 500_000)+`"}}}`)
		}},
		"many owners": {60, func(i int) []byte {
			owners := make([]string, 3000)
			for n := range owners {
				uid := pooltest.Noise(i*len(owners)+n, 30)
				owners[n] = `{"apiVersion":"v1","kind":"K","name":"n","uid":"` + uid + `"}`
			}
			return pooltest.PodFrame(i, "ns", `,"ownerReferences":[`+strings.Join(owners, ",")+`]}}`)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			i, made := 0, make([][]byte, c.n)
			for i := range made {
				made[i] = c.make(i)
			}
			g := &pooltest.Generated{Next: func() []byte {
				i++
				switch {
				case i <= len(made):
					return made[i-1]
				case i == len(made)+1:
					return pooltest.EndOfList()
				}
				return nil
			}}
			warm, err := informerpool.New(informerpool.Options{Source: g})
			require.NoError(t, err)
			pooltest.AcquireSynced(t, warm, pooltest.AnyKind) // memory that the process keeps for all pools
			require.NoError(t, warm.Close(t.Context()))
			warm = nil

			var said int64
			used := heapOf(t, func() (release func()) {
				p, err := informerpool.New(informerpool.Options{Source: g})
				require.NoError(t, err)
				i = 0
				l := pooltest.AcquireSynced(t, p, pooltest.AnyKind)
				said = l.Status().Bytes
				require.Equal(t, c.n, l.Status().Objects)

				return func() {
					require.NoError(t, p.Close(t.Context()))
					p, l = nil, nil
				}
			})
			t.Logf("%d objects: heap %d, said %d (%.2f)", c.n, used, said, float64(said)/float64(used))
			require.InDelta(t, used, said, 0.15*float64(used)+120_000,
				"but for two dictionaries and the informer itself")
			runtime.KeepAlive(made)
		})
	}
}

// TestBudgetHoldsAgainstFloods: whatever a server makes up, the heap stays near
// the budget, also over many tries.
func TestBudgetHoldsAgainstFloods(t *testing.T) {
	const budget = 2 << 20
	for name, make := range map[string]func(i int) []byte{
		"labels": func(i int) []byte {
			return pooltest.PodFrame(i, "ns", `,"labels":{"a":"`+pooltest.Noise(i, 200_000)+`"}}}`)
		},
		"owners": func(i int) []byte {
			return pooltest.PodFrame(i, "ns", `,"ownerReferences":[{"uid":"`+pooltest.Noise(i, 200_000)+`"}]}}`)
		},
		"objects":    func(i int) []byte { return pooltest.PodFrame(i, "ns", `}}`) },
		"namespaces": func(i int) []byte { return pooltest.PodFrame(i, fmt.Sprint("n", i), `}}`) },
		"annotations": func(i int) []byte {
			return pooltest.PodFrame(i, "ns", `,"annotations":{"a":"`+pooltest.Noise(i, 200_000)+`"}}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := 0
				g := &pooltest.Generated{Next: func() []byte { i++; return make(i) }}
				p, err := informerpool.New(informerpool.Options{Source: g, MaxClusterBytes: budget})
				require.NoError(t, err)
				defer func() { require.NoError(t, p.Close(context.Background())) }()
				before := pooltest.LiveHeap()
				l := pooltest.Acquire(t, p, pooltest.AnyKind)
				require.ErrorIs(t, l.WaitForSync(t.Context()), informerpool.ErrBudget)
				pooltest.After(10 * time.Second)
				require.Less(t, pooltest.LiveHeap()-before, int64(budget+16<<20))
				require.ErrorIs(t, l.Status().LastError, informerpool.ErrBudget)
			})
		})
	}
}

// TestHazardInformerThatIsFullNeverListsAgain: all objects that are left on the
// server have changed, and there is no room for another byte until the deleted
// ones are removed.
func TestHazardInformerThatIsFullNeverListsAgain(t *testing.T) {
	const budget = 8000
	for _, paged := range []bool{false, true} {
		t.Run(fmt.Sprint("paged ", paged), func(t *testing.T) {
			pooltest.Bubble(t, func(o *informerpool.Options) { o.MaxClusterBytes, o.PagedLists = budget, paged }, func(
				t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.Record(t, p, l)
				for i := range 100 {
					s.Put("ns", fmt.Sprint("o", i), 1)
				}
				pooltest.After(time.Minute)
				require.ErrorIs(t, l.Status().LastError, informerpool.ErrBudget)
				for i := range 100 {
					if i < 3 {
						s.Put("ns", fmt.Sprint("o", i), 2, "long="+pooltest.Noise(i, 600))
						continue
					}
					s.Delete("ns", fmt.Sprint("o", i))
				}
				pooltest.After(2 * time.Minute)
				require.NoError(t, l.Trust(0))
				require.Equal(t, s.State(nil), pooltest.Contents(t, l))
				require.Equal(t, s.State(nil), r.State())
				require.LessOrEqual(t, l.Status().Bytes, int64(budget))
				r.RequireSound(t)
			})
		})
	}
}

// TestBudgetHoldsInALiveStream: distinct objects of a stream count as those of
// a list do, and no try gets one more in.
func TestBudgetHoldsInALiveStream(t *testing.T) {
	for name, change := range map[string]func(*informerpool.Options){
		"objects": func(o *informerpool.Options) { o.MaxObjects = 10 },
		"bytes":   func(o *informerpool.Options) { o.MaxClusterBytes = 5000 },
	} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, change, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "first", 1)
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				for i := range 100 {
					s.Put("ns", fmt.Sprint("o", i), 1)
				}
				pooltest.After(time.Minute)
				full := l.Status()
				require.ErrorIs(t, full.LastError, informerpool.ErrBudget)
				require.Equal(t, informerpool.StateDegraded, full.State)
				require.Error(t, l.Trust(time.Hour))
				require.Less(t, full.Objects, 30)
				pooltest.After(10 * time.Minute)
				require.Equal(t, full.Objects, l.Status().Objects)
				require.Equal(t, full.Bytes, l.Status().Bytes)
				for i := range 100 {
					s.Delete("ns", fmt.Sprint("o", i))
				}
				pooltest.After(2 * time.Minute)
				again := l.Status()
				require.Equal(t, informerpool.StateSynced, again.State, "there is room again: %v", again.LastError)
				require.Equal(t, 1, again.Objects)
				require.NoError(t, l.Trust(time.Hour))
			})
		})
	}
}
