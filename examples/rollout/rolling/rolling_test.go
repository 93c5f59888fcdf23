// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package rolling

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/examples/rollout/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	web     = client.ObjectKey{Namespace: "fleet", Name: "web"}
	appKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "App"}
)

// rig is a hub with a Rollout, and remote clusters.
type rig struct {
	t          *testing.T
	fleet      *clustercachetest.Fleet
	hub        *clustercachetest.Cluster
	reconciler *Reconciler
}

func wave(name string, clusters ...string) api.Wave { return api.Wave{Name: name, Clusters: clusters} }

// newRig returns a rig with a Reconciler that the test calls.
func newRig(t *testing.T, waves ...api.Wave) *rig {
	t.Helper()
	r := newHub(t, waves...)
	r.reconciler = &Reconciler{Hub: r.hub.Client(), Clusters: r.fleet.ClusterCache()}
	return r
}

// newHub returns a rig without a Reconciler.
func newHub(t *testing.T, waves ...api.Wave) *rig {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, api.AddToScheme(scheme))
	f := clustercachetest.New(t, clustercachetest.Options{
		Scheme: scheme,
		Kinds:  []clustercachetest.Kind{{GVK: appKind}},
	})
	rollout := &api.Rollout{
		ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name},
		Spec:       api.RolloutSpec{Module: "web", Waves: waves},
	}
	return &rig{t: t, fleet: f, hub: f.Add("", moduleOf(t, "v1"), rollout)}
}

func (r *rig) add(name string) *clustercachetest.Cluster {
	return r.fleet.Add("fleet/"+name, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "apps"}})
}

// moduleOf returns a Module with a ConfigMap and an App.
func moduleOf(t *testing.T, version string) *api.Module {
	t.Helper()
	m := &api.Module{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "web"}}
	m.Spec.Version = version
	for _, manifest := range []map[string]any{
		{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"version": version}},
		{"apiVersion": "example.com/v1", "kind": "App", "spec": map[string]any{"version": version}},
	} {
		manifest["metadata"] = map[string]any{"namespace": "apps", "name": "web"}
		raw, err := json.Marshal(manifest)
		require.NoError(t, err)
		m.Spec.Manifests = append(m.Spec.Manifests, runtime.RawExtension{Raw: raw})
	}
	return m
}

func (r *rig) release(version string) {
	r.t.Helper()
	m := &api.Module{}
	require.NoError(r.t, r.hub.Client().Get(r.t.Context(), web, m))
	m.Spec = moduleOf(r.t, version).Spec
	require.NoError(r.t, r.hub.Client().Update(r.t.Context(), m))
}

// run reconciles until the status no longer changes, with caches that are up to
// date, and returns the phase and the overview of the clusters.
func (r *rig) run() string {
	r.t.Helper()
	status := ""
	for {
		r.fleet.WaitSynced()
		_, err := r.reconciler.Reconcile(r.t.Context(), reconcile.Request{NamespacedName: web})
		require.NoError(r.t, err)
		now := overview(r.status())
		if now == status {
			return now
		}
		status = now
	}
}

func (r *rig) status() api.RolloutStatus {
	r.t.Helper()
	rollout := &api.Rollout{}
	require.NoError(r.t, r.hub.Client().Get(r.t.Context(), web, rollout))
	return rollout.Status
}

func overview(s api.RolloutStatus) string {
	text := string(s.Phase) + ":"
	for _, c := range s.Clusters {
		text += strings.TrimRight(fmt.Sprintf(" %s %s %s", c.Name, c.State, c.Version), " ")
	}
	return text
}

// report sets the condition Ready of the App in a cluster, or another one.
func (r *rig) report(c *clustercachetest.Cluster, condition, status string) {
	r.t.Helper()
	app := &unstructured.Unstructured{}
	app.SetGroupVersionKind(appKind)
	key := client.ObjectKey{Namespace: "apps", Name: "web"}
	require.NoError(r.t, c.Client().Get(r.t.Context(), key, app))
	app.Object["status"] = map[string]any{
		"observedGeneration": app.GetGeneration(),
		"conditions": []any{map[string]any{
			"type": condition, "status": status, "reason": "Because", "message": "of the test",
		}},
	}
	require.NoError(r.t, c.Client().Status().Update(r.t.Context(), app))
}

func writes(c *clustercachetest.Cluster) int { return len(c.Requests(clustercachetest.Write())) }

func TestAWaveBeginsWhenTheOneBeforeIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, wave("first", "a"), wave("rest", "b"))
		a, b := r.add("a"), r.add("b")
		require.Equal(t, "Complete: a Ready v1 b Ready v1", r.run())
		before := writes(b)
		r.report(a, "Ready", "False")
		r.release("v2")
		require.Equal(t, "Progressing: a Progressing v2 b Waiting v1", r.run())
		require.Equal(t, "wave first waits for a", r.status().Message)
		require.Equal(t, "App web: its controller has not seen it", r.status().Clusters[0].Message)
		r.report(a, "Ready", "False")
		require.Equal(t, "Progressing: a Progressing v2 b Waiting v1", r.run())
		require.Equal(t, "App web: Because: of the test", r.status().Clusters[0].Message)
		require.Equal(t, before, writes(b))

		r.report(a, "Ready", "True")
		require.Equal(t, "Complete: a Ready v2 b Ready v2", r.run())
	})
}

func TestAWaveThatFailsStopsTheRolloutUntilItIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, wave("first", "a", "b"), wave("rest", "c"))
		a, _, c := r.add("a"), r.add("b"), r.add("c")
		require.Equal(t, "Complete: a Ready v1 b Ready v1 c Ready v1", r.run())
		before := writes(c)

		r.report(a, "Failed", "True")
		r.release("v2")
		require.Equal(t, "Progressing: a Progressing v2 b Ready v2 c Waiting v1", r.run(), "the report is of v1")
		r.report(a, "Failed", "True")
		require.Equal(t, "Failed: a Failed v2 b Ready v2 c Waiting v1", r.run())
		require.Equal(t, "wave first failed in a", r.status().Message)
		require.Equal(t, before, writes(c))

		r.release("v3")
		require.Equal(t, "Progressing: a Progressing v3 b Ready v3 c Waiting v1", r.run())
		r.report(a, "Ready", "True")
		require.Equal(t, "Complete: a Ready v3 b Ready v3 c Ready v3", r.run())
	})
}

func TestAClusterJoinsWhenItIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t,
			api.Wave{Name: "first", Clusters: []string{"a", "b"}, MaxUnavailable: 1},
			wave("rest", "c"))
		r.add("a")
		c := r.add("c")
		c.Disconnect()
		require.Equal(t, "Progressing: a Ready v1 b Unavailable c Unavailable", r.run(), "one may be missing")
		require.Equal(t, "wave rest waits for c", r.status().Message)
		require.Contains(t, r.status().Clusters[1].Message, "cluster not found")
		require.Contains(t, r.status().Clusters[2].Message, "Unreachable")

		b := r.add("b")
		b.Disconnect()
		c.Connect()
		require.Equal(t, "Progressing: a Ready v1 b Unavailable c Ready v1", r.run())
		require.Equal(t, "waits for b", r.status().Message)
		b.Connect()
		require.Equal(t, "Complete: a Ready v1 b Ready v1 c Ready v1", r.run())

		r.fleet.Cluster(client.ObjectKey{Namespace: "fleet", Name: "a"}).Disconnect()
		b.Disconnect()
		require.Equal(t, "Progressing: a Unavailable b Unavailable c Waiting v1", r.run(), "two may not be missing")
	})
}

func TestWhatIsDeletedOrChangedInAClusterIsAppliedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, wave("all", "a"))
		a := r.add("a")
		require.Equal(t, "Complete: a Ready v1", r.run())
		once := writes(a)
		require.Equal(t, 2, once)
		r.run()
		require.Equal(t, once, writes(a), "nothing differs")

		colors := &corev1.ConfigMap{}
		key := client.ObjectKey{Namespace: "apps", Name: "web"}
		require.NoError(t, a.Client().Get(t.Context(), key, colors))
		colors.Data = map[string]string{"version": "mine", "more": "kept"}
		require.NoError(t, a.Client().Update(t.Context(), colors))
		r.run()
		require.NoError(t, a.Client().Get(t.Context(), key, colors))
		require.Equal(t, map[string]string{"version": "v1", "more": "kept"}, colors.Data)

		require.NoError(t, a.Client().Delete(t.Context(), colors))
		require.Equal(t, "Complete: a Ready v1", r.run())
		require.NoError(t, a.Client().Get(t.Context(), key, colors))
	})
}

func TestACrashBetweenTwoWritesLosesNothing(t *testing.T) {
	for n, interrupted := 1, true; interrupted; n++ {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, wave("first", "a"), wave("rest", "b"))
			r.add("a")
			r.add("b")
			r.fleet.WaitSynced()
			crash := r.fleet.InterruptBefore(n)
			_, err := r.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: web})
			interrupted = crash.End()
			require.Equal(t, interrupted, err != nil, err)
			require.Equal(t, "Complete: a Ready v1 b Ready v1", r.run())
		})
		require.Less(t, n, 10)
	}
}

func TestARefusalIsAFailureThatIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, wave("first", "a"), wave("rest", "b"))
		a, b := r.add("a"), r.add("b")
		heal := a.Fail(clustercachetest.Status(http.StatusForbidden), clustercachetest.Verb("patch"))
		r.fleet.WaitSynced()
		_, err := r.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: web})
		require.ErrorContains(t, err, "forbidden")
		require.Equal(t, "Failed: a Failed b Waiting", overview(r.status()))
		require.Zero(t, writes(b))
		heal()
		require.Equal(t, "Complete: a Ready v1 b Ready v1", r.run())
	})
}

func TestADeletedRolloutReleasesItsWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, wave("all", "a"))
		r.add("a")
		r.run()
		require.Len(t, r.reconciler.Clusters.Declared(ownerOf(web)), 2)
		rollout := &api.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
		require.NoError(t, r.hub.Client().Delete(t.Context(), rollout))
		_, err := r.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: web})
		require.NoError(t, err)
		require.Empty(t, r.reconciler.Clusters.Declared(ownerOf(web)))
	})
}

func TestAModuleThatCannotBeAppliedIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, wave("all", "a"))
		a := r.add("a")
		m := moduleOf(t, "v1")
		m.Spec.Manifests = append(m.Spec.Manifests, m.Spec.Manifests[0])
		r.hub.Store(m)
		require.Equal(t, "Failed:", r.run())
		require.Equal(t, "manifest 2: ConfigMap web occurs twice", r.status().Message)
		require.NoError(t, r.hub.Client().Delete(t.Context(), m))
		require.Equal(t, "Failed:", r.run())
		require.Equal(t, "there is no Module web", r.status().Message)
		require.Zero(t, writes(a))
	})
}

func TestReadinessIsThatOfTheObservedGeneration(t *testing.T) {
	deployment := func(generation, observed, updated, available int64) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"replicas": int64(2)},
			"status": map[string]any{
				"observedGeneration": observed, "replicas": int64(2),
				"updatedReplicas": updated, "availableReplicas": available,
			},
		}}
		u.SetAPIVersion("apps/v1")
		u.SetKind("Deployment")
		u.SetGeneration(generation)
		return u
	}
	for name, tc := range map[string]struct {
		object *unstructured.Unstructured
		state  api.State
		why    string
	}{
		"missing":    {nil, api.ClusterProgressing, "does not exist"},
		"not seen":   {deployment(2, 1, 2, 2), api.ClusterProgressing, "has not seen it"},
		"updating":   {deployment(2, 2, 1, 2), api.ClusterProgressing, "1 of 2 replicas are updated"},
		"starting":   {deployment(2, 2, 2, 1), api.ClusterProgressing, "1 of 2 replicas are available"},
		"available":  {deployment(2, 2, 2, 2), api.ClusterReady, ""},
		"no status":  {&unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap"}}, api.ClusterReady, ""},
		"unobserved": {deployment(1, 0, 0, 0), api.ClusterProgressing, "has not seen it"},
	} {
		t.Run(name, func(t *testing.T) {
			state, why := judge(tc.object)
			require.Equal(t, tc.state, state)
			require.Contains(t, why, tc.why)
		})
	}
}
