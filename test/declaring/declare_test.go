// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package declaring_test

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
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

func TestDeclareReplacesTheSetAndKeepsWhatIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleettest.NewFleet(t, 1, nil)
		declared := make(chan struct{})
		apis[0].Set(func(*http.Request) http.HandlerFunc { <-declared; return nil })
		first := fleettest.Declare(t, cc, fleettest.Owner("o"), fleettest.Target("a", "ConfigMap"),
			fleettest.Target("a", "Secret"))
		require.Len(t, first.Added, 2)
		require.False(t, first.Synced)
		close(declared)
		require.NoError(t, cc.WaitForSync(t.Context(), fleettest.Owner("o")))

		second := fleettest.Declare(t, cc, fleettest.Owner("o"), fleettest.Target("a", "Secret"),
			fleettest.Target("a", "Service"))
		require.Equal(t, "v1 Service in cluster fleet/a", second.Added[0].String())
		require.Equal(t, "v1 ConfigMap in cluster fleet/a", second.Removed[0].String())
		require.NoError(t, cc.WaitForSync(t.Context(), fleettest.Owner("o")))
		require.Equal(t, []string{"a/Secret", "a/Service"}, fleettest.KindsOf(cc.Declared(fleettest.Owner("o"))))

		// Within the grace every watch stays; right after it only the unused
		// ones have ended.
		time.Sleep(29 * time.Second)
		require.Equal(t, 1, apis[0].Watching(fleettest.PathOf("ConfigMap")))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Zero(t, apis[0].Watching(fleettest.PathOf("ConfigMap")))
		for _, kind := range []string{"Secret", "Service"} {
			require.Equal(t, 1, apis[0].Watching(fleettest.PathOf(kind)), kind)
			require.Equal(t, 1, apis[0].Count("stream "+fleettest.PathOf(kind)), kind)
		}
	})
}

func TestDeclareOfTheSameSetCostsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleettest.NewFleet(t, 2, nil)
		set := []clustercache.Target{fleettest.Target("a", "ConfigMap"),
			fleettest.Target("b", "ConfigMap", client.MatchingLabels{"x": "1", "y": "2"})}
		fleettest.Declare(t, cc, fleettest.Owner("o"), set...)
		require.NoError(t, cc.WaitForSync(t.Context(), fleettest.Owner("o")))
		before := apis[0].Total() + apis[1].Total()
		same := []clustercache.Target{
			{Cluster: fleettest.Key(
				"b"), Kind: &corev1.ConfigMap{}, Options: []client.ListOption{client.MatchingLabelsSelector{
				Selector: labels.SelectorFromSet(labels.Set{"y": "2", "x": "1"}),
			}}},
			{Cluster: fleettest.Key("a"), Kind: &unstructured.Unstructured{
				Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}},
			set[0],
		}
		for range 100 {
			d := fleettest.Declare(t, cc, fleettest.Owner("o"), same...)
			require.Empty(t, d.Added)
			require.Empty(t, d.Removed)
			require.True(t, d.Synced)
		}
		fleettest.Declare(t, cc, fleettest.Owner("another"), same...) // shares them
		require.Equal(t, before, apis[0].Total()+apis[1].Total())
	})
}

func TestDeclareAgainWithinTheGraceCostsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleettest.NewFleet(t, 1, nil)
		for range 5 {
			fleettest.Declare(t, cc, fleettest.Owner("o"), fleettest.Target("a", "ConfigMap"))
			require.NoError(t, cc.WaitForSync(t.Context(), fleettest.Owner("o")))
			cc.Drop(fleettest.Owner("o"))
			time.Sleep(29 * time.Second)
		}
		require.Equal(t, 1, apis[0].Count("stream "+fleettest.PathOf("ConfigMap")))
		require.Len(t, cc.Usage().Uses, 1)
		require.NotZero(t, cc.Usage().Uses[0].UnusedSince)
	})
}

func TestDeclareNeverWaitsForAClusterThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleettest.NewFleet(t, 2, nil)
		apis[0].FailWith(-1, "/")
		begin := time.Now()
		fleettest.Declare(t, cc, fleettest.Owner("o"), fleettest.Target("a", "ConfigMap"),
			fleettest.Target("b", "ConfigMap"), fleettest.Target("c", "ConfigMap"))
		require.Zero(t, time.Since(begin))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		err := cc.WaitForSync(ctx, fleettest.Owner("o"))
		require.ErrorContains(t, err, "v1 ConfigMap in cluster fleet/a for fleet.test/v1 Rollout ns/o")
		require.ErrorContains(t, err, "v1 ConfigMap in cluster fleet/c for")
		require.NotContains(t, err.Error(), "fleet/b")
		declared := cc.Declared(fleettest.Owner("o"))
		require.Equal(t, []string{"a/ConfigMap", "b/ConfigMap", "c/ConfigMap"}, fleettest.KindsOf(declared))
		require.Equal(t, []bool{false, true, false}, []bool{declared[0].Synced, declared[1].Synced, declared[2].Synced})
		require.ErrorIs(t, declared[0].LastError, clustercache.ErrNotConnected)

		begin = time.Now()
		fleettest.Declare(t, cc, fleettest.Owner("o"))
		cc.Drop(fleettest.Owner("o"))
		require.Zero(t, time.Since(begin))
	})
}

func TestBadTargetFailsAloneAndNamesItself(t *testing.T) {
	type unregistered struct{ corev1.ConfigMap }
	bad := map[string]clustercache.Target{
		"Targets[1].Kind":    {Cluster: fleettest.Key("a")},
		"Targets[1].Kind ":   {Cluster: fleettest.Key("a"), Kind: (*corev1.ConfigMap)(nil)},
		"Targets[1].Kind  ":  {Cluster: fleettest.Key("a"), Kind: &unregistered{}},
		"Targets[1].Kind   ": {Cluster: fleettest.Key("a"), Kind: clustercache.Kind(schema.GroupVersionKind{})},
		"Targets[1].Kind    ": {
			Cluster: fleettest.Key("a"),
			Kind:    clustercache.Kind(schema.GroupVersionKind{Group: "../..", Version: "v1", Kind: "X"}),
		},
		"Targets[1].Namespace":     fleettest.Target("a", "Secret", client.InNamespace("no/path")),
		"Targets[1].LabelSelector": fleettest.Target("a", "Secret", client.MatchingLabels{"a": "not a value!"}),
		"Targets[1].LabelSelector ": fleettest.Target("a", "Secret", client.MatchingLabelsSelector{
			Selector: labels.Nothing(),
		}),
		"Targets[1].FieldSelector": fleettest.Target("a", "Secret",
			client.MatchingFieldsSelector{Selector: fields.Nothing()}),
	}
	for field, target1 := range bad {
		t.Run(field, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, apis := fleettest.NewFleet(t, 1, nil)
				fleettest.Declare(t, cc, fleettest.Owner("o"), fleettest.Target("a", "Service"))
				d, err := cc.Declare(t.Context(), fleettest.Owner("o"), fleettest.Target("a", "ConfigMap", nil),
					target1, fleettest.Target("a", "Secret"))
				te, ok := errors.AsType[*clustercache.TargetError](err)
				require.True(t, ok, err)
				require.Equal(t, fleettest.Owner("o"), te.Owner)
				require.Equal(t, fleettest.Key("a"), te.Cluster)
				require.Contains(t, field, te.Field)
				require.NotEmpty(t, te.Field)
				require.ErrorContains(t, err, "cluster fleet/a")
				require.ErrorContains(t, err, fleettest.Owner("o").String())
				require.Len(t, d.Added, 2)
				require.Len(t, d.Removed, 1)
				require.NoError(t, cc.WaitForSync(t.Context(), fleettest.Owner("o")))
				require.Zero(t, apis[0].Count("stream /api/v1/namespaces/no/path/secrets"))
				require.Equal(t, []string{"a/ConfigMap", "a/Secret"},
					fleettest.KindsOf(cc.Declared(fleettest.Owner("o"))))
				d, err = cc.Declare(t.Context(), fleettest.Owner("o"), fleettest.Target("a", "ConfigMap", nil), target1,
					fleettest.Target("a", "Secret"))
				require.Error(t, err, "it is told each time")
				require.Empty(t, d.Added)
				require.False(t, d.Synced)
			})
		})
	}
}

func TestWaitForSyncReturnsTheCauseOfEachTargetAndHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleettest.NewFleet(t, 1, nil)
		apis[0].FailWith(http.StatusForbidden, "/secrets")
		fleettest.Declare(t, cc, fleettest.Owner("o"), fleettest.Target("a", "ConfigMap"),
			fleettest.Target("a", "Secret"), fleettest.Target("a", "Absent"))
		err := cc.WaitForSync(t.Context(), fleettest.Owner("o"))
		joined := err.(interface{ Unwrap() []error }).Unwrap()
		require.Len(t, joined, 2)
		require.True(t, meta.IsNoMatchError(joined[0]), joined[0])
		require.ErrorContains(t, joined[0], "v1 Absent")
		require.True(t, apierrors.IsForbidden(joined[1]), joined[1])
		for _, u := range cc.Declared(fleettest.Owner("o")) {
			require.Equal(t, u.Key.GVK.Kind == "ConfigMap", u.Synced)
			require.Equal(t, u.Key.GVK.Kind == "ConfigMap", u.LastError == nil)
		}
		apis[0].Heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, u := range cc.Declared(fleettest.Owner("o")) {
			require.Equal(t, u.Key.GVK.Kind != "Absent", u.Synced)
		}
		require.Empty(t, cc.Declared(fleettest.Owner("o"))[1].Message)
	})
}

func TestDroppedIsGoneAfterTheGraceAndSoIsAClusterThatNobodyEngaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleettest.NewFleet(t, 2, nil)
		require.NoError(t, cc.Cluster(fleettest.Key("b")).Engage())
		fleettest.Declare(t, cc, fleettest.Owner("o"), fleettest.Target("a", "ConfigMap"),
			fleettest.Target("b", "ConfigMap"))
		fleettest.Declare(t, cc, fleettest.Owner("p"), fleettest.Target("a", "ConfigMap"))
		require.NoError(t, cc.WaitForSync(t.Context(), fleettest.Owner("o")))
		cc.Drop(fleettest.Owner("o"))
		cc.Drop(fleettest.Owner("o"))
		time.Sleep(31 * time.Second)
		synctest.Wait()
		require.Equal(t, []int{1, 0}, []int{apis[0].Watching(fleettest.PathOf("ConfigMap")),
			apis[1].Watching(fleettest.PathOf("ConfigMap"))})
		require.True(t, cc.Declared(fleettest.Owner("p"))[0].Synced)
		fleettest.Declare(t, cc, fleettest.Owner("p"))
		time.Sleep(31 * time.Second)
		synctest.Wait()
		require.Zero(t, apis[0].Connections())
		require.Equal(t, []client.ObjectKey{fleettest.Key("b")}, cc.Clusters())
		require.Empty(t, cc.Usage().Uses)
		require.Empty(t, cc.Usage().Owners)

		// It comes back as if it had never been gone.
		fleettest.Declare(t, cc, fleettest.Owner("o"), fleettest.Target("a", "ConfigMap"))
		require.NoError(t, cc.WaitForSync(t.Context(), fleettest.Owner("o")))
		require.NoError(t, fleettest.Get(t, cc, clustercache.CacheOnly))
	})
}

func TestDeclareBeforeStartBeginsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid")
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		cc, err := clustercache.New(fleettest.Silent(d))
		require.NoError(t, err)
		fleettest.Declare(t, cc, fleettest.Owner("o"), fleettest.Target("a", "ConfigMap"))
		fleettest.Declare(t, cc, fleettest.Owner("p"), fleettest.Target("a", "Secret"))
		cc.Drop(fleettest.Owner("p"))
		_, err = cc.Sweep(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		require.Zero(t, api.Total())
		fleettest.Run(t, cc)
		require.NoError(t, cc.WaitForSync(t.Context(), fleettest.Owner("o")))
	})
}

func TestDeclareAfterTheEndIsErrClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fleettest.NewDirectory()
		cc, err := clustercache.New(fleettest.Silent(d))
		require.NoError(t, err)
		stop := fleettest.Run(t, cc)
		fleettest.Declare(t, cc, fleettest.Owner("o"), fleettest.Target("a", "ConfigMap"))
		waited := make(chan error, 1)
		go func() { waited <- cc.WaitForSync(context.Background(), fleettest.Owner("o")) }()
		synctest.Wait()
		stop()
		require.ErrorIs(t, <-waited, clustercache.ErrClosed)
		for _, targets := range [][]clustercache.Target{nil, {fleettest.Target("a", "ConfigMap")},
			{fleettest.Target("a", "ConfigMap"), fleettest.Target("b", "Secret")}} {
			_, err = cc.Declare(t.Context(), fleettest.Owner("o"), targets...)
			require.ErrorIs(t, err, clustercache.ErrClosed)
		}
		_, err = cc.Sweep(t.Context())
		require.ErrorIs(t, err, clustercache.ErrClosed)
		require.Len(t, cc.Declared(fleettest.Owner("o")), 1, "what is held can still be looked up")
		cc.Drop(fleettest.Owner("o"))
	})
}

func TestConcurrentDeclarationsOfOneOwnerTheLastWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleettest.NewFleet(t, 1, nil)
		all := []string{"ConfigMap", "Secret", "Service", "Endpoints", "ServiceAccount"}
		var declarers sync.WaitGroup
		for i := range 20 {
			declarers.Go(func() {
				for j := range 20 {
					d, err := cc.Declare(t.Context(), fleettest.Owner("o"), fleettest.Target("a", all[i%5]),
						fleettest.Target("a", all[(i+j)%5]))
					if err != nil || len(d.Added)+len(d.Removed) > 4 {
						t.Errorf("%v %v", d, err)
					}
				}
			})
			declarers.Go(func() {
				if _, err := cc.Declare(t.Context(), fleettest.Owner(fmt.Sprint(i)),
					fleettest.Target("a", all[i%5])); err != nil {
					t.Error(err)
				}
			})
		}
		declarers.Wait()
		fleettest.Declare(t, cc, fleettest.Owner("o"), fleettest.Target("a", "Secret"))
		for i := range 20 {
			require.Equal(t, []string{"a/" + all[i%5]}, fleettest.KindsOf(cc.Declared(fleettest.Owner(fmt.Sprint(i)))))
			cc.Drop(fleettest.Owner(fmt.Sprint(i)))
		}
		require.Equal(t, []string{"a/Secret"}, fleettest.KindsOf(cc.Declared(fleettest.Owner("o"))))
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, kind := range all {
			require.Equal(t, kind == "Secret", apis[0].Watching(fleettest.PathOf(kind)) == 1, kind)
			require.LessOrEqual(t, apis[0].Count("stream "+fleettest.PathOf(kind)), 1, kind)
		}
	})
}

func TestUsageShowsWhoUsesWhat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _ := fleettest.NewFleet(t, 1, nil)
		fleettest.Declare(t, cc, fleettest.Owner("o"), fleettest.Target("a", "ConfigMap"),
			fleettest.Target("a", "Secret", client.InNamespace("x"), client.MatchingLabels{"l": "1"}))
		fleettest.Declare(t, cc, fleettest.Owner("p"), fleettest.Target("a", "ConfigMap"))
		_, _, err := cc.Cluster(fleettest.Key("a")).WatchAndRead(t.Context(),
			schema.GroupVersionKind{Version: "v1", Kind: "Service"})
		require.NoError(t, err)
		w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		defer w.Release()
		require.NoError(t, cc.WaitForSync(t.Context(), fleettest.Owner("o")))
		usage := cc.Usage()
		require.Equal(t, []string{"a/ConfigMap", "a/Secret", "a/Service"}, fleettest.KindsOf(usage.Uses))
		require.Equal(t, []clustercache.Owner{fleettest.Owner("o"), fleettest.Owner("p")}, usage.Uses[0].Owners)
		require.Equal(t, 2, usage.Uses[0].References)
		require.Equal(t, "x", usage.Uses[1].Key.Namespace)
		require.Equal(t, "l=1", usage.Uses[1].Key.LabelSelector)
		require.Empty(t, usage.Uses[2].Owners)
		require.False(t, usage.Uses[2].LastRead.IsZero())
		require.Len(t, usage.Owners, 2)
		require.Len(t, usage.Owners[0].Uses, 2)

		text, err := json.Marshal(usage.Uses[1])
		require.NoError(t, err)
		require.JSONEq(t, `{
			"key": {"cluster":{"name":"a","namespace":"fleet"},
				"apiVersion":"v1","kind":"Secret","namespace":"x","labelSelector":"l=1"},
			"owners": [{"apiVersion":"fleet.test/v1","kind":"Rollout","namespace":"ns","name":"o"}],
			"references": 1,
			"synced": true
		}`, string(text))
		_, err = json.Marshal(usage)
		require.NoError(t, err)
	})
}

func TestUnusableGCOptionsAreNamed(t *testing.T) {
	for field, o := range map[string]clustercache.GC{
		"GC.MinInterval": {MinInterval: -1}, "GC.MaxInterval": {MinInterval: 2 * time.Second, MaxInterval: time.Second},
		"GC.Timeout":     {Timeout: -1},
		"GC.Concurrency": {Concurrency: -1}, "GC.Rate": {Rate: math.NaN()},
	} {
		_, err := clustercache.New(clustercache.Options{Resolver: fleettest.NewDirectory(), GC: o})
		bad, ok := errors.AsType[*clustercache.OptionError](err)
		require.True(t, ok, field)
		require.Equal(t, field, bad.Field)
	}
}
