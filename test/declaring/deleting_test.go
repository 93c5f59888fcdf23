// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package declaring_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/remote"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

const (
	ownFinalizer  = "fleet.test/copied"
	slowFinalizer = "fleet.test/slow"
)

// originals is a controller of ConfigMaps of a hub, which have copies of the
// same name in a cluster. An original that is being deleted deletes its copy,
// waits for its end, and then ends itself.
type originals struct {
	t    *testing.T
	hub  client.Client
	cc   *clustercache.ClusterCache
	east *clustercachetest.Cluster
	book *fleettest.Logbook
	*loop
}

// newOriginals returns a hub and a cluster with an object and its copy. inUse
// makes GC.InUse from the hub.
func newOriginals(
	t *testing.T, inUse func(hub client.Reader) func(context.Context, clustercache.Owner) (bool, error),
) *originals {
	t.Helper()
	o := &originals{t: t, book: &fleettest.Logbook{}}
	options := clustercachetest.Options{}
	options.Cache.Logger = o.book.Logger()
	options.Cache.GC.InUse = func(ctx context.Context, owner clustercache.Owner) (bool, error) {
		return inUse(o.hub)(ctx, owner)
	}
	f := clustercachetest.New(t, options)
	original, copied := fleettest.ColoredConfigMap("one", "red"), fleettest.ColoredConfigMap("one", "red")
	original.Finalizers, copied.Finalizers = []string{ownFinalizer}, []string{slowFinalizer}
	o.hub = f.Add("hub/hub", original).Client()
	o.east = f.Add("fleet/a", copied)
	f.WaitSynced()
	o.cc = f.ClusterCache()
	o.loop = newLoop(t, o.cc, fleettest.ConfigMap, o.reconcile)
	o.request(client.ObjectKeyFromObject(original))
	require.Positive(t, o.take(time.Minute))
	require.Zero(t, o.take(time.Hour), "at rest")

	return o
}

func (o *originals) reconcile(ctx context.Context, name client.ObjectKey) error {
	owner := clustercache.Owner{GVK: fleettest.ConfigMap, ObjectKey: name}
	original, copied := &corev1.ConfigMap{}, &corev1.ConfigMap{}
	if err := o.hub.Get(ctx, name, original); err != nil {
		o.cc.Drop(owner)
		return client.IgnoreNotFound(err)
	}
	if _, err := o.cc.Declare(ctx, owner, fleettest.Target("a", "ConfigMap")); err != nil {
		return err
	}
	if original.DeletionTimestamp == nil {
		return nil
	}
	east, err := o.cc.Cluster(o.east.Key()).Client()
	if err != nil {
		return err
	}
	switch err := east.Get(ctx, name, copied); {
	case apierrors.IsNotFound(err):
		_, err := remote.RemoveFinalizer(ctx, o.hub, original, ownFinalizer)
		return err
	case err != nil || copied.DeletionTimestamp != nil:
		return err
	}
	return east.Delete(ctx, copied)
}

// delete deletes the original, and returns after the given time.
func (o *originals) delete(after time.Duration) (calls int) {
	original := fleettest.ColoredConfigMap("one", "red")
	require.NoError(o.t, o.hub.Delete(o.t.Context(), original))
	o.request(client.ObjectKeyFromObject(original))
	return o.take(after)
}

// finish lets the copy go, and returns how often the owner was called by that.
// The original has to be gone.
func (o *originals) finish() (calls int) {
	copied := fleettest.ColoredConfigMap("one", "red")
	key := client.ObjectKeyFromObject(copied)
	require.NoError(o.t, o.hub.Get(o.t.Context(), key, &corev1.ConfigMap{}), "it waits for the copy")
	require.NoError(o.t, o.east.Client().Get(o.t.Context(), key, copied))
	require.NotNil(o.t, copied.DeletionTimestamp)
	copied.Finalizers = nil
	require.NoError(o.t, o.east.Client().Update(o.t.Context(), copied))
	calls = o.take(time.Minute)
	err := o.hub.Get(o.t.Context(), key, &corev1.ConfigMap{})
	require.True(o.t, apierrors.IsNotFound(err), "the original has not ended: %v", err)

	return calls
}

// TestHazardOwnerThatWaitsInDeletionIsForgotten: an original waits for its copy,
// whose finalizer takes an hour. All that calls it is the copy.
func TestHazardOwnerThatWaitsInDeletionIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOriginals(t, clustercache.OwnerExists)
		calls := o.delete(time.Hour)
		owner := clustercache.Owner{GVK: fleettest.ConfigMap, ObjectKey: client.ObjectKey{
			Namespace: "default", Name: "one"}}
		require.Len(t, o.cc.Declared(owner), 1)
		require.Zero(t, o.cc.Usage().Owners[0].GoneSince)
		calls += o.finish()
		require.LessOrEqual(t, calls, 5)

		o.take(time.Hour) // it declares nothing any more: it is found gone
		require.Empty(t, o.cc.Declared(owner))
		require.Zero(t, o.take(time.Duration(repeat.Times(24))*time.Hour))
	})
}

// TestHazardOwnerThatExistsIsGivenUp, whatever says that it is gone: a query
// that counts an owner in deletion as gone, or one that reads a cache without
// it. The owner is called, declares again, and ends.
func TestHazardOwnerThatExistsIsGivenUp(t *testing.T) {
	for name, tc := range map[string]struct {
		wrong func(hub client.Reader, wrong *atomic.Bool) func(context.Context, clustercache.Owner) (bool, error)
		most  int
	}{
		"deletion counts as the end": {
			func(hub client.Reader, _ *atomic.Bool) func(context.Context, clustercache.Owner) (bool, error) {
				return func(ctx context.Context, owner clustercache.Owner) (bool, error) {
					obj := &corev1.ConfigMap{}
					err := hub.Get(ctx, owner.ObjectKey, obj)
					return err == nil && obj.DeletionTimestamp == nil, client.IgnoreNotFound(err)
				}
			}, 3 + 3*(1+int(20*time.Minute/(32*time.Second))), // rounds that begin in 20 minutes
		},
		"a cache lacks it for a while": {
			func(hub client.Reader, wrong *atomic.Bool) func(context.Context, clustercache.Owner) (bool, error) {
				return func(ctx context.Context, owner clustercache.Owner) (bool, error) {
					if wrong.Load() {
						return false, nil
					}
					return clustercache.OwnerExists(hub)(ctx, owner)
				}
			}, 8,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var wrong atomic.Bool
				o := newOriginals(t, func(hub client.Reader) func(context.Context, clustercache.Owner) (bool, error) {
					return tc.wrong(hub, &wrong)
				})
				wrong.Store(true)
				calls := o.delete(time.Second)
				_, err := o.cc.Sweep(t.Context())
				require.NoError(t, err)
				time.Sleep(31 * time.Second)
				synctest.Wait()
				require.Positive(t, o.book.Count("owner is gone"), "or this test proves nothing")
				wrong.Store(false)
				calls += o.take(20 * time.Minute)
				calls += o.finish()
				require.LessOrEqual(t, calls, tc.most)
			})
		})
	}
}
