// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

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

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// mute is a directory that reports no changes.
type mute struct{ d *fleettest.Directory }

func (m mute) Resolve(ctx context.Context, key client.ObjectKey) (resolver.Access, error) {
	return m.d.Resolve(ctx, key)
}

func (m mute) Clusters(ctx context.Context) ([]client.ObjectKey, error) { return m.d.Clusters(ctx) }

// TestNewsWhileTheResolverIsAskedDoNotInterruptIt: the resolver may have looked
// before the change, so it is queried once more, and only that answer is used.
func TestNewsWhileTheResolverIsAskedDoNotInterruptIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, api, d := fleettest.NewAPI(t, "uid-old"), fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		var answer atomic.Pointer[rest.Config]
		answer.Store(old.Config())
		ends := make(chan error, 10)
		slow := resolver.Func(func(ctx context.Context, _ client.ObjectKey) (resolver.Access, error) {
			config := answer.Load()
			select {
			case <-time.After(2 * time.Second):
			case <-ctx.Done():
			}
			ends <- ctx.Err()
			return resolver.NewAccess(config)
		})
		o := fleettest.Silent(d)
		o.Resolver = notifying{slow, d}
		cc := fleettest.Start(t, o)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		for range 3 {
			time.Sleep(500 * time.Millisecond)
			config := api.Config()
			config.Host = "http://new.test"
			answer.Store(config)
			d.Changed(fleettest.Key("a"))
		}
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
		require.Len(t, ends, 2)
		require.NoError(t, <-ends)
		require.NoError(t, <-ends)
		require.Zero(t, old.Dialled())
		require.Equal(t, 1, api.Dialled())
		time.Sleep(30 * time.Second)
		require.Empty(t, ends, "nothing is left to ask")
	})
}

// notifying is a Resolver that reports the changes of a directory.
type notifying struct {
	resolver.Resolver

	d *fleettest.Directory
}

func (n notifying) Notify(ctx context.Context, changed func(client.ObjectKey)) error {
	return n.d.Notify(ctx, changed)
}

// TestNewsThatChangeNothingDoNotEndAnAttempt: resolvers report every cluster
// once when they begin to watch.
func TestNewsThatChangeNothingDoNotEndAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		api.FailWith(-1, "/readyz")
		d.Set(fleettest.Key("a"), api.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		synctest.Wait()
		asked := d.TimesAsked(fleettest.Key("a"))
		for i := range 4 {
			time.Sleep(time.Second)
			d.Changed(fleettest.Key("a"))
			synctest.Wait()
			require.Equal(t, asked+1+i, d.TimesAsked(fleettest.Key("a")))
		}
		require.Equal(t, 1, api.Dialled())
		require.Equal(t, 1, api.Count("get /readyz"))
		require.Equal(t, status.PhaseConnecting, fleettest.Status(t, cc).Phase)
		time.Sleep(time.Second + time.Millisecond)
		synctest.Wait()
		require.Equal(t, "Timeout", fleettest.Status(t, cc).Reason, "the attempt has its time, and no more")
	})
}

func TestNewAddressEndsTheWaitForTheOld(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(d *fleettest.Directory, api *fleettest.API)
		phase  status.Phase
	}{
		"moved": {func(d *fleettest.Directory, api *fleettest.API) { d.Set(fleettest.Key("a"), api.Config()) },
			status.PhaseReady},
		"taken off": {func(d *fleettest.Directory, _ *fleettest.API) {
			d.Fail(fleettest.Key("a"), resolver.ErrSecretNotFound)
		}, status.PhasePending},
		"refused": {func(d *fleettest.Directory, _ *fleettest.API) {
			d.Fail(fleettest.Key("a"), &resolver.RefusedError{Field: "user.exec", Reason: "is refused"})
		}, status.PhaseRefused},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dead, api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
				dead.FailWith(-1, "/")
				config := dead.Config()
				config.Host = "http://dead.test"
				d.Set(fleettest.Key("a"), config)
				cc := fleettest.Start(t, fleettest.Silent(d))
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
				time.Sleep(time.Second)
				tc.change(d, api)
				synctest.Wait()
				require.Equal(t, tc.phase, fleettest.Status(t, cc).Phase)
				require.Equal(t, 1, dead.Dialled())
			})
		})
	}
}

func TestTroubleOfTheResolverDoesNotEndAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		api.FailWith(-1, "/readyz")
		d.Set(fleettest.Key("a"), api.Config())
		o := fleettest.Silent(d)
		o.ProbeTimeout = time.Minute
		cc := fleettest.Start(t, o)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		time.Sleep(time.Second)
		d.Fail(fleettest.Key("a"), errors.New("hub does not answer"))
		synctest.Wait()
		require.Equal(t, status.PhaseConnecting, fleettest.Status(t, cc).Phase)
		require.Equal(t, 1, api.Dialled())
	})
}

func TestResolverThatTellsOfNoChangesIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		api.Put("one", "1", nil)
		d.Set(fleettest.Key("a"), api.Config())
		o := fleettest.Silent(d)
		o.Resolver = mute{d}
		cc := fleettest.Start(t, o)
		fleettest.Synced(t, cc, api)
		synctest.Wait()
		asked := d.TimesAsked(fleettest.Key("a"))
		time.Sleep(10 * time.Minute)
		require.InDelta(t, asked+11, d.TimesAsked(fleettest.Key("a")), 2)
		require.LessOrEqual(t, api.Count("get /api/v1/namespaces/kube-system"), api.Dialled()+10,
			"who answers is asked once for each connection and minute; the same answer of the resolver is no reason "+
				"for a request")

		before := fleettest.Status(t, cc).Revision
		renewed := api.Config()
		renewed.BearerToken = "u"
		d.Set(fleettest.Key("a"), renewed)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NotEqual(t, before, fleettest.Status(t, cc).Revision)
		require.Equal(t, 1, fleettest.Status(t, cc).Connects)
		require.Equal(t, 1, api.Count("stream /api/v1/configmaps"), "a rotated token costs no list")
	})
}

func TestResolveIntervalCanBeSwitchedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		o := fleettest.Silent(d)
		o.Resolver, o.ResolveInterval = mute{d}, -1
		cc := fleettest.Start(t, o)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		synctest.Wait()
		asked := d.TimesAsked(fleettest.Key("a"))
		time.Sleep(time.Hour)
		require.Equal(t, asked, d.TimesAsked(fleettest.Key("a")))
	})
}

// TestAnsweringResolverDoesNotHideADeadCluster: the resolver returns the same
// answer more often than the cluster is probed.
func TestAnsweringResolverDoesNotHideADeadCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		api.Put("one", "1", nil)
		d.Set(fleettest.Key("a"), api.Config())
		o := fleettest.Silent(d)
		o.Resolver, o.ResolveInterval = mute{d}, time.Second
		cc := fleettest.Start(t, o)
		fleettest.Synced(t, cc, api)
		api.FailWith(-1, "/")
		time.Sleep(45 * time.Second)
		synctest.Wait()
		require.Equal(t, status.PhaseDisconnected, fleettest.Status(t, cc).Phase)
	})
}

func TestClusterThatIsNotListedAnyMoreGoesWithoutNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fleettest.NewDirectory()
		for _, name := range []string{"a", "b"} {
			d.Set(fleettest.Key(name), fleettest.NewAPI(t, name).Config())
		}
		o := fleettest.Silent(d)
		o.Resolver, o.Discover = mute{d}, true
		cc := fleettest.Start(t, o)
		synctest.Wait()
		require.Len(t, cc.Clusters(), 2)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		d.RemoveQuietly(fleettest.Key("a"), fleettest.Key("b"))
		time.Sleep(29 * time.Second)
		require.Equal(t, []client.ObjectKey{fleettest.Key("a"), fleettest.Key("b")}, cc.Clusters())
		time.Sleep(2 * time.Minute)
		require.Equal(t, []client.ObjectKey{fleettest.Key("a")}, cc.Clusters(),
			"who engaged it waits for its Secret, which the resolver misses")
		require.Equal(t, status.PhasePending, fleettest.Status(t, cc).Phase)
		cc.Cluster(fleettest.Key("a")).Disengage()
		time.Sleep(20 * time.Second)
		require.Empty(t, cc.Clusters())
	})
}

// TestClusterThatWaitsForItsSecretIsNotGone: it is listed, like one whose
// Cluster object exists.
func TestClusterThatWaitsForItsSecretIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fleettest.NewDirectory()
		d.Fail(fleettest.Key("a"), resolver.ErrSecretNotFound)
		o := fleettest.Silent(d)
		o.Discover = true
		cc := fleettest.Start(t, o)
		time.Sleep(time.Hour)
		require.Equal(t, status.PhasePending, fleettest.Status(t, cc).Phase)

		d.Remove(fleettest.Key("a"))
		time.Sleep(20 * time.Second)
		require.Empty(t, cc.Clusters())
	})
}

func TestResolversLogWithTheClustersName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := make(chan string, 100)
		o := fleettest.Silent(fleettest.NewDirectory())
		o.Logger = funcr.New(func(prefix, args string) { lines <- prefix + " " + args }, funcr.Options{})
		o.Resolver = resolver.Func(func(ctx context.Context, _ client.ObjectKey) (resolver.Access, error) {
			log, err := logr.FromContext(ctx)
			require.NoError(t, err)
			log.Info("asked")
			return resolver.Access{}, resolver.ErrNotReady
		})
		cc := fleettest.Start(t, o)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		synctest.Wait()
		for line := range lines {
			if strings.Contains(line, "asked") {
				require.Contains(t, line, `"cluster"="fleet/a"`)
				break
			}
		}
	})
}
