// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package guide_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/examples/guide"
)

// TestOriginalWaitsForItsCopy: the copy has a finalizer of its own, which takes
// an hour. Nothing but the copy calls the owner.
func TestOriginalWaitsForItsCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hub client.Client
		o := clustercachetest.Options{}
		o.Cache.GC.InUse = func(ctx context.Context, owner clustercache.Owner) (bool, error) {
			return clustercache.OwnerExists(hub)(ctx, owner)
		}
		fleet := clustercachetest.New(t, o)
		original, copied := configMap(), configMap()
		original.Finalizers = []string{guide.CopyFinalizer}
		copied.Finalizers = []string{"example.com/slow"}
		hub = fleet.Add("hub/hub", original).Client()
		east := fleet.Add("fleet/east", copied)
		fleet.WaitSynced()
		cc := fleet.ClusterCache()

		owner, err := clustercache.OwnerOf(original, cc.Options().Scheme)
		require.NoError(t, err)
		c := guide.Copy{Owner: owner, Cluster: east.Key(), Kind: owner.GVK, Name: settings}
		calls := 0
		calling, err := cc.SubscribeOwners(func(clustercache.OwnerEvent) {
			calls++
			obj := &corev1.ConfigMap{}
			if apierrors.IsNotFound(hub.Get(t.Context(), settings, obj)) || obj.DeletionTimestamp == nil {
				return
			}
			if err := c.End(t.Context(), hub, cc, obj); err != nil {
				t.Errorf("end: %v", err)
			}
		})
		require.NoError(t, err)
		calling.Start()
		defer calling.Stop()

		require.NoError(t, hub.Delete(t.Context(), original))
		calling.Trigger(client.ObjectKey{}, owner.GVK, owner.ObjectKey)
		time.Sleep(time.Hour)
		require.NoError(t, east.Client().Get(t.Context(), settings, copied), "it waits")
		require.NoError(t, hub.Get(t.Context(), settings, original))
		copied.Finalizers = nil
		require.NoError(t, east.Client().Update(t.Context(), copied))
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, apierrors.IsNotFound(hub.Get(t.Context(), settings, original)))
		require.Empty(t, cc.Declared(owner))
		require.LessOrEqual(t, calls, 5)
	})
}
