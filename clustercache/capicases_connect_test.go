// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// openConns counts the open connections of an in-memory API server. It must be
// called before the first connection.
func openConns(api *fakeAPI) func() int {
	var mu sync.Mutex
	open := map[net.Conn]struct{}{}
	api.server.ConnState = func(c net.Conn, s http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		switch s {
		case http.StateClosed, http.StateHijacked:
			delete(open, c)
		default:
			open[c] = struct{}{}
		}
	}
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(open)
	}
}

// journal is a resolver that reports no changes, and records when it was
// queried.
type journal struct {
	mu     sync.Mutex
	answer func() (clustercache.Access, error)
	asked  []time.Time
}

func (j *journal) Resolve(context.Context, client.ObjectKey) (clustercache.Access, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked = append(j.asked, time.Now())
	return j.answer()
}

func (j *journal) set(answer func() (clustercache.Access, error)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.answer = answer
}

func (j *journal) times() []time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.asked
}

func caseEngageAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := oneCluster(t)
		before, asked := api.total(), d.timesAsked(key("a"))
		for range 100 {
			require.NoError(t, cc.Engage(key("a")))
		}
		synctest.Wait()
		require.Equal(t, before, api.total())
		require.Equal(t, asked, d.timesAsked(key("a")))
		require.Equal(t, 1, status(t, cc).Connects)
	})
}

// caseHandlesAfterDisconnect: differs in that a disengaged cluster is unknown,
// not merely disconnected: no attempt to reach it is made any more, so waiting
// would not help.
func caseHandlesAfterDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := oneCluster(t)
		c, err := cc.Client(key("a"))
		require.NoError(t, err)
		requireAll := func(want error) {
			t.Helper()
			begin := time.Now()
			object := &corev1.ConfigMap{ObjectMeta: objectMeta("one")}
			require.ErrorIs(t, get(t, cc), want)
			require.ErrorIs(t, c.Get(t.Context(), client.ObjectKeyFromObject(object), object), want)
			require.ErrorIs(t, c.List(t.Context(), &corev1.ConfigMapList{}), want)
			_, err := cc.RESTConfig(key("a"))
			require.ErrorIs(t, err, want)
			require.Error(t, c.Delete(t.Context(), object))
			require.Zero(t, time.Since(begin), "a call waited")
		}
		disconnect(t, cc, api)
		require.False(t, status(t, cc).Connected)
		requireAll(clustercache.ErrNotConnected)

		api.live()
		time.Sleep(31 * time.Second)
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, &corev1.ConfigMap{}), "the same handle is good again")

		cc, _, _ = oneCluster(t)
		c, err = cc.Client(key("a"))
		require.NoError(t, err)
		cc.Disengage(key("a"))
		synctest.Wait()
		requireAll(clustercache.ErrUnknownCluster)
		_, err = cc.Client(key("a"))
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
		_, err = cc.RESTMapper(key("a"))
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
	})
}

func caseDisengageStopsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, "uid-a")
		api.put("one", "1", nil)
		open := openConns(api)
		d := newDirectory()
		d.set(key("a"), api.config())
		cc := start(t, silent(d))
		w := watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		require.Positive(t, open())

		w.Release()
		cc.Disengage(key("a"))
		time.Sleep(time.Minute) // released informers linger for half of this time
		require.Empty(t, cc.Statuses())
		require.Zero(t, open())
		before, asked := api.total(), d.timesAsked(key("a"))
		time.Sleep(time.Hour)
		require.Equal(t, before, api.total())
		require.Equal(t, asked, d.timesAsked(key("a")))
	})
}

// caseStatusSurvivesDisconnect: a failed attempt to connect does not change the
// phase, so Since shows how long the cluster has been disconnected, and
// LastLife when it last showed life.
func caseStatusSurvivesDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := oneCluster(t)
		disconnect(t, cc, api)
		first := status(t, cc)
		require.False(t, first.LastLife.IsZero())
		require.False(t, first.Since.IsZero())
		clusters := follow(t, cc)
		clusters.wait(key("a"), clustercache.Disconnected)
		time.Sleep(10 * time.Minute)
		again := status(t, cc)
		require.Equal(t, clustercache.PhaseDisconnected, again.Phase)
		require.Equal(t, first.Since, again.Since)
		require.Equal(t, first.LastLife, again.LastLife)
		require.Equal(t, 1, again.Connects)
		require.Empty(t, clusters.events)

		w := watch(t, cc) // without it, the cluster would be forgotten together with its status
		cc.Disengage(key("a"))
		cc.Disengage(key("a"))
		synctest.Wait()
		require.Equal(t, first.LastLife, status(t, cc).LastLife)
		w.Release()
	})
}

// caseWatchBeforeConnect: differs in that Watch does not fail. A caller that
// had to retry at the next connect would need the very event that the library
// already handles.
func caseWatchBeforeConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, "uid-a")
		api.put("one", "1", nil)
		api.die()
		d := newDirectory()
		d.set(key("a"), api.config())
		cc := start(t, silent(d))
		w := watch(t, cc)
		require.False(t, w.HasSynced())
		require.False(t, w.Status().Mapped)
		require.ErrorIs(t, get(t, cc), clustercache.ErrNotConnected)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		require.ErrorIs(t, w.WaitForSync(ctx), context.DeadlineExceeded)
		api.live()
		require.NoError(t, w.WaitForSync(t.Context()))
		require.NoError(t, get(t, cc, clustercache.CacheOnly))
	})
}

func caseMissingSecretIsAskedForEvenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{answer: func() (clustercache.Access, error) { return clustercache.Access{}, resolver.ErrSecretNotFound }}
		o := silent(j)
		o.RetryInterval = 20 * time.Second
		cc := start(t, o)
		require.NoError(t, cc.Engage(key("a")))
		time.Sleep(time.Hour)
		times := j.times()
		require.Greater(t, len(times), 100)
		for i := 1; i < len(times); i++ { // up to a fifth sooner, at random
			wait := times[i].Sub(times[i-1])
			require.LessOrEqual(t, wait, o.RetryInterval)
			require.GreaterOrEqual(t, wait, o.RetryInterval*4/5)
		}
		s := status(t, cc)
		require.Equal(t, clustercache.PhasePending, s.Phase)
		require.ErrorIs(t, s.LastError, resolver.ErrSecretNotFound)
	})
}

// failing runs attempts against an unreachable address until the wait between
// two attempts has grown to its maximum, 30 s.
func failing(t *testing.T) (*clustercache.ClusterCache, *fakeAPI, *journal) {
	t.Helper()
	api := newFakeAPI(t, "uid-a")
	j := &journal{answer: func() (clustercache.Access, error) {
		return clustercache.Access{}, &resolver.KubeconfigError{Reason: "is no YAML"}
	}}
	cc := start(t, silent(j))
	require.NoError(t, cc.Engage(key("a")))
	time.Sleep(10 * time.Minute)
	for n := len(j.times()); n == len(j.times()); {
		time.Sleep(10 * time.Millisecond)
	}
	return cc, api, j
}

// caseRetryIsRateLimited: differs in that a change reported by the resolver
// ends the wait. The interval exists to spare a cluster that could not be
// reached; new access need not wait for it.
func caseRetryIsRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, j := failing(t)
		j.set(func() (clustercache.Access, error) { return resolver.NewAccess(api.config()) })
		require.NoError(t, cc.Engage(key("a")))
		w := watch(t, cc)
		asked := len(j.times())
		time.Sleep(14 * time.Second)
		require.Len(t, j.times(), asked)
		require.Zero(t, api.dialled())
		require.Equal(t, clustercache.PhaseDisconnected, status(t, cc).Phase)
		w.Release()

		told := newDirectory()
		told.fail(key("a"), &resolver.KubeconfigError{Reason: "is no YAML"})
		cc = start(t, silent(told))
		require.NoError(t, cc.Engage(key("a")))
		time.Sleep(10 * time.Minute)
		told.set(key("a"), api.config())
		begin := time.Now()
		synctest.Wait()
		require.Equal(t, clustercache.PhaseReady, status(t, cc).Phase)
		require.Zero(t, time.Since(begin))
	})
}

func caseRetryConnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, j := failing(t)
		times := j.times()
		failed := times[len(times)-1]
		j.set(func() (clustercache.Access, error) { return resolver.NewAccess(api.config()) })
		for !status(t, cc).Connected {
			time.Sleep(10 * time.Millisecond)
		}
		require.GreaterOrEqual(t, time.Since(failed), 14*time.Second)
		require.LessOrEqual(t, time.Since(failed), clustercache.DefaultMaxBackoff+time.Second)
		require.NoError(t, status(t, cc).LastError)
		require.Equal(t, 1, api.count("get /readyz"), "the attempt")
		time.Sleep(clustercache.DefaultProbeInterval*4/5 - 100*time.Millisecond)
		require.Equal(t, 1, api.count("get /readyz"))
		time.Sleep(clustercache.DefaultProbeInterval/5 + 100*time.Millisecond)
		require.Equal(t, 2, api.count("get /readyz"), "the first probe")
	})
}

// caseHubIsNeverGuessed: differs in that no connection looks in its cluster for
// the Pod it runs in, to change its address if it finds that Pod; that would
// cost each cluster a request and a permission. The operator declares the hub:
// the zero key, with a resolver of its own.
func caseHubIsNeverGuessed(t *testing.T) {
	for i, env := range []map[string]string{ // a Pod that looks like the test's own, and Pods that do not
		{"POD_NAMESPACE": "default", "POD_NAME": "operator", "POD_UID": "uid-pod"},
		{"POD_NAMESPACE": "other", "POD_NAME": "operator", "POD_UID": "uid-pod"},
		{"POD_NAMESPACE": "default", "POD_NAME": "other", "POD_UID": "uid-pod"},
		{"POD_NAMESPACE": "default", "POD_NAME": "operator", "POD_UID": "other"},
		{"POD_NAMESPACE": "default", "POD_NAME": "operator"},
		{},
	} {
		t.Run(fmt.Sprint("environment ", i), func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			for name, value := range env {
				t.Setenv(name, value)
			}
			synctest.Test(t, func(t *testing.T) {
				api, hub := newFakeAPI(t, "uid-a"), newFakeAPI(t, "uid-hub")
				d := newDirectory()
				d.set(key("a"), api.config())
				d.set(client.ObjectKey{}, hub.config())
				cc := start(t, silent(resolver.Chain(resolver.InCluster(), d)))
				require.NoError(t, cc.Engage(client.ObjectKey{}))
				require.NoError(t, watch(t, cc).WaitForSync(t.Context()))
				synctest.Wait()
				s, err := cc.Status(client.ObjectKey{})
				require.NoError(t, err)
				require.Equal(t, "uid-hub", s.UID)
				require.Equal(t, "uid-a", status(t, cc).UID)
				for request := range api.requested() {
					require.NotContains(t, request, "/pods")
				}
			})
		})
	}
}

func caseSlowConnectHoldsBackNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, quick := newFakeAPI(t, "uid-slow"), newFakeAPI(t, "uid-quick")
		quick.put("one", "1", nil)
		slow.failWith(-1, "/")
		d := newDirectory()
		d.set(key("slow"), slow.config())
		d.set(key("a"), quick.config())
		cc := start(t, silent(d))
		require.NoError(t, cc.Engage(key("slow")))
		require.NoError(t, cc.Engage(key("a")))
		synctest.Wait()
		begin := time.Now()
		require.NoError(t, get(t, cc))
		for range 2 { // the second caller asks while the first attempt runs
			_, err := cc.Client(key("slow"))
			require.NoError(t, err)
			_, err = cc.Watch(t.Context(), key("slow"), &corev1.ConfigMap{})
			require.NoError(t, err)
			require.NoError(t, cc.Engage(key("slow")))
			err = cc.Reader(key("slow")).Get(t.Context(), client.ObjectKey{Name: "x"}, &corev1.ConfigMap{})
			require.ErrorIs(t, err, clustercache.ErrNotConnected)
			_, err = cc.Status(key("slow"))
			require.NoError(t, err)
		}
		require.Zero(t, time.Since(begin))
		require.Equal(t, 1, slow.total(), "one attempt")
	})
}

// caseSlowList: differs in that connecting does not list. A cluster is
// connected before its informers are synced, so no list is too slow for it.
func caseSlowList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newFakeAPI(t, "uid-slow")
		for i := range 50 {
			slow.put(fmt.Sprintf("o%d", i), "1", nil)
		}
		slow.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/configmaps") {
				w = &slowWriter{ResponseWriter: w, delay: 12 * time.Second}
			}
			slow.ServeHTTP(w, r)
		})
		d := newDirectory()
		d.set(key("a"), slow.config())
		o := silent(d)
		o.ConnectConcurrency, o.ProbeConcurrency = 1, 1
		cc := start(t, o)
		w := watch(t, cc)
		synctest.Wait()
		require.Equal(t, clustercache.PhaseReady, status(t, cc).Phase)
		for i := range 10 {
			quick := newFakeAPI(t, fmt.Sprint(i))
			d.set(key(fmt.Sprint(i)), quick.config())
			begin := time.Now()
			other, err := cc.Watch(t.Context(), key(fmt.Sprint(i)), &corev1.ConfigMap{})
			require.NoError(t, err)
			require.NoError(t, other.WaitForSync(t.Context()))
			require.Zero(t, time.Since(begin))
			time.Sleep(30 * time.Second)
			require.False(t, w.HasSynced())
		}
		begin := time.Now()
		require.NoError(t, w.WaitForSync(t.Context()))
		require.Greater(t, time.Since(begin), 4*time.Minute)
		s := status(t, cc)
		require.Equal(t, 50, s.Objects)
		require.Equal(t, 1, s.Connects)
		require.Equal(t, clustercache.PhaseReady, s.Phase)
	})
}

// slowWriter delays every object.
type slowWriter struct {
	http.ResponseWriter

	delay time.Duration
}

func (w *slowWriter) Write(p []byte) (int, error) {
	w.ResponseWriter.(http.Flusher).Flush()
	time.Sleep(w.delay)
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (w *slowWriter) Flush() { w.ResponseWriter.(http.Flusher).Flush() }
