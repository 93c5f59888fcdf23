// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package workpool_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/workpool"
)

// starts records how long jobs waited for their turn. Jobs begin on timer
// goroutines, in no particular order.
type starts struct {
	mu     sync.Mutex // protects the fields below
	waited []time.Duration
}

func (s *starts) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waited = append(s.waited, d)
}

func (s *starts) all() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.waited)
}

// submit queues a job that takes the given time, or never ends if that is
// negative.
func submit(q *workpool.Queue, takes time.Duration, began *starts) *workpool.Slot {
	since := time.Now()
	free := make(chan func(), 1)
	s := q.Submit(func() {
		began.add(time.Since(since))
		if takes >= 0 {
			time.AfterFunc(takes, func() {
				q.Succeeded(takes)
				(<-free)()
			})
		}
	})
	free <- s.Free
	return s
}

func TestJobsThatDoNotWaitLongKeepToTheLimit(t *testing.T) {
	for name, q := range map[string]*workpool.Queue{"plain": workpool.New(5),
		"learning": workpool.NewLearning(5, workpool.Hold)} {
		synctest.Test(t, func(t *testing.T) {
			var began starts
			for range 20 {
				submit(q, 50*time.Millisecond, &began)
			}
			require.Len(t, began.all(), 5, name)
			time.Sleep(49 * time.Millisecond)
			require.LessOrEqual(t, len(began.all()), 10, name)
			time.Sleep(time.Second)
			require.Len(t, began.all(), 20, name)
		})
	}
}

func TestSlowWorkOfALearningQueueKeepsToTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workpool.NewLearning(5, workpool.Hold)
		var now, most atomic.Int64
		for range 60 {
			var s *workpool.Slot
			given := make(chan struct{})
			s = q.Submit(func() {
				most.Store(max(most.Load(), now.Add(1)))
				time.AfterFunc(time.Second, func() {
					<-given
					now.Add(-1)
					q.Succeeded(time.Second)
					s.Free()
				})
			})
			close(given)
		}
		time.Sleep(11 * time.Second)
		require.Positive(t, now.Load(), "they take their time")
		time.Sleep(2 * time.Second)
		require.Zero(t, now.Load())
		require.EqualValues(t, 5, most.Load())
	})
}

// TestNobodyWaitsForThoseThatHang: jobs that hang delay no other job for long,
// however many hang and wherever they are in the queue.
func TestNobodyWaitsForThoseThatHang(t *testing.T) {
	for name, known := range map[string]bool{"plain": false, "learning": true} {
		synctest.Test(t, func(t *testing.T) {
			q := workpool.New(20)
			if known {
				q = workpool.NewLearning(20, 30*time.Second)
				q.Succeeded(10 * time.Millisecond)
			}
			var began starts
			for range 2000 {
				submit(q, []time.Duration{-1, 10 * time.Millisecond}[rand.IntN(2)], &began)
			}
			time.Sleep(time.Minute)
			require.Len(t, began.all(), 2000)
			for _, d := range began.all() {
				require.LessOrEqual(t, d, workpool.Patience+100*time.Millisecond, name)
			}
		})
	}
}

// TestALearningQueueThatKnowsNothingWaitsForItsHold: before the first success,
// a learning queue waits for Hold, and then advances at once.
func TestALearningQueueThatKnowsNothingWaitsForItsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workpool.NewLearning(3, 30*time.Second)
		var began starts
		for range 20 {
			submit(q, -1, &began)
		}
		time.Sleep(30 * time.Second)
		require.Len(t, began.all(), 3)
		time.Sleep(workpool.Patience + 100*time.Millisecond)
		require.Len(t, began.all(), 20)
	})
}

func TestWhatIsGivenUpDoesNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workpool.New(1)
		var began starts
		first := submit(q, -1, &began)
		second := submit(q, -1, &began)
		submit(q, -1, &began)
		second.Free()
		second.Free()
		require.Len(t, began.all(), 1)
		first.Free()
		first.Free()
		require.Len(t, began.all(), 2)
		time.Sleep(time.Hour)
		require.Len(t, began.all(), 2)
	})
}
