// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestListOfAnEarlierStateEndsNothing: what DeleteAllOf has deleted is still in
// a list of a version that the caller asks for.
func TestListOfAnEarlierStateEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLate(t, patience)
		before := strconv.Itoa(l.api.Version())
		require.NoError(t, l.c.DeleteAllOf(t.Context(), configMap(""), client.InNamespace("default"),
			client.MatchingLabels{"app": "x"}))
		earlier := &corev1.ConfigMapList{}
		require.NoError(t, l.c.List(t.Context(), earlier, client.InNamespace("default"),
			&client.ListOptions{Raw: &metav1.ListOptions{
				ResourceVersion:      before,
				ResourceVersionMatch: metav1.ResourceVersionMatchExact,
			}}))
		require.Equal(t, before, earlier.ResourceVersion)

		shown, cached := states(t, l.c)
		require.NotContains(t, shown, "ConfigMap one")
		require.False(t, cached)
	})
}

// TestHazardRetriedWriteIsRefusedBecauseItWasExecuted: a gateway loses the
// answer to a write and asks for another try, which the API server refuses.
func TestHazardRetriedWriteIsRefusedBecauseItWasExecuted(t *testing.T) {
	for name, tc := range map[string]struct {
		write func(*testing.T, client.Client) error
		isErr func(error) bool
		isGet func(error) bool
	}{
		"create": {
			write: func(t *testing.T, c client.Client) error { return c.Create(t.Context(), configMap("new")) },
			isErr: apierrors.IsAlreadyExists,
			isGet: func(err error) bool { return err == nil },
		},
		"delete": {
			write: func(t *testing.T, c client.Client) error { return c.Delete(t.Context(), configMap("one")) },
			isErr: apierrors.IsNotFound,
			isGet: apierrors.IsNotFound,
		},
		"delete all of": {
			write: func(t *testing.T, c client.Client) error {
				return c.DeleteAllOf(t.Context(), configMap(""), client.InNamespace("default"))
			},
			isErr: apierrors.IsForbidden,
			isGet: apierrors.IsNotFound,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLate(t, patience)
				var tries atomic.Int32
				l.api.Set(func(r *http.Request) http.HandlerFunc {
					if r.Method == http.MethodGet {
						return nil
					}
					again := tries.Add(1) > 1
					if again && name != "delete all of" {
						return nil
					}
					return func(w http.ResponseWriter, r *http.Request) {
						if again { // the rights were withdrawn meanwhile
							forbid(w)
							return
						}
						l.api.Fake.ServeHTTP(httptest.NewRecorder(), r)
						w.Header().Set("Retry-After", "1")
						w.WriteHeader(http.StatusServiceUnavailable)
					}
				})
				err := tc.write(t, l.c)
				require.True(t, tc.isErr(err), "%v", err)
				require.EqualValues(t, 2, tries.Load())

				object := "one"
				if name == "create" {
					object = "new"
				}
				err = l.c.Get(t.Context(), client.ObjectKeyFromObject(configMap(object)), configMap(object))
				require.True(t, tc.isGet(err), "%v", err)
			})
		})
	}
}

func forbid(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
}
