// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/wire/wiretest"
)

// generated is a source that generates its streamed list while it is read. A
// plain watch carries nothing.
type generated struct{ next func() []byte }

func (g *generated) Ready(context.Context, types.NamespacedName) (informerpool.Epoch, error) {
	return "", nil
}

func (g *generated) List(context.Context, informerpool.Request) (io.ReadCloser, error) {
	return nil, io.ErrUnexpectedEOF
}

func (g *generated) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Options.SendInitialEvents == nil {
		return &openEnd{ctx: ctx}, nil
	}
	return &generatedBody{openEnd: openEnd{ctx: ctx}, next: g.next}, nil
}

type generatedBody struct {
	openEnd

	next func() []byte
}

func (b *generatedBody) Read(p []byte) (int, error) {
	if b.rest.Len() == 0 {
		if b.ctx.Err() != nil {
			return 0, b.ctx.Err()
		}
		b.rest.Write(b.next())
	}
	return b.openEnd.Read(p)
}

var anyKind = informerpool.Key{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod"}

func endOfList() []byte {
	return frame("BOOKMARK", []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"99999999","annotations":{"k8s.io/initial-events-end":"true"}}}`))
}

func item(i int, namespace, rest string) []byte {
	return frame("ADDED", fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":%q,"name":"object-%d","uid":"%08x-1111-4111-8111-111111111111","resourceVersion":"%d"%s`,
		namespace, i, i, i+1, rest))
}

// liveHeap is how many bytes are reachable, once memory pools and the remains
// of earlier tests have settled.
func liveHeap() int64 {
	var m runtime.MemStats
	for last := int64(-1); ; {
		runtime.GC()
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		if now := int64(m.HeapAlloc); last >= 0 && last-now < 10_000 {
			return now
		}
		last = int64(m.HeapAlloc)
	}
}

// liveHeapUnder returns the first size of the live heap under a bound, or that
// of the last of a hundred tries: it may take more than one collection until
// released memory is gone, while retained memory is in every measurement.
func liveHeapUnder(bound int64) int64 {
	for range 100 {
		if now := liveHeap(); now < bound {
			return now
		}
		runtime.Gosched()
	}
	return liveHeap()
}

// heapOf returns how many bytes the result of make keeps alive. A measurement
// counts if the heap is the same before it and after the release: a goroutine
// of an earlier test that the scheduler has not let end yet may hold megabytes
// when this one begins and none when it ends.
func heapOf(t *testing.T, make func() (release func())) int64 {
	t.Helper()
	for range 100 {
		before := liveHeap()
		release := make()
		full := liveHeap()
		release()
		after := liveHeap()
		if d := after - before; -50_000 < d && d < 50_000 {
			return full - after
		}
	}
	require.Fail(t, "the heap is never the same before and after")
	return 0
}

func noise(i, n int) string {
	r := rand.New(rand.NewPCG(uint64(i), 7))
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%016x", r.Uint64())
	}
	return b.String()[:n]
}

// TestWeightAgreesWithTheHeap: the budgets are only as accurate as the sizes
// that Status reports for objects of very different shapes.
func TestWeightAgreesWithTheHeap(t *testing.T) {
	for name, c := range map[string]struct {
		n    int
		make func(i int) []byte
	}{
		"Pods":    {1500, func(i int) []byte { return frame("ADDED", wiretest.Pod(i)) }},
		"Secrets": {1000, func(i int) []byte { return item(i, "ns", `},"data":{"k":"`+noise(i, 3000)+`"}}`) }},
		"small ones in many namespaces": {8000, func(i int) []byte {
			return item(i, fmt.Sprint("namespace-", i/4), `},"data":{"k":"`+noise(i, 40)+`"}}`)
		}},
		"own labels":    {6000, func(i int) []byte { return item(i, "ns", `,"labels":{"a":"`+noise(i, 300)+`"}}}`) }},
		"shared labels": {6000, func(i int) []byte { return item(i, "ns", `,"labels":{"a":"`+noise(i/50, 300)+`"}}}`) }},
		"huge labels":   {20, func(i int) []byte { return item(i, "ns", `,"labels":{"a":"`+noise(i, 500_000)+`"}}}`) }},
		"many owners": {60, func(i int) []byte {
			return item(i, "ns", `,"ownerReferences":[`+strings.TrimSuffix(strings.Repeat(`{"apiVersion":"v1","kind":"K","name":"n","uid":"`+noise(i, 30)+`"},`, 3000), ",")+`]}}`)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			i, made := 0, make([][]byte, c.n)
			for i := range made {
				made[i] = c.make(i)
			}
			g := &generated{next: func() []byte {
				i++
				switch {
				case i <= len(made):
					return made[i-1]
				case i == len(made)+1:
					return endOfList()
				}
				return nil
			}}
			warm, err := informerpool.New(informerpool.Options{Source: g})
			require.NoError(t, err)
			acquireSynced(t, warm, anyKind) // memory that the process keeps for all pools
			require.NoError(t, warm.Close(t.Context()))
			warm = nil

			var said int64
			used := heapOf(t, func() (release func()) {
				p, err := informerpool.New(informerpool.Options{Source: g})
				require.NoError(t, err)
				i = 0
				l := acquireSynced(t, p, anyKind)
				said = l.Status().Bytes
				require.Equal(t, c.n, l.Status().Objects)

				return func() {
					require.NoError(t, p.Close(t.Context()))
					p, l = nil, nil
				}
			})
			t.Logf("%d objects: heap %d, said %d (%.2f)", c.n, used, said, float64(said)/float64(used))
			require.InDelta(t, used, said, 0.15*float64(used)+120_000, "but for two dictionaries and the informer itself")
			runtime.KeepAlive(made)
		})
	}
}

// TestBudgetHoldsAgainstFloods: whatever a server makes up, the heap stays near
// the budget, also over many tries.
func TestBudgetHoldsAgainstFloods(t *testing.T) {
	const budget = 2 << 20
	for name, make := range map[string]func(i int) []byte{
		"labels": func(i int) []byte { return item(i, "ns", `,"labels":{"a":"`+noise(i, 200_000)+`"}}}`) },
		"owners": func(i int) []byte {
			return item(i, "ns", `,"ownerReferences":[{"uid":"`+noise(i, 200_000)+`"}]}}`)
		},
		"objects":     func(i int) []byte { return item(i, "ns", `}}`) },
		"namespaces":  func(i int) []byte { return item(i, fmt.Sprint("n", i), `}}`) },
		"annotations": func(i int) []byte { return item(i, "ns", `,"annotations":{"a":"`+noise(i, 200_000)+`"}}}`) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := 0
				g := &generated{next: func() []byte { i++; return make(i) }}
				p, err := informerpool.New(informerpool.Options{Source: g, MaxClusterBytes: budget})
				require.NoError(t, err)
				defer func() { require.NoError(t, p.Close(context.Background())) }()
				before := liveHeap()
				l := acquire(t, p, anyKind)
				require.ErrorIs(t, l.WaitForSync(t.Context()), informerpool.ErrBudget)
				after(10 * time.Second)
				require.Less(t, liveHeap()-before, int64(budget+16<<20))
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
			bubble(t, func(o *informerpool.Options) { o.MaxClusterBytes, o.PagedLists = budget, paged }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				subscribe(t, p, l, r)
				for i := range 100 {
					s.put("ns", fmt.Sprint("o", i), 1)
				}
				after(time.Minute)
				require.ErrorIs(t, l.Status().LastError, informerpool.ErrBudget)
				for i := range 100 {
					if i < 3 {
						s.put("ns", fmt.Sprint("o", i), 2, "long="+strings.Repeat("x", 300))
						continue
					}
					s.delete("ns", fmt.Sprint("o", i))
				}
				after(2 * time.Minute)
				require.NoError(t, l.Trust(0))
				require.Equal(t, s.state(nil), contents(t, l))
				require.Equal(t, s.state(nil), r.told())
				require.LessOrEqual(t, l.Status().Bytes, int64(budget))
				r.requireSound(t)
			})
		})
	}
}

// TestBudgetHoldsInALiveStream: distinct objects of a stream count as those of
// a list do, and no try gets one more in.
func TestBudgetHoldsInALiveStream(t *testing.T) {
	for name, change := range map[string]func(*informerpool.Options){
		"objects": func(o *informerpool.Options) { o.MaxObjects = 10 },
		"bytes":   func(o *informerpool.Options) { o.MaxClusterBytes = 8000 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, change, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "first", 1)
				l := acquireSynced(t, p, everything)
				for i := range 100 {
					s.put("ns", fmt.Sprint("o", i), 1)
				}
				after(time.Minute)
				full := l.Status()
				require.ErrorIs(t, full.LastError, informerpool.ErrBudget)
				require.Equal(t, informerpool.StateDegraded, full.State)
				require.Error(t, l.Trust(time.Hour))
				require.Less(t, full.Objects, 30)
				after(10 * time.Minute)
				require.Equal(t, full.Objects, l.Status().Objects)
				require.Equal(t, full.Bytes, l.Status().Bytes)
				for i := range 100 {
					s.delete("ns", fmt.Sprint("o", i))
				}
				after(2 * time.Minute)
				again := l.Status()
				require.Equal(t, informerpool.StateSynced, again.State, "there is room again: %v", again.LastError)
				require.Equal(t, 1, again.Objects)
				require.NoError(t, l.Trust(time.Hour))
			})
		})
	}
}
