// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restarting_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// A thousand take about half an hour on a machine of two cores:
//
//	go test ./test/restarting -run Killed -restarting.kills 1000 -timeout 1h
var kills = flag.Int("restarting.kills", 10, "how many operators TestRealKilledOperatorLeavesACurrentState kills")

// TestRealKilledOperatorLeavesACurrentState kills operators of three clusters
// and five kinds, at any time, while and after objects change. The judge asks
// the servers: what the next operator first shows has to be what they have.
func TestRealKilledOperatorLeavesACurrentState(t *testing.T) {
	clusters := testenv.Start(t, 3)
	path := filepath.Join(t.TempDir(), "cache.db")
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		disturb(t, clusters, r)
	}
	restored, judged, silent := 0, 0, 0
	i := 0
	// On a busy machine many are killed before they have written anything.
	for ; i < *kills || restored <= *kills/2; i++ {
		require.Less(t, i, 5**kills, "%d of %d judged had begun with kept states", restored, judged)
		for range r.IntN(10) {
			disturb(t, clusters, r)
		}
		v := startVictim(t, clusters, path)
		if r.IntN(8) == 0 { // maybe before it has synced
			time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
			v.kill()
			silent++
			continue
		}
		shown, ok := v.next()
		require.True(t, ok, "process %d: %s", i, v.complaints.String())
		require.Equal(t, live(t, clusters), shown.Objects, "process %d, of whose informers %v were restored", i,
			shown.Restores)
		judged++
		if shown.Restores > 0 {
			restored++
		}
		alive := time.Now()
		for until := time.Duration(r.IntN(1500)) * time.Millisecond; time.Since(alive) < until; {
			disturb(t, clusters, r)
		}
		v.kill()
	}
	t.Logf("%d killed, %d of them at their start; of %d judged, %d had begun with kept states, and 0 were wrong",
		i, silent, judged, restored)
}

// disturb makes one change in one of the clusters.
func disturb(t *testing.T, clusters []*testenv.Cluster, r *rand.Rand) {
	t.Helper()
	c := clusters[r.IntN(len(clusters))].Client()
	o := victimObject(r)
	if r.IntN(3) == 0 {
		require.NoError(t, client.IgnoreNotFound(c.Delete(t.Context(), o)))
		return
	}
	err := c.Create(t.Context(), o)
	if apierrors.IsAlreadyExists(err) {
		value := fmt.Appendf(nil, `{"metadata":{"labels":{"value":"%d"}}}`, r.IntN(1000))
		err = c.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", value))
	}
	require.NoError(t, err)
}

// victimObject is one of some objects of each kind.
func victimObject(r *rand.Rand) client.Object {
	meta := fleettest.ObjectMeta(fmt.Sprint("o", r.IntN(20)))
	switch r.IntN(5) {
	case 0:
		return &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": "b"}}
	case 1:
		return &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"a": []byte("b")}}
	case 2:
		return &corev1.ServiceAccount{ObjectMeta: meta}
	case 3:
		return &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Ports:     []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		}}
	}
	labels := map[string]string{"app": "a"}
	return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
		},
	}}
}

// TestRealRollingUpdate: two processes at a time, of which only one has the
// file. The second one keeps its caches once the first one has ended, even if
// it is killed later.
func TestRealRollingUpdate(t *testing.T) {
	t.Parallel()
	clusters := testenv.Start(t, 1)
	path := filepath.Join(t.TempDir(), "cache.db")
	r := rand.New(rand.NewPCG(3, 4))
	judge := func(v *victim) victimReport {
		shown, ok := v.next()
		require.True(t, ok, v.complaints.String())
		require.Equal(t, live(t, clusters), shown.Objects)
		return shown
	}
	for range 50 {
		disturb(t, clusters, r)
	}
	before := startVictim(t, clusters, path)
	judge(before)
	for i := range 3 {
		next := startVictim(t, clusters, path)
		require.Zero(t, judge(next).Restores, "the one before has the file")
		before.end()
		disturb(t, clusters, r)
		require.Eventually(t, func() bool { return next.ask().Written > 0 }, fleettest.Patience, 100*time.Millisecond)
		require.Zero(t, next.ask().Restores)
		before = next
		t.Logf("update %d: the file was taken up", i)
	}
	before.kill()
	disturb(t, clusters, r)
	last := startVictim(t, clusters, path)
	shown := judge(last)
	require.InDelta(t, len(victimKinds), shown.Restores, 0)
	require.Zero(t, shown.Lists)
	last.end()
}
