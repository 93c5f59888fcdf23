// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

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
)

// forbidden refuses the informers of a key.
func forbidden(key informerpool.Key) func(informerpool.Key) error {
	return func(k informerpool.Key) error {
		if k == key {
			return apierrors.NewForbidden(widgets.GroupResource(), "", errors.New("no"))
		}
		return nil
	}
}

// TestHazardNarrowLeaseDoesNotKeepTheWideInformer: the wide informer ends once
// it has no lease of its own, and the narrow lease continues without an event
// for unchanged objects.
func TestHazardNarrowLeaseDoesNotKeepTheWideInformer(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "o1", 1)
		for i := range 19 {
			s.put("other", fmt.Sprint("o", i), 1)
		}
		wide := acquireSynced(t, p, everything)
		narrow := acquireSynced(t, p, in("ns"))
		r := newRecorder()
		subscribe(t, p, narrow, r)
		require.NoError(t, narrow.AddIndex("name", func(o *informerpool.Object) []string { return []string{o.GetName()} }))
		after(time.Second)
		require.Len(t, r.take(), 1)
		require.Equal(t, []informerpool.Key{everything}, p.Keys())

		wide.Release()
		after(time.Second)
		require.Equal(t, []informerpool.Key{everything}, p.Keys(), "it lingers")
		after(time.Minute)
		require.Equal(t, []informerpool.Key{in("ns")}, p.Keys())
		require.Empty(t, r.take())
		require.Len(t, contents(t, narrow), 1)
		require.Equal(t, 1, narrow.Status().Objects)
		found, _, err := narrow.List(informerpool.Query{Index: "name", Value: "o1"})
		require.NoError(t, err)
		require.Len(t, found, 1)

		s.put("ns", "o1", 2)
		s.put("other", "o2", 2)
		after(time.Second)
		require.Equal(t, []string{"Updated ns/o1@121"}, r.take())
		s.delete("ns", "o1")
		after(time.Second)
		require.Len(t, r.take(), 1)
		r.requireSound(t)
		narrow.Release()
		after(time.Minute)
		require.Empty(t, p.Keys())
	})
}

// TestHazardNarrowLeaseOutlivesTheRefusalOfTheWideOne: what a narrow lease may
// read does not depend on the permissions of another.
func TestHazardNarrowLeaseOutlivesTheRefusalOfTheWideOne(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		s.put("other", "b", 1)
		wide := acquireSynced(t, p, everything)
		narrow := acquireSynced(t, p, in("ns"))
		r := newRecorder()
		subscribe(t, p, narrow, r)
		after(time.Second)
		r.take()
		s.set(func(s *modelServer) { s.refuse = forbidden(everything) })
		s.cut(errors.New("cut"))
		s.put("ns", "a", 2)
		after(10 * time.Second)
		require.NoError(t, narrow.Trust(0))
		require.Error(t, wide.Trust(0))
		require.Len(t, r.take(), 1, "what changed meanwhile, and nothing else")
		s.put("ns", "c", 1)
		after(time.Second)
		require.Len(t, r.take(), 1)
		require.Equal(t, s.state(func(o modelObject) bool { return o.namespace == "ns" }), contents(t, narrow))
		r.requireSound(t)

		// The wide informer recovers, and the narrow lease keeps its own as
		// long as it is held.
		s.set(func(s *modelServer) { s.refuse = nil })
		after(time.Minute)
		require.NoError(t, wide.Trust(0))
		require.Len(t, p.Keys(), 2)
	})
}

// TestHandOverIsGivenUpWhenTheWideInformerIsHeldAgain: the narrow lease stays
// with the wide informer.
func TestHandOverIsGivenUpWhenTheWideInformerIsHeldAgain(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		wide := acquireSynced(t, p, everything)
		narrow := acquireSynced(t, p, in("ns"))
		block := make(chan struct{})
		s.set(func(s *modelServer) { s.block = block })
		wide.ReleaseNow()
		after(time.Second)
		require.Len(t, p.Keys(), 2)
		again := acquire(t, p, everything)
		s.set(func(s *modelServer) { s.block = nil })
		close(block)
		after(time.Second)
		require.Equal(t, []informerpool.Key{everything}, p.Keys())
		require.Len(t, contents(t, narrow), 1)
		narrow.Release()
		again.Release()
		after(time.Minute)
		require.Empty(t, p.Keys())
	})
}

// TestHandOverLosesAndRepeatsNothing: leases are handed over and back while
// objects change, and the events that handlers received are compared with the
// server.
func TestHandOverLosesAndRepeatsNothing(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's
				change := func() {
					for range random.IntN(8) {
						namespace, name := fmt.Sprint("ns", random.IntN(2)), fmt.Sprint("o", random.IntN(6))
						if random.IntN(3) == 0 {
							s.delete(namespace, name)
						} else {
							s.put(namespace, name, random.IntN(100))
						}
					}
				}
				change()
				wide := acquireSynced(t, p, everything)
				narrow := acquireSynced(t, p, in("ns1"))
				r := newRecorder()
				subscribe(t, p, narrow, r)
				for range 30 {
					change()
					time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
					switch random.IntN(4) {
					case 0:
						wide.ReleaseNow()
						change()
						wide = acquire(t, p, everything)
					case 1:
						s.set(func(s *modelServer) { s.refuse = forbidden(everything) })
						s.cut(errors.New("cut"))
						change()
						time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
						s.set(func(s *modelServer) { s.refuse = nil })
					case 2:
						s.cut(errors.New("cut"))
					}
				}
				wide.ReleaseNow()
				after(5 * time.Minute)
				require.Equal(t, []informerpool.Key{in("ns1")}, p.Keys())
				want := s.state(func(o modelObject) bool { return o.namespace == "ns1" })
				require.Equal(t, want, contents(t, narrow))
				require.Equal(t, want, r.told())
				r.requireSound(t)
			})
		})
	}
}

// TestRetargetedLeaseTellsTheDifference: the old objects are deleted and the
// new ones added once the new informer has listed, and not before.
func TestRetargetedLeaseTellsTheDifference(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		s.put("other", "b", 1)
		l := acquireSynced(t, p, in("ns"))
		r := newRecorder()
		subscribe(t, p, l, r)
		after(time.Second)
		require.Equal(t, []string{"Added ns/a@101"}, r.take())
		block := make(chan struct{})
		s.set(func(s *modelServer) { s.block = block })
		require.NoError(t, l.Retarget(context.Background(), in("other")))
		after(time.Second)
		require.Empty(t, r.take())
		require.False(t, l.HasSynced())
		_, _, err := l.List(informerpool.Query{})
		require.ErrorIs(t, err, informerpool.ErrNotSynced)
		s.set(func(s *modelServer) { s.block = nil })
		close(block)
		require.NoError(t, l.WaitForSync(context.Background()))
		after(time.Second)
		require.Equal(t, []string{"Deleted ns/a@101", "Added other/b@102"}, r.take())
		require.Equal(t, []informerpool.Key{in("other")}, p.Keys())
		require.Equal(t, in("other"), l.Key())
		require.NoError(t, l.Retarget(context.Background(), everything))
		after(time.Second)
		require.Equal(t, []string{"Added ns/a@101"}, r.take(), "nothing for what is unchanged")
		r.requireSound(t)
		l.Release()
		require.ErrorIs(t, l.Retarget(context.Background(), in("ns")), informerpool.ErrReleased)
	})
}
