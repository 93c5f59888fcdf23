// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// mute is a directory that reports no changes.
type mute struct{ d *directory }

func (m mute) Resolve(ctx context.Context, key client.ObjectKey) (clustercache.Access, error) {
	return m.d.Resolve(ctx, key)
}

func (m mute) Clusters(ctx context.Context) ([]client.ObjectKey, error) { return m.d.Clusters(ctx) }

// TestNewsWhileTheResolverIsAskedDoNotInterruptIt: the resolver may have looked
// before the change, so it is queried once more, and only that answer is used.
func TestNewsWhileTheResolverIsAskedDoNotInterruptIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, api, d := newFakeAPI(t, "uid-old"), newFakeAPI(t, "uid-a"), newDirectory()
		var answer atomic.Pointer[rest.Config]
		answer.Store(old.config())
		ends := make(chan error, 10)
		slow := resolver.Func(func(ctx context.Context, _ client.ObjectKey) (clustercache.Access, error) {
			config := answer.Load()
			select {
			case <-time.After(2 * time.Second):
			case <-ctx.Done():
			}
			ends <- ctx.Err()
			return resolver.NewAccess(config)
		})
		o := silent(d)
		o.Resolver = notifying{slow, d}
		cc := start(t, o)
		require.NoError(t, cc.Engage(key("a")))
		for range 3 {
			time.Sleep(500 * time.Millisecond)
			config := api.config()
			config.Host = "http://new.test"
			answer.Store(config)
			d.changed(key("a"))
		}
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, clustercache.PhaseReady, status(t, cc).Phase)
		require.Len(t, ends, 2)
		require.NoError(t, <-ends)
		require.NoError(t, <-ends)
		require.Zero(t, old.dialled())
		require.Equal(t, 1, api.dialled())
		time.Sleep(30 * time.Second)
		require.Empty(t, ends, "nothing is left to ask")
	})
}

// notifying is a Resolver that reports the changes of a directory.
type notifying struct {
	clustercache.Resolver

	d *directory
}

func (n notifying) Notify(ctx context.Context, changed func(client.ObjectKey)) error {
	return n.d.Notify(ctx, changed)
}

// TestNewsThatChangeNothingDoNotEndAnAttempt: resolvers report every cluster
// once when they begin to watch.
func TestNewsThatChangeNothingDoNotEndAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := newFakeAPI(t, "uid-a"), newDirectory()
		api.failWith(-1, "/readyz")
		d.set(key("a"), api.config())
		cc := start(t, silent(d))
		require.NoError(t, cc.Engage(key("a")))
		synctest.Wait()
		asked := d.timesAsked(key("a"))
		for i := range 4 {
			time.Sleep(time.Second)
			d.changed(key("a"))
			synctest.Wait()
			require.Equal(t, asked+1+i, d.timesAsked(key("a")))
		}
		require.Equal(t, 1, api.dialled())
		require.Equal(t, 1, api.count("get /readyz"))
		require.Equal(t, clustercache.PhaseConnecting, status(t, cc).Phase)
		time.Sleep(time.Second + time.Millisecond)
		synctest.Wait()
		require.Equal(t, "Timeout", status(t, cc).Reason, "the attempt has its time, and no more")
	})
}

func TestNewAddressEndsTheWaitForTheOld(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(d *directory, api *fakeAPI)
		phase  clustercache.Phase
	}{
		"moved":     {func(d *directory, api *fakeAPI) { d.set(key("a"), api.config()) }, clustercache.PhaseReady},
		"taken off": {func(d *directory, _ *fakeAPI) { d.fail(key("a"), resolver.ErrSecretNotFound) }, clustercache.PhasePending},
		"refused": {func(d *directory, _ *fakeAPI) {
			d.fail(key("a"), &resolver.RefusedError{Field: "user.exec", Reason: "is refused"})
		}, clustercache.PhaseRefused},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dead, api, d := newFakeAPI(t, "uid-a"), newFakeAPI(t, "uid-a"), newDirectory()
				dead.failWith(-1, "/")
				config := dead.config()
				config.Host = "http://dead.test"
				d.set(key("a"), config)
				cc := start(t, silent(d))
				require.NoError(t, cc.Engage(key("a")))
				time.Sleep(time.Second)
				tc.change(d, api)
				synctest.Wait()
				require.Equal(t, tc.phase, status(t, cc).Phase)
				require.Equal(t, 1, dead.dialled())
			})
		})
	}
}

func TestTroubleOfTheResolverDoesNotEndAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := newFakeAPI(t, "uid-a"), newDirectory()
		api.failWith(-1, "/readyz")
		d.set(key("a"), api.config())
		o := silent(d)
		o.ProbeTimeout = time.Minute
		cc := start(t, o)
		require.NoError(t, cc.Engage(key("a")))
		time.Sleep(time.Second)
		d.fail(key("a"), errors.New("hub does not answer"))
		synctest.Wait()
		require.Equal(t, clustercache.PhaseConnecting, status(t, cc).Phase)
		require.Equal(t, 1, api.dialled())
	})
}

func TestResolverThatTellsOfNoChangesIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := newFakeAPI(t, "uid-a"), newDirectory()
		api.put("one", "1", nil)
		d.set(key("a"), api.config())
		o := silent(d)
		o.Resolver = mute{d}
		cc := start(t, o)
		synced(t, cc, api)
		synctest.Wait()
		asked := d.timesAsked(key("a"))
		time.Sleep(10 * time.Minute)
		require.InDelta(t, asked+11, d.timesAsked(key("a")), 2)
		require.LessOrEqual(t, api.count("get /api/v1/namespaces/kube-system"), api.dialled()+10,
			"who answers is asked once for each connection and minute; the same answer of the resolver is no reason for a request")

		before := status(t, cc).Revision
		renewed := api.config()
		renewed.BearerToken = "u"
		d.set(key("a"), renewed)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NotEqual(t, before, status(t, cc).Revision)
		require.Equal(t, 1, status(t, cc).Connects)
		require.Equal(t, 1, api.count("stream /api/v1/configmaps"), "a rotated token costs no list")
	})
}

func TestResolveIntervalCanBeSwitchedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := newFakeAPI(t, "uid-a"), newDirectory()
		d.set(key("a"), api.config())
		o := silent(d)
		o.Resolver, o.ResolveInterval = mute{d}, -1
		cc := start(t, o)
		require.NoError(t, cc.Engage(key("a")))
		synctest.Wait()
		asked := d.timesAsked(key("a"))
		time.Sleep(time.Hour)
		require.Equal(t, asked, d.timesAsked(key("a")))
	})
}

// TestAnsweringResolverDoesNotHideADeadCluster: the resolver returns the same
// answer more often than the cluster is probed.
func TestAnsweringResolverDoesNotHideADeadCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := newFakeAPI(t, "uid-a"), newDirectory()
		api.put("one", "1", nil)
		d.set(key("a"), api.config())
		o := silent(d)
		o.Resolver, o.ResolveInterval = mute{d}, time.Second
		cc := start(t, o)
		synced(t, cc, api)
		api.failWith(-1, "/")
		time.Sleep(45 * time.Second)
		synctest.Wait()
		require.Equal(t, clustercache.PhaseDisconnected, status(t, cc).Phase)
	})
}

func TestClusterThatIsNotListedAnyMoreGoesWithoutNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDirectory()
		for _, name := range []string{"a", "b"} {
			d.set(key(name), newFakeAPI(t, name).config())
		}
		o := silent(d)
		o.Resolver, o.Discover = mute{d}, true
		cc := start(t, o)
		synctest.Wait()
		require.Len(t, cc.Clusters(), 2)
		require.NoError(t, cc.Engage(key("a")))
		d.forgetQuietly(key("a"), key("b"))
		time.Sleep(29 * time.Second)
		require.Equal(t, []client.ObjectKey{key("a"), key("b")}, cc.Clusters())
		time.Sleep(2 * time.Minute)
		require.Equal(t, []client.ObjectKey{key("a")}, cc.Clusters(), "who engaged it waits for its Secret, which the resolver misses")
		require.Equal(t, clustercache.PhasePending, status(t, cc).Phase)
		cc.Disengage(key("a"))
		time.Sleep(20 * time.Second)
		require.Empty(t, cc.Clusters())
	})
}

// TestClusterThatWaitsForItsSecretIsNotGone: it is listed, like one whose
// Cluster object exists.
func TestClusterThatWaitsForItsSecretIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDirectory()
		d.fail(key("a"), resolver.ErrSecretNotFound)
		o := silent(d)
		o.Discover = true
		cc := start(t, o)
		time.Sleep(time.Hour)
		require.Equal(t, clustercache.PhasePending, status(t, cc).Phase)

		d.forget(key("a"))
		time.Sleep(20 * time.Second)
		require.Empty(t, cc.Clusters())
	})
}

func TestResolversLogWithTheClustersName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := make(chan string, 100)
		o := silent(newDirectory())
		o.Logger = funcr.New(func(prefix, args string) { lines <- prefix + " " + args }, funcr.Options{})
		o.Resolver = resolver.Func(func(ctx context.Context, _ client.ObjectKey) (clustercache.Access, error) {
			log, err := logr.FromContext(ctx)
			require.NoError(t, err)
			log.Info("asked")
			return clustercache.Access{}, resolver.ErrNotReady
		})
		cc := start(t, o)
		require.NoError(t, cc.Engage(key("a")))
		synctest.Wait()
		for line := range lines {
			if strings.Contains(line, "asked") {
				require.Contains(t, line, `"cluster"="fleet/a"`)
				break
			}
		}
	})
}
