// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/examples/internal/storytest"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) {
	storytest.Program(main)
	testenv.Main(m, testenv.VerifyNoLeaks())
}

// The second process reaches the servers in memory, too.
func TestTheStoryIsToldInMemoryWithoutServers(t *testing.T) {
	t.Parallel()
	storytest.TellInMemory(t).Order(
		"what they do not show: etcd", "ok: the sites of both clusters are reconciled", "ok: all pages are red",
		"ok: its owner is reconciled", "ok: all pages are blue-9",
		"ok: ten changes did not lead to ten reconciles of each site",
		"ok: all sites are reconciled", "ok: the process waited for it", "ok: the process canceled it after a bound",
		"17 expectations, all met", "the clusters are gone",
	)
}

// runner is a manager that runs one controller.
type runner struct{ *fleettest.Manager }

// Start implements manager.Manager.
func (r runner) Start(ctx context.Context) error { return r.Added[0].Start(ctx) }

// running is an operator that runs on a cluster with two sites and a theme.
type running struct {
	*operator

	t       *testing.T
	cluster *clustercachetest.Cluster
	cancel  context.CancelFunc
	ended   chan error
	began   map[string]context.Context // of reconciles, by site; read when all is quiet

	mu         sync.Mutex // protects the field below, and began while the operator is busy
	reconciled []string   // sites
}

func run(t *testing.T) *running {
	t.Helper()
	fleet := clustercachetest.New(t, clustercachetest.Options{Kinds: []clustercachetest.Kind{{GVK: siteKind}}})
	r := &running{
		t:       t,
		cluster: fleet.Add("east", newSite("blog", ""), newSite("shop", ""), newTheme("red")),
		ended:   make(chan error, 1),
		began:   map[string]context.Context{},
	}
	var err error
	r.operator, err = newOperator(runner{fleettest.NewManager()}, fleet.ClusterCache(),
		func(ctx context.Context, site client.ObjectKey) func(error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reconciled = append(r.reconciled, site.Name)
			r.began[site.Name] = ctx
			return func(error) {}
		})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- r.run(ctx) }()
	t.Cleanup(cancel)
	require.Subset(t, r.take(), []string{"blog", "shop"})

	return r
}

// take returns the sites that were reconciled since the last call, sorted, once
// everything has settled.
func (r *running) take() []string {
	r.t.Helper()
	time.Sleep(3 * debounce)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	sites := slices.Sorted(slices.Values(r.reconciled))
	r.reconciled = nil
	return sites
}

func (r *running) page(site string) map[string]string {
	r.t.Helper()
	page := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: demoNamespace, Name: site + "-page"}
	require.NoError(r.t, r.cluster.Client().Get(r.t.Context(), key, page))
	return page.Data
}

func (r *running) request(site string) controller.Request {
	return controller.Request{
		Cluster:   r.cluster.Key(),
		GVK:       siteKind,
		ObjectKey: client.ObjectKey{Namespace: demoNamespace, Name: site},
	}
}

func TestPagesThatAreOwnedAreRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		require.Equal(t, map[string]string{"title": "blog", "color": "red"}, r.page("blog"))
		page := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: demoNamespace, Name: "blog-page"}}
		require.NoError(t, r.cluster.Client().Delete(t.Context(), page))
		require.Equal(t, []string{"blog", "blog"}, r.take(), "the deletion, and then the new page")
		require.Equal(t, map[string]string{"title": "blog", "color": "red"}, r.page("blog"))
	})
}

func TestBurstOfThemesIsOneReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		for i := range 10 {
			require.NoError(t, r.cluster.Client().Update(t.Context(), newTheme(fmt.Sprint(i))))
			time.Sleep(debounce / 10)
		}
		synctest.Wait()
		r.mu.Lock()
		require.Empty(t, r.reconciled, "the burst is not over")
		r.mu.Unlock()
		require.Equal(t, []string{"blog", "blog", "shop", "shop"}, r.take(), "the theme, and then the new page")
		require.Equal(t, "9", r.page("shop")["color"])
	})
}

func TestTriggersReconcileOneAndAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.sites.Trigger(r.request("shop"))
		require.Equal(t, []string{"shop"}, r.take())
		r.sites.TriggerAll()
		require.Equal(t, []string{"blog", "shop"}, r.take())
	})
}

// What is under way at the end finishes, and nothing else begins.
func TestEndWaitsForReconcilesUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		require.NoError(t, r.cluster.Client().Create(t.Context(), newSite("slow", "3s")))
		require.Equal(t, []string{"slow"}, r.take())
		begin := time.Now()
		r.cancel()
		synctest.Wait()
		require.NoError(t, r.cluster.Client().Create(t.Context(), newSite("late", "")))
		require.NoError(t, <-r.ended)
		require.Equal(t, 3*time.Second-3*debounce, time.Since(begin))
		require.Equal(t, "slow", r.page("slow")["title"])
		require.Empty(t, r.take(), "nothing begins any more")
	})
}

func TestEndCancelsReconcilesAfterABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		require.NoError(t, r.cluster.Client().Create(t.Context(), newSite("slow", "1h")))
		require.Equal(t, []string{"slow"}, r.take())
		begin := time.Now()
		r.cancel()
		time.Sleep(drainTimeout - 1)
		require.NoError(t, r.began["slow"].Err())
		require.ErrorIs(t, <-r.ended, errCanceled)
		require.Equal(t, drainTimeout, time.Since(begin))
		require.ErrorIs(t, r.began["slow"].Err(), context.Canceled)
	})
}
