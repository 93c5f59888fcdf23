// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

// TestHazardChainTakesNoMissingSecretForAGoneCluster: the hub's resolver does
// not know the cluster, which proves nothing about it.
func TestHazardChainTakesNoMissingSecretForAGoneCluster(t *testing.T) {
	for name, chain := range map[string]func(resolver.Resolver) resolver.Resolver{
		"after": func(d resolver.Resolver) resolver.Resolver {
			return resolver.Chain(resolver.InCluster(), d)
		},
		"before": func(d resolver.Resolver) resolver.Resolver {
			return resolver.Chain(d, resolver.InCluster())
		},
		"nested": func(d resolver.Resolver) resolver.Resolver {
			return resolver.Chain(resolver.InCluster(), resolver.Chain(d))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
				api.Put("one", "1", nil)
				d.Set(fleettest.Key("a"), api.Config())
				o := fleettest.Silent(d)
				o.Resolver = chain(d)
				cc := fleettest.Start(t, o)
				w := fleettest.Watch(t, cc)
				require.NoError(t, w.WaitForSync(t.Context()))
				h := &fleettest.Recorder{}
				_, err := w.AddEventHandler(h)
				require.NoError(t, err)
				synctest.Wait()
				require.Equal(t, []string{"Added one"}, h.Take())

				d.Fail(fleettest.Key("a"), resolver.ErrSecretNotFound)
				time.Sleep(time.Hour)
				require.Empty(t, h.Take(), "a missing Secret deletes nothing")
				s := fleettest.Status(t, cc)
				require.Equal(t, status.PhasePending, s.Phase)
				require.Equal(t, status.ReasonNoAccess, s.Reason)
				require.ErrorIs(t, s.LastError, resolver.ErrSecretNotFound)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err = w.WaitForSync(ctx)
				require.ErrorIs(t, err, clustercache.ErrNotConnected)
				require.NotErrorIs(t, err, clustercache.ErrUnknownCluster)

				d.Fail(fleettest.Key("a"), resolver.ErrClusterNotFound)
				time.Sleep(time.Minute)
				require.Equal(t, []string{"Deleted one"}, h.Take(), "every resolver says that it does not exist")
			})
		})
	}
}

// TestHazardJoinedErrorsAreTakenForAGoneCluster: a handwritten resolver joins
// the errors of several others, one of which does not know the cluster.
func TestHazardJoinedErrorsAreTakenForAGoneCluster(t *testing.T) {
	for name, other := range map[string]error{
		"secret":    resolver.ErrSecretNotFound,
		"not ready": resolver.ErrNotReady,
		"no access": resolver.ErrNoAccess,
		"key":       resolver.ErrKeyMissing,
		"timeout":   context.DeadlineExceeded,
		"network":   syscall.ECONNREFUSED,
		"forbidden": apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "a", nil),
		"no secret": apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "a"),
		"a page": apierrors.NewGenericServerResponse(http.StatusNotFound, "get",
			schema.GroupResource{Resource: "clusters"}, "a", "", 0, true),
		"unheard": errors.New("the other hub is away"),
	} {
		for _, joined := range []error{
			errors.Join(resolver.ErrClusterNotFound, other),
			fmt.Errorf("%w; %w", other, resolver.ErrClusterNotFound),
			utilerrors.NewAggregate([]error{resolver.ErrClusterNotFound, other}),
			fmt.Errorf("hubs: %w", utilerrors.NewAggregate([]error{other, resolver.ErrClusterNotFound})),
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
					api.Put("one", "1", nil)
					d.Set(fleettest.Key("a"), api.Config())
					o := fleettest.Silent(d)
					o.Resolver = resolver.Chain(resolver.InCluster(), d)
					cc := fleettest.Start(t, o)
					w := fleettest.Watch(t, cc)
					require.NoError(t, w.WaitForSync(t.Context()))
					h := &fleettest.Recorder{}
					_, err := w.AddEventHandler(h)
					require.NoError(t, err)
					synctest.Wait()
					require.Equal(t, []string{"Added one"}, h.Take())

					d.Fail(fleettest.Key("a"), joined)
					time.Sleep(time.Duration(repeat.Times(60)) * time.Minute)
					require.Empty(t, h.Take(), "it is not known to be gone")
					require.ErrorIs(t, fleettest.Status(t, cc).LastError, other)

					d.Set(fleettest.Key("a"), api.Config())
					time.Sleep(time.Minute)
					require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
					require.Empty(t, h.Take())
				})
			})
		}
	}
}

// TestGoneIsWhatEachPartOfAnErrorSays: a resolver's error may name the object
// that it did not find.
func TestGoneIsWhatEachPartOfAnErrorSays(t *testing.T) {
	gone := resolver.ErrClusterNotFound
	for name, err := range map[string]error{
		"all hubs": utilerrors.NewAggregate(
			[]error{gone, &resolver.AccessError{Cluster: fleettest.Key("a"), Err: gone}}),
		"no object": fmt.Errorf("%w: %w", gone, apierrors.NewNotFound(schema.GroupResource{Resource: "clusters"}, "a")),
		"no file": errors.Join(gone, fmt.Errorf("read: %w",
			&fs.PathError{Op: "open", Path: "a", Err: syscall.ENOENT})),
		"own type": goneError{errors.New("looked everywhere")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
				api.Put("one", "1", nil)
				d.Set(fleettest.Key("a"), api.Config())
				cc := fleettest.Start(t, fleettest.Silent(d))
				w := fleettest.Watch(t, cc)
				require.NoError(t, w.WaitForSync(t.Context()))
				h := &fleettest.Recorder{}
				_, err2 := w.AddEventHandler(h)
				require.NoError(t, err2)
				d.Fail(fleettest.Key("a"), err)
				time.Sleep(10 * time.Minute)
				require.Equal(t, []string{"Added one", "Deleted one"}, h.Take())
			})
		})
	}
}

// goneError is a resolver's own error type for a cluster that is gone.
type goneError struct{ error }

func (e goneError) Is(target error) bool { return target == resolver.ErrClusterNotFound }

func (e goneError) Unwrap() error { return e.error }

// TestHazardGoneClusterIsNeverAskedForAgain: the resolver reports no changes,
// and a watch is held while the cluster is deleted and created again.
func TestHazardGoneClusterIsNeverAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		api.Put("one", "1", nil)
		d.Set(fleettest.Key("a"), api.Config())
		cc := fleettest.Start(t, fleettest.Silent(mute{d}))
		w := fleettest.Watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		h := &fleettest.Recorder{}
		_, err := w.AddEventHandler(h)
		require.NoError(t, err)
		d.Fail(fleettest.Key("a"), resolver.ErrClusterNotFound)
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"Added one", "Deleted one"}, h.Take())
		require.Equal(t, status.PhaseGone, fleettest.Status(t, cc).Phase)

		d.Set(fleettest.Key("a"), api.Config())
		time.Sleep(time.Minute)
		require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
		require.Equal(t, []string{"Added one"}, h.Take())
	})
}

// TestHazardChainIsAskedAsOftenAsItsMembersNeed: a member that reports no
// changes is queried every minute, whatever the others do.
func TestHazardChainIsAskedAsOftenAsItsMembersNeed(t *testing.T) {
	constant, err := resolver.Static(map[client.ObjectKey]*rest.Config{{}: {Host: "https://hub.example"}})
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		resolver func(*fleettest.Directory) resolver.Resolver
		asked    int // queries in nine minutes
	}{
		"mute": {func(d *fleettest.Directory) resolver.Resolver { return resolver.Chain(mute{d}) }, 9},
		"mute and notifying": {func(d *fleettest.Directory) resolver.Resolver {
			return resolver.Chain(mute{d}, fleettest.NewDirectory())
		}, 9},
		"in-cluster and mute": {func(d *fleettest.Directory) resolver.Resolver {
			return resolver.Chain(resolver.InCluster(), mute{d})
		}, 9},
		"notifying": {func(d *fleettest.Directory) resolver.Resolver { return resolver.Chain(d) }, 0},
		"constant and notifying": {func(d *fleettest.Directory) resolver.Resolver {
			return resolver.Chain(constant, d)
		}, 0},
		"nested, mute among them": {func(d *fleettest.Directory) resolver.Resolver {
			return resolver.Chain(d, resolver.Chain(mute{fleettest.NewDirectory()}))
		}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
				d.Set(fleettest.Key("a"), api.Config())
				o := fleettest.Silent(d)
				o.Resolver = tc.resolver(d)
				cc := fleettest.Start(t, o)
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
				time.Sleep(time.Second)
				before := d.TimesAsked(fleettest.Key("a"))
				time.Sleep(9 * time.Minute)
				require.InDelta(t, tc.asked, d.TimesAsked(fleettest.Key("a"))-before, 3)
			})
		})
	}
}

// TestHazardChainListsOnlyIfAMemberDoes: a chain of resolvers that cannot list
// must not look like an empty fleet.
func TestHazardChainListsOnlyIfAMemberDoes(t *testing.T) {
	blind := resolver.Func(func(context.Context, client.ObjectKey) (resolver.Access, error) {
		return resolver.Access{}, resolver.ErrNotReady
	})
	o := fleettest.Silent(fleettest.NewDirectory())
	o.Discover = true
	for _, r := range []resolver.Resolver{resolver.Chain(), resolver.Chain(blind),
		resolver.Chain(blind, resolver.Chain(blind))} {
		o.Resolver = r
		_, err := clustercache.New(o)
		require.ErrorContains(t, err, "Discover: needs a Resolver that lists clusters")
	}
	for _, r := range []resolver.Resolver{resolver.Chain(blind, fleettest.NewDirectory()),
		resolver.Chain(resolver.Chain(mute{fleettest.NewDirectory()}))} {
		o.Resolver = r
		_, err := clustercache.New(o)
		require.NoError(t, err)
	}
}
