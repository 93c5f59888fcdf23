// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/clustercache/persist/bolt"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// requireSameAs requires that a process on a disk shows the server's state, and
// never anything else.
func requireSameAs(t *testing.T, s *pooltest.Server, disk persist.Store,
	change func(*informerpool.Options, *persist.Options)) *process {
	t.Helper()
	p := start(t, s, disk, change)
	l := pooltest.Acquire(t, p.pool, pooltest.Everything)
	events := pooltest.Record(t, p.pool, l)
	require.NoError(t, l.WaitForSync(t.Context()))
	require.Equal(t, s.State(nil), pooltest.Contents(t, l))
	synctest.Wait()
	require.Equal(t, s.State(nil), events.State())
	require.Equal(t, len(s.State(nil)), events.Count(), "nothing else was ever shown")

	return p
}

// TestDamagedRecordsAreNeverShown: a bit that flips, a record that is cut off,
// is missing, is another's, or was left from another time, costs a list.
func TestDamagedRecordsAreNeverShown(t *testing.T) {
	damages := map[string]func(r *rand.Rand, records map[string][]byte, key string){
		"flip": func(r *rand.Rand, records map[string][]byte, key string) {
			records[key][r.IntN(len(records[key]))] ^= 1 << r.IntN(8)
		},
		"cut":   func(r *rand.Rand, b map[string][]byte, key string) { b[key] = b[key][:r.IntN(len(b[key]))] },
		"loss":  func(_ *rand.Rand, b map[string][]byte, key string) { delete(b, key) },
		"extra": func(_ *rand.Rand, b map[string][]byte, key string) { b["0123456789abcdef"] = b[key] },
		"swap": func(_ *rand.Rand, b map[string][]byte, key string) {
			other := slices.Sorted(maps.Keys(b))[0]
			b[key], b[other] = b[other], b[key]
			if key == other {
				delete(b, key)
			}
		},
		"key": func(r *rand.Rand, b map[string][]byte, key string) {
			flipped := []byte(key)
			flipped[r.IntN(len(flipped))] ^= 1 << r.IntN(8)
			b[string(flipped)] = b[key]
			delete(b, key)
		},
	}
	for _, key := range [][]byte{nil, bytes.Repeat([]byte{7}, persist.KeyBytes)} {
		change := func(_ *informerpool.Options, o *persist.Options) { o.Key = key }
		for name, damage := range damages {
			t.Run(fmt.Sprintf("%s, encrypted %t", name, key != nil), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := rand.New(rand.NewPCG(1, 2))
					s, disk := filled(10), newMemory()
					first := start(t, s, disk, change)
					first.synced()
					first.stop()
					s.Put("ns", "later", 1)
					require.Equal(t, int64(1), restores(requireSameAs(t, s, disk.copy(), change)))
					for range 40 {
						damaged := disk.copy()
						bucket := slices.Sorted(maps.Keys(damaged.buckets))[r.IntN(2)]
						keys := slices.Sorted(maps.Keys(damaged.buckets[bucket]))
						damage(r, damaged.buckets[bucket], keys[r.IntN(len(keys))])
						used := restores(requireSameAs(t, s, damaged, change))
						if name != "extra" || bucket != "headers" { // one more header harms no other
							require.Equal(t, int64(0), used)
						}
					}
				})
			})
		}
	}
}

// restores ends a process, and returns how many of its informers began with a
// kept state.
func restores(p *process) int64 {
	p.t.Helper()
	n := p.pool.Totals().Restores
	p.stop()
	return n
}

// TestRecordFromEarlierIsNotMixedIn: a record of an earlier state of the same
// informer is valid by itself.
func TestRecordFromEarlierIsNotMixedIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(10), newMemory()
		first := start(t, s, disk, nil)
		first.synced()
		time.Sleep(round)
		earlier := disk.copy()
		s.Put("ns", "w1", 1000)
		synctest.Wait()
		first.stop()
		mixed := 0
		for bucket, records := range disk.buckets {
			for key, record := range records {
				if strings.HasPrefix(bucket, "objects") && !bytes.Equal(record, earlier.buckets[bucket][key]) {
					disk.buckets[bucket][key] = earlier.buckets[bucket][key]
					mixed++
				}
			}
		}
		require.Equal(t, 1, mixed)
		require.Equal(t, int64(0), restores(requireSameAs(t, s, disk, nil)))
	})
}

// used reports whether a state that was kept with some options is used with
// others, after some time.
func used(t *testing.T, before, after func(*informerpool.Options, *persist.Options), pause time.Duration) (yes bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(10), newMemory()
		first := start(t, s, disk, before)
		first.synced()
		first.stop()
		time.Sleep(pause)
		second := start(t, s, disk, after)
		l := second.synced()
		require.Len(t, pooltest.Contents(t, l), 10)
		yes = second.pool.Totals().Restores == 1
		second.stop()
	})
	return yes
}

// TestOtherSettingsDoNotUseTheState: objects are kept as they were stored.
func TestOtherSettingsDoNotUseTheState(t *testing.T) {
	transform := func(revision string) func(*informerpool.Options, *persist.Options) {
		return func(o *informerpool.Options, p *persist.Options) {
			p.TransformRevision = revision
			o.Transforms = map[schema.GroupResource]informerpool.TransformFunc{
				pooltest.Widgets.GroupResource(): func(u *unstructured.Unstructured) error {
					labels := u.GetLabels()
					if labels == nil {
						labels = map[string]string{}
					}
					labels["times"] += "x"
					u.SetLabels(labels)
					return nil
				},
			}
		}
	}
	drop := func(o *informerpool.Options, _ *persist.Options) { o.DropManagedFields = true }
	key := func(b byte) func(*informerpool.Options, *persist.Options) {
		return func(_ *informerpool.Options, p *persist.Options) {
			p.Key = bytes.Repeat([]byte{b}, persist.KeyBytes)
		}
	}
	age := func(age, list time.Duration) func(*informerpool.Options, *persist.Options) {
		return func(_ *informerpool.Options, p *persist.Options) { p.MaxAge, p.MaxListAge = age, list }
	}

	require.True(t, used(t, nil, nil, time.Hour))
	require.True(t, used(t, transform("1"), transform("1"), 0))
	require.False(t, used(t, transform("1"), transform("2"), 0))
	require.False(t, used(t, transform("1"), nil, 0))
	require.False(t, used(t, nil, transform("1"), 0))
	require.False(t, used(t, transform(""), transform(""), 0), "nothing says that it is the same transform")
	require.True(t, used(t, drop, drop, 0))
	require.False(t, used(t, drop, nil, 0))
	require.False(t, used(t, nil, drop, 0))
	require.True(t, used(t, key(1), key(1), 0))
	require.False(t, used(t, key(1), key(2), 0))
	require.False(t, used(t, key(1), nil, 0))
	require.False(t, used(t, nil, key(1), 0))
	require.False(t, used(t, nil, nil, 25*time.Hour))
	require.True(t, used(t, nil, age(-1, 0), 25*time.Hour))
	require.False(t, used(t, nil, age(-1, 0), 8*24*time.Hour))
	require.True(t, used(t, nil, age(-1, -1), 8*24*time.Hour))
	require.False(t, used(t, nil, age(time.Minute, 0), 2*time.Minute))
}

// TestTransformIsAppliedOnce: what is kept was transformed, and what the watch
// brings was not.
func TestTransformIsAppliedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		change := func(o *informerpool.Options, p *persist.Options) {
			p.TransformRevision = "1"
			o.Transforms = map[schema.GroupResource]informerpool.TransformFunc{
				{}: func(u *unstructured.Unstructured) error {
					u.SetAnnotations(map[string]string{"times": u.GetAnnotations()["times"] + "x"})
					return nil
				},
			}
		}
		s, disk := filled(10), newMemory()
		first := start(t, s, disk, change)
		first.synced()
		first.stop()
		s.Put("ns", "w3", 1000)
		s.Put("ns", "later", 1)
		second := start(t, s, disk, change)
		defer second.stop()
		objects, _, err := second.synced().List(informerpool.Query{})
		require.NoError(t, err)
		require.Len(t, objects, 11)
		require.Equal(t, int64(1), second.pool.Totals().Restores)
		for _, o := range objects {
			require.Equal(t, map[string]string{"times": "x"}, o.GetAnnotations())
		}
	})
}

// TestListAgeCountsThroughProcesses: a state that is kept again and again is
// still as old as its list.
func TestListAgeCountsThroughProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(3), newMemory()
		for day := range 9 {
			p := start(t, s, disk, nil)
			p.synced()
			require.Equal(t, int64(1), p.pool.Totals().Restores+int64(requests(s)["stream"]))
			restored := p.pool.Totals().Restores == 1
			require.Equal(t, day%8 != 0, restored, "day %d", day)
			p.stop()
			time.Sleep(23 * time.Hour)
		}
	})
}

// TestClockThatWentBackDropsTheState: nothing shows how old it is.
func TestClockThatWentBackDropsTheState(t *testing.T) {
	for ahead, want := range map[time.Duration]int64{time.Minute: 1, time.Hour: 0} {
		disk := newMemory()
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(ahead)
			first := start(t, filled(3), disk, nil)
			first.synced()
			first.stop()
		})
		synctest.Test(t, func(t *testing.T) { // its clock begins at the same time
			second := start(t, filled(3), disk, nil)
			second.synced()
			require.Equal(t, want, restores(second), ahead)
		})
	}
}

// TestEncryptedRecordsShowNothing: neither contents nor names.
func TestEncryptedRecordsShowNothing(t *testing.T) {
	for _, key := range [][]byte{nil, bytes.Repeat([]byte{7}, persist.KeyBytes)} {
		synctest.Test(t, func(t *testing.T) {
			s, disk := pooltest.NewServer(), newMemory()
			noise := pooltest.Noise(1, 60)
			s.Put("ns", noise, 1)
			p := start(t, s, disk, func(_ *informerpool.Options, o *persist.Options) { o.Key = key })
			p.synced()
			p.stop()
			all := fmt.Sprintf("%s", disk.buckets)
			require.Equal(t, key == nil, strings.Contains(all, noise))
		})
	}
}

// TestFailingDiskDisturbsNothing: informers work, and writing goes on when the
// disk does.
func TestFailingDiskDisturbsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(20), newMemory()
		disk.fail = errors.New("no space left on device")
		first := start(t, s, disk, nil)
		l := first.synced()
		time.Sleep(10 * round)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		require.Zero(t, disk.count())
		disk.mu.Lock()
		disk.fail = nil
		disk.mu.Unlock()
		time.Sleep(round)
		require.Equal(t, 21, disk.count())
		s.Put("ns", "w1", 1000)
		synctest.Wait()
		left := first.killed(disk)
		require.Equal(t, int64(1), restores(requireSameAs(t, s, left, nil)))
	})
}

// TestBoundsAreKept: on the bytes that are kept and on the rate of writing.
func TestBoundsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(200), newMemory()
		tight := func(_ *informerpool.Options, o *persist.Options) { o.MaxBytes = 10_000 }
		first := start(t, s, disk, tight)
		first.synced()
		time.Sleep(round)
		require.Zero(t, disk.count(), "there is no room for all of it")
		for i := range 190 {
			s.Delete("ns", fmt.Sprint("w", i))
		}
		time.Sleep(round)
		require.Equal(t, 11, disk.count())
		first.stop()
		require.Equal(t, int64(1), restores(requireSameAs(t, s, disk, tight)))
	})
	synctest.Test(t, func(t *testing.T) {
		s, disk := pooltest.NewServer(), newMemory()
		for i := range 8000 {
			s.Put("ns", fmt.Sprint("w", i), i, "noise="+pooltest.Noise(i, 300))
		}
		slow := func(_ *informerpool.Options, o *persist.Options) { o.BytesPerSecond = 100_000 }
		first := start(t, s, disk, slow)
		first.synced()
		began := time.Now()
		time.Sleep(round)
		for disk.count() < 8001 {
			disk.mu.Lock()
			rate := float64(disk.applied) / (time.Since(began) - persist.DefaultInterval + 20*time.Second).Seconds()
			disk.mu.Unlock()
			require.LessOrEqual(t, rate, 110_000.0)
			require.Empty(t, disk.buckets["headers"], "a part of a state has no header")
			time.Sleep(time.Second)
		}
		first.stop()
		require.Equal(t, int64(1), restores(requireSameAs(t, s, disk, slow)))
	})
}

// TestKilledAtAnyWriteLeavesACompleteStateOrNone, in a state so large that it is
// written in many transactions.
func TestKilledAtAnyWriteLeavesACompleteStateOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := pooltest.NewServer(), newMemory()
		var left []*memory
		disk.onApply = func() { left = append(left, disk.copy()) }
		for i := range 6000 {
			s.Put("ns", fmt.Sprint("w", i), i, "noise="+pooltest.Noise(i, 600))
		}
		first := start(t, s, disk, nil)
		first.synced()
		time.Sleep(round)
		for i := range 6000 {
			switch {
			case i%2 == 0:
				s.Put("ns", fmt.Sprint("w", i), i+1, "noise="+pooltest.Noise(i+1, 600))
			case i%5 == 0:
				s.Delete("ns", fmt.Sprint("w", i))
			}
		}
		time.Sleep(round)
		first.stop()
		require.Greater(t, len(left), 6)
		used := int64(0)
		for _, m := range left {
			used += restores(requireSameAs(t, s, m, nil))
		}
		require.GreaterOrEqual(t, used, int64(2))
		require.Less(t, used, int64(len(left)))
	})
}

// TestStateOfAGoneClusterIsDeleted: at once if it is evicted, and otherwise
// when it is too old.
func TestStateOfAGoneClusterIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(10), newMemory()
		first := start(t, s, disk, nil)
		l := first.synced()
		time.Sleep(round)
		require.Equal(t, 11, disk.count())
		s.Set(func(s *pooltest.Server) { s.NotReady = pooltest.Hang() })
		first.pool.Evict(pooltest.Everything.Cluster)
		synctest.Wait()
		require.Zero(t, disk.count())
		l.ReleaseNow()
		first.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(10), newMemory()
		first := start(t, s, disk, nil)
		first.synced()
		first.stop()
		second := start(t, s, disk, nil)
		time.Sleep(23 * time.Hour)
		require.Equal(t, 11, disk.count())
		time.Sleep(2 * time.Hour)
		require.Zero(t, disk.count())
		second.stop()
	})
}

// TestEvictedStateIsNotUsedAgain: Evict is how a user gets a list.
func TestEvictedStateIsNotUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(10), newMemory()
		first := start(t, s, disk, nil)
		l := first.synced()
		first.stop()
		second := start(t, s, disk, nil)
		defer second.stop()
		l = second.synced()
		require.Equal(t, int64(1), second.pool.Totals().Restores)
		requests(s)
		second.pool.Evict(pooltest.Everything.Cluster)
		synctest.Wait()
		require.NoError(t, l.WaitForSync(t.Context()))
		require.Equal(t, 1, requests(s)["stream"])
	})
}

// TestInexactStateIsNotKept: while an object is unknown, what was kept before
// stays, since it was exact.
func TestInexactStateIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(10), newMemory()
		first := start(t, s, disk, nil)
		first.synced()
		time.Sleep(round)
		before := disk.copy()
		pooltest.Push(s, "MODIFIED", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w1",`+
			`"namespace":"ns","resourceVersion":"5000"}}`)
		s.Put("ns", "w2", 1000)
		time.Sleep(2 * round)
		require.Equal(t, before.buckets, disk.buckets)
		first.stop()
	})
}

// TestBoltServesProcesses: the same with the store of production.
func TestBoltServesProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, path := filled(200), filepath.Join(t.TempDir(), "cache.db")
		for i := range 6 {
			disk, err := bolt.Open(path, bolt.Options{})
			require.NoError(t, err)
			require.Equal(t, int64(min(i, 1)), restores(requireSameAs(t, s, disk, nil)))
			require.NoError(t, disk.Close())
			for j := range 20 {
				s.Put("ns", fmt.Sprint("w", i*20+j), 1000+i)
				s.Delete("ns", fmt.Sprint("w", i*20+j+10))
			}
		}
	})
}
