// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestErrorsOfWritesNameTheClusterAndTheKind: for every verb, and
// apimachinery's functions still recognize the errors.
func TestErrorsOfWritesNameTheClusterAndTheKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))
		cached, err := cc.Cluster(fleettest.Key("a")).Client()
		require.NoError(t, err)
		live, err := cc.Cluster(fleettest.Key("a")).LiveClient()
		require.NoError(t, err)
		api.FailWith(http.StatusForbidden, "/api/v1/namespaces/default")
		ctx, one := t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one", ResourceVersion: "1"}}
		merge := client.RawPatch("application/merge-patch+json", []byte("{}"))
		for _, c := range []client.Client{cached, live} {
			for op, err := range map[string]error{
				"create": c.Create(ctx,
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}),
				"update":        c.Update(ctx, one),
				"patch":         c.Patch(ctx, one, merge),
				"delete":        c.Delete(ctx, one),
				"delete all of": c.DeleteAllOf(ctx, one, client.InNamespace("default")),
				"apply":         c.Apply(ctx, applycorev1.ConfigMap("one", "default"), client.FieldOwner("f")),
				"apply status of": c.Status().Apply(ctx, applycorev1.ConfigMap("one", "default"),
					client.FieldOwner("f")),
				"update status of": c.Status().Update(ctx, one),
				"patch status of":  c.Status().Patch(ctx, one, merge),
				"create token of":  c.SubResource("token").Create(ctx, one, one.DeepCopy()),
			} {
				named, ok := errors.AsType[*clustercache.ClusterError](err)
				require.True(t, ok, "%s: %v", op, err)
				require.Equal(t, fleettest.Key("a"), named.Cluster)
				require.Equal(t, op, named.Op)
				require.Equal(t, fleettest.ConfigMap, named.GVK, op)
				require.True(t, apierrors.IsForbidden(err), "%s: %v", op, err)
			}
		}
		api.FailWith(0, "/")
		err = cached.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "nobody"}})
		require.True(t, apierrors.IsNotFound(err))
		require.NoError(t, client.IgnoreNotFound(err))
		require.Error(t, live.Create(ctx, (*corev1.ConfigMap)(nil)))
	})
}

// TestBuilderNamesClusterAndObjectInLogs: once each.
func TestBuilderNamesClusterAndObjectInLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d, book := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory(), &fleettest.Logbook{}
		api.Put("one", "1", nil)
		d.Set(fleettest.Key("a"), api.Config())
		o := fleettest.Silent(d)
		o.Discover = true
		cc := fleettest.Start(t, o)
		mgr := loggingManager{fleettest.NewManager(), book.Logger()}
		var cluster client.ObjectKey
		require.NoError(t, controller.NewControllerManagedBy(mgr, cc).For(&corev1.ConfigMap{}).
			Complete(func(client.Client) reconcile.Reconciler {
				return reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
					cluster, _ = controller.ClusterFromContext(ctx)
					ctrllog.FromContext(ctx).Info("reconciling")
					return reconcile.Result{}, nil
				})
			}))
		stop := fleettest.Run(t, mgr.Added[0])
		time.Sleep(time.Minute)
		stop()
		require.Equal(t, fleettest.Key("a"), cluster)
		require.Equal(t, 1, book.Count("reconciling"))
		require.Equal(t, 1,
			book.Count(`"controller"="configmap" "controllerGroup"="" "controllerKind"="ConfigMap" `+
				`"cluster"="fleet/a" "kind"="v1 ConfigMap" "namespace"="default" "name"="one" "reconcileID"=`))
		_, ok := controller.ClusterFromContext(t.Context())
		require.False(t, ok)
	})
}

// loggingManager is a manager with a logger.
type loggingManager struct {
	*fleettest.Manager

	log logr.Logger
}

func (m loggingManager) GetLogger() logr.Logger { return m.log }
