// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi_test

import (
	"bytes"
	"context"
	"fmt"
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
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// journal is a resolver that reports no changes, and records when it was
// queried.
type journal struct {
	mu     sync.Mutex
	answer func() (resolver.Access, error)
	asked  []time.Time
}

func (j *journal) Resolve(context.Context, client.ObjectKey) (resolver.Access, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked = append(j.asked, time.Now())
	return j.answer()
}

func (j *journal) set(answer func() (resolver.Access, error)) {
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
		cc, api, d := fleettest.OneCluster(t)
		before, asked := api.Total(), d.TimesAsked(fleettest.Key("a"))
		for range 100 {
			require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		}
		synctest.Wait()
		require.Equal(t, before, api.Total())
		require.Equal(t, asked, d.TimesAsked(fleettest.Key("a")))
		require.Equal(t, 1, fleettest.Status(t, cc).Connects)
	})
}

// caseHandlesAfterDisconnect: differs in that a disengaged cluster is unknown,
// not merely disconnected: no attempt to reach it is made any more, so waiting
// would not help.
func caseHandlesAfterDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		c, err := cc.Cluster(fleettest.Key("a")).Client()
		require.NoError(t, err)
		requireAll := func(want error) {
			t.Helper()
			begin := time.Now()
			object := &corev1.ConfigMap{ObjectMeta: fleettest.ObjectMeta("one")}
			require.ErrorIs(t, fleettest.Get(t, cc), want)
			require.ErrorIs(t, c.Get(t.Context(), client.ObjectKeyFromObject(object), object), want)
			require.ErrorIs(t, c.List(t.Context(), &corev1.ConfigMapList{}), want)
			_, err := cc.Cluster(fleettest.Key("a")).RESTConfig()
			require.ErrorIs(t, err, want)
			require.Error(t, c.Delete(t.Context(), object))
			require.Zero(t, time.Since(begin), "a call waited")
		}
		fleettest.Disconnect(t, cc, api)
		require.False(t, fleettest.Status(t, cc).Connected)
		requireAll(clustercache.ErrNotConnected)

		api.Live()
		time.Sleep(31 * time.Second)
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, &corev1.ConfigMap{}),
			"the same handle is good again")

		cc, _, _ = fleettest.OneCluster(t)
		c, err = cc.Cluster(fleettest.Key("a")).Client()
		require.NoError(t, err)
		cc.Cluster(fleettest.Key("a")).Disengage()
		synctest.Wait()
		requireAll(clustercache.ErrUnknownCluster)
		_, err = cc.Cluster(fleettest.Key("a")).Client()
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
		_, err = cc.Cluster(fleettest.Key("a")).RESTMapper()
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
	})
}

func caseDisengageStopsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		api.Put("one", "1", nil)
		open := api.Connections
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		w := fleettest.Watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		require.Positive(t, open())

		w.Release()
		cc.Cluster(fleettest.Key("a")).Disengage()
		time.Sleep(time.Minute) // released informers linger for half of this time
		require.Empty(t, cc.Statuses())
		require.Zero(t, open())
		before, asked := api.Total(), d.TimesAsked(fleettest.Key("a"))
		time.Sleep(time.Hour)
		require.Equal(t, before, api.Total())
		require.Equal(t, asked, d.TimesAsked(fleettest.Key("a")))
	})
}

// caseStatusSurvivesDisconnect: a failed attempt to connect does not change the
// phase, so Since shows how long the cluster has been disconnected, and
// LastLife when it last showed life.
func caseStatusSurvivesDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		fleettest.Disconnect(t, cc, api)
		first := fleettest.Status(t, cc)
		require.False(t, first.LastLife.IsZero())
		require.False(t, first.Since.IsZero())
		clusters := fleettest.Follow(t, cc)
		clusters.Wait(fleettest.Key("a"), events.Disconnected)
		time.Sleep(10 * time.Minute)
		again := fleettest.Status(t, cc)
		require.Equal(t, status.PhaseDisconnected, again.Phase)
		require.Equal(t, first.Since, again.Since)
		require.Equal(t, first.LastLife, again.LastLife)
		require.Equal(t, 1, again.Connects)
		require.Empty(t, clusters.Events)

		w := fleettest.Watch(t, cc) // without it, the cluster would be forgotten together with its status
		cc.Cluster(fleettest.Key("a")).Disengage()
		cc.Cluster(fleettest.Key("a")).Disengage()
		synctest.Wait()
		require.Equal(t, first.LastLife, fleettest.Status(t, cc).LastLife)
		w.Release()
	})
}

// caseWatchBeforeConnect: differs in that Watch does not fail. A caller that
// had to retry at the next connect would need the very event that the library
// already handles.
func caseWatchBeforeConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		api.Put("one", "1", nil)
		api.Die()
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		w := fleettest.Watch(t, cc)
		require.False(t, w.HasSynced())
		require.False(t, w.Status().Mapped)
		require.ErrorIs(t, fleettest.Get(t, cc), clustercache.ErrNotConnected)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		require.ErrorIs(t, w.WaitForSync(ctx), context.DeadlineExceeded)
		api.Live()
		require.NoError(t, w.WaitForSync(t.Context()))
		require.NoError(t, fleettest.Get(t, cc, clustercache.CacheOnly))
	})
}

func caseMissingSecretIsAskedForEvenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{answer: func() (resolver.Access, error) {
			return resolver.Access{}, resolver.ErrSecretNotFound
		}}
		o := fleettest.Silent(j)
		o.RetryInterval = 20 * time.Second
		cc := fleettest.Start(t, o)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		time.Sleep(time.Hour)
		times := j.times()
		require.Greater(t, len(times), 100)
		for i := 1; i < len(times); i++ { // up to a fifth sooner, at random
			wait := times[i].Sub(times[i-1])
			require.LessOrEqual(t, wait, o.RetryInterval)
			require.GreaterOrEqual(t, wait, o.RetryInterval*4/5)
		}
		s := fleettest.Status(t, cc)
		require.Equal(t, status.PhasePending, s.Phase)
		require.ErrorIs(t, s.LastError, resolver.ErrSecretNotFound)
	})
}

// failing runs attempts against an unreachable address until the wait between
// two attempts has grown to its maximum, 30 s.
func failing(t *testing.T) (*clustercache.ClusterCache, *fleettest.API, *journal) {
	t.Helper()
	api := fleettest.NewAPI(t, "uid-a")
	j := &journal{answer: func() (resolver.Access, error) {
		return resolver.Access{}, &resolver.KubeconfigError{Reason: "is no YAML"}
	}}
	cc := fleettest.Start(t, fleettest.Silent(j))
	require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
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
		j.set(func() (resolver.Access, error) { return resolver.NewAccess(api.Config()) })
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		w := fleettest.Watch(t, cc)
		asked := len(j.times())
		time.Sleep(14 * time.Second)
		require.Len(t, j.times(), asked)
		require.Zero(t, api.Dialled())
		require.Equal(t, status.PhaseDisconnected, fleettest.Status(t, cc).Phase)
		w.Release()

		told := fleettest.NewDirectory()
		told.Fail(fleettest.Key("a"), &resolver.KubeconfigError{Reason: "is no YAML"})
		cc = fleettest.Start(t, fleettest.Silent(told))
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		time.Sleep(10 * time.Minute)
		told.Set(fleettest.Key("a"), api.Config())
		begin := time.Now()
		synctest.Wait()
		require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
		require.Zero(t, time.Since(begin))
	})
}

func caseRetryConnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, j := failing(t)
		times := j.times()
		failed := times[len(times)-1]
		j.set(func() (resolver.Access, error) { return resolver.NewAccess(api.Config()) })
		for !fleettest.Status(t, cc).Connected {
			time.Sleep(10 * time.Millisecond)
		}
		require.GreaterOrEqual(t, time.Since(failed), 14*time.Second)
		require.LessOrEqual(t, time.Since(failed), maxBackoff+time.Second)
		require.NoError(t, fleettest.Status(t, cc).LastError)
		require.Equal(t, 1, api.Count("get /readyz"), "the attempt")
		time.Sleep(probeInterval*4/5 - 100*time.Millisecond)
		require.Equal(t, 1, api.Count("get /readyz"))
		time.Sleep(probeInterval/5 + 100*time.Millisecond)
		require.Equal(t, 2, api.Count("get /readyz"), "the first probe")
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
				api, hub := fleettest.NewAPI(t, "uid-a"), fleettest.NewAPI(t, "uid-hub")
				d := fleettest.NewDirectory()
				d.Set(fleettest.Key("a"), api.Config())
				d.Set(client.ObjectKey{}, hub.Config())
				cc := fleettest.Start(t, fleettest.Silent(resolver.Chain(resolver.InCluster(), d)))
				require.NoError(t, cc.Cluster(client.ObjectKey{}).Engage())
				require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
				synctest.Wait()
				s, err := cc.Cluster(client.ObjectKey{}).Status()
				require.NoError(t, err)
				require.Equal(t, "uid-hub", s.UID)
				require.Equal(t, "uid-a", fleettest.Status(t, cc).UID)
				for request := range api.Requested() {
					require.NotContains(t, request, "/pods")
				}
			})
		})
	}
}

func caseSlowConnectHoldsBackNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, quick := fleettest.NewAPI(t, "uid-slow"), fleettest.NewAPI(t, "uid-quick")
		quick.Put("one", "1", nil)
		slow.FailWith(-1, "/")
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("slow"), slow.Config())
		d.Set(fleettest.Key("a"), quick.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		require.NoError(t, cc.Cluster(fleettest.Key("slow")).Engage())
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		synctest.Wait()
		begin := time.Now()
		require.NoError(t, fleettest.Get(t, cc))
		for range 2 { // the second caller asks while the first attempt runs
			_, err := cc.Cluster(fleettest.Key("slow")).Client()
			require.NoError(t, err)
			_, err = cc.Cluster(fleettest.Key("slow")).Watch(t.Context(), &corev1.ConfigMap{})
			require.NoError(t, err)
			require.NoError(t, cc.Cluster(fleettest.Key("slow")).Engage())
			err = cc.Cluster(fleettest.Key("slow")).Reader().Get(t.Context(), client.ObjectKey{Name: "x"},
				&corev1.ConfigMap{})
			require.ErrorIs(t, err, clustercache.ErrNotConnected)
			_, err = cc.Cluster(fleettest.Key("slow")).Status()
			require.NoError(t, err)
		}
		require.Zero(t, time.Since(begin))
		require.Equal(t, 1, slow.Total(), "one attempt")
	})
}

// caseSlowList: differs in that connecting does not list. A cluster is
// connected before its informers are synced, so no list is too slow for it.
func caseSlowList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := fleettest.NewAPI(t, "uid-slow")
		for i := range 50 {
			slow.Put(fmt.Sprintf("o%d", i), "1", nil)
		}
		slow.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/configmaps") {
				w = &slowWriter{ResponseWriter: w, delay: 12 * time.Second}
			}
			slow.ServeHTTP(w, r)
		})
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), slow.Config())
		o := fleettest.Silent(d)
		o.ConnectConcurrency, o.ProbeConcurrency = 1, 1
		cc := fleettest.Start(t, o)
		w := fleettest.Watch(t, cc)
		synctest.Wait()
		require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
		for i := range 10 {
			quick := fleettest.NewAPI(t, fmt.Sprint(i))
			d.Set(fleettest.Key(fmt.Sprint(i)), quick.Config())
			begin := time.Now()
			other, err := cc.Cluster(fleettest.Key(fmt.Sprint(i))).Watch(t.Context(), &corev1.ConfigMap{})
			require.NoError(t, err)
			require.NoError(t, other.WaitForSync(t.Context()))
			require.Zero(t, time.Since(begin))
			time.Sleep(30 * time.Second)
			require.False(t, w.HasSynced())
		}
		begin := time.Now()
		require.NoError(t, w.WaitForSync(t.Context()))
		require.Greater(t, time.Since(begin), 4*time.Minute)
		s := fleettest.Status(t, cc)
		require.Equal(t, 50, s.Objects)
		require.Equal(t, 1, s.Connects)
		require.Equal(t, status.PhaseReady, s.Phase)
	})
}

// slowWriter delays every object.
type slowWriter struct {
	http.ResponseWriter

	delay time.Duration
}

func (w *slowWriter) Write(p []byte) (int, error) {
	for object := range bytes.Lines(p) {
		w.Flush()
		time.Sleep(w.delay)
		if _, err := w.ResponseWriter.Write(object); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Flush implements http.Flusher.
func (w *slowWriter) Flush() { w.ResponseWriter.(http.Flusher).Flush() }
