// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardLiveAnswerOfNoObject: a gateway answers everything with a success,
// which client-go decodes into an empty object or list.
func TestHazardLiveAnswerOfNoObject(t *testing.T) {
	fleettest.HostileCluster(t, nil, func(t *testing.T, h *fleettest.API, cc *clustercache.ClusterCache) {
		live, err := cc.Cluster(fleettest.Key("a")).LiveClient()
		require.NoError(t, err)
		for _, body := range []string{
			`null`,
			`{}`,
			`{"status":"hibernated","items":[]}`,
			`{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":""},"items":[]}`,
			`{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
		} {
			h.Set(successes(body))
			for way, r := range readers(t, cc) {
				for form, list := range listForms() {
					require.Error(t, r.List(t.Context(), list), "%s: %s %s", body, way, form)
				}
				for form, obj := range objectForms() {
					require.Error(t, r.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, obj),
						"%s: %s %s", body, way, form)
				}
			}
			pod := func() *corev1.Pod {
				return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}
			}
			require.Error(t, live.Create(t.Context(), pod()), body)
			require.Error(t, live.Update(t.Context(), pod()), body)
			require.Error(t, live.Patch(t.Context(), pod(),
				client.RawPatch("application/merge-patch+json", []byte(`{}`))), body)
			require.Error(t, live.Delete(t.Context(), pod()), body)
		}

		const success = `{"kind":"Status","apiVersion":"v1","status":"Success"}`
		h.Set(successes(success))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}
		require.NoError(t, live.Delete(t.Context(), pod))
		require.ErrorIs(t, live.Create(t.Context(), pod), clustercache.ErrKind)
		h.Set(successes(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one","namespace":"default"}}`))
		require.NoError(t, live.Delete(t.Context(), pod))
	})
}

// TestHazardLiveGetOfAnotherObject: an object other than the requested one is
// not an answer.
func TestHazardLiveGetOfAnotherObject(t *testing.T) {
	fleettest.HostileCluster(t, nil, func(t *testing.T, h *fleettest.API, cc *clustercache.ClusterCache) {
		for _, identity := range []string{
			`"name":"two","namespace":"default"`,
			`"name":"one","namespace":"other"`,
		} {
			h.Set(successes(`{"kind":"Pod","apiVersion":"v1","metadata":{` + identity + `,"labels":{"of":"another"}}}`))
			for way, r := range readers(t, cc) {
				for form, obj := range objectForms() {
					err := r.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, obj)
					require.ErrorIs(t, err, clustercache.ErrAnswer, "%s: %s %s", identity, way, form)
					requireRefused(t, err, clustercache.ErrAnswer, "get")
					require.Empty(t, obj.GetLabels(), "%s: %s %s", identity, way, form)
				}
			}
		}
	})
}

// successes answers every request for Pods with a body.
func successes(body string) fleettest.AnswerFunc {
	return func(r *http.Request) http.HandlerFunc {
		if !strings.Contains(r.URL.Path, "/pods") {
			return nil
		}
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(body))
		}
	}
}
