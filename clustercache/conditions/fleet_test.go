// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/conditions"
)

var owner = clustercache.Owner{
	GVK:       widget.GroupKind().WithVersion("v1"),
	ObjectKey: client.ObjectKey{Namespace: "default", Name: "one"},
}

// operator keeps the conditions of one object as a reconciler would.
type operator struct {
	t      *testing.T
	fleet  *clustercachetest.Fleet
	status []metav1.Condition
	writes int
}

func (o *operator) declare(kinds ...client.Object) {
	o.t.Helper()
	var targets []clustercache.Target
	for _, kind := range kinds {
		targets = append(targets, clustercache.Target{Cluster: east, Kind: kind})
	}
	_, err := o.fleet.ClusterCache().Declare(o.t.Context(), owner, targets...)
	require.NoError(o.t, err)
}

func (o *operator) reconcile() {
	o.t.Helper()
	cc := o.fleet.ClusterCache()
	s, _ := cc.Cluster(east).Status()
	watches, _ := cc.Cluster(east).WatchStatuses()
	uses := synced(o.t, cc.Declared(owner)...)
	if statuses := synced(o.t, watches...); uses.Status == metav1.ConditionTrue {
		require.Equal(o.t, uses, statuses)
	}
	for _, c := range []metav1.Condition{ready(o.t, s), uses} {
		require.NotContains(o.t, c.Message, "token")
		require.NotContains(o.t, c.Message, "http")
		if meta.SetStatusCondition(&o.status, c) {
			o.writes++
		}
	}
}

// expect waits for a state, and then checks for an hour that it needs no
// further write.
func (o *operator) expect(cluster, watches string) {
	o.t.Helper()
	text := func(kind string) string {
		c := meta.FindStatusCondition(o.status, kind)
		return string(c.Status) + " " + c.Reason
	}
	for range 600 {
		synctest.Wait()
		o.reconcile()
		if text(conditions.TypeClusterReady) == cluster && text(conditions.TypeWatchesSynced) == watches {
			break
		}
		time.Sleep(time.Second)
	}
	require.Equal(o.t, cluster, text(conditions.TypeClusterReady))
	require.Equal(o.t, watches, text(conditions.TypeWatchesSynced))

	time.Sleep(5 * time.Minute)
	synctest.Wait()
	o.reconcile()
	before, writes := o.status, o.writes
	for range 60 {
		time.Sleep(61 * time.Second)
		synctest.Wait()
		o.reconcile()
	}
	require.Equal(o.t, before, o.status)
	require.Equal(o.t, writes, o.writes, "%v", o.status)
}

func TestConditionsFollowAClusterThroughItsFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &operator{t: t, fleet: clustercachetest.New(t, clustercachetest.Options{})}
		o.reconcile()
		require.Equal(t, "UnknownCluster", o.status[0].Reason)
		require.Equal(t, conditions.ReasonNoWatches, o.status[1].Reason)

		cluster := o.fleet.Add("fleet/east")
		cluster.Hang()
		o.declare(&corev1.ConfigMap{})
		synctest.Wait()
		o.reconcile()
		for _, c := range o.status {
			require.Equal(t, metav1.ConditionUnknown, c.Status)
			require.Equal(t, "Connecting", c.Reason)
		}
		o.expect("False Timeout", "False Timeout")

		cluster.Connect()
		o.expect("True Ready", "True Synced")
		since := o.status[0].LastTransitionTime

		cluster.Disconnect()
		o.expect("False Unreachable", "False Unreachable")
		require.True(t, since.Before(&o.status[0].LastTransitionTime))
		require.Contains(t, o.status[1].Message, "v1 ConfigMap in cluster fleet/east")
		cluster.Connect()
		o.expect("True Ready", "True Synced")

		cluster.Revoke()
		o.expect("False Unauthorized", "False NotConnected")
		cluster.Rotate()
		o.expect("True Ready", "True Synced")

		o.declare(&corev1.ConfigMap{}, clustercache.Kind(widget))
		o.expect("True Ready", "False NotServed")
		require.Equal(t, "The cluster does not serve the kind. "+
			"example.com/v1 Widget in cluster fleet/east (NotServed)", o.status[1].Message)
		cluster.Serve(clustercachetest.Kind{GVK: widget})
		o.expect("True Ready", "True Synced")

		heal := cluster.Fail(clustercachetest.Status(403), clustercachetest.Resource("configmaps"))
		o.expect("True Ready", "False Forbidden")
		heal()
		o.expect("True Ready", "True Synced")

		cluster.Remove()
		o.expect("False ClusterNotFound", "False ClusterNotFound")
	})
}
