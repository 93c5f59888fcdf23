// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package debounce_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/workqueue"

	"github.com/fleetcache/fleetcache/clustercache/internal/debounce"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }

// workqueueLog is a workqueue that records when each request was added.
type workqueueLog struct {
	workqueue.TypedRateLimitingInterface[string] // nil: only Add is called

	adding func(string) // called by Add before the request counts as added
	began  time.Time

	mu    sync.Mutex // protects added
	added []entry
}

type entry struct {
	request string
	after   time.Duration
}

func newLog() *workqueueLog { return &workqueueLog{adding: func(string) {}, began: time.Now()} }

// Add implements workqueue.TypedInterface.
func (q *workqueueLog) Add(r string) {
	q.adding(r)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.added = append(q.added, entry{request: r, after: time.Since(q.began)})
}

// take returns what was added since the last call.
func (q *workqueueLog) take() []entry {
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	added := q.added
	q.added = nil

	return added
}

func TestRequestIsQueuedAWindowAfterItsLastEventAndAtMaxDelayAtTheLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLog()
		q := debounce.New(log, debounce.Config{Window: time.Second, MaxDelay: 3 * time.Second})
		q.Add("steady", false)
		q.Add("once", false)
		for range 9 { // until 3.6 s
			time.Sleep(400 * time.Millisecond)
			q.Add("steady", false)
		}
		time.Sleep(time.Minute)
		require.Equal(t, []entry{
			{request: "once", after: time.Second},
			{request: "steady", after: 3 * time.Second},
			{request: "steady", after: 4600 * time.Millisecond},
		}, log.take())
		q.Close()

		log = newLog()
		q = debounce.New(log, debounce.Config{Window: time.Second})
		for range 200 {
			q.Add("steady", false)
			time.Sleep(100 * time.Millisecond)
		}
		require.Equal(t, 10*time.Second, log.take()[0].after, "the default of MaxDelay is ten windows")
		q.Close()
	})
}

func TestQueueWithoutAWindowDelaysOnlyWhatComesDuringAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLog()
		q := debounce.New(log, debounce.Config{})
		q.Add("now", false)
		require.Equal(t, []entry{{request: "now"}}, log.take())

		q.Pause()
		q.Add("held", false)
		q.Add("held", false)
		time.Sleep(time.Minute)
		require.Empty(t, log.take())
		q.Proceed()
		require.Equal(t, []entry{{request: "held", after: time.Minute}}, log.take())
		q.Close()
	})
}

func TestCloseQueuesWhatIsHeldEvenInAPauseAndDelaysNothingLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLog()
		q := debounce.New(log, debounce.Config{Window: time.Hour})
		q.Add("window", false)
		q.Pause()
		q.Add("pause", false)
		q.Close()
		require.Len(t, log.take(), 2)
		q.Add("late", false)
		require.Equal(t, []entry{{request: "late"}}, log.take())
		q.Close()
		q.Proceed()
		time.Sleep(3 * time.Hour)
		require.Empty(t, log.take(), "neither Close nor Proceed repeats a request")
		require.NoError(t, q.Wait(t.Context()))
	})
}

// TestWaitReturnsAfterTheLastDelayedRequest: whether the timer or another
// Close is queuing it.
func TestWaitReturnsAfterTheLastDelayedRequest(t *testing.T) {
	for name, flush := range map[string]func(*debounce.Queue[string]){
		"timer": func(*debounce.Queue[string]) { time.Sleep(time.Second) },
		"Close": (*debounce.Queue[string]).Close,
	} {
		synctest.Test(t, func(t *testing.T) {
			log := newLog()
			release := make(chan struct{})
			log.adding = func(string) { <-release }
			q := debounce.New(log, debounce.Config{Window: time.Second})
			q.Add("one", false)
			go flush(q)
			time.Sleep(time.Second)
			synctest.Wait()

			q.Close() // does not wait
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, q.Wait(ctx), context.DeadlineExceeded, name)
			done := make(chan error)
			for range 2 {
				go func() { done <- q.Wait(t.Context()) }()
			}
			synctest.Wait()
			close(release)
			for range 2 {
				require.NoError(t, <-done, name)
			}
			require.Len(t, log.added, 1, name)
		})
	}
}

// TestHazardWorkqueueThatClosesTheQueue: a Close that waited for the call of
// Add that it came from never returned.
func TestHazardWorkqueueThatClosesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLog()
		q := debounce.New(log, debounce.Config{Window: time.Second})
		log.adding = func(string) { q.Close() }
		q.Add("one", false)
		time.Sleep(time.Second)
		require.Len(t, log.take(), 1)
		require.NoError(t, q.Wait(t.Context()))
	})
}

// TestNoRequestIsLostBetweenAddPauseAndClose: every request is queued after the
// last time it was added.
func TestNoRequestIsLostBetweenAddPauseAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			log := newLog()
			q := debounce.New(log, debounce.Config{
				Window:   rand.N(20 * time.Millisecond),
				MaxDelay: 50 * time.Millisecond,
			})
			names := []string{"a", "b", "c", "d", "e", "f"}
			last := make([]time.Duration, len(names)) // when each was last added
			var workers sync.WaitGroup
			for i, name := range names {
				workers.Go(func() {
					for range 100 {
						last[i] = time.Since(log.began)
						q.Add(name, rand.N(2) == 0)
						time.Sleep(rand.N(10 * time.Millisecond))
					}
				})
			}
			workers.Go(func() {
				for range 10 {
					q.Pause()
					time.Sleep(rand.N(30 * time.Millisecond))
					q.Proceed()
					time.Sleep(rand.N(30 * time.Millisecond))
				}
			})
			for range 2 {
				workers.Go(func() {
					time.Sleep(rand.N(time.Second))
					q.Close()
				})
			}
			workers.Wait()
			q.Close()
			require.NoError(t, q.Wait(t.Context()))
			added := log.take()
			slices.Reverse(added)
			for i, name := range names {
				at := slices.IndexFunc(added, func(e entry) bool { return e.request == name })
				require.GreaterOrEqual(t, at, 0)
				require.GreaterOrEqual(t, added[at].after, last[i], name)
			}
		}
	})
}
