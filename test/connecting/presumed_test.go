// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// ofKubernetes are kinds of Kubernetes itself, by group and version.
var ofKubernetes = map[string]string{
	"v1": "ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume PersistentVolumeClaim Pod " +
		"PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount",
	"apps/v1":                         "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
	"autoscaling/v2":                  "HorizontalPodAutoscaler",
	"batch/v1":                        "CronJob Job",
	"certificates.k8s.io/v1":          "CertificateSigningRequest",
	"coordination.k8s.io/v1":          "Lease",
	"discovery.k8s.io/v1":             "EndpointSlice",
	"events.k8s.io/v1":                "Event",
	"networking.k8s.io/v1":            "Ingress IngressClass IPAddress NetworkPolicy ServiceCIDR",
	"node.k8s.io/v1":                  "RuntimeClass",
	"policy/v1":                       "PodDisruptionBudget",
	"rbac.authorization.k8s.io/v1":    "ClusterRole ClusterRoleBinding Role RoleBinding",
	"resource.k8s.io/v1":              "DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice",
	"scheduling.k8s.io/v1":            "PriorityClass",
	"storage.k8s.io/v1":               "CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment",
	"apiextensions.k8s.io/v1":         "CustomResourceDefinition",
	"admissionregistration.k8s.io/v1": "MutatingWebhookConfiguration ValidatingWebhookConfiguration",
}

// contact returns a ClusterCache that has just met a server, and the server.
func contact(t *testing.T, answer fleettest.AnswerFunc) (*clustercache.ClusterCache, *fleettest.API) {
	t.Helper()
	api := fleettest.NewAPI(t, "uid-a")
	api.Fake.Register(fakeapi.Kind{Group: "example.com", Kind: "Widget"})
	api.Set(answer)
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), api.Config())
	cc := fleettest.Start(t, fleettest.Silent(d))
	require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())

	return cc, api
}

// watchKind watches a kind.
func watchKind(t *testing.T, cc *clustercache.ClusterCache, gvk schema.GroupVersionKind) *clustercache.Watch {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), u)
	require.NoError(t, err)
	return w
}

// refuse answers matching requests with a status.
func refuse(status int, matches func(*http.Request) bool) fleettest.AnswerFunc {
	return func(r *http.Request) http.HandlerFunc {
		if !matches(r) {
			return nil
		}
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
}

func ofDiscovery(r *http.Request) bool { return r.URL.Path == "/api" || r.URL.Path == "/apis" }

// TestHazardNewServerDoesNotSayWhatItServes: a server that is met while it is
// busy, fails at discovery or forbids it is watched all the same: the kinds of
// Kubernetes itself are served under the same names everywhere. Others wait,
// and nothing is listed again when discovery answers.
func TestHazardNewServerDoesNotSayWhatItServes(t *testing.T) {
	for name, answer := range map[string]fleettest.AnswerFunc{
		"busy":      refuse(http.StatusTooManyRequests, notAWatch),
		"failing":   refuse(http.StatusServiceUnavailable, ofDiscovery),
		"forbidden": refuse(http.StatusForbidden, ofDiscovery),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, api := contact(t, answer)
				var watches []*clustercache.Watch
				for group, kinds := range ofKubernetes {
					gv, err := schema.ParseGroupVersion(group)
					require.NoError(t, err)
					for kind := range strings.FieldsSeq(kinds) {
						watches = append(watches, watchKind(t, cc, gv.WithKind(kind)))
					}
				}
				require.Greater(t, len(watches), 50)
				custom := watchKind(t, cc, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				for _, w := range watches {
					require.NoError(t, w.WaitForSync(ctx))
				}
				time.Sleep(time.Minute)
				require.False(t, custom.HasSynced())
				require.NotEqual(t, "NotServed", clustercache.ReasonOf(custom.Status().LastError))

				lists := api.Count("stream /api/v1/pods")
				api.Heal()
				time.Sleep(15 * time.Second)
				require.True(t, custom.HasSynced())
				require.Equal(t, lists, api.Count("stream /api/v1/pods"))
				for _, w := range watches {
					require.True(t, w.HasSynced())
					require.NoError(t, w.Status().LastError)
				}
			})
		})
	}
}

// TestHazardServerLacksWhatIsPresumed: that a server does not know a resource
// which was presumed is no proof that it does not serve the kind: it has not
// said so. When discovery answers, that decides.
func TestHazardServerLacksWhatIsPresumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unserved := func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/apis/batch/v1/") }
		says := discoveryv2.APIGroupDiscoveryList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
			Items: []discoveryv2.APIGroupDiscovery{{
				ObjectMeta: metav1.ObjectMeta{Name: "batch"},
				Versions: []discoveryv2.APIVersionDiscovery{{
					Version: "v1beta1",
					Resources: []discoveryv2.APIResourceDiscovery{{
						Resource:         "cronjobs",
						SingularResource: "cronjob",
						Scope:            discoveryv2.ScopeNamespace,
						ResponseKind:     &metav1.GroupVersionKind{Kind: "CronJob"},
						Verbs:            []string{"get", "list", "watch"},
					}},
				}},
			}},
		}
		cc, api := contact(t, func(r *http.Request) http.HandlerFunc {
			switch {
			case unserved(r):
				return http.NotFound
			case ofDiscovery(r):
				return refuse(http.StatusServiceUnavailable, ofDiscovery)(r)
			}
			return nil
		})
		cronJob := schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "CronJob"}
		w := watchKind(t, cc, cronJob)
		time.Sleep(time.Minute)
		require.False(t, w.HasSynced())
		s := w.Status()
		require.Error(t, s.LastError)
		require.NotEqual(t, "NotServed", clustercache.ReasonOf(s.LastError), "%v", s.LastError)
		require.Less(t, api.Count("stream /apis/batch/v1/cronjobs"), 10)
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(cronJob)
		err := cc.Cluster(fleettest.Key("a")).Reader().Get(t.Context(),
			client.ObjectKey{Namespace: "default", Name: "one"}, u)
		require.Error(t, err)
		require.Error(t, client.IgnoreNotFound(err), "%v", err)

		api.Set(func(r *http.Request) http.HandlerFunc {
			switch {
			case unserved(r):
				return http.NotFound
			case r.URL.Path != "/apis":
				return nil
			}
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
				_ = json.NewEncoder(w).Encode(says)
			}
		})
		time.Sleep(30 * time.Second)
		require.Equal(t, "NotServed", clustercache.ReasonOf(w.Status().LastError), "%v", w.Status().LastError)

		api.Heal()
		time.Sleep(time.Minute)
		require.True(t, w.HasSynced())
	})
}
