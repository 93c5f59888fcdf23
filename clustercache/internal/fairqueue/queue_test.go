// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fairqueue_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/fleetcache/fleetcache/clustercache/internal/fairqueue"
)

// request is the n-th of a tenant.
type request struct {
	tenant string
	n      int
}

func newQueue(t *testing.T, limit int) *fairqueue.Queue[request, string] {
	t.Helper()
	q := fairqueue.New(priorityqueue.New[request](""), limit, func(r request) string { return r.tenant })
	t.Cleanup(q.ShutDown)
	return q
}

// add adds the requests 0 to n-1 of a tenant.
func add(q *fairqueue.Queue[request, string], tenant string, n, priority int) {
	for i := range n {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, request{tenant, i})
	}
}

// workers handle requests, each in a second.
type workers struct {
	mu      sync.Mutex
	began   []request
	running map[string]int
	most    map[string]int // running at once
}

func work(q *fairqueue.Queue[request, string], n int) *workers {
	w := &workers{running: map[string]int{}, most: map[string]int{}}
	for range n {
		go w.run(q)
	}
	return w
}

func (w *workers) run(q *fairqueue.Queue[request, string]) {
	for {
		r, shutdown := q.Get()
		if shutdown {
			return
		}
		w.mu.Lock()
		w.began = append(w.began, r)
		w.running[r.tenant]++
		w.most[r.tenant] = max(w.most[r.tenant], w.running[r.tenant])
		w.mu.Unlock()

		time.Sleep(time.Second)
		w.mu.Lock()
		w.running[r.tenant]--
		w.mu.Unlock()

		q.Done(r)
	}
}

// all returns the requests in the order in which they began.
func (w *workers) all() []request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.began)
}

// atOnce returns how many requests of a tenant ran at once, at most.
func (w *workers) atOnce(tenant string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most[tenant]
}

// place returns how many requests began before one.
func (w *workers) place(t *testing.T, r request) int {
	t.Helper()
	place := slices.Index(w.all(), r)
	require.GreaterOrEqual(t, place, 0, "%v was not handled", r)
	return place
}

// TestTenantsTakeTurns: a request waits for a few of each other tenant, however
// many those have.
func TestTenantsTakeTurns(t *testing.T) {
	for _, limit := range []int{1, 3} {
		for _, n := range []int{1, 2, 8} { // workers
			t.Run(fmt.Sprintf("limit %d, %d workers", limit, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := newQueue(t, limit)
					add(q, "large", 200, 0)
					add(q, "larger", 300, 0)
					add(q, "small", 1, 0)
					require.Equal(t, 501, q.Len())
					w := work(q, n)
					time.Sleep(time.Hour)
					require.LessOrEqual(t, w.place(t, request{"small", 0}), 2*limit+n)
					require.LessOrEqual(t, w.place(t, request{"large", 199}), 2*200+n+limit)
					require.Len(t, w.all(), 501)
					require.Zero(t, q.Len())
					for _, tenant := range []string{"large", "larger", "small"} {
						require.LessOrEqual(t, w.atOnce(tenant), limit, tenant)
					}
				})
			})
		}
	}
}

// TestHazardImportantRequestWaitsInABacklog: the initial objects of a tenant
// have a low priority, and a change must not wait behind them.
func TestHazardImportantRequestWaitsInABacklog(t *testing.T) {
	for _, elapsed := range []time.Duration{10 * time.Second, 11 * time.Second} { // two of the one or of the other run
		t.Run(elapsed.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(t, 2)
				add(q, "one", 100, -100)
				add(q, "other", 100, -100)
				w := work(q, 2)
				time.Sleep(elapsed + time.Millisecond)
				before := len(w.all())
				q.Add(request{"one", 60}) // which waits already
				q.Add(request{"one", 100})
				q.Add(request{"other", 100})
				time.Sleep(time.Hour)
				require.LessOrEqual(t, w.place(t, request{"one", 60}), before+4)
				require.LessOrEqual(t, w.place(t, request{"one", 100}), before+4)
				require.LessOrEqual(t, w.place(t, request{"other", 100}), before+4)
				require.Len(t, w.all(), 202)
			})
		})
	}
}

// TestRequestThatIsAddedAsMoreImportantLeavesItsPlace: a backlog keeps what has
// left it.
func TestRequestThatIsAddedAsMoreImportantLeavesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 1)
		add(q, "one", 3, -100)
		w := work(q, 1)
		time.Sleep(time.Millisecond) // the first runs
		add(q, "other", 3, -50)
		q.Add(request{"one", 100})
		q.Add(request{"one", 1})
		time.Sleep(time.Hour)
		require.Less(t, w.place(t, request{"one", 1}), w.place(t, request{"other", 1}))
		require.Len(t, w.all(), 7)
	})
}

// TestHeldRequestIsNext: one whose turn came while others of its tenant ran
// does not go back to the end.
func TestHeldRequestIsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 1)
		add(q, "one", 10, -100)
		q.Add(request{"one", 100})
		synctest.Wait() // the queue takes over what is added in a goroutine of its own
		w := work(q, 1)
		synctest.Wait() // two workers that begin at once would race for the tenant's room
		go w.run(q)
		time.Sleep(time.Hour)
		require.Equal(t, []request{{"one", 100}, {"one", 0}}, w.all()[:2])
	})
}

// TestHazardRetriesOfAFailingTenantAreDueAtOnce: delayed requests come from
// another side.
func TestHazardRetriesOfAFailingTenantAreDueAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 1)
		for i := range 100 {
			q.AddAfter(request{"failing", i}, time.Minute)
		}
		time.Sleep(time.Minute + time.Millisecond)
		add(q, "healthy", 3, 0)
		w := work(q, 1)
		time.Sleep(time.Hour)
		require.LessOrEqual(t, w.place(t, request{"healthy", 2}), 6)
		require.Len(t, w.all(), 103)
		require.Equal(t, 1, w.atOnce("failing"))
	})
}

// TestEachAddIsFollowedByAGet: whatever is added, in whatever way, is handled
// afterwards, and the limit holds.
func TestEachAddIsFollowedByAGet(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { addAtRandom(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func addAtRandom(t *testing.T, rnd *rand.Rand) {
	limit := 1 + rnd.IntN(3)
	q := newQueue(t, limit)
	handled := map[request]time.Time{} // when each last began
	running := map[string]int{}
	var mu sync.Mutex
	for range 1 + rnd.IntN(6) {
		go func() {
			for {
				r, shutdown := q.Get()
				if shutdown {
					return
				}
				mu.Lock()
				handled[r] = time.Now()
				running[r.tenant]++
				if running[r.tenant] > limit {
					t.Errorf("%d of %s run", running[r.tenant], r.tenant)
				}
				again := rnd.IntN(5) == 0
				takes := time.Duration(rnd.Int64N(int64(3 * time.Second)))
				mu.Unlock()

				time.Sleep(takes)
				mu.Lock()
				running[r.tenant]--
				mu.Unlock()

				if again {
					q.AddRateLimited(r)
				} else {
					q.Forget(r)
				}
				q.Done(r)
			}
		}()
	}

	added := map[request]time.Time{}
	for range 300 {
		mu.Lock()
		r := request{tenant: string(rune('a' + rnd.IntN(3))), n: rnd.IntN(20)}
		o := priorityqueue.AddOpts{}
		if p := -100 * rnd.IntN(2); rnd.IntN(2) == 0 {
			o.Priority = &p
		}
		if rnd.IntN(4) == 0 {
			o.After = time.Duration(rnd.Int64N(int64(10 * time.Second)))
		}
		wait := time.Duration(rnd.Int64N(int64(200 * time.Millisecond)))
		mu.Unlock()

		added[r] = time.Now()
		q.AddWithOpts(o, r)
		time.Sleep(wait + 1)
	}
	time.Sleep(24 * time.Hour)

	require.Zero(t, q.Len())
	mu.Lock()
	defer mu.Unlock()
	for r, at := range added {
		require.False(t, handled[r].Before(at), "%v was added after it was handled last", r)
	}
}

// TestHazardTenantIsLookedUpUnderTheLock: the user's function may use the queue
// itself, or wait for what does. Otherwise this test does not end.
func TestHazardTenantIsLookedUpUnderTheLock(t *testing.T) {
	var q *fairqueue.Queue[request, string]
	q = fairqueue.New(priorityqueue.New[request](""), 1, func(r request) string {
		_ = q.Len()
		return r.tenant
	})
	defer q.ShutDown()
	add(q, "a", 2, 0)
	for n := range 2 {
		r, _ := q.Get()
		require.Equal(t, request{"a", n}, r)
		q.Done(r)
	}
}
