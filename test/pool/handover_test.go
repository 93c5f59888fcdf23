// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// forbidden refuses the informers of a key.
func forbidden(key informerpool.Key) func(informerpool.Key) error {
	return func(k informerpool.Key) error {
		if k == key {
			return apierrors.NewForbidden(pooltest.Widgets.GroupResource(), "", errors.New("no"))
		}
		return nil
	}
}

// TestHazardNarrowLeaseDoesNotKeepTheWideInformer: the wide informer ends once
// it has no lease of its own, and the narrow lease continues without an event
// for unchanged objects.
func TestHazardNarrowLeaseDoesNotKeepTheWideInformer(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "o1", 1)
		for i := range 19 {
			s.Put("other", fmt.Sprint("o", i), 1)
		}
		wide := pooltest.AcquireSynced(t, p, pooltest.Everything)
		narrow := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		r := pooltest.Record(t, p, narrow)
		require.NoError(t, narrow.AddIndex("name",
			func(o *informerpool.Object) []string { return []string{o.GetName()} }))
		pooltest.After(time.Second)
		require.Len(t, r.Take(), 1)
		require.Equal(t, []informerpool.Key{pooltest.Everything}, p.Keys())

		wide.Release()
		pooltest.After(time.Second)
		require.Equal(t, []informerpool.Key{pooltest.Everything}, p.Keys(), "it lingers")
		pooltest.After(time.Minute)
		require.Equal(t, []informerpool.Key{pooltest.In("ns")}, p.Keys())
		require.Empty(t, r.Take())
		require.Len(t, pooltest.Contents(t, narrow), 1)
		require.Equal(t, 1, narrow.Status().Objects)
		found, _, err := narrow.List(informerpool.Query{Index: "name", Value: "o1"})
		require.NoError(t, err)
		require.Len(t, found, 1)

		s.Put("ns", "o1", 2)
		s.Put("other", "o2", 2)
		pooltest.After(time.Second)
		require.Equal(t, []string{"Updated ns/o1@121"}, r.Take())
		s.Delete("ns", "o1")
		pooltest.After(time.Second)
		require.Len(t, r.Take(), 1)
		r.RequireSound(t)
		narrow.Release()
		pooltest.After(time.Minute)
		require.Empty(t, p.Keys())
	})
}

// TestHazardNarrowLeaseOutlivesTheRefusalOfTheWideOne: what a narrow lease may
// read does not depend on the permissions of another.
func TestHazardNarrowLeaseOutlivesTheRefusalOfTheWideOne(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		s.Put("other", "b", 1)
		wide := pooltest.AcquireSynced(t, p, pooltest.Everything)
		narrow := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		r := pooltest.Record(t, p, narrow)
		pooltest.After(time.Second)
		r.Take()
		s.Set(func(s *pooltest.Server) { s.Refuse = forbidden(pooltest.Everything) })
		s.Cut(errors.New("cut"))
		s.Put("ns", "a", 2)
		pooltest.After(10 * time.Second)
		require.NoError(t, narrow.Trust(0))
		require.Error(t, wide.Trust(0))
		require.Len(t, r.Take(), 1, "what changed meanwhile, and nothing else")
		s.Put("ns", "c", 1)
		pooltest.After(time.Second)
		require.Len(t, r.Take(), 1)
		require.Equal(t, s.State(func(o pooltest.Object) bool { return o.Namespace == "ns" }),
			pooltest.Contents(t, narrow))
		r.RequireSound(t)

		// The wide informer recovers, and the narrow lease keeps its own as
		// long as it is held.
		s.Set(func(s *pooltest.Server) { s.Refuse = nil })
		pooltest.After(time.Minute)
		require.NoError(t, wide.Trust(0))
		require.Len(t, p.Keys(), 2)
	})
}

// TestWideInformerThatIsHeldAgainLists: the narrow lease has its own informer by
// then, and keeps it.
func TestWideInformerThatIsHeldAgainLists(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		s.Put("other", "b", 1)
		wide := pooltest.AcquireSynced(t, p, pooltest.Everything)
		narrow := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		r := pooltest.Record(t, p, narrow)
		pooltest.After(10 * time.Second)
		r.Take()
		sent := requests(s)
		wide.ReleaseNow()
		again := pooltest.AcquireSynced(t, p, pooltest.Everything)
		pooltest.After(time.Second)
		require.Equal(t, map[string]int{"stream": 1, "watch": 1}, sent())
		require.Len(t, p.Keys(), 2)
		require.Len(t, pooltest.Contents(t, again), 2)
		require.Len(t, pooltest.Contents(t, narrow), 1)
		require.Empty(t, r.Take())
		narrow.Release()
		again.Release()
		pooltest.After(time.Minute)
		require.Empty(t, p.Keys())
	})
}

// TestHandOverLosesAndRepeatsNothing: leases are handed over and back while
// objects change, and the events that handlers received are compared with the
// server.
func TestHandOverLosesAndRepeatsNothing(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's
				change := func() {
					for range random.IntN(8) {
						namespace, name := fmt.Sprint("ns", random.IntN(2)), fmt.Sprint("o", random.IntN(6))
						if random.IntN(3) == 0 {
							s.Delete(namespace, name)
						} else {
							s.Put(namespace, name, random.IntN(100))
						}
					}
				}
				change()
				wide := pooltest.AcquireSynced(t, p, pooltest.Everything)
				narrow := pooltest.AcquireSynced(t, p, pooltest.In("ns1"))
				r := pooltest.Record(t, p, narrow)
				for range 30 {
					change()
					time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
					switch random.IntN(4) {
					case 0:
						wide.ReleaseNow()
						change()
						wide = pooltest.Acquire(t, p, pooltest.Everything)
					case 1:
						s.Set(func(s *pooltest.Server) { s.Refuse = forbidden(pooltest.Everything) })
						s.Cut(errors.New("cut"))
						change()
						time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
						s.Set(func(s *pooltest.Server) { s.Refuse = nil })
					case 2:
						s.Cut(errors.New("cut"))
					}
				}
				wide.ReleaseNow()
				pooltest.After(5 * time.Minute)
				require.Equal(t, []informerpool.Key{pooltest.In("ns1")}, p.Keys())
				want := s.State(func(o pooltest.Object) bool { return o.Namespace == "ns1" })
				require.Equal(t, want, pooltest.Contents(t, narrow))
				require.Equal(t, want, r.State())
				r.RequireSound(t)
			})
		})
	}
}

// TestRetargetedLeaseTellsTheDifference: the old objects are deleted and the
// new ones added once the new informer has listed, and not before.
func TestRetargetedLeaseTellsTheDifference(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		s.Put("other", "b", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		r := pooltest.Record(t, p, l)
		pooltest.After(time.Second)
		require.Equal(t, []string{"Added ns/a@101"}, r.Take())
		block := make(chan struct{})
		s.Set(func(s *pooltest.Server) { s.Block = block })
		require.NoError(t, l.Retarget(context.Background(), pooltest.In("other")))
		pooltest.After(time.Second)
		require.Empty(t, r.Take())
		require.False(t, l.HasSynced())
		_, _, err := l.List(informerpool.Query{})
		require.ErrorIs(t, err, informerpool.ErrNotSynced)
		s.Set(func(s *pooltest.Server) { s.Block = nil })
		close(block)
		require.NoError(t, l.WaitForSync(context.Background()))
		pooltest.After(time.Second)
		require.Equal(t, []string{"Deleted ns/a@101", "Added other/b@102"}, r.Take())
		require.Equal(t, []informerpool.Key{pooltest.In("other")}, p.Keys())
		require.Equal(t, pooltest.In("other"), l.Key())
		require.NoError(t, l.Retarget(context.Background(), pooltest.Everything))
		pooltest.After(time.Second)
		require.Equal(t, []string{"Added ns/a@101"}, r.Take(), "nothing for what is unchanged")
		r.RequireSound(t)
		l.Release()
		require.ErrorIs(t, l.Retarget(context.Background(), pooltest.In("ns")), informerpool.ErrReleased)
	})
}
