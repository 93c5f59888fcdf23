// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
