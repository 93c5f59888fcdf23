// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

const (
	podsPath   = "/api/v1/pods"
	onePod     = "/api/v1/namespaces/default/pods/one"
	podList    = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[`
	liveBudget = 16 << 20
)

// limited limits live reads so that an answer of which each byte takes more
// memory than that of real objects may take liveBudget.
func limited(o *clustercache.Options) { o.MaxLiveBytes = 16 * liveBudget }

// listForms returns a list of Pods in each form.
func listForms() map[string]client.ObjectList {
	u, m := &unstructured.UnstructuredList{}, &metav1.PartialObjectMetadataList{}
	u.SetGroupVersionKind(podKind.GroupVersion().WithKind("PodList"))
	m.SetGroupVersionKind(podKind.GroupVersion().WithKind("PodList"))
	return map[string]client.ObjectList{"typed": &corev1.PodList{}, "unstructured": u, "metadata": m}
}

// objectForms returns a Pod in each form.
func objectForms() map[string]client.Object {
	u, m := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	u.SetGroupVersionKind(podKind)
	m.SetGroupVersionKind(podKind)
	return map[string]client.Object{"typed": &corev1.Pod{}, "unstructured": u, "metadata": m}
}

// requireRefused requires an error that names the cluster and the kind.
func requireRefused(t *testing.T, err, because error, op string) {
	t.Helper()
	require.ErrorIs(t, err, because)
	var named *clustercache.ClusterError
	require.ErrorAs(t, err, &named)
	require.Equal(t, fleettest.Key("a"), named.Cluster)
	require.Equal(t, op, named.Op)
	require.Equal(t, podKind.GroupKind().Group, named.GVK.Group)
	require.Contains(t, named.GVK.Kind, podKind.Kind)
}

// readers returns all readers that read live.
func readers(t *testing.T, cc *clustercache.ClusterCache) map[string]client.Reader {
	t.Helper()
	through, err := cc.Cluster(fleettest.Key("a")).Client()
	require.NoError(t, err)
	live, err := cc.Cluster(fleettest.Key("a")).LiveClient()
	require.NoError(t, err)
	reader := cc.Cluster(fleettest.Key("a")).Reader()
	return map[string]client.Reader{"Reader": reader, "Client": through, "LiveClient": live}
}

// long reports whether a flood is left to the run without the race detector,
// which takes seconds for one of tens of megabytes.
func long(f fleettest.Flood) bool { return testing.Short() && f.Bytes > liveBudget }

// TestHazardLiveListOfNothings: three bytes of a list can be a kilobyte of
// memory.
func TestHazardLiveListOfNothings(t *testing.T) {
	for name, c := range map[string]struct {
		fleettest.Flood

		forms string // the forms that are refused; others fit
	}{
		"nothings": {fleettest.Flood{Begin: podList + `{}`, Element: ",{}", Bytes: liveBudget / 16, End: "]}"},
			"typed metadata"},
		"compressed": {fleettest.Flood{Begin: podList + `{}`, Element: ",{}", Bytes: liveBudget / 16, End: "]}",
			Compress: true}, "typed"},
		"labels": {fleettest.Flood{Begin: podList + smallItem, Element: "," + smallItem, Bytes: liveBudget / 16,
			End: "]}"}, "typed"},
		"white space": {fleettest.Flood{Begin: podList, Element: " ", Bytes: liveBudget / 4, End: "]}", Compress: true},
			"typed unstructured metadata"},
		"one string": {fleettest.Flood{Begin: podList + `{"metadata":{"name":"`, Element: "x",
			Bytes: 20 << 20, End: `"}}]}`, Compress: true}, "typed"},
		"containers": {fleettest.Flood{Begin: podList + `{"spec":{"containers":[{}`, Element: ",{}",
			Bytes: liveBudget / 16, End: "]}}]}"}, "typed"},
		"owners": {fleettest.Flood{Begin: podList + `{"metadata":{"ownerReferences":[{}`, Element: ",{}",
			Bytes: liveBudget / 16, End: "]}}]}"}, "typed metadata"},
		"list members": {fleettest.Flood{Begin: `{"kind":"PodList","apiVersion":"v1","metadata":{"a":[{}`,
			Element: ",{}", Bytes: liveBudget / 64, End: "]}}"}, "typed unstructured"},
	} {
		if long(c.Flood) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			peak := fleettest.HostileCluster(t, limited, func(t *testing.T, h *fleettest.API,
				cc *clustercache.ClusterCache) {
				h.Set(fleettest.At(podsPath, false, c.ServeHTTP))
				for way, r := range readers(t, cc) {
					for form, list := range listForms() {
						if strings.Contains(c.forms, form) && (way == "Reader" || form == "typed") {
							requireRefused(t, r.List(t.Context(), list), clustercache.ErrBudget, "list")
						}
					}
				}
			})
			t.Logf("%d MiB", peak>>20)
			require.Less(t, peak, int64(max(3*liveBudget, 10*c.Bytes)),
				"the budget, its garbage, and the answer in memory here")
		})
	}
}

const smallItem = `{"metadata":{"labels":{"a":"b"}}}`

// TestHazardLiveGetOfManyTokens: one object can be as large as a list.
func TestHazardLiveGetOfManyTokens(t *testing.T) {
	for name, c := range map[string]struct {
		fleettest.Flood

		forms string
	}{
		"containers": {fleettest.Flood{Begin: `{"kind":"Pod","apiVersion":"v1","spec":{"containers":[{}`,
			Element: ",{}", Bytes: liveBudget / 16, End: "]}}"}, "typed"},
		"owners": {fleettest.Flood{Begin: `{"kind":"Pod","apiVersion":"v1","metadata":{"ownerReferences":[{}`,
			Element: ",{}", Bytes: liveBudget / 16, End: "]}}"}, "typed metadata"},
		"maps": {fleettest.Flood{Begin: `{"kind":"Pod","apiVersion":"v1","spec":{"x":[{}`,
			Element: `,{"a":{"b":0}}`, Bytes: liveBudget / 16, End: "]}}"}, "unstructured"},
		"white space": {fleettest.Flood{
			Begin:    `{"kind":"Pod",`,
			Element:  " ",
			Bytes:    liveBudget / 4,
			End:      `"apiVersion":"v1"}`,
			Compress: true,
		}, "typed unstructured metadata"},
		"too long": {fleettest.Flood{Begin: `{"kind":"Pod","x":"`, Element: "x", Bytes: 70 << 20, End: `"}`,
			Compress: true}, "metadata"},
	} {
		if long(c.Flood) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			peak := fleettest.HostileCluster(t, limited, func(t *testing.T, h *fleettest.API,
				cc *clustercache.ClusterCache) {
				h.Set(fleettest.At(onePod, false, c.ServeHTTP))
				for form, obj := range objectForms() {
					if strings.Contains(c.forms, form) {
						err := cc.Cluster(fleettest.Key("a")).Reader().Get(t.Context(),
							client.ObjectKey{Namespace: "default", Name: "one"}, obj)
						requireRefused(t, err, clustercache.ErrBudget, "get")
					}
				}
			})
			t.Logf("%d MiB", peak>>20)
			require.Less(t, peak, int64(max(4*liveBudget, 4*c.Bytes)))
		})
	}
}

// TestHazardFailureHoldsAList: client-go decodes any kind in the body of a
// failure.
func TestHazardFailureHoldsAList(t *testing.T) {
	for name, f := range map[string]fleettest.Flood{
		"list": {Code: 500, Begin: podList + `{}`, Element: ",{}", Bytes: 900 << 10, End: "]}"},
		"causes": {
			Code:    500,
			Begin:   `{"kind":"Status","apiVersion":"v1","details":{"causes":[{}`,
			Element: ",{}",
			Bytes:   900 << 10,
			End:     "]}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			peak := fleettest.HostileCluster(t, nil, func(t *testing.T, h *fleettest.API,
				cc *clustercache.ClusterCache) {
				h.Set(func(r *http.Request) http.HandlerFunc {
					if strings.HasSuffix(r.URL.Path, "/pods") || strings.HasSuffix(r.URL.Path, "/one") {
						return f.ServeHTTP
					}
					return nil
				})
				for form, list := range listForms() {
					if testing.Short() && form != "typed" {
						continue // the failure is decoded in the same way
					}
					require.True(t,
						apierrors.IsInternalError(cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), list)))
				}
				for form, obj := range objectForms() {
					if testing.Short() && form != "typed" {
						continue
					}
					err := cc.Cluster(fleettest.Key("a")).Reader().Get(t.Context(),
						client.ObjectKey{Namespace: "default", Name: "one"}, obj)
					require.True(t, apierrors.IsInternalError(err), "%v", err)
				}
			})
			t.Logf("%d MiB", peak>>20)
			require.Less(t, peak, int64(64<<20))
		})
	}
}

// TestHazardLiveAnswerOfAnotherKind: an answer that client-go would decode into
// an empty list or object is an error.
func TestHazardLiveAnswerOfAnotherKind(t *testing.T) {
	const secret = `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"one","namespace":"default",` +
		`"resourceVersion":"1"}}`
	lists := map[string]string{
		"another list": `{"kind":"SecretList","apiVersion":"v1","metadata":{},` +
			`"items":[{"metadata":{"name":"one"}}]}`,
		"another list, empty": `{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[]}`,
		"another version": `{"kind":"PodList","apiVersion":"v2","metadata":{},` +
			`"items":[{"metadata":{"name":"one"}}]}`,
		"one of the items":      podList + `{"metadata":{"name":"two"}},` + secret + `]}`,
		"item, another version": podList + `{"kind":"Pod","apiVersion":"v2","metadata":{"name":"two"}}]}`,
		"one object":            secret,
		"status":                `{"kind":"Status","apiVersion":"v1","status":"Success"}`,
	}
	fleettest.HostileCluster(t, nil, func(t *testing.T, h *fleettest.API, cc *clustercache.ClusterCache) {
		serve := func(body string) fleettest.AnswerFunc {
			return func(r *http.Request) http.HandlerFunc {
				if strings.Contains(r.URL.Path, "/pods") {
					return fleettest.Flood{Begin: body, Element: " "}.ServeHTTP
				}
				return nil
			}
		}
		for name, body := range lists {
			h.Set(serve(body))
			for way, r := range readers(t, cc) {
				for form, list := range listForms() {
					err := r.List(t.Context(), list)
					require.ErrorIs(t, err, clustercache.ErrKind, "%s: %s %s", name, way, form)
					requireRefused(t, err, clustercache.ErrKind, "list")
				}
			}
		}
		live, err := cc.Cluster(fleettest.Key("a")).LiveClient()
		require.NoError(t, err)
		for name, body := range map[string]string{"secret": secret, "list": podList + "]}", "status": lists["status"],
			"version": `{"kind":"Pod","apiVersion":"v2"}`} {
			h.Set(serve(body))
			for form, obj := range objectForms() {
				err := live.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, obj)
				require.ErrorIs(t, err, clustercache.ErrKind, "%s %s", name, form)
				requireRefused(t, err, clustercache.ErrKind, "get")
			}
			if name != "status" {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}
				requireRefused(t, live.Update(t.Context(), pod), clustercache.ErrKind, "update")
			}
		}
	})
}

// TestLiveListsAreThoseOfClientGo: decoding items one by one does not change
// the result.
func TestLiveListsAreThoseOfClientGo(t *testing.T) {
	const (
		item = `{"metadata":{"name":"one","namespace":"default","labels":{"a":"b"}},"spec":{"nodeName":"n",` +
			`"x":[1,1.5,null,{}]}}`
		named = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"two"}}`
	)
	for name, body := range map[string]string{
		"usual": podList + item + "," + named + `]}`,
		"continued": `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"c\"x",` +
			`"remainingItemCount":3},"items":[` + item + `]}`,
		"members later": `{"items":[` + item +
			`],"metadata":{"resourceVersion":"7"},"apiVersion":"v1","kind":"PodList","extra":{"a":[1]}}`,
		"empty":            podList + `]}`,
		"no items":         `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"}}`,
		"null":             `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":null}`,
		"null item":        podList + `null]}`,
		"name of its own":  `{"kind":"Pods","apiVersion":"v1","metadata":{},"items":[` + named + `]}`,
		"any list":         `{"kind":"List","apiVersion":"v1","metadata":{},"items":[` + named + `]}`,
		"without its kind": `{"metadata":{"resourceVersion":"7"},"items":[` + item + `]}`,
		"metadata": `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",` +
			`"metadata":{"resourceVersion":"7"},` +
			`"items":[{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"one"}}]}`,
		"cut":         podList + item,
		"no document": "no",
		"wrong type":  podList + `{"metadata":{"name":1}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.HostileCluster(t, nil, func(t *testing.T, h *fleettest.API,
				cc *clustercache.ClusterCache) {
				h.Set(fleettest.At(podsPath, false, fleettest.Flood{Begin: body, Element: " "}.ServeHTTP))
				theirs, err := client.New(h.Config(), client.Options{Mapper: podMapper{}})
				require.NoError(t, err)
				live, err := cc.Cluster(fleettest.Key("a")).LiveClient()
				require.NoError(t, err)
				got, want := listForms(), listForms()
				for form := range got {
					wantErr := theirs.List(t.Context(), want[form])
					gotErr := live.List(t.Context(), got[form])
					switch {
					case form == "typed" && (name == "name of its own" || name == "any list"):
						// client-go returns an empty list, or nothing.
						require.NoError(t, gotErr)
						require.Len(t, got[form].(*corev1.PodList).Items, 1)
						continue
					case name == "metadata" && form != "metadata":
						require.ErrorIs(t, gotErr, clustercache.ErrKind)
						continue
					case wantErr != nil:
						require.Error(t, gotErr, form)
						continue
					}
					require.NoError(t, gotErr, form)
					require.Equal(t, asJSON(t, want[form]), asJSON(t, got[form]), form)
				}
			})
		})
	}
}

func asJSON(t *testing.T, obj any) string {
	t.Helper()
	out, err := json.Marshal(obj)
	require.NoError(t, err)
	return strings.ReplaceAll(string(out), `"items":null`, `"items":[]`)
}

// podMapper maps only Pods, and needs no server.
type podMapper struct{ meta.RESTMapper }

func (podMapper) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return &meta.RESTMapping{Resource: podKind.GroupVersion().WithResource("pods"), GroupVersionKind: podKind,
		Scope: meta.RESTScopeNamespace}, nil
}
