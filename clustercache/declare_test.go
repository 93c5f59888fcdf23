// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
)

func owner(name string) clustercache.Owner {
	return clustercache.Owner{
		GVK: schema.GroupVersionKind{Group: "fleet.test", Version: "v1", Kind: "Rollout"}, ObjectKey: client.ObjectKey{Namespace: "ns", Name: name},
	}
}

// target returns the target for a kind of the core group in a cluster.
func target(cluster, kind string, opts ...client.ListOption) clustercache.Target {
	return clustercache.Target{
		Cluster: key(cluster), Kind: clustercache.Kind(schema.GroupVersionKind{Version: "v1", Kind: kind}), Options: opts,
	}
}

// pathOf is the API server's path of all objects of a kind.
func pathOf(kind string) string {
	for plural, k := range fakeKinds {
		if k == kind {
			return "/api/v1/" + plural
		}
	}
	return ""
}

// fleet returns fake clusters named a, b, and so on, and a ClusterCache over
// them.
func fleet(t *testing.T, n int, edit func(*clustercache.Options)) (*clustercache.ClusterCache, []*fakeAPI) {
	t.Helper()
	d := newDirectory()
	var apis []*fakeAPI
	for i := range n {
		api := newFakeAPI(t, fmt.Sprintf("uid-%d", i))
		api.put("one", "1", nil)
		apis = append(apis, api)
		d.set(key(string(rune('a'+i))), api.config())
	}
	o := silent(d)
	if edit != nil {
		edit(&o)
	}
	return start(t, o), apis
}

func declare(t *testing.T, cc *clustercache.ClusterCache, o clustercache.Owner, targets ...clustercache.Target) clustercache.Declaration {
	t.Helper()
	d, err := cc.Declare(t.Context(), o, targets...)
	require.NoError(t, err)
	return d
}

func kinds(uses []clustercache.Use) []string {
	var out []string
	for _, u := range uses {
		out = append(out, u.Key.Cluster.Name+"/"+u.Key.GVK.Kind)
	}
	return out
}

func TestDeclareReplacesTheSetAndKeepsWhatIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleet(t, 1, nil)
		first := declare(t, cc, owner("o"), target("a", "ConfigMap"), target("a", "Secret"))
		require.Len(t, first.Added, 2)
		require.False(t, first.Synced)
		require.NoError(t, cc.WaitForSync(t.Context(), owner("o")))

		second := declare(t, cc, owner("o"), target("a", "Secret"), target("a", "Service"))
		require.Equal(t, "v1 Service in cluster fleet/a", second.Added[0].String())
		require.Equal(t, "v1 ConfigMap in cluster fleet/a", second.Removed[0].String())
		require.NoError(t, cc.WaitForSync(t.Context(), owner("o")))
		require.Equal(t, []string{"a/Secret", "a/Service"}, kinds(cc.Declared(owner("o"))))

		// Within the grace every watch stays; right after it only the unused
		// ones have ended.
		time.Sleep(29 * time.Second)
		require.Equal(t, 1, apis[0].watching(pathOf("ConfigMap")))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Zero(t, apis[0].watching(pathOf("ConfigMap")))
		for _, kind := range []string{"Secret", "Service"} {
			require.Equal(t, 1, apis[0].watching(pathOf(kind)), kind)
			require.Equal(t, 1, apis[0].count("stream "+pathOf(kind)), kind)
		}
	})
}

func TestDeclareOfTheSameSetCostsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleet(t, 2, nil)
		set := []clustercache.Target{target("a", "ConfigMap"), target("b", "ConfigMap", client.MatchingLabels{"x": "1", "y": "2"})}
		declare(t, cc, owner("o"), set...)
		require.NoError(t, cc.WaitForSync(t.Context(), owner("o")))
		before := apis[0].total() + apis[1].total()
		same := []clustercache.Target{
			{Cluster: key("b"), Kind: &corev1.ConfigMap{}, Options: []client.ListOption{client.MatchingLabelsSelector{
				Selector: labels.SelectorFromSet(labels.Set{"y": "2", "x": "1"}),
			}}},
			{Cluster: key("a"), Kind: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}},
			set[0],
		}
		for range 100 {
			d := declare(t, cc, owner("o"), same...)
			require.Empty(t, d.Added)
			require.Empty(t, d.Removed)
			require.True(t, d.Synced)
		}
		declare(t, cc, owner("another"), same...) // shares them
		require.Equal(t, before, apis[0].total()+apis[1].total())
	})
}

func TestDeclareAgainWithinTheGraceCostsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleet(t, 1, nil)
		for range 5 {
			declare(t, cc, owner("o"), target("a", "ConfigMap"))
			require.NoError(t, cc.WaitForSync(t.Context(), owner("o")))
			cc.Drop(owner("o"))
			time.Sleep(29 * time.Second)
		}
		require.Equal(t, 1, apis[0].count("stream "+pathOf("ConfigMap")))
		require.Len(t, cc.Usage().Uses, 1)
		require.NotZero(t, cc.Usage().Uses[0].UnusedSince)
	})
}

func TestDeclareNeverWaitsForAClusterThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleet(t, 2, nil)
		apis[0].failWith(-1, "/")
		begin := time.Now()
		declare(t, cc, owner("o"), target("a", "ConfigMap"), target("b", "ConfigMap"), target("c", "ConfigMap"))
		require.Zero(t, time.Since(begin))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		err := cc.WaitForSync(ctx, owner("o"))
		require.ErrorContains(t, err, "v1 ConfigMap in cluster fleet/a for fleet.test/v1 Rollout ns/o")
		require.ErrorContains(t, err, "v1 ConfigMap in cluster fleet/c for")
		require.NotContains(t, err.Error(), "fleet/b")
		declared := cc.Declared(owner("o"))
		require.Equal(t, []string{"a/ConfigMap", "b/ConfigMap", "c/ConfigMap"}, kinds(declared))
		require.Equal(t, []bool{false, true, false}, []bool{declared[0].Synced, declared[1].Synced, declared[2].Synced})
		require.ErrorIs(t, declared[0].LastError, clustercache.ErrNotConnected)

		begin = time.Now()
		declare(t, cc, owner("o"))
		cc.Drop(owner("o"))
		require.Zero(t, time.Since(begin))
	})
}

func TestBadTargetFailsAloneAndNamesItself(t *testing.T) {
	type unregistered struct{ corev1.ConfigMap }
	bad := map[string]clustercache.Target{
		"Targets[1].Kind":          {Cluster: key("a")},
		"Targets[1].Kind ":         {Cluster: key("a"), Kind: (*corev1.ConfigMap)(nil)},
		"Targets[1].Kind  ":        {Cluster: key("a"), Kind: &unregistered{}},
		"Targets[1].Kind   ":       {Cluster: key("a"), Kind: clustercache.Kind(schema.GroupVersionKind{})},
		"Targets[1].Kind    ":      {Cluster: key("a"), Kind: clustercache.Kind(schema.GroupVersionKind{Group: "../..", Version: "v1", Kind: "X"})},
		"Targets[1].Namespace":     target("a", "Secret", client.InNamespace("no/path")),
		"Targets[1].LabelSelector": target("a", "Secret", client.MatchingLabels{"a": "not a value!"}),
		"Targets[1].LabelSelector ": target("a", "Secret", client.MatchingLabelsSelector{
			Selector: labels.Nothing(),
		}),
		"Targets[1].FieldSelector": target("a", "Secret", client.MatchingFieldsSelector{Selector: fields.Nothing()}),
	}
	for field, target1 := range bad {
		t.Run(field, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, apis := fleet(t, 1, nil)
				declare(t, cc, owner("o"), target("a", "Service"))
				d, err := cc.Declare(t.Context(), owner("o"), target("a", "ConfigMap", nil), target1, target("a", "Secret"))
				te, ok := errors.AsType[*clustercache.TargetError](err)
				require.True(t, ok, err)
				require.Equal(t, owner("o"), te.Owner)
				require.Equal(t, key("a"), te.Cluster)
				require.Contains(t, field, te.Field)
				require.NotEmpty(t, te.Field)
				require.ErrorContains(t, err, "cluster fleet/a")
				require.ErrorContains(t, err, owner("o").String())
				require.Len(t, d.Added, 2)
				require.Len(t, d.Removed, 1)
				require.NoError(t, cc.WaitForSync(t.Context(), owner("o")))
				require.Zero(t, apis[0].count("stream /api/v1/namespaces/no/path/secrets"))
				require.Equal(t, []string{"a/ConfigMap", "a/Secret"}, kinds(cc.Declared(owner("o"))))
				d, err = cc.Declare(t.Context(), owner("o"), target("a", "ConfigMap", nil), target1, target("a", "Secret"))
				require.Error(t, err, "it is told each time")
				require.Empty(t, d.Added)
				require.False(t, d.Synced)
			})
		})
	}
}

func TestWaitForSyncTellsTheCauseOfEachTargetAndHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleet(t, 1, nil)
		apis[0].failWith(http.StatusForbidden, "/secrets")
		declare(t, cc, owner("o"), target("a", "ConfigMap"), target("a", "Secret"), target("a", "Absent"))
		err := cc.WaitForSync(t.Context(), owner("o"))
		joined := err.(interface{ Unwrap() []error }).Unwrap()
		require.Len(t, joined, 2)
		require.True(t, meta.IsNoMatchError(joined[0]), joined[0])
		require.ErrorContains(t, joined[0], "v1 Absent")
		require.True(t, apierrors.IsForbidden(joined[1]), joined[1])
		for _, u := range cc.Declared(owner("o")) {
			require.Equal(t, u.Key.GVK.Kind == "ConfigMap", u.Synced)
			require.Equal(t, u.Key.GVK.Kind == "ConfigMap", u.LastError == nil)
		}
		apis[0].heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, u := range cc.Declared(owner("o")) {
			require.Equal(t, u.Key.GVK.Kind != "Absent", u.Synced)
		}
		require.Empty(t, cc.Declared(owner("o"))[1].Message)
	})
}

func TestDroppedIsGoneAfterTheGraceAndSoIsAClusterThatNobodyEngaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleet(t, 2, nil)
		require.NoError(t, cc.Engage(key("b")))
		declare(t, cc, owner("o"), target("a", "ConfigMap"), target("b", "ConfigMap"))
		declare(t, cc, owner("p"), target("a", "ConfigMap"))
		require.NoError(t, cc.WaitForSync(t.Context(), owner("o")))
		cc.Drop(owner("o"))
		cc.Drop(owner("o"))
		time.Sleep(31 * time.Second)
		synctest.Wait()
		require.Equal(t, []int{1, 0}, []int{apis[0].watching(pathOf("ConfigMap")), apis[1].watching(pathOf("ConfigMap"))})
		require.True(t, cc.Declared(owner("p"))[0].Synced)
		declare(t, cc, owner("p"))
		time.Sleep(31 * time.Second)
		synctest.Wait()
		require.Zero(t, apis[0].connections())
		require.Equal(t, []client.ObjectKey{key("b")}, cc.Clusters())
		require.Empty(t, cc.Usage().Uses)
		require.Empty(t, cc.Usage().Owners)

		// It comes back as if it had never been gone.
		declare(t, cc, owner("o"), target("a", "ConfigMap"))
		require.NoError(t, cc.WaitForSync(t.Context(), owner("o")))
		require.NoError(t, get(t, cc, clustercache.CacheOnly))
	})
}

func TestDeclareBeforeStartBeginsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, "uid")
		d := newDirectory()
		d.set(key("a"), api.config())
		cc, err := clustercache.New(silent(d))
		require.NoError(t, err)
		declare(t, cc, owner("o"), target("a", "ConfigMap"))
		declare(t, cc, owner("p"), target("a", "Secret"))
		cc.Drop(owner("p"))
		_, err = cc.Sweep(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		require.Zero(t, api.total())
		run(t, cc)
		require.NoError(t, cc.WaitForSync(t.Context(), owner("o")))
	})
}

func TestDeclareAfterTheEndIsErrClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDirectory()
		cc, err := clustercache.New(silent(d))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- cc.Start(ctx) }()
		declare(t, cc, owner("o"), target("a", "ConfigMap"))
		waited := make(chan error, 1)
		go func() { waited <- cc.WaitForSync(context.Background(), owner("o")) }()
		synctest.Wait()
		cancel()
		require.NoError(t, <-done)
		require.ErrorIs(t, <-waited, clustercache.ErrClosed)
		for _, targets := range [][]clustercache.Target{nil, {target("a", "ConfigMap")}, {target("a", "ConfigMap"), target("b", "Secret")}} {
			_, err = cc.Declare(t.Context(), owner("o"), targets...)
			require.ErrorIs(t, err, clustercache.ErrClosed)
		}
		_, err = cc.Sweep(t.Context())
		require.ErrorIs(t, err, clustercache.ErrClosed)
		require.Len(t, cc.Declared(owner("o")), 1, "what is held can still be looked up")
		cc.Drop(owner("o"))
	})
}

func TestConcurrentDeclarationsOfOneOwnerTheLastWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleet(t, 1, nil)
		all := []string{"ConfigMap", "Secret", "Service", "Endpoints", "ServiceAccount"}
		var declarers sync.WaitGroup
		for i := range 20 {
			declarers.Go(func() {
				for j := range 20 {
					d, err := cc.Declare(t.Context(), owner("o"), target("a", all[i%5]), target("a", all[(i+j)%5]))
					if err != nil || len(d.Added)+len(d.Removed) > 4 {
						t.Errorf("%v %v", d, err)
					}
				}
			})
			declarers.Go(func() {
				if _, err := cc.Declare(t.Context(), owner(fmt.Sprint(i)), target("a", all[i%5])); err != nil {
					t.Error(err)
				}
			})
		}
		declarers.Wait()
		declare(t, cc, owner("o"), target("a", "Secret"))
		for i := range 20 {
			require.Equal(t, []string{"a/" + all[i%5]}, kinds(cc.Declared(owner(fmt.Sprint(i)))))
			cc.Drop(owner(fmt.Sprint(i)))
		}
		require.Equal(t, []string{"a/Secret"}, kinds(cc.Declared(owner("o"))))
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, kind := range all {
			require.Equal(t, kind == "Secret", apis[0].watching(pathOf(kind)) == 1, kind)
			require.LessOrEqual(t, apis[0].count("stream "+pathOf(kind)), 1, kind)
		}
	})
}

func TestUsageTellsWhoUsesWhat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _ := fleet(t, 1, nil)
		declare(t, cc, owner("o"), target("a", "ConfigMap"), target("a", "Secret", client.InNamespace("x"), client.MatchingLabels{"l": "1"}))
		declare(t, cc, owner("p"), target("a", "ConfigMap"))
		_, _, err := cc.WatchAndRead(t.Context(), key("a"), schema.GroupVersionKind{Version: "v1", Kind: "Service"})
		require.NoError(t, err)
		w, err := cc.Watch(t.Context(), key("a"), &corev1.ConfigMap{})
		require.NoError(t, err)
		defer w.Release()
		require.NoError(t, cc.WaitForSync(t.Context(), owner("o")))
		usage := cc.Usage()
		require.Equal(t, []string{"a/ConfigMap", "a/Secret", "a/Service"}, kinds(usage.Uses))
		require.Equal(t, []clustercache.Owner{owner("o"), owner("p")}, usage.Uses[0].Owners)
		require.Equal(t, 2, usage.Uses[0].References)
		require.Equal(t, "x", usage.Uses[1].Key.Namespace)
		require.Equal(t, "l=1", usage.Uses[1].Key.LabelSelector)
		require.Empty(t, usage.Uses[2].Owners)
		require.False(t, usage.Uses[2].LastRead.IsZero())
		require.Len(t, usage.Owners, 2)
		require.Len(t, usage.Owners[0].Uses, 2)

		text, err := json.Marshal(usage.Uses[1])
		require.NoError(t, err)
		require.JSONEq(t, `{"key":{"cluster":{"name":"a","namespace":"fleet"},"apiVersion":"v1","kind":"Secret","namespace":"x","labelSelector":"l=1"},
			"owners":[{"apiVersion":"fleet.test/v1","kind":"Rollout","namespace":"ns","name":"o"}],"references":1,"synced":true}`, string(text))
		_, err = json.Marshal(usage)
		require.NoError(t, err)
	})
}

func TestUnusableGCOptionsAreNamed(t *testing.T) {
	for field, o := range map[string]clustercache.GC{
		"GC.MinInterval": {MinInterval: -1}, "GC.MaxInterval": {MinInterval: 2, MaxInterval: 1}, "GC.Timeout": {Timeout: -1},
		"GC.Concurrency": {Concurrency: -1}, "GC.Rate": {Rate: math.NaN()},
	} {
		_, err := clustercache.New(clustercache.Options{Resolver: newDirectory(), GC: o})
		bad, ok := errors.AsType[*clustercache.OptionError](err)
		require.True(t, ok, field)
		require.Equal(t, field, bad.Field)
	}
}
