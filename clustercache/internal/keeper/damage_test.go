// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
	"github.com/fleetcache/fleetcache/internal/repeat"
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
					require.Equal(t, int64(1), restored(requireSameAs(t, s, disk.copy(), change)))
					for range repeat.Times(40) {
						damaged := disk.copy()
						bucket := slices.Sorted(maps.Keys(damaged.buckets))[r.IntN(3)]
						keys := slices.Sorted(maps.Keys(damaged.buckets[bucket]))
						damage(r, damaged.buckets[bucket], keys[r.IntN(len(keys))])
						used := restored(requireSameAs(t, s, damaged, change))
						// One more header, or dictionary, harms no state.
						if name != "extra" || strings.HasPrefix(bucket, "objects") {
							require.Equal(t, int64(0), used)
						}
					}
				})
			})
		}
	}
}

// restored ends a process, and returns how many of its informers began with a
// kept state.
func restored(p *process) int64 {
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
		require.Equal(t, int64(0), restored(requireSameAs(t, s, disk, nil)))
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
			require.Equal(t, want, restored(second), ahead)
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

// TestWhatATransformRemovesIsNotOnDisk, in a dictionary neither, be it of an
// object that the server shows or of one that a live read has shown.
func TestWhatATransformRemovesIsNotOnDisk(t *testing.T) {
	for _, seen := range []bool{false, true} {
		for _, removes := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s, disk := pooltest.NewServer(), newMemory()
				common, secret := pooltest.Noise(1, 60), pooltest.Noise(2, 60)
				for i := range 1000 {
					s.Put("ns", fmt.Sprint("w", i), i, common)
					if !seen {
						s.Put("ns", fmt.Sprint("w", i), i, common, secret)
					}
				}
				p := start(t, s, disk, func(o *informerpool.Options, p *persist.Options) {
					p.TransformRevision = "1"
					o.Transforms = map[schema.GroupResource]informerpool.TransformFunc{
						{}: func(u *unstructured.Unstructured) error {
							if removes {
								u.SetLabels(map[string]string{common: ""})
							}
							return nil
						},
					}
				})
				l := pooltest.Acquire(t, p.pool, pooltest.Everything)
				for i := range 20 {
					u := &unstructured.Unstructured{}
					u.SetAPIVersion(pooltest.Widgets.GroupVersion().String())
					u.SetKind("Widget")
					u.SetNamespace("ns")
					u.SetName(fmt.Sprint("s", i))
					u.SetUID(types.UID(fmt.Sprint("s", i)))
					u.SetResourceVersion("1")
					u.SetLabels(map[string]string{common: "", secret: ""})
					if seen {
						l.Seen(u)
					}
				}
				require.NoError(t, l.WaitForSync(t.Context()))
				p.stop()
				require.NotEmpty(t, disk.buckets["dictionaries"])
				for _, record := range disk.buckets["dictionaries"] {
					text, err := s2.Decode(nil, record[1:len(record)-16])
					require.NoError(t, err)
					require.Contains(t, string(text), common)
					require.Equal(t, !removes && !seen, strings.Contains(string(text), secret))
				}
			})
		}
	}
}
