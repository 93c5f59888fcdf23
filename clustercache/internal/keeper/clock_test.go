// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/informerpool"
)

// written returns how many bytes were written since it was last called.
func (m *memory) written() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, m.applied = m.applied, 0
	return n
}

// TestClockThatIsSetCostsOneHeader: no round writes the objects again, nothing
// is dropped, and the next process finds times of the clock as it is then.
func TestClockThatIsSetCostsOneHeader(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, -30 * 24 * time.Hour, time.Hour, 56 * 365 * 24 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, disk := filled(1000), newMemory()
				first := start(t, s, disk, nil)
				defer first.stop()
				first.synced()
				time.Sleep(round)
				all := disk.written()
				first.ahead.Store(int64(step))
				time.Sleep(round)
				require.Less(t, disk.written(), all/20, "the header")
				for range 10 {
					time.Sleep(round)
					require.Zero(t, disk.written())
				}
				s.Put("ns", "w1", 1000)
				time.Sleep(round)
				require.Less(t, disk.written(), all/10, "the header and the object")
				require.Empty(t, first.dropped())

				used := func(later time.Duration) int64 {
					second := startAt(t, s, disk.copy(), nil, step+later)
					second.synced()
					return restored(second)
				}
				require.Equal(t, int64(1), used(0))
				require.Equal(t, int64(1), used(23*time.Hour))
				require.Zero(t, used(25*time.Hour), "it is as old as it is")
				require.Zero(t, used(-time.Hour), "from the future")
			})
		})
	}
}

// TestClockThatIsSetAfterARestoreCostsOneHeader: the times of the state are
// those of another process.
func TestClockThatIsSetAfterARestoreCostsOneHeader(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, 30 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s, disk := filled(1000), newMemory()
			first := start(t, s, disk, nil)
			first.synced()
			first.stop()
			all := disk.written()
			time.Sleep(time.Hour)
			second := start(t, s, disk, nil)
			second.synced()
			time.Sleep(round)
			s.Put("ns", "w1", 1000)
			time.Sleep(round)
			require.Less(t, disk.written(), all/10, "the objects are not written again")
			second.ahead.Store(int64(step))
			time.Sleep(10 * round)
			require.Less(t, disk.written(), all/20, "the header")
			require.Empty(t, second.dropped())
			require.Equal(t, int64(1), restored(second))
			third := startAt(t, s, disk, nil, step)
			third.synced()
			require.Equal(t, int64(1), restored(third))
		})
	}
}

// TestStateIsTooOldByTheTimeThatPassed, and not because the clock was set. It
// is dropped once, and not written again before there is a newer list.
func TestStateIsTooOldByTheTimeThatPassed(t *testing.T) {
	for _, step := range []time.Duration{0, -24 * time.Hour, 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s, disk := filled(3), newMemory()
			first := start(t, s, disk, func(_ *informerpool.Options, o *persist.Options) {
				o.MaxListAge = 2 * time.Hour
			})
			defer first.stop()
			first.synced()
			first.ahead.Store(int64(step))
			time.Sleep(time.Hour)
			require.Equal(t, 4, disk.count())
			require.Empty(t, first.dropped())
			time.Sleep(time.Hour + round)
			disk.written()
			for range 10 {
				s.Put("ns", "w1", 1000)
				time.Sleep(round)
				require.Zero(t, disk.count())
				require.Zero(t, disk.written())
				require.Equal(t, map[string]int{"listAge": 1}, first.dropped())
			}
			s.Compact()
			s.Cut(apierrors.NewResourceExpired("too old"))
			time.Sleep(2 * round)
			require.Equal(t, 4, disk.count(), "a list is new")
		})
	}
}
