// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package hubs_test

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
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

var clusterA = resolver.Cluster{Namespace: "fleet", Name: "a"}

// inHub runs a test in a bubble, with a hub that has cluster a, and a resolver
// whose first reports were taken.
func inHub(t *testing.T, options resolver.HubOptions,
	test func(*testing.T, *resolvertest.Hub, *resolver.HubResolver, *resolvertest.Recorder)) {
	synctest.Test(t, func(t *testing.T) {
		hub := resolvertest.NewHub(resolvertest.ClusterAPISecret("fleet", "a", "one"))
		r, err := resolver.ClusterAPI(hub, options)
		require.NoError(t, err)
		news := resolvertest.Notify(t, r)
		require.Equal(t, []resolver.Cluster{clusterA}, news.Take(), "the first list reports what is known")
		test(t, hub, r, news)
	})
}

func TestHubChangeIsDeliveredAtOnceAndIdenticalContentIsNot(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *resolvertest.Hub, r *resolver.HubResolver,
		news *resolvertest.Recorder) {
		ctx := t.Context()
		before, err := r.Resolve(ctx, clusterA)
		require.NoError(t, err)
		require.Equal(t, "one", before.Config().BearerToken)

		start := time.Now()
		update := resolvertest.ClusterAPISecret("fleet", "a", "two")
		require.NoError(t, hub.Update(ctx, update))
		require.Equal(t, []resolver.Cluster{clusterA}, news.Take())
		require.Zero(t, time.Since(start), "no time may pass")
		after, err := r.Resolve(ctx, clusterA)
		require.NoError(t, err)
		require.Equal(t, resolver.ChangedToken, resolver.Diff(before, after))

		update.Annotations = map[string]string{"touched": "yes"}
		update.Data["value"] = append(update.Data["value"], "# a comment\n"...)
		require.NoError(t, hub.Update(ctx, update))
		require.Empty(t, news.Take(), "identical content is a no-op")

		require.NoError(t, hub.Create(ctx, resolvertest.ClusterAPISecret("fleet", "b", "one")))
		require.Equal(t, []resolver.Cluster{{Namespace: "fleet", Name: "b"}}, news.Take())

		update.Data["value"] = []byte("junk")
		require.NoError(t, hub.Update(ctx, update))
		require.Equal(t, []resolver.Cluster{clusterA}, news.Take())
		_, err = r.Resolve(ctx, clusterA)
		require.NotErrorIs(t, err, resolver.ErrNoAccess, "a broken Secret is no disappearance")
		require.EqualError(t, err,
			"cluster fleet/a: Secret fleet/a-kubeconfig: invalid kubeconfig: is not a kubeconfig")
	})
}

func TestHubDeleteAndRecreateWithinGraceIsNoDisappearance(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *resolvertest.Hub, r *resolver.HubResolver,
		news *resolvertest.Recorder) {
		ctx := t.Context()
		require.NoError(t, hub.Delete(ctx, resolvertest.ClusterAPISecret("fleet", "a", "")))
		time.Sleep(9 * time.Second)
		require.Empty(t, news.Take())
		require.Equal(t, "one", resolvertest.Token(t, r, clusterA))
		require.NoError(t, hub.Create(ctx, resolvertest.ClusterAPISecret("fleet", "a", "one")))
		time.Sleep(time.Minute)
		require.Empty(t, news.Take())

		require.NoError(t, hub.Delete(ctx, resolvertest.ClusterAPISecret("fleet", "a", "")))
		time.Sleep(10 * time.Second)
		require.Equal(t, []resolver.Cluster{clusterA}, news.Take())
		_, err := r.Resolve(ctx, clusterA)
		require.ErrorIs(t, err, resolver.ErrSecretNotFound)
		require.ErrorIs(t, err, resolver.ErrNoAccess)
		require.EqualError(t, err, "cluster fleet/a: Secret fleet/a-kubeconfig: secret not found "+
			"with the label cluster.x-k8s.io/cluster-name")
		clusters, err := r.Clusters(ctx)
		require.NoError(t, err)
		require.Empty(t, clusters)
	})
}

func TestHubLabelRemovalIsADeleteAndNegativeGraceIsNone(t *testing.T) {
	inHub(t, resolver.HubOptions{Grace: -1}, func(t *testing.T, hub *resolvertest.Hub, r *resolver.HubResolver,
		news *resolvertest.Recorder) {
		update := resolvertest.ClusterAPISecret("fleet", "a", "one")
		update.Labels = nil
		require.NoError(t, hub.Update(t.Context(), update))
		require.Equal(t, []resolver.Cluster{clusterA}, news.Take())
		_, err := r.Resolve(t.Context(), clusterA)
		require.ErrorIs(t, err, resolver.ErrSecretNotFound)
	})
}

func TestHubDownKeepsTheLastAnswer(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *resolvertest.Hub, r *resolver.HubResolver,
		news *resolvertest.Recorder) {
		hub.Down.Store(true)
		hub.BreakStreams()
		time.Sleep(time.Hour)
		require.Empty(t, news.Take())
		require.Equal(t, "one", resolvertest.Token(t, r, clusterA))
		require.Less(t, hub.Requests.Load(), int64(400), "the hub is asked rarely while it is down")
		require.NoError(t, hub.Update(t.Context(), resolvertest.ClusterAPISecret("fleet", "a", "two")))
		hub.Forget()
		hub.Down.Store(false)
		time.Sleep(31 * time.Second)
		require.Equal(t, []resolver.Cluster{clusterA}, news.Take())
		require.Equal(t, "two", resolvertest.Token(t, r, clusterA))
	})
}

func TestHubDownKeepsTheLastAnswerWithoutAWatch(t *testing.T) {
	hub := resolvertest.NewHub(resolvertest.ClusterAPISecret("fleet", "a", "one"))
	r, err := resolver.ClusterAPI(hub, resolver.HubOptions{})
	require.NoError(t, err)
	hub.Down.Store(true)
	_, err = r.Resolve(t.Context(), clusterA)
	require.ErrorIs(t, err, resolvertest.ErrHubDown)
	require.NotErrorIs(t, err, resolver.ErrNoAccess)
	_, err = r.Clusters(t.Context())
	require.ErrorIs(t, err, resolvertest.ErrHubDown)
	hub.Down.Store(false)
	require.Equal(t, "one", resolvertest.Token(t, r, clusterA))
	hub.Down.Store(true)
	require.Equal(t, "one", resolvertest.Token(t, r, clusterA))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.Resolve(ctx, clusterA)
	require.Error(t, err, "a caller who gave up gets no answer")
	hub.Down.Store(false)
	require.NoError(t, hub.Delete(t.Context(), resolvertest.ClusterAPISecret("fleet", "a", "")))
	_, err = r.Resolve(t.Context(), clusterA)
	require.ErrorIs(t, err, resolver.ErrSecretNotFound)
	hub.Down.Store(true)
	_, err = r.Resolve(t.Context(), clusterA)
	require.ErrorIs(t, err, resolvertest.ErrHubDown, "a cluster that went away does not come back")
}

// TestHazardPageOfTheHubsGatewayIsTakenForAMissingSecret checks that a 404
// without a status of an API server proves nothing about an object.
func TestHazardPageOfTheHubsGatewayIsTakenForAMissingSecret(t *testing.T) {
	hub := resolvertest.NewHub(resolvertest.ClusterAPISecret("fleet", "a", "one"))
	r, err := resolver.ClusterAPI(hub, resolver.HubOptions{})
	require.NoError(t, err)
	hub.Page.Store(true)
	_, err = r.Resolve(t.Context(), clusterA)
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	require.NotErrorIs(t, err, resolver.ErrNoAccess)
	require.NotErrorIs(t, err, resolver.ErrClusterNotFound)
	hub.Page.Store(false)
	require.Equal(t, "one", resolvertest.Token(t, r, clusterA))
	hub.Page.Store(true)
	require.Equal(t, "one", resolvertest.Token(t, r, clusterA), "the last answer stays")
}

func TestHubWatchResumesWithoutAList(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *resolvertest.Hub, _ *resolver.HubResolver,
		news *resolvertest.Recorder) {
		time.Sleep(time.Second)
		require.NoError(t, hub.Create(t.Context(), resolvertest.ClusterAPISecret("fleet", "b", "one")))
		require.Len(t, news.Take(), 1)
		hub.Selections()
		hub.BreakStreams()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{
			"list ns= labels=cluster.x-k8s.io/cluster-name fields=", // of one object, to read the version
			"watch ns= labels=cluster.x-k8s.io/cluster-name fields=",
		}, hub.Selections())
		hub.Mu.Lock()
		from := hub.From
		hub.Mu.Unlock()
		require.Equal(t, "1001", from, "the version of the last event")
		require.NoError(t, hub.Update(t.Context(), resolvertest.ClusterAPISecret("fleet", "a", "two")))
		require.Equal(t, []resolver.Cluster{clusterA}, news.Take())
	})
}

func TestHubLostOrRestoredHistoryIsListedAgain(t *testing.T) {
	for name, lose := range map[string]func(*resolvertest.Hub){
		"expired":     (*resolvertest.Hub).Forget,
		"rolled back": func(hub *resolvertest.Hub) { hub.Version.Store(500) },
	} {
		t.Run(name, func(t *testing.T) {
			inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *resolvertest.Hub, r *resolver.HubResolver,
				news *resolvertest.Recorder) {
				hub.Down.Store(true)
				hub.BreakStreams()
				synctest.Wait()
				require.NoError(t, hub.Delete(t.Context(), resolvertest.ClusterAPISecret("fleet", "a", "")))
				require.NoError(t, hub.Create(t.Context(), resolvertest.ClusterAPISecret("fleet", "b", "two")))
				lose(hub)
				hub.Down.Store(false)
				time.Sleep(time.Minute)
				require.ElementsMatch(t, []resolver.Cluster{clusterA, {Namespace: "fleet", Name: "b"}}, news.Take())
				clusters, err := r.Clusters(t.Context())
				require.NoError(t, err)
				require.Equal(t, []resolver.Cluster{{Namespace: "fleet", Name: "b"}}, clusters)
			})
		})
	}
}

func TestHubThatOnlyListsIsListed(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *resolvertest.Hub, r *resolver.HubResolver,
		news *resolvertest.Recorder) {
		hub.Mute.Store(true)
		hub.BreakStreams()
		time.Sleep(time.Minute)
		require.NoError(t, hub.Update(t.Context(), resolvertest.ClusterAPISecret("fleet", "a", "two")))
		time.Sleep(time.Minute)
		require.Equal(t, []resolver.Cluster{clusterA}, news.Take())
		require.Equal(t, "two", resolvertest.Token(t, r, clusterA))
	})
}

func TestHubStalledWatchIsReplaced(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *resolvertest.Hub, _ *resolver.HubResolver,
		_ *resolvertest.Recorder) {
		before := hub.Opened.Load()
		time.Sleep(3*time.Minute + time.Second)
		synctest.Wait()
		require.Equal(t, before+1, hub.Opened.Load())
	})
}

func TestHubAnswersFromTheWatchWithoutRequests(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *resolvertest.Hub, r *resolver.HubResolver,
		_ *resolvertest.Recorder) {
		before := hub.Requests.Load()
		require.Equal(t, "one", resolvertest.Token(t, r, clusterA))
		_, err := r.Clusters(t.Context())
		require.NoError(t, err)
		_, err = r.Resolve(t.Context(), resolver.Cluster{Namespace: "fleet", Name: "b"})
		require.ErrorIs(t, err, resolver.ErrSecretNotFound)
		require.Equal(t, before, hub.Requests.Load())
	})
}

func TestHubNeverReadsSecretsThatAreNotSelected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := resolvertest.NewHub(resolvertest.ClusterAPISecret("fleet", "a", "one"))
		mine, err := labels.Parse("mine=yes")
		require.NoError(t, err)
		r, err := resolver.ClusterAPI(hub, resolver.HubOptions{Namespace: "fleet", Selector: mine})
		require.NoError(t, err)
		_, err = r.Clusters(t.Context())
		require.NoError(t, err)
		_, err = r.Resolve(t.Context(), clusterA)
		require.ErrorIs(t, err, resolver.ErrSecretNotFound, "the selection holds for a single read, too")
		before := hub.Requests.Load()
		_, err = r.Resolve(t.Context(), resolver.Cluster{Namespace: "other", Name: "a"})
		require.ErrorIs(t, err, resolver.ErrSecretNotFound)
		require.Equal(t, before, hub.Requests.Load(), "nor does a name lead to another namespace")
		resolvertest.Notify(t, r).Take()
		for _, asked := range hub.Selections() {
			if asked != "get ns= labels= fields=" {
				require.Contains(t, asked, "ns=fleet labels=cluster.x-k8s.io/cluster-name,mine=yes")
			}
		}
		_, err = resolver.Secrets(hub, resolver.SecretOptions{})
		require.Error(t, err, "something has to select Secrets")
	})
}

func TestHubNotifyCallsShareOneWatchAndEndByThemselves(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *resolvertest.Hub, r *resolver.HubResolver,
		first *resolvertest.Recorder) {
		second, stop := resolvertest.NotifyUntil(t, r)
		require.Equal(t, []resolver.Cluster{clusterA}, second.Take(), "a late caller is told what is known")
		require.Equal(t, int64(1), hub.Opened.Load())
		require.NoError(t, hub.Update(t.Context(), resolvertest.ClusterAPISecret("fleet", "a", "two")))
		require.Len(t, first.Take(), 1)
		require.Len(t, second.Take(), 1)
		stop()
		require.NoError(t, hub.Update(t.Context(), resolvertest.ClusterAPISecret("fleet", "a", "three")))
		require.Len(t, first.Take(), 1)
		require.Empty(t, second.Take())
	})
}

func TestHubNotifyAgainAfterTheLastOneEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := resolvertest.NewHub(resolvertest.ClusterAPISecret("fleet", "a", "one"))
		r, err := resolver.ClusterAPI(hub, resolver.HubOptions{})
		require.NoError(t, err)
		for i := range 3 {
			news, stop := resolvertest.NotifyUntil(t, r)
			require.Len(t, news.Take(), 1, i)
			stop()
			require.Zero(t, hub.Open(), "the last one stops the watch")
			require.Equal(t, "one", resolvertest.Token(t, r, clusterA))
		}
	})
}

func TestHubBlockedConsumerStopsNobody(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *resolvertest.Hub, r *resolver.HubResolver,
		news *resolvertest.Recorder) {
		ctx, cancel := context.WithCancel(t.Context())
		block, done := make(chan struct{}), make(chan struct{})
		calls := 0
		go func() {
			defer close(done)
			_ = r.Notify(ctx, func(resolver.Cluster) { calls++; <-block })
		}()
		synctest.Wait()
		for _, text := range []string{"two", "three", "four"} {
			require.NoError(t, hub.Update(ctx, resolvertest.ClusterAPISecret("fleet", "a", text)))
			require.Len(t, news.Take(), 1)
			require.Equal(t, text, resolvertest.Token(t, r, clusterA))
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
		hub := resolvertest.NewHub(resolvertest.ClusterAPISecret("fleet", "a", "one"))
		r, err := resolver.ClusterAPI(hub, resolver.HubOptions{})
		require.NoError(t, err)
		require.Equal(t, "one", resolvertest.Token(t, r, clusterA))
		require.NoError(t, hub.Delete(t.Context(), resolvertest.ClusterAPISecret("fleet", "a", "")))
		require.Equal(t, []resolver.Cluster{clusterA}, resolvertest.Notify(t, r).Take())
	})
}

// TestHubClusterWithoutItsObjectIsUnknownWhicheverWentFirst checks both orders:
// the Secret is owned by the Cluster object, or deleted before it.
func TestHubClusterWithoutItsObjectIsUnknownWhicheverWentFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		cluster := resolvertest.UnstructuredObject("cluster.x-k8s.io/v1beta2", "Cluster", "fleet", "a", nil)
		secret := resolvertest.ClusterAPISecret("fleet", "a", "one")
		hub := resolvertest.NewHub(secret, cluster)
		r, err := resolver.ClusterAPI(hub, resolver.HubOptions{ReadyObject: resolver.ClusterAPIReady("v1beta2")})
		require.NoError(t, err)
		check := func(want error) {
			t.Helper()
			_, err := r.Resolve(ctx, clusterA)
			require.ErrorIs(t, err, want)
		}
		news := resolvertest.Notify(t, r)
		require.Len(t, news.Take(), 1)
		require.NoError(t, hub.Delete(ctx, secret))
		time.Sleep(time.Hour)
		check(resolver.ErrSecretNotFound)
		require.NoError(t, hub.Delete(ctx, cluster))
		check(resolver.ErrClusterNotFound)

		other, err := resolver.ClusterAPI(hub, resolver.HubOptions{ReadyObject: resolver.ClusterAPIReady("v1beta2")})
		require.NoError(t, err)
		_, err = other.Resolve(ctx, clusterA) // by requests
		require.ErrorIs(t, err, resolver.ErrClusterNotFound)
		hub.Down.Store(true)
		check(resolver.ErrSecretNotFound)
	})
}

func TestHubReadyObjectHoldsAccessBackAndIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		cluster := resolvertest.UnstructuredObject("cluster.x-k8s.io/v1beta2", "Cluster", "fleet", "a", nil)
		hub := resolvertest.NewHub(resolvertest.ClusterAPISecret("fleet", "a", "one"),
			resolvertest.ClusterAPISecret("fleet", "b", "one"), cluster)
		r, err := resolver.ClusterAPI(hub, resolver.HubOptions{ReadyObject: resolver.ClusterAPIReady("v1beta2")})
		require.NoError(t, err)
		check := func(cluster resolver.Cluster, want error) {
			_, err := r.Resolve(ctx, cluster)
			require.ErrorIs(t, err, want)
			require.ErrorIs(t, err, resolver.ErrNoAccess)
		}
		check(clusterA, resolver.ErrNotReady)
		news := resolvertest.Notify(t, r)
		require.Len(t, news.Take(), 2)
		check(clusterA, resolver.ErrNotReady)
		check(resolver.Cluster{Namespace: "fleet", Name: "b"}, resolver.ErrClusterNotFound)

		cluster.Object["status"] = map[string]any{"initialization": map[string]any{"controlPlaneInitialized": true}}
		require.NoError(t, hub.Update(ctx, cluster))
		require.Equal(t, []resolver.Cluster{clusterA}, news.Take())
		require.Equal(t, "one", resolvertest.Token(t, r, clusterA))

		cluster.Object["status"] = map[string]any{"conditions": []any{
			map[string]any{"type": "ControlPlaneInitialized", "status": "False"}}}
		require.NoError(t, hub.Update(ctx, cluster))
		require.Equal(t, []resolver.Cluster{clusterA}, news.Take())
		check(clusterA, resolver.ErrNotReady)
	})
}

func TestHubReadyFuncIsAskedAfterTheClusterIsKnown(t *testing.T) {
	hub := resolvertest.NewHub(resolvertest.ClusterAPISecret("fleet", "a", "one"))
	var asked []resolver.Cluster
	ready, broken := false, errors.New("broken")
	var fails error
	r, err := resolver.ClusterAPI(hub,
		resolver.HubOptions{Ready: func(_ context.Context, cluster resolver.Cluster) (bool, error) {
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
	require.Equal(t, "one", resolvertest.Token(t, r, clusterA))
	fails = broken
	_, err = r.Resolve(t.Context(), clusterA)
	require.ErrorIs(t, err, broken)
}

func TestHubResolverIsSafeForConcurrentUse(t *testing.T) {
	inHub(t, resolver.HubOptions{}, func(t *testing.T, hub *resolvertest.Hub, r *resolver.HubResolver,
		_ *resolvertest.Recorder) {
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
			require.NoError(t, hub.Update(ctx, resolvertest.ClusterAPISecret("fleet", "a", fmt.Sprint("t", i))))
			time.Sleep(time.Millisecond)
		}
		cancel()
		readers.Wait()
		require.Equal(t, "t49", resolvertest.Token(t, r, clusterA))
	})
}
