// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

var clusterA = resolver.Cluster{Namespace: "fleet", Name: "a"}

// inHub runs a test in a bubble, with a hub that has cluster a, and a resolver
// whose first reports were taken.
func inHub(t *testing.T, options resolver.HubOptions, test func(*testing.T, *fakeHub, *resolver.HubResolver, *recorder)) {
	synctest.Test(t, func(t *testing.T) {
		hub := newFakeHub(capiSecret("fleet", "a", "one"))
		r, err := resolver.ClusterAPI(hub, options)
		require.NoError(t, err)
		news := notify(t, r)
		require.Equal(t, []resolver.Cluster{clusterA}, news.take(), "the first list reports what is known")
		test(t, hub, r, news)
	})
}

func TestHubChangeIsDeliveredAtOnceAndIdenticalContentIsNot(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *fakeHub, r *resolver.HubResolver, news *recorder) {
		ctx := t.Context()
		before, err := r.Resolve(ctx, clusterA)
		require.NoError(t, err)
		require.Equal(t, "one", before.Config().BearerToken)

		start := time.Now()
		update := capiSecret("fleet", "a", "two")
		require.NoError(t, hub.Update(ctx, update))
		require.Equal(t, []resolver.Cluster{clusterA}, news.take())
		require.Zero(t, time.Since(start), "no time may pass")
		after, err := r.Resolve(ctx, clusterA)
		require.NoError(t, err)
		require.Equal(t, resolver.ChangedToken, resolver.Diff(before, after))

		update.Annotations = map[string]string{"touched": "yes"}
		update.Data["value"] = append(update.Data["value"], "# a comment\n"...)
		require.NoError(t, hub.Update(ctx, update))
		require.Empty(t, news.take(), "identical content is a no-op")

		require.NoError(t, hub.Create(ctx, capiSecret("fleet", "b", "one")))
		require.Equal(t, []resolver.Cluster{{Namespace: "fleet", Name: "b"}}, news.take())

		update.Data["value"] = []byte("junk")
		require.NoError(t, hub.Update(ctx, update))
		require.Equal(t, []resolver.Cluster{clusterA}, news.take())
		_, err = r.Resolve(ctx, clusterA)
		require.NotErrorIs(t, err, resolver.ErrNoAccess, "a broken Secret is no disappearance")
		require.EqualError(t, err, "cluster fleet/a: Secret fleet/a-kubeconfig: invalid kubeconfig: is not a kubeconfig")
	})
}

func TestHubDeleteAndRecreateWithinGraceIsNoDisappearance(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *fakeHub, r *resolver.HubResolver, news *recorder) {
		ctx := t.Context()
		require.NoError(t, hub.Delete(ctx, capiSecret("fleet", "a", "")))
		time.Sleep(9 * time.Second)
		require.Empty(t, news.take())
		require.Equal(t, "one", token(t, r, clusterA))
		require.NoError(t, hub.Create(ctx, capiSecret("fleet", "a", "one")))
		time.Sleep(time.Minute)
		require.Empty(t, news.take())

		require.NoError(t, hub.Delete(ctx, capiSecret("fleet", "a", "")))
		time.Sleep(10 * time.Second)
		require.Equal(t, []resolver.Cluster{clusterA}, news.take())
		_, err := r.Resolve(ctx, clusterA)
		require.ErrorIs(t, err, resolver.ErrSecretNotFound)
		require.ErrorIs(t, err, resolver.ErrNoAccess)
		require.EqualError(t, err, "cluster fleet/a: Secret fleet/a-kubeconfig: secret not found")
		clusters, err := r.Clusters(ctx)
		require.NoError(t, err)
		require.Empty(t, clusters)
	})
}

func TestHubLabelRemovalIsADeleteAndNegativeGraceIsNone(t *testing.T) {
	inHub(t, resolver.HubOptions{Grace: -1}, func(t *testing.T, hub *fakeHub, r *resolver.HubResolver, news *recorder) {
		update := capiSecret("fleet", "a", "one")
		update.Labels = nil
		require.NoError(t, hub.Update(t.Context(), update))
		require.Equal(t, []resolver.Cluster{clusterA}, news.take())
		_, err := r.Resolve(t.Context(), clusterA)
		require.ErrorIs(t, err, resolver.ErrSecretNotFound)
	})
}

func TestHubDownKeepsTheLastAnswer(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *fakeHub, r *resolver.HubResolver, news *recorder) {
		hub.down.Store(true)
		hub.breakStreams()
		time.Sleep(time.Hour)
		require.Empty(t, news.take())
		require.Equal(t, "one", token(t, r, clusterA))
		require.Less(t, hub.requests.Load(), int64(400), "the hub is asked rarely while it is down")
		require.NoError(t, hub.Update(t.Context(), capiSecret("fleet", "a", "two")))
		hub.forget()
		hub.down.Store(false)
		time.Sleep(31 * time.Second)
		require.Equal(t, []resolver.Cluster{clusterA}, news.take())
		require.Equal(t, "two", token(t, r, clusterA))
	})
}

func TestHubDownKeepsTheLastAnswerWithoutAWatch(t *testing.T) {
	hub := newFakeHub(capiSecret("fleet", "a", "one"))
	r, err := resolver.ClusterAPI(hub, resolver.HubOptions{})
	require.NoError(t, err)
	hub.down.Store(true)
	_, err = r.Resolve(t.Context(), clusterA)
	require.ErrorIs(t, err, errHubDown)
	require.NotErrorIs(t, err, resolver.ErrNoAccess)
	_, err = r.Clusters(t.Context())
	require.ErrorIs(t, err, errHubDown)
	hub.down.Store(false)
	require.Equal(t, "one", token(t, r, clusterA))
	hub.down.Store(true)
	require.Equal(t, "one", token(t, r, clusterA))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.Resolve(ctx, clusterA)
	require.Error(t, err, "a caller who gave up gets no answer")
	hub.down.Store(false)
	require.NoError(t, hub.Delete(t.Context(), capiSecret("fleet", "a", "")))
	_, err = r.Resolve(t.Context(), clusterA)
	require.ErrorIs(t, err, resolver.ErrSecretNotFound)
	hub.down.Store(true)
	_, err = r.Resolve(t.Context(), clusterA)
	require.ErrorIs(t, err, errHubDown, "a cluster that went away does not come back")
}

// TestHazardPageOfTheHubsGatewayIsTakenForAMissingSecret checks that a 404
// without a status of an API server proves nothing about an object.
func TestHazardPageOfTheHubsGatewayIsTakenForAMissingSecret(t *testing.T) {
	hub := newFakeHub(capiSecret("fleet", "a", "one"))
	r, err := resolver.ClusterAPI(hub, resolver.HubOptions{})
	require.NoError(t, err)
	hub.page.Store(true)
	_, err = r.Resolve(t.Context(), clusterA)
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	require.NotErrorIs(t, err, resolver.ErrNoAccess)
	require.NotErrorIs(t, err, resolver.ErrClusterNotFound)
	hub.page.Store(false)
	require.Equal(t, "one", token(t, r, clusterA))
	hub.page.Store(true)
	require.Equal(t, "one", token(t, r, clusterA), "the last answer stays")
}

func TestHubWatchResumesWithoutAList(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *fakeHub, _ *resolver.HubResolver, news *recorder) {
		time.Sleep(time.Second)
		require.NoError(t, hub.Create(t.Context(), capiSecret("fleet", "b", "one")))
		require.Len(t, news.take(), 1)
		hub.selections()
		hub.breakStreams()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{
			"list ns= labels=cluster.x-k8s.io/cluster-name fields=", // of one object, to read the version
			"watch ns= labels=cluster.x-k8s.io/cluster-name fields=",
		}, hub.selections())
		hub.mu.Lock()
		from := hub.from
		hub.mu.Unlock()
		require.Equal(t, "1001", from, "the version of the last event")
		require.NoError(t, hub.Update(t.Context(), capiSecret("fleet", "a", "two")))
		require.Equal(t, []resolver.Cluster{clusterA}, news.take())
	})
}

func TestHubLostOrRestoredHistoryIsListedAgain(t *testing.T) {
	for name, lose := range map[string]func(*fakeHub){
		"expired":     (*fakeHub).forget,
		"rolled back": func(hub *fakeHub) { hub.version.Store(500) },
	} {
		t.Run(name, func(t *testing.T) {
			inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *fakeHub, r *resolver.HubResolver, news *recorder) {
				hub.down.Store(true)
				hub.breakStreams()
				synctest.Wait()
				require.NoError(t, hub.Delete(t.Context(), capiSecret("fleet", "a", "")))
				require.NoError(t, hub.Create(t.Context(), capiSecret("fleet", "b", "two")))
				lose(hub)
				hub.down.Store(false)
				time.Sleep(time.Minute)
				require.ElementsMatch(t, []resolver.Cluster{clusterA, {Namespace: "fleet", Name: "b"}}, news.take())
				clusters, err := r.Clusters(t.Context())
				require.NoError(t, err)
				require.Equal(t, []resolver.Cluster{{Namespace: "fleet", Name: "b"}}, clusters)
			})
		})
	}
}

func TestHubThatOnlyListsIsListed(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *fakeHub, r *resolver.HubResolver, news *recorder) {
		hub.mute.Store(true)
		hub.breakStreams()
		time.Sleep(time.Minute)
		require.NoError(t, hub.Update(t.Context(), capiSecret("fleet", "a", "two")))
		time.Sleep(time.Minute)
		require.Equal(t, []resolver.Cluster{clusterA}, news.take())
		require.Equal(t, "two", token(t, r, clusterA))
	})
}

func TestHubStalledWatchIsReplaced(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *fakeHub, _ *resolver.HubResolver, _ *recorder) {
		before := hub.opened.Load()
		time.Sleep(3*time.Minute + time.Second)
		synctest.Wait()
		require.Equal(t, before+1, hub.opened.Load())
	})
}

func TestHubAnswersFromTheWatchWithoutRequests(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *fakeHub, r *resolver.HubResolver, _ *recorder) {
		before := hub.requests.Load()
		require.Equal(t, "one", token(t, r, clusterA))
		_, err := r.Clusters(t.Context())
		require.NoError(t, err)
		_, err = r.Resolve(t.Context(), resolver.Cluster{Namespace: "fleet", Name: "b"})
		require.ErrorIs(t, err, resolver.ErrSecretNotFound)
		require.Equal(t, before, hub.requests.Load())
	})
}

func TestHubNeverReadsSecretsThatAreNotSelected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newFakeHub(capiSecret("fleet", "a", "one"))
		mine, err := labels.Parse("mine=yes")
		require.NoError(t, err)
		r, err := resolver.ClusterAPI(hub, resolver.HubOptions{Namespace: "fleet", Selector: mine})
		require.NoError(t, err)
		_, err = r.Clusters(t.Context())
		require.NoError(t, err)
		_, err = r.Resolve(t.Context(), clusterA)
		require.ErrorIs(t, err, resolver.ErrSecretNotFound, "the selection holds for a single read, too")
		before := hub.requests.Load()
		_, err = r.Resolve(t.Context(), resolver.Cluster{Namespace: "other", Name: "a"})
		require.ErrorIs(t, err, resolver.ErrSecretNotFound)
		require.Equal(t, before, hub.requests.Load(), "nor does a name lead to another namespace")
		notify(t, r).take()
		for _, asked := range hub.selections() {
			if asked != "get ns= labels= fields=" {
				require.Contains(t, asked, "ns=fleet labels=cluster.x-k8s.io/cluster-name,mine=yes")
			}
		}
		_, err = resolver.Secrets(hub, resolver.SecretOptions{})
		require.Error(t, err, "something has to select Secrets")
	})
}

func TestHubNotifyCallsShareOneWatchAndEndByThemselves(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *fakeHub, r *resolver.HubResolver, first *recorder) {
		second, stop := notifyUntil(t, r)
		require.Equal(t, []resolver.Cluster{clusterA}, second.take(), "a late caller is told what is known")
		require.Equal(t, int64(1), hub.opened.Load())
		require.NoError(t, hub.Update(t.Context(), capiSecret("fleet", "a", "two")))
		require.Len(t, first.take(), 1)
		require.Len(t, second.take(), 1)
		stop()
		require.NoError(t, hub.Update(t.Context(), capiSecret("fleet", "a", "three")))
		require.Len(t, first.take(), 1)
		require.Empty(t, second.take())
	})
}

func TestHubNotifyAgainAfterTheLastOneEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newFakeHub(capiSecret("fleet", "a", "one"))
		r, err := resolver.ClusterAPI(hub, resolver.HubOptions{})
		require.NoError(t, err)
		for i := range 3 {
			news, stop := notifyUntil(t, r)
			require.Len(t, news.take(), 1, i)
			stop()
			require.Zero(t, hub.open(), "the last one stops the watch")
			require.Equal(t, "one", token(t, r, clusterA))
		}
	})
}

func TestHubBlockedConsumerStopsNobody(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *fakeHub, r *resolver.HubResolver, news *recorder) {
		ctx, cancel := context.WithCancel(t.Context())
		block, done := make(chan struct{}), make(chan struct{})
		calls := 0
		go func() {
			defer close(done)
			_ = r.Notify(ctx, func(resolver.Cluster) { calls++; <-block })
		}()
		synctest.Wait()
		for _, text := range []string{"two", "three", "four"} {
			require.NoError(t, hub.Update(ctx, capiSecret("fleet", "a", text)))
			require.Len(t, news.take(), 1)
			require.Equal(t, text, token(t, r, clusterA))
		}
		close(block)
		synctest.Wait()
		require.Equal(t, 2, calls, "three changes became one report")
		cancel()
		<-done
	})
}

func TestHubReportsWhatWasAnsweredBeforeTheWatchBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newFakeHub(capiSecret("fleet", "a", "one"))
		r, err := resolver.ClusterAPI(hub, resolver.HubOptions{})
		require.NoError(t, err)
		require.Equal(t, "one", token(t, r, clusterA))
		require.NoError(t, hub.Delete(t.Context(), capiSecret("fleet", "a", "")))
		require.Equal(t, []resolver.Cluster{clusterA}, notify(t, r).take())
	})
}

// TestHubClusterWithoutItsObjectIsUnknownWhicheverWentFirst checks both orders:
// the Secret is owned by the Cluster object, or deleted before it.
func TestHubClusterWithoutItsObjectIsUnknownWhicheverWentFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		cluster := unstructuredObject("cluster.x-k8s.io/v1beta2", "Cluster", "fleet", "a", nil)
		secret := capiSecret("fleet", "a", "one")
		hub := newFakeHub(secret, cluster)
		r, err := resolver.ClusterAPI(hub, resolver.HubOptions{ReadyObject: resolver.ClusterAPIReady("v1beta2")})
		require.NoError(t, err)
		check := func(want error) {
			t.Helper()
			_, err := r.Resolve(ctx, clusterA)
			require.ErrorIs(t, err, want)
		}
		news := notify(t, r)
		require.Len(t, news.take(), 1)
		require.NoError(t, hub.Delete(ctx, secret))
		time.Sleep(time.Hour)
		check(resolver.ErrSecretNotFound)
		require.NoError(t, hub.Delete(ctx, cluster))
		check(resolver.ErrClusterNotFound)

		other, err := resolver.ClusterAPI(hub, resolver.HubOptions{ReadyObject: resolver.ClusterAPIReady("v1beta2")})
		require.NoError(t, err)
		_, err = other.Resolve(ctx, clusterA) // by requests
		require.ErrorIs(t, err, resolver.ErrClusterNotFound)
		hub.down.Store(true)
		check(resolver.ErrSecretNotFound)
	})
}

func TestHubReadyObjectHoldsAccessBackAndIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		cluster := unstructuredObject("cluster.x-k8s.io/v1beta2", "Cluster", "fleet", "a", nil)
		hub := newFakeHub(capiSecret("fleet", "a", "one"), capiSecret("fleet", "b", "one"), cluster)
		r, err := resolver.ClusterAPI(hub, resolver.HubOptions{ReadyObject: resolver.ClusterAPIReady("v1beta2")})
		require.NoError(t, err)
		check := func(cluster resolver.Cluster, want error) {
			_, err := r.Resolve(ctx, cluster)
			require.ErrorIs(t, err, want)
			require.ErrorIs(t, err, resolver.ErrNoAccess)
		}
		check(clusterA, resolver.ErrNotReady)
		news := notify(t, r)
		require.Len(t, news.take(), 2)
		check(clusterA, resolver.ErrNotReady)
		check(resolver.Cluster{Namespace: "fleet", Name: "b"}, resolver.ErrClusterNotFound)

		cluster.Object["status"] = map[string]any{"initialization": map[string]any{"controlPlaneInitialized": true}}
		require.NoError(t, hub.Update(ctx, cluster))
		require.Equal(t, []resolver.Cluster{clusterA}, news.take())
		require.Equal(t, "one", token(t, r, clusterA))

		cluster.Object["status"] = map[string]any{"conditions": []any{
			map[string]any{"type": "ControlPlaneInitialized", "status": "False"}}}
		require.NoError(t, hub.Update(ctx, cluster))
		require.Equal(t, []resolver.Cluster{clusterA}, news.take())
		check(clusterA, resolver.ErrNotReady)
	})
}

func TestHubReadyFuncIsAskedAfterTheClusterIsKnown(t *testing.T) {
	hub := newFakeHub(capiSecret("fleet", "a", "one"))
	var asked []resolver.Cluster
	ready, broken := false, errors.New("broken")
	var fails error
	r, err := resolver.ClusterAPI(hub, resolver.HubOptions{Ready: func(_ context.Context, cluster resolver.Cluster) (bool, error) {
		asked = append(asked, cluster)
		return ready, fails
	}})
	require.NoError(t, err)
	_, err = r.Resolve(t.Context(), resolver.Cluster{Namespace: "fleet", Name: "b"})
	require.ErrorIs(t, err, resolver.ErrSecretNotFound, "so that a chain goes on")
	require.Empty(t, asked)
	_, err = r.Resolve(t.Context(), clusterA)
	require.ErrorIs(t, err, resolver.ErrNotReady)
	ready = true
	require.Equal(t, "one", token(t, r, clusterA))
	fails = broken
	_, err = r.Resolve(t.Context(), clusterA)
	require.ErrorIs(t, err, broken)
}

func TestHubResolverIsSafeForConcurrentUse(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *fakeHub, r *resolver.HubResolver, _ *recorder) {
		ctx, cancel := context.WithCancel(t.Context())
		var readers sync.WaitGroup
		for range 8 {
			readers.Go(func() {
				for ctx.Err() == nil {
					access, err := r.Resolve(ctx, clusterA)
					if err == nil {
						clear(access.Config().NextProtos)
						_ = access.String()
					}
					_, _ = r.Clusters(ctx)
					time.Sleep(time.Millisecond)
				}
			})
			readers.Go(func() {
				for ctx.Err() == nil {
					short, stop := context.WithTimeout(ctx, 3*time.Millisecond)
					_ = r.Notify(short, func(cluster resolver.Cluster) { _, _ = r.Resolve(ctx, cluster) })
					stop()
				}
			})
		}
		for i := range 50 {
			require.NoError(t, hub.Update(ctx, capiSecret("fleet", "a", fmt.Sprint("t", i))))
			time.Sleep(time.Millisecond)
		}
		cancel()
		readers.Wait()
		require.Equal(t, "t49", token(t, r, clusterA))
	})
}
