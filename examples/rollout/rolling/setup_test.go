// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package rolling

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/examples/rollout/api"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestEventsLeadToEachStepWithoutPolling runs the controller in a manager, and
// waits for each step.
func TestEventsLeadToEachStepWithoutPolling(t *testing.T) {
	r := newHub(t, wave("first", "a"), wave("rest", "b"))
	a := r.add("a")
	mgr, err := ctrl.NewManager(r.hub.Config(), ctrl.Options{
		Scheme:  r.hub.Client().Scheme(),
		Logger:  logr.Discard(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		// Controller names are unique in a process, and this test may run twice.
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	require.NoError(t, err)
	cc, err := Setup(mgr, clustercache.Options{
		Resolver:   r.fleet.Resolver(),
		MaxBackoff: time.Second,
	}, resolver.HubOptions{})
	require.NoError(t, err)
	fleettest.Run(t, mgr)

	r.eventually("Progressing: a Ready v1 b Unavailable")
	b := r.add("b")
	r.eventually("Complete: a Ready v1 b Ready v1")
	require.NoError(t, cc.WaitForSync(t.Context(), ownerOf(web)))
	reads := func() int {
		live, apps := clustercachetest.Verb("list", "get"), clustercachetest.Resource("apps.example.com")
		return len(a.Requests(live, apps)) + len(b.Requests(live, apps))
	}
	before := reads()
	gone := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "web"}}
	require.NoError(t, a.Client().Delete(t.Context(), gone))
	require.Eventually(t, func() bool {
		return a.Client().Get(t.Context(), client.ObjectKeyFromObject(gone), gone) == nil
	}, time.Minute, time.Millisecond)
	r.release("v2")
	r.eventually("Complete: a Ready v2 b Ready v2")
	r.report(a, "Ready", "False")
	r.eventually("Progressing: a Progressing v2 b Waiting v2")
	r.report(a, "Ready", "True")
	r.eventually("Complete: a Ready v2 b Ready v2")
	require.Equal(t, before, reads(), "what the cache has is not read again")
}

// eventually waits until the overview is the wanted one.
func (r *rig) eventually(want string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		rollout := &api.Rollout{}
		return r.hub.Client().Get(r.t.Context(), web, rollout) == nil && overview(rollout.Status) == want
	}, time.Minute, time.Millisecond, want)
}
