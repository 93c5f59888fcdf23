// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package owning_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// reconciler reconciles the ConfigMaps of one replica, and notes which.
type reconciler struct {
	mu    sync.Mutex
	calls []string
	do    func(ctx context.Context, cluster client.ObjectKey, c client.Client) (reconcile.Result, error)
}

// begin runs a controller over a ClusterCache until the test ends.
func begin(t *testing.T, cc *clustercache.ClusterCache) *reconciler {
	t.Helper()
	r, mgr := &reconciler{}, fleettest.NewManager()
	err := controller.NewControllerManagedBy(mgr, cc).
		For(&corev1.ConfigMap{}).
		WithOptions(runtimecontroller.TypedOptions[controller.Request]{MaxConcurrentReconciles: 4}).
		Complete(func(c client.Client) reconcile.Reconciler {
			return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
				cluster, _ := controller.ClusterFromContext(ctx)
				r.mu.Lock()
				r.calls = append(r.calls, cluster.Name+" "+request.Name)
				do := r.do
				r.mu.Unlock()
				if do != nil {
					return do(ctx, cluster, c)
				}
				return reconcile.Result{}, nil
			})
		})
	require.NoError(t, err)
	require.False(t, mgr.Added[0].(manager.LeaderElectionRunnable).NeedLeaderElection())
	fleettest.Run(t, mgr.Added[0])
	return r
}

// act sets what the reconciler does from now on.
func (r *reconciler) act(do func(context.Context, client.ObjectKey, client.Client) (reconcile.Result, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.do = do
}

// take returns what was reconciled since the last call, sorted.
func (r *reconciler) take() []string {
	time.Sleep(time.Second)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	slices.Sort(calls)
	return calls
}

// TestControllerReconcilesWhatItsReplicaOwns also counts lists: with a standby
// a cluster is taken over without one.
func TestControllerReconcilesWhatItsReplicaOwns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, apis := newFleet(t)
		r := begin(t, cc)
		const lists = "stream /api/v1/configmaps"
		s.StandBy(keyA)
		s.Gain(keyB)
		connected(t, cc, keyA, keyB)
		require.Equal(t, []string{"b one"}, r.take())
		require.Equal(t, 1, apis[0].Count(lists))

		apis[0].Put("two", "1", nil)
		apis[1].Put("two", "1", nil)
		apis[2].Put("two", "1", nil)
		require.Equal(t, []string{"b two"}, r.take())

		s.Gain(keyA)
		require.Equal(t, []string{"a one", "a two"}, r.take())
		require.Equal(t, 1, apis[0].Count(lists), "a list at the takeover")
		apis[0].Put("one", "2", nil)
		require.Equal(t, []string{"a one"}, r.take())

		drained := s.Drain(keyA, time.Minute)
		<-drained
		apis[0].Put("one", "3", nil)
		require.Empty(t, r.take())
		s.Lose(keyA)
		apis[0].Put("one", "4", nil)
		require.Empty(t, r.take())
		s.Gain(keyA)
		require.Equal(t, []string{"a one", "a two"}, r.take())
		require.Equal(t, 1, apis[0].Count(lists))
	})
}

// TestGainedClusterThatIsDisconnectedIsReconciledOnceItIsBack also has its
// cached objects reconciled at once.
func TestGainedClusterThatIsDisconnectedIsReconciledOnceItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, apis := newFleet(t)
		r := begin(t, cc)
		s.StandBy(keyA)
		connected(t, cc, keyA)
		apis[0].Die()
		time.Sleep(time.Minute)
		s.Gain(keyA)
		require.Equal(t, []string{"a one"}, r.take())
		apis[0].Put("two", "1", nil)
		apis[0].Live()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"a two"}, r.take())

		// So is one that was never connected.
		apis[2].Die()
		s.Gain(keyC)
		time.Sleep(time.Minute)
		apis[2].Live()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"c one"}, r.take())
	})
}

func TestReconcileOfALostClusterIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, apis := newFleet(t)
		r := begin(t, cc)
		causes := make(chan error, 10)
		r.act(func(ctx context.Context, _ client.ObjectKey, _ client.Client) (reconcile.Result, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return reconcile.Result{RequeueAfter: time.Second}, context.Cause(ctx)
		})
		s.Gain(keyA)
		connected(t, cc, keyA)
		require.Equal(t, []string{"a one"}, r.take())
		s.Lose(keyA)
		require.ErrorIs(t, <-causes, clustercache.ErrNotOwner)
		time.Sleep(time.Hour)
		require.Empty(t, r.take(), "neither its error nor its result has an effect")

		// A drain waits for it, until three quarters of its time are over.
		s.Gain(keyA)
		require.Equal(t, []string{"a one"}, r.take())
		begin := time.Now()
		<-s.Drain(keyA, 8*time.Second)
		require.Equal(t, 6*time.Second, time.Since(begin))
		require.ErrorIs(t, <-causes, clustercache.ErrNotOwner)
		s.Lose(keyA)

		// One that ends in time is not canceled.
		r.act(func(ctx context.Context, _ client.ObjectKey, c client.Client) (reconcile.Result, error) {
			time.Sleep(3 * time.Second)
			causes <- errors.Join(ctx.Err(), c.Create(ctx, fleettest.ColoredConfigMap("made", "red")))
			return reconcile.Result{}, nil
		})
		s.Gain(keyA)
		require.Equal(t, []string{"a one"}, r.take())
		begin = time.Now()
		<-s.Drain(keyA, 8*time.Second)
		require.Equal(t, 2*time.Second, time.Since(begin))
		require.NoError(t, <-causes)
		require.Contains(t, apis[0].Stored(), "made")
	})
}

// TestResultOfALostRequestIsDropped: errors would be logged and tried again.
func TestResultOfALostRequestIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, _ := newFleet(t)
		s.Gain(keyA)
		connected(t, cc, keyA)
		r := controller.PerCluster(cc, func(client.Client) reconcile.Reconciler {
			return reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				s.Lose(keyA)
				return reconcile.Result{RequeueAfter: time.Hour}, ctx.Err()
			})
		})
		result, err := r.Reconcile(t.Context(), controller.Request{Cluster: keyA})
		require.NoError(t, err)
		require.Zero(t, result)
	})
}

// TestRequestsOfALostClusterAreDropped has them wait for the only free worker.
func TestRequestsOfALostClusterAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, apis := newFleet(t)
		for i := range 20 {
			apis[0].Put(fmt.Sprint("x", i), "1", nil)
		}
		r := begin(t, cc)
		r.act(func(context.Context, client.ObjectKey, client.Client) (reconcile.Result, error) {
			time.Sleep(3 * time.Second)
			return reconcile.Result{}, nil
		})
		s.Gain(keyA)
		connected(t, cc, keyA)
		s.Lose(keyA)
		require.Len(t, r.take(), 4)
		require.Empty(t, r.take())
		s.Gain(keyA)
		time.Sleep(time.Minute)
		require.Len(t, r.take(), 21)
	})
}

// TestRequestWhoseWriteCameTooLateIsNotLost: the lease may lapse by the clock
// and be renewed, without a loss and its replay.
func TestRequestWhoseWriteCameTooLateIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, apis := newFleet(t)
		r := begin(t, cc)
		r.act(func(ctx context.Context, _ client.ObjectKey, c client.Client) (reconcile.Result, error) {
			return reconcile.Result{}, c.Create(ctx, fleettest.ColoredConfigMap("made", "red"))
		})
		s.Gain(keyA)
		s.SetUntil(keyA, time.Now())
		connected(t, cc, keyA)
		require.NotContains(t, apis[0].Stored(), "made")
		s.SetUntil(keyA, time.Time{})
		time.Sleep(2 * time.Second)
		require.Contains(t, apis[0].Stored(), "made")
	})
}

// queue starts a source on a queue with priorities.
func queue[request comparable](t *testing.T, s source.TypedSource[request]) priorityqueue.PriorityQueue[request] {
	t.Helper()
	q := priorityqueue.New[request](t.Name())
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(t, s.Start(ctx, workqueue.TypedRateLimitingInterface[request](q)))
	t.Cleanup(func() { cancel(); q.ShutDown() })
	return q
}

// all takes all requests from a queue, and returns their priorities.
func all[request comparable](q priorityqueue.PriorityQueue[request]) map[request]int {
	time.Sleep(time.Second)
	synctest.Wait()
	out := map[request]int{}
	for q.Len() > 0 {
		r, priority, _ := q.GetWithPriority()
		out[r] = priority
		q.Done(r)
	}
	return out
}

func TestGainedClusterIsReplayedAtLowPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, apis := newFleet(t)
		objects := queue(t, controller.ObjectSource(cc, events.Selection{
			Kinds: []client.Object{&corev1.ConfigMap{}},
			Watch: true,
		}, func(_ context.Context, cluster client.ObjectKey, o client.Object) []string {
			return []string{cluster.Name + " " + o.GetName()}
		}))
		s.StandBy(keyA)
		connected(t, cc, keyA)
		require.Empty(t, all(objects))
		s.Gain(keyA)
		require.Equal(t, map[string]int{"a one": handler.LowPriority}, all(objects))
		apis[0].Put("one", "2", nil)
		require.Equal(t, map[string]int{"a one": 0}, all(objects))

		// A change that arrives during the replay has its own priority.
		s.Lose(keyA)
		apis[0].Put("two", "1", nil)
		require.Empty(t, all(objects))
		s.Gain(keyA)
		apis[0].Put("one", "3", nil)
		require.Equal(t, map[string]int{"a one": 0, "a two": handler.LowPriority}, all(objects))
	})
}

func TestClusterSourceHasTheStateOfOwnedClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, apis := newFleet(t)
		clusters := queue(t, controller.ClusterSource(cc,
			func(_ context.Context, e events.Cluster) []string {
				return []string{e.Cluster.Name + " " + string(e.Type)}
			}))
		s.StandBy(keyA)
		connected(t, cc, keyA)
		require.Empty(t, all(clusters))
		s.Gain(keyA)
		require.Equal(t, map[string]int{
			"a Connected": handler.LowPriority,
			"a Gained":    handler.LowPriority,
		}, all(clusters))

		apis[0].Die()
		time.Sleep(time.Minute)
		require.Contains(t, all(clusters), "a Disconnected")
		s.Lose(keyA)
		apis[0].Live()
		time.Sleep(time.Minute)
		require.Empty(t, all(clusters))
		s.Gain(keyA)
		require.Contains(t, all(clusters), "a Connected")
	})
}

// TestHazardRequestIsDroppedInALapseThatIsOverBeforeAnyEvent: the lease ended by
// the clock, and was renewed too late, but before the cluster's events say
// either. They say that it was gained, so that its requests come again.
func TestHazardRequestIsDroppedInALapseThatIsOverBeforeAnyEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, _ := newFleet(t)
		clusters := queue(t, controller.ClusterSource(cc,
			func(_ context.Context, e events.Cluster) []string {
				return []string{e.Cluster.Name + " " + string(e.Type)}
			}))
		s.Gain(keyA)
		connected(t, cc, keyA)
		require.NotEmpty(t, all(clusters))

		s.SetUntil(keyA, time.Now())
		_, _, err := cc.Cluster(keyA).Work(t.Context())
		require.ErrorIs(t, err, clustercache.ErrNotOwner, "its request is dropped")
		s.SetUntil(keyA, time.Time{})
		require.Contains(t, all(clusters), "a Gained")
		require.Empty(t, all(clusters))
	})
}

// TestHandOversLeaveNothingBehind moves clusters between two replicas.
func TestHandOversLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, apis := newFleet(t)
		r := begin(t, cc)
		var counts []int
		for i := range 201 {
			for _, key := range []client.ObjectKey{keyA, keyB} {
				s.Gain(key)
			}
			connected(t, cc, keyA, keyB)
			apis[0].Put("one", fmt.Sprint(i), nil)
			require.GreaterOrEqual(t, len(r.take()), 2)
			<-s.Drain(keyA, time.Second)
			s.Lose(keyA)
			s.Lose(keyB)
			if i%2 == 0 {
				s.Cool(keyB)
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if i%100 == 0 {
				counts = append(counts, runtime.NumGoroutine())
			}
		}
		// One that each hand-over left behind would be a hundred more; connections
		// come and go.
		require.Less(t, counts[2], counts[1]+10, counts)
	})
}
