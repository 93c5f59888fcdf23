// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

func TestStatusShowsTheServersVersionWhereItMayBeRead(t *testing.T) {
	for name, tc := range map[string]struct {
		fail   int
		answer string
		want   string
	}{
		"read":      {answer: "v1.36.0", want: "v1.36.0"},
		"build":     {answer: "v1.34.2-eks-a1b2c3+d", want: "v1.34.2-eks-a1b2c3+d"},
		"forbidden": {fail: http.StatusForbidden},
		"hanging":   {fail: -1},
		"hostile":   {answer: "v1.36.0\x1b[2J<script>"},
		"long":      {answer: "v1.36.0-" + strings.Repeat("x", 1000)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
				api.Upgrade(tc.answer)
				if tc.fail != 0 {
					api.FailWith(tc.fail, "/version")
				}
				d.Set(fleettest.Key("a"), api.Config())
				cc := fleettest.Start(t, fleettest.Silent(d))
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
				require.NoError(t, cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))
				require.Equal(t, tc.want, fleettest.Status(t, cc).ServerVersion)
				d.Changed(fleettest.Key("a"))
				time.Sleep(time.Hour)
				// At connecting, and every five minutes with the next proof:
				// servers are upgraded in place. A server that does not answer
				// is not queried more often.
				require.InDelta(t, 12, api.Count("get /version"), 1)
			})
		})
	}
}

func TestStatusesAreSortedAndMarshalToJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := fleettest.OneCluster(t)
		fleettest.Synced(t, cc, api)
		for _, k := range []client.ObjectKey{{Name: "c"}, {}, fleettest.Key("b")} {
			d.Fail(k, resolver.ErrNotReady)
			require.NoError(t, cc.Cluster(k).Engage())
		}
		synctest.Wait()
		time.Sleep(time.Second)
		api.Put("three", "3", nil)
		synctest.Wait()
		statuses := cc.Statuses()
		var keys []client.ObjectKey
		for _, s := range statuses {
			keys = append(keys, s.Cluster)
		}
		require.Equal(t, []client.ObjectKey{{}, {Name: "c"}, fleettest.Key("a"), fleettest.Key("b")}, keys)
		require.Equal(t, time.Now(), statuses[2].LastEvent.Local())
		require.Equal(t, 3, statuses[2].Objects)

		text, err := json.Marshal(statuses)
		require.NoError(t, err)
		var decoded []map[string]any
		require.NoError(t, json.Unmarshal(text, &decoded))
		require.Equal(t, "hub", decoded[0]["cluster"])
		require.Equal(t, "fleet/a", decoded[2]["cluster"])
		require.Equal(t, "Ready", decoded[2]["phase"])
		require.Equal(t, "v1.36.0", decoded[2]["serverVersion"])
		require.InDelta(t, 3, decoded[2]["objects"], 0)
		require.NotContains(t, decoded[2], "lastError")
		require.NotContains(t, decoded[2], "credentialExpiry", "a zero time is no time")
		require.Equal(t, "cluster is not ready", decoded[3]["lastError"])
		require.NotContains(t, decoded[3], "lastLife")
	})
}

func TestWatchStatusesAreSortedAndNameWhatIsSelected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _, _ := fleettest.OneCluster(t)
		narrow, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.ConfigMap{},
			client.InNamespace("default"),
			client.MatchingLabels{"app": "x"})
		require.NoError(t, err)
		require.NoError(t, narrow.WaitForSync(t.Context()))
		require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
		unserved := &metav1.PartialObjectMetadata{}
		unserved.SetGroupVersionKind(fleettest.Owner("").GVK)
		_, err = cc.Cluster(fleettest.Key("a")).Watch(t.Context(), unserved)
		require.NoError(t, err)
		synctest.Wait()
		all, err := cc.Cluster(fleettest.Key("a")).WatchStatuses()
		require.NoError(t, err)
		require.Len(t, all, 3)
		require.Equal(t, []string{"ConfigMap", "ConfigMap", "Rollout"},
			[]string{all[0].GVK.Kind, all[1].GVK.Kind, all[2].GVK.Kind})
		require.Empty(t, all[0].Namespace)
		require.Equal(t, "default", all[1].Namespace)
		require.Equal(t, "app=x", all[1].LabelSelector)
		require.True(t, all[1].Mapped)
		require.False(t, all[2].Mapped)
		require.Error(t, all[2].LastError)

		text, err := json.Marshal(all)
		require.NoError(t, err)
		var decoded []map[string]any
		require.NoError(t, json.Unmarshal(text, &decoded))
		require.Equal(t, "v1", decoded[1]["apiVersion"])
		require.Equal(t, "fleet/a configmaps.v1 in default labels app=x",
			decoded[1]["informer"].(map[string]any)["key"])
		require.NotEmpty(t, decoded[2]["lastError"])
		require.NotContains(t, decoded[2], "informer")

		_, err = cc.Cluster(fleettest.Key("b")).WatchStatuses()
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
	})
}

func TestWaitConnectedIsWokenByStateAndReturnsWhyNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := fleettest.OneCluster(t)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))
		require.ErrorIs(t, cc.Cluster(fleettest.Key("b")).WaitConnected(t.Context()), clustercache.ErrUnknownCluster)
		fleettest.Disconnect(t, cc, api)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := cc.Cluster(fleettest.Key("a")).WaitConnected(ctx)
		require.Equal(t, time.Second, time.Since(begin))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, clustercache.ErrNotConnected)
		require.ErrorContains(t, err, "connection refused")

		woken := make(chan error, 1)
		go func() { woken <- cc.Cluster(fleettest.Key("a")).WaitConnected(context.Background()) }()
		api.Live()
		d.Changed(fleettest.Key("a"))
		synctest.Wait()
		require.NoError(t, <-woken)

		d.Fail(fleettest.Key("b"), resolver.ErrSecretNotFound)
		require.NoError(t, cc.Cluster(fleettest.Key("b")).Engage())
		go func() { woken <- cc.Cluster(fleettest.Key("b")).WaitConnected(context.Background()) }()
		synctest.Wait()
		cc.Cluster(fleettest.Key("b")).Disengage()
		synctest.Wait()
		require.ErrorIs(t, <-woken, clustercache.ErrUnknownCluster)
	})
}

func TestErrorsNameTheClusterOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := fleettest.OneCluster(t)
		w := fleettest.Watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		time.Sleep(time.Second) // a sign of life at this very moment is not stale
		api.FailWith(http.StatusInternalServerError, "/")
		errs := []error{fleettest.Get(t, cc, clustercache.MaxStaleness(1))}
		api.Heal()
		fleettest.Disconnect(t, cc, api)
		errs = append(errs, fleettest.Get(t, cc),
			cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &corev1.ConfigMapList{}))
		c, err := cc.Cluster(fleettest.Key("a")).Client()
		require.NoError(t, err)
		errs = append(errs, c.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: fleettest.ObjectMeta("one")}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		errs = append(errs, w.WaitForVersion(ctx, "1000"), cc.Cluster(fleettest.Key("a")).WaitConnected(ctx))
		d.Fail(fleettest.Key("a"), &resolver.AccessError{Cluster: fleettest.Key("a"), Err: errors.New("bad")})
		synctest.Wait()
		require.ErrorContains(t, fleettest.Status(t, cc).LastError, "bad")
		errs = append(errs, fleettest.Get(t, cc))
		for _, err := range errs {
			require.Error(t, err)
			require.Equal(t, 1, strings.Count(err.Error(), "fleet/a"), err.Error())
		}
	})
}
