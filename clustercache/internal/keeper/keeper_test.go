// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper_test

import (
	"fmt"
	"io"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// collect yields the metrics of a collector.
func collect(c prometheus.Collector) iter.Seq[prometheus.Metric] {
	return func(yield func(prometheus.Metric) bool) {
		ch := make(chan prometheus.Metric, 100)
		c.Collect(ch)
		close(ch)
		for m := range ch {
			if !yield(m) {
				return
			}
		}
	}
}

// filled returns a server with n objects.
func filled(n int) *pooltest.Server {
	s := pooltest.NewServer()
	for i := range n {
		s.Put("ns", fmt.Sprint("w", i), i)
	}
	return s
}

// TestNextProcessBeginsWithoutAList: a process begins with what the one before
// has kept, and with what changed in between. A list of metadata shows what that
// is, and a watch brings it.
func TestNextProcessBeginsWithoutAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(50), newMemory()
		first := start(t, s, disk, nil)
		first.synced()
		first.stop()
		require.Equal(t, 1, requests(s)["stream"])

		s.Put("ns", "w1", 1000)
		s.Delete("ns", "w2")
		s.Put("ns", "new", 1)

		second := start(t, s, disk, nil)
		defer second.stop()
		l := pooltest.Acquire(t, second.pool, pooltest.Everything)
		events := pooltest.Record(t, second.pool, l)
		require.NoError(t, l.WaitForSync(t.Context()))
		require.Equal(t, s.State(nil), pooltest.Contents(t, l), "the first state that is shown is the current one")
		synctest.Wait()
		require.Equal(t, s.State(nil), events.State())
		require.Equal(t, 50, events.Count(), "objects are added, and those that are gone were never there")
		require.Equal(t, map[string]int{"guard": 1, "audit": 1, "watch": 2}, requests(s))
		require.Equal(t, int64(1), second.pool.Totals().Restores)
		require.Equal(t, int64(0), second.pool.Totals().Lists)

		s.Put("ns", "w3", 1001)
		s.Delete("ns", "w4")
		synctest.Wait()
		require.Equal(t, s.State(nil), pooltest.Contents(t, l), "and it is followed")
		require.Equal(t, s.State(nil), events.State())
	})
}

// TestKilledProcessLeavesTheStateOfItsLastRound: what was written is used, and
// what was not is brought by the watch.
func TestKilledProcessLeavesTheStateOfItsLastRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(50), newMemory()
		first := start(t, s, disk, nil)
		first.synced()
		time.Sleep(round)
		s.Put("ns", "w1", 1000)
		s.Delete("ns", "w2")
		synctest.Wait()
		left := first.killed(disk)
		requests(s)

		second := start(t, s, left, nil)
		defer second.stop()
		require.Equal(t, s.State(nil), pooltest.Contents(t, second.synced()))
		require.Equal(t, map[string]int{"guard": 1, "audit": 1, "watch": 2}, requests(s))
	})
}

// TestKeptStateIsAuditedSoon: what no proof at the start can find, an audit
// does.
func TestKeptStateIsAuditedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(5), newMemory()
		first := start(t, s, disk, nil)
		first.synced()
		first.stop()
		restoredUnseen(s, 0)

		second := start(t, s, disk, nil)
		defer second.stop()
		l := second.synced()
		require.NotEqual(t, s.State(nil), pooltest.Contents(t, l))
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
	})
}

// TestRestoredAndOvertakenServerIsFoundAtTheStart: its watch does not show it,
// and the comparison with its list does.
func TestRestoredAndOvertakenServerIsFoundAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(5), newMemory()
		first := start(t, s, disk, nil)
		first.synced()
		first.stop()
		restoredUnseen(s, 10)
		require.Zero(t, restored(requireSameAs(t, s, disk, nil)))
	})
}

// TestOvertakenServerIsFoundByWhatItsWatchLacks: the watch has passed the
// version of the list, and has not brought what the list shows.
func TestOvertakenServerIsFoundByWhatItsWatchLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(5), newMemory()
		first := start(t, s, disk, nil)
		first.synced()
		first.stop()
		restoredUnseen(s, 10)
		began := time.Now()
		time.AfterFunc(time.Second, func() { s.Put("ns", "later", 1) })
		second := requireSameAs(t, s, disk, nil)
		require.Equal(t, time.Second, time.Since(began))
		require.Equal(t, map[string]int{"history": 1}, second.dropped())
		require.Zero(t, restored(second))
	})
}

// restoredUnseen restores a server to a state without an object. It has come
// further since, to a version that is beyond the one it was at.
func restoredUnseen(s *pooltest.Server, beyond uint64) {
	s.Set(func(s *pooltest.Server) {
		for name, o := range s.Objects {
			if o.Name == "w1" {
				delete(s.Objects, name)
			}
		}
		s.Version += beyond
	})
}

// lists runs a process, changes the server, and requires that the next process
// lists, and never shows anything else than the server's state.
func lists(t *testing.T, why string, between func(s *pooltest.Server), disk func(*memory),
	change func(*process)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, m := filled(20), newMemory()
		first := start(t, s, m, nil)
		first.synced()
		first.stop()
		between(s)
		if disk != nil {
			disk(m)
		}
		requests(s)

		second := start(t, s, m, nil)
		defer second.stop()
		if change != nil {
			change(second)
		}
		l := pooltest.Acquire(t, second.pool, pooltest.Everything)
		events := pooltest.Record(t, second.pool, l)
		require.NoError(t, l.WaitForSync(t.Context()))
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		synctest.Wait()
		require.Equal(t, s.State(nil), events.State())
		require.Equal(t, len(s.State(nil)), events.Count(), "nothing else was ever shown")
		require.Equal(t, 1, requests(s)["stream"])
		require.Equal(t, int64(0), second.pool.Totals().Restores)
		require.Equal(t, map[string]int{why: 1}, second.dropped())

		time.Sleep(round)
		left := second.killed(m)
		third := start(t, s, left, nil)
		defer third.stop()
		require.Equal(t, s.State(nil), pooltest.Contents(t, third.synced()))
		require.Equal(t, int64(1), third.pool.Totals().Restores, "what replaced it is used")
	})
}

// TestServerDecidesWhetherAStateIsUsed: without its proofs, the informer lists.
func TestServerDecidesWhetherAStateIsUsed(t *testing.T) {
	t.Run("another cluster has the name", func(t *testing.T) {
		lists(t, "identity", func(s *pooltest.Server) {
			s.Become("b", 1000)
			s.Put("ns", "other", 1)
		}, nil, nil)
	})
	t.Run("the server forgot the version", func(t *testing.T) {
		lists(t, "other", func(s *pooltest.Server) {
			s.Delete("ns", "w1")
			s.Put("ns", "new", 1)
			s.Compact()
		}, nil, nil)
	})
	t.Run("the server was restored", func(t *testing.T) {
		lists(t, "history", func(s *pooltest.Server) {
			before := pooltest.NewServer()
			before.Put("ns", "w1", 0)
			s.Restore(before, 0)
		}, nil, nil)
	})
	t.Run("the server was restored and compacted", func(t *testing.T) {
		lists(t, "other", func(s *pooltest.Server) {
			before := pooltest.NewServer()
			before.Put("ns", "w1", 0)
			s.Restore(before, 1000)
		}, nil, nil)
	})
}

// TestFailureThatPassesDoesNotCostTheState: a fleet that restarts finds busy
// servers, and lists would make them busier. If the failure does not pass, the
// informer lists.
func TestFailureThatPassesDoesNotCostTheState(t *testing.T) {
	for failures, restores := range map[int]int64{2: 1, 3: 0} {
		for name, failure := range map[string]error{
			"busy":   apierrors.NewTooManyRequests("", 1),
			"broken": io.ErrUnexpectedEOF,
		} {
			t.Run(fmt.Sprint(name, failures), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, disk := filled(5), newMemory()
					first := start(t, s, disk, nil)
					first.synced()
					first.stop()
					s.Put("ns", "later", 1)
					failed := 0
					s.Set(func(s *pooltest.Server) {
						s.Fail = func(verb string) error {
							if failed++; verb == "watch" && failed <= 3*failures { // each follows a question and a list
								return failure
							}
							return nil
						}
					})
					require.Equal(t, restores, restored(requireSameAs(t, s, disk, nil)))
				})
			})
		}
	}
}

// TestUnprovenClusterIsNotKept: without an identity, the next process could not
// know that it is the same cluster.
func TestUnprovenClusterIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(3), newMemory()
		s.Set(func(s *pooltest.Server) { s.Epoch = "/1" })
		first := start(t, s, disk, nil)
		first.synced()
		first.stop()
		require.Zero(t, disk.count())
	})
}
