// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardFailureIsTakenForAbsence: a reconciler ignores NotFound errors, and
// takes the object for deleted. A NotFound about something else, or from a
// proxy that does not know the path, does not mean that the object is absent.
func TestHazardFailureIsTakenForAbsence(t *testing.T) {
	noSecret := apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "a-kubeconfig")
	for name, tc := range map[string]struct {
		cause  func(api *fleettest.API, d *fleettest.Directory)
		option client.GetOption
		late   bool
		want   error
	}{
		"nothing is at the address": {
			cause: func(api *fleettest.API, _ *fleettest.Directory) { api.FailWith(http.StatusNotFound, "/") },
			want:  clustercache.ErrNotConnected,
		},
		"nothing is at the address any more": {
			cause: func(api *fleettest.API, _ *fleettest.Directory) { api.FailWith(http.StatusNotFound, "/") },
			late:  true,
			want:  clustercache.ErrNotConnected,
		},
		"a resolver of one's own found no Secret": {
			cause: func(_ *fleettest.API, d *fleettest.Directory) { d.Fail(fleettest.Key("a"), noSecret) },
			want:  clustercache.ErrNotConnected,
		},
		"the watch is not found": {
			cause: func(api *fleettest.API, _ *fleettest.Directory) {
				api.FailWith(http.StatusNotFound, "/api/v1/configmaps")
				api.Cut()
			},
			option: clustercache.CacheOnly,
			late:   true,
			want:   clustercache.ErrStale,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
				api.Put("one", "1", nil)
				d.Set(fleettest.Key("a"), api.Config())
				if !tc.late {
					tc.cause(api, d)
				}
				cc := fleettest.Start(t, fleettest.Silent(d))
				fleettest.Watch(t, cc)
				time.Sleep(time.Minute)
				if tc.late {
					tc.cause(api, d)
					time.Sleep(5 * time.Minute)
				}

				var opts []client.GetOption
				if tc.option != nil {
					opts = append(opts, tc.option)
				}
				c, err := cc.Cluster(fleettest.Key("a")).Client()
				require.NoError(t, err)
				one := client.ObjectKey{Namespace: "default", Name: "one"}
				requireNoAnswer(t, "read", cc.Cluster(fleettest.Key("a")).Reader().Get(t.Context(), one,
					&corev1.ConfigMap{},
					opts...), tc.want)
				requireNoAnswer(t, "client's read", c.Get(t.Context(), one, &corev1.ConfigMap{}, opts...), tc.want)
				if tc.option == nil {
					gone := &corev1.ConfigMap{}
					gone.Namespace, gone.Name = one.Namespace, one.Name
					requireNoAnswer(t, "delete", c.Delete(t.Context(), gone), tc.want)
				}
			})
		})
	}
}

// TestHazardNotFoundOfAGatewayIsTakenForAbsence: a 404 without the status of an
// API server comes from a gateway in between, which does not know the objects.
// A delete that ignores such a 404 was not carried out.
func TestHazardNotFoundOfAGatewayIsTakenForAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		api.Put("one", "1", nil)
		d.Set(fleettest.Key("a"), api.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		time.Sleep(time.Second)
		c, err := cc.Cluster(fleettest.Key("a")).LiveClient()
		require.NoError(t, err)
		one, none := &corev1.ConfigMap{}, &corev1.ConfigMap{}
		one.Namespace, one.Name = "default", "one"
		none.Namespace, none.Name = "default", "none"
		calls := map[string]func(o client.Object) error{
			"get": func(o client.Object) error {
				return c.Get(t.Context(), client.ObjectKeyFromObject(o), &corev1.ConfigMap{})
			},
			"reader's get": func(o client.Object) error {
				return cc.Cluster(fleettest.Key("a")).Reader().Get(t.Context(), client.ObjectKeyFromObject(o),
					&corev1.ConfigMap{})
			},
			"delete": func(o client.Object) error { return c.Delete(t.Context(), o) },
			"update": func(o client.Object) error { return c.Update(t.Context(), o) },
			"patch": func(o client.Object) error {
				return c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte("{}")))
			},
		}
		require.True(t, apierrors.IsNotFound(calls["get"](none)), "the API server's own answer")
		require.True(t, apierrors.IsNotFound(calls["reader's get"](none)))
		api.FailWith(http.StatusNotFound, "/configmaps")
		for op, call := range calls {
			requireNoAnswer(t, op, call(one.DeepCopy()), nil)
		}
		requireNoAnswer(t, "list", c.List(t.Context(), &corev1.ConfigMapList{}), nil)
	})
}

func requireNoAnswer(t *testing.T, op string, err, want error) {
	t.Helper()
	if want != nil {
		require.ErrorIs(t, err, want, op)
	}
	require.Error(t, client.IgnoreNotFound(err), "%s: %v", op, err)
	var named *clustercache.ClusterError
	require.ErrorAs(t, err, &named, op)
	require.Equal(t, fleettest.Key("a"), named.Cluster)
}
