// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// gogc returns the collector's percentage; -1 is off.
func gogc() int {
	read := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(read)
	if read[0].Value.Uint64() > math.MaxInt32 {
		return -1
	}
	return int(read[0].Value.Uint64())
}

// bursting makes a pool list much at once, with the collector as the program has
// set it, and lets the test look meanwhile. The lists end with the channel.
func bursting(t *testing.T, program int, change func(*informerpool.Options),
	test func(t *testing.T, p *informerpool.Pool, end func())) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(program))
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.ListConcurrency = 3
		change(o)
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Block = pooltest.Hang()
		leases := make([]*informerpool.Lease, 20)
		for i := range leases {
			leases[i] = pooltest.Acquire(t, p, pooltest.In(fmt.Sprint("ns", i)))
		}
		synctest.Wait()
		test(t, p, func() {
			close(s.Block)
			for _, l := range leases {
				require.NoError(t, l.WaitForSync(context.Background()))
			}
		})
	})
	require.Equal(t, program, gogc(), "nothing remains of a pool")
}

func lowered(to int) func(*informerpool.Options) {
	return func(o *informerpool.Options) { o.BurstGCPercent = to }
}

func TestManyListsLowerGOGC(t *testing.T) {
	bursting(t, 100, lowered(25), func(t *testing.T, _ *informerpool.Pool, end func()) {
		require.Equal(t, 25, gogc())
		end()
		time.Sleep(9 * time.Second)
		require.Equal(t, 25, gogc(), "as many lists may follow")
		time.Sleep(10 * time.Second)
		require.Equal(t, 100, gogc())
	})
	bursting(t, 100, lowered(25), func(t *testing.T, p *informerpool.Pool, _ func()) {
		require.Equal(t, 25, gogc())
		require.NoError(t, p.Close(context.Background()))
		require.Equal(t, 100, gogc(), "a closed pool has no lists")
	})
}

// TestManyInterruptionsLowerGOGC: after an outage of a fleet.
func TestManyInterruptionsLowerGOGC(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.ListConcurrency, o.BurstGCPercent = 10, 25
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for i := range 12 {
			pooltest.AcquireSynced(t, p, pooltest.In(fmt.Sprint("ns", i)))
			time.Sleep(2 * time.Second)
		}
		require.Equal(t, 100, gogc(), "these are few at a time")
		time.Sleep(time.Minute)
		s.Cut(io.EOF)
		synctest.Wait()
		require.Equal(t, 100, gogc(), "watches that have ended at their time break nothing")
		time.Sleep(time.Minute)
		s.Cut(io.ErrUnexpectedEOF)
		synctest.Wait()
		require.Equal(t, 25, gogc())
		time.Sleep(time.Minute)
		require.Equal(t, 100, gogc())
	})
}

func TestGOGCStaysAsTheProgramHasIt(t *testing.T) {
	for name, c := range map[string]struct {
		program, lists int
	}{
		"by default": {100, 0},
		"lower":      {20, 25},
		"off":        {-1, 25},
	} {
		t.Run(name, func(t *testing.T) {
			bursting(t, c.program, lowered(c.lists), func(t *testing.T, _ *informerpool.Pool, end func()) {
				require.Equal(t, c.program, gogc())
				end()
			})
		})
	}
}

// TestHazardProgramSetsGOGCDuringLists: the program's word is the last one.
func TestHazardProgramSetsGOGCDuringLists(t *testing.T) {
	bursting(t, 100, lowered(25), func(t *testing.T, _ *informerpool.Pool, end func()) {
		require.Equal(t, 25, debug.SetGCPercent(60))
		end()
		time.Sleep(time.Minute)
		require.Equal(t, 60, debug.SetGCPercent(100))
	})
}

// TestPoolsShareTheCollector: the lowest percentage counts, until the lists of
// the last pool have ended.
func TestPoolsShareTheCollector(t *testing.T) {
	bursting(t, 100, lowered(50), func(t *testing.T, _ *informerpool.Pool, end func()) {
		require.Equal(t, 50, gogc())
		s := pooltest.NewServer()
		s.Block = pooltest.Hang()
		other, err := informerpool.New(informerpool.Options{Source: s, ListConcurrency: 1, BurstGCPercent: 25})
		require.NoError(t, err)
		for i := range 3 {
			pooltest.Acquire(t, other, pooltest.In(fmt.Sprint("ns", i)))
		}
		synctest.Wait()
		require.Equal(t, 25, gogc())
		require.NoError(t, other.Close(context.Background()))
		require.Equal(t, 50, gogc())
		end()
	})
}
