// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	applyautoscalingv1 "k8s.io/client-go/applyconfigurations/autoscaling/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// oneWrite is a way to write the Pod default/one, with the possible answers of
// a server.
type oneWrite struct {
	do func(t *testing.T, c client.Client, obj client.Object) error
	// good are correct answers; others are answers of the correct kind for
	// another object.
	good, others []string
}

const (
	podOne = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one","namespace":"default"}}`
	podTwo = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"two","namespace":"default",` +
		`"labels":{"of":"another"}}}`
	podElse = `{"kind":"Pod","apiVersion":"v1","metadata":{"labels":{"of":"another"},"namespace":"other",` +
		`"name":"one"}}`
	podNameless = `{"kind":"Pod","apiVersion":"v1","metadata":{"labels":{"name":"one"}},` +
		`"spec":{"metadata":{"name":"one"}}}`
	podGroup = `{"kind":"Pod","apiVersion":"other/v1","metadata":{"name":"one","namespace":"default"}}`
	node     = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"one"}}`
	success  = `{"kind":"Status","apiVersion":"v1","status":"Success"}`
)

// otherPods are wrong answers where a Pod is expected.
var otherPods = []string{podTwo, podElse, podNameless, podGroup, node, success}

// ofScale returns a Scale with the name.
func ofScale(name string) string {
	return `{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"` + name + `","namespace":"default"}}`
}

// podWrites returns all the ways to write a Pod.
func podWrites() map[string]oneWrite {
	merge := client.RawPatch("application/merge-patch+json", []byte(`{}`))
	token := `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","metadata":{"name":"`
	write := func(do func(t *testing.T, c client.Client, obj client.Object) error) oneWrite {
		return oneWrite{do: do, good: []string{podOne}, others: otherPods}
	}
	return map[string]oneWrite{
		"create": write(func(t *testing.T, c client.Client, obj client.Object) error {
			return c.Create(t.Context(), obj)
		}),
		"update": write(func(t *testing.T, c client.Client, obj client.Object) error {
			return c.Update(t.Context(), obj)
		}),
		"patch": write(func(t *testing.T, c client.Client, obj client.Object) error {
			return c.Patch(t.Context(), obj, merge)
		}),
		"apply": write(func(t *testing.T, c client.Client, obj client.Object) error {
			if u, ok := obj.(*unstructured.Unstructured); ok {
				return c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("f"))
			}
			return c.Apply(t.Context(), applycorev1.Pod("one", "default"), client.FieldOwner("f"))
		}),
		"update status": write(func(t *testing.T, c client.Client, obj client.Object) error {
			return c.Status().Update(t.Context(), obj)
		}),
		"patch status": write(func(t *testing.T, c client.Client, obj client.Object) error {
			return c.Status().Patch(t.Context(), obj, merge)
		}),
		"apply status": write(func(t *testing.T, c client.Client, obj client.Object) error {
			if u, ok := obj.(*unstructured.Unstructured); ok {
				return c.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u),
					client.FieldOwner("f"))
			}
			return c.Status().Apply(t.Context(), applycorev1.Pod("one", "default"), client.FieldOwner("f"))
		}),
		"delete": {
			do:     func(t *testing.T, c client.Client, obj client.Object) error { return c.Delete(t.Context(), obj) },
			good:   []string{podOne, success},
			others: []string{podTwo, podElse, podNameless, podGroup, node},
		},
		"delete all of": {
			do: func(t *testing.T, c client.Client, obj client.Object) error {
				return c.DeleteAllOf(t.Context(), obj, client.InNamespace("default"))
			},
			good: []string{success, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[` + podTwo + `]}`},
			others: []string{podOne, node, `{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[]}`,
				`{"kind":"PodList","apiVersion":"other/v1","items":[]}`},
		},
		"update scale": {
			do: func(t *testing.T, c client.Client, obj client.Object) error {
				return c.SubResource("scale").Update(t.Context(),
					obj, client.WithSubResourceBody(likeOf(obj, &autoscalingv1.Scale{}, "autoscaling/v1")))
			},
			good:   []string{ofScale("one")},
			others: []string{ofScale("two"), node, success},
		},
		"patch scale": {
			do: func(t *testing.T, c client.Client, obj client.Object) error {
				return c.SubResource("scale").Patch(t.Context(), obj, merge,
					client.WithSubResourceBody(likeOf(obj, &autoscalingv1.Scale{}, "autoscaling/v1")))
			},
			good:   []string{ofScale("one")},
			others: []string{ofScale("two"), node, success},
		},
		"apply scale": {
			do: func(t *testing.T, c client.Client, obj client.Object) error {
				scale := c.SubResource("scale")
				if u, ok := obj.(*unstructured.Unstructured); ok {
					body := likeOf(obj, &autoscalingv1.Scale{}, "autoscaling/v1").(*unstructured.Unstructured)
					return scale.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u),
						client.FieldOwner("f"),
						&client.SubResourceApplyOptions{
							SubResourceBody: client.ApplyConfigurationFromUnstructured(body)})
				}
				return scale.Apply(t.Context(), applycorev1.Pod("one", "default"), client.FieldOwner("f"),
					&client.SubResourceApplyOptions{SubResourceBody: applyautoscalingv1.Scale()})
			},
			good:   []string{ofScale("one")},
			others: []string{ofScale("two"), podOne, node, success},
		},
		"get scale": {
			do: func(t *testing.T, c client.Client, obj client.Object) error {
				return c.SubResource("scale").Get(t.Context(), obj,
					likeOf(obj, &autoscalingv1.Scale{}, "autoscaling/v1"))
			},
			good:   []string{ofScale("one")},
			others: []string{ofScale("two"), node, success},
		},
		"create eviction": {
			do: func(t *testing.T, c client.Client, obj client.Object) error {
				return c.SubResource("eviction").Create(t.Context(), obj,
					likeOf(obj, &policyv1.Eviction{}, "policy/v1"))
			},
			good:   []string{success},
			others: []string{podOne, node, `{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"two"}}`},
		},
		"create token": {
			do: func(t *testing.T, c client.Client, obj client.Object) error {
				return c.SubResource("token").Create(t.Context(),
					obj, likeOf(obj, &authenticationv1.TokenRequest{}, "authentication.k8s.io/v1"))
			},
			good: []string{token + `one"}}`,
				`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","metadata":{}}`},
			others: []string{token + `two"}}`, podOne, node, success},
		},
		"create binding": {
			do: func(t *testing.T, c client.Client, obj client.Object) error {
				return c.SubResource("binding").Create(t.Context(), obj, likeOf(obj, &corev1.Binding{}, "v1"))
			},
			good:   []string{success},
			others: []string{node, podOne},
		},
	}
}

// likeOf returns an object of the kind of sub in the form of obj.
func likeOf(obj, sub client.Object, apiVersion string) client.Object {
	if _, ok := obj.(*unstructured.Unstructured); !ok {
		return sub
	}
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(reflect.TypeOf(sub).Elem().Name())
	return u
}

// writable reports whether a form can be written in this way.
func writable(form, way string) bool {
	return form != "metadata" || way == "patch" || way == "delete" || way == "delete all of" || way == "patch status"
}

// TestHazardWriteIsAnsweredByNothing: the answer to a write, whatever the verb,
// is checked like that to a read. An answer that is no object, or another one,
// is a typed error, and the caller's object stays unchanged.
func TestHazardWriteIsAnsweredByNothing(t *testing.T) {
	fleettest.HostileCluster(t, nil, func(t *testing.T, h *fleettest.API, cc *clustercache.ClusterCache) {
		cached, err := cc.Cluster(fleettest.Key("a")).Client()
		require.NoError(t, err)
		live, err := cc.Cluster(fleettest.Key("a")).LiveClient()
		require.NoError(t, err)
		for way, w := range podWrites() {
			for form, obj := range objectForms() {
				if !writable(form, way) {
					continue
				}
				for name, c := range map[string]client.Client{"Client": cached, "LiveClient": live} {
					what := way + " " + form + " " + name
					fresh := func() client.Object {
						o := obj.DeepCopyObject().(client.Object)
						o.SetNamespace("default")
						o.SetName("one")
						return o
					}
					for _, good := range w.good {
						h.Set(successes(good))
						require.NoError(t, w.do(t, c, fresh()), "%s: %s", what, good)
					}
					for _, other := range w.others {
						h.Set(successes(other))
						o := fresh()
						requireTyped(t, w.do(t, c, o), what+": "+other)
						require.Empty(t, o.GetLabels(), "%s: %s", what, other)
						require.Equal(t, "one", o.GetName(), "%s: %s", what, other)
					}
					for nothing, answer := range fleettest.Nothings() {
						if slices.Contains(w.good, success) && nothing == "an object of a kind" {
							continue // a Status is an answer
						}
						h.Set(podsAnsweredBy(answer))
						o := fresh()
						requireTyped(t, w.do(t, c, o), what+": "+nothing)
						require.Equal(t, "one", o.GetName(), "%s: %s", what, nothing)
					}
				}
			}
		}
	})
}

// requireTyped requires an error that names the cluster and reports an invalid
// answer.
func requireTyped(t *testing.T, err error, what string) {
	t.Helper()
	named, ok := errors.AsType[*clustercache.ClusterError](err)
	require.True(t, ok, "%s: %v", what, err)
	require.Equal(t, fleettest.Key("a"), named.Cluster)
	require.True(t, errors.Is(err, clustercache.ErrKind) || errors.Is(err, clustercache.ErrAnswer) ||
		errors.Is(err, clustercache.ErrNotKubernetes),
		"%s: %v", what, err)
}

// podsAnsweredBy answers every request for Pods alike.
func podsAnsweredBy(answer http.HandlerFunc) fleettest.AnswerFunc {
	return func(r *http.Request) http.HandlerFunc {
		if successes("")(r) == nil {
			return nil
		}
		return answer
	}
}

// TestWriteAnsweredWithANameOfTheServersChoice: an object created without a
// name has one in the answer; some kinds never have one, and some are answered
// with a Status.
func TestWriteAnsweredWithANameOfTheServersChoice(t *testing.T) {
	fleettest.HostileCluster(t, nil, func(t *testing.T, h *fleettest.API, cc *clustercache.ClusterCache) {
		live, err := cc.Cluster(fleettest.Key("a")).LiveClient()
		require.NoError(t, err)
		generated := func() *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "on"}}
		}
		h.Set(successes(podOne))
		require.NoError(t, live.Create(t.Context(), generated()))
		h.Set(successes(podNameless))
		require.ErrorIs(t, live.Create(t.Context(), generated()), clustercache.ErrAnswer)

		// An object created by a subresource of another group has its own kind.
		const build = `{"kind":"Build","apiVersion":"build.openshift.io/v1","metadata":{"name":"other-1",` +
			`"namespace":"default"}}`
		config := objectForms()["unstructured"]
		config.SetNamespace("default")
		config.SetName("one")
		for body, because := range map[string]error{build: nil, `{}`: clustercache.ErrAnswer, podOne: nil} {
			h.Set(successes(body))
			request := likeOf(config, &corev1.Pod{}, "v1")
			require.ErrorIs(t, live.SubResource("instantiate").Create(t.Context(), config, request), because, body)
		}
	})
}

// TestHazardCreateIsAnsweredByWhatWasMade: OpenShift's API answers to a
// ProjectRequest with the Project that it created.
func TestHazardCreateIsAnsweredByWhatWasMade(t *testing.T) {
	documents := map[string]string{
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"project.openshift.io","versions":[` +
			`{"groupVersion":"project.openshift.io/v1","version":"v1"}]}]}`,
		"/apis/project.openshift.io/v1": `{"kind":"APIResourceList","groupVersion":"project.openshift.io/v1",` +
			`"resources":[` +
			`{"name":"projectrequests","kind":"ProjectRequest","namespaced":false,"verbs":["create","list"]}]}`,
	}
	fleettest.HostileCluster(t, nil, func(t *testing.T, h *fleettest.API, cc *clustercache.ClusterCache) {
		live, err := cc.Cluster(fleettest.Key("a")).LiveClient()
		require.NoError(t, err)
		for body, because := range map[string]error{
			`{"kind":"Project","apiVersion":"project.openshift.io/v1","metadata":{"name":"one"}}`: nil,
			`{"kind":"Project","apiVersion":"other.openshift.io/v1","metadata":{"name":"one"}}`:   clustercache.ErrKind,
			`{"kind":"Project","apiVersion":"project.openshift.io/v1",` +
				`"metadata":{"name":"two"}}`: clustercache.ErrAnswer,
			podOne: clustercache.ErrKind,
		} {
			h.Set(func(r *http.Request) http.HandlerFunc {
				switch document := documents[r.URL.Path]; {
				case document != "":
					return says(document)
				case r.Method == http.MethodPost:
					return says(body)
				}
				return nil
			})
			request := &unstructured.Unstructured{}
			request.SetAPIVersion("project.openshift.io/v1")
			request.SetKind("ProjectRequest")
			request.SetName("one")
			require.ErrorIs(t, live.Create(t.Context(), request), because, body)
		}
	})
}

// TestHazardKindIsNamedStatus: a document is known by its group as well as its
// kind. The Status of a custom resource is an object, and the deletion of such
// an object may be answered with the Status of Kubernetes.
func TestHazardKindIsNamedStatus(t *testing.T) {
	const (
		one   = `{"kind":"Status","apiVersion":"example.com/v1","metadata":{"name":"one","namespace":"default"}}`
		two   = `{"kind":"Status","apiVersion":"example.com/v1","metadata":{"name":"two","namespace":"default"}}`
		about = `{"kind":"Status","apiVersion":"v1","status":"Success","details":{"name":"one","uid":"1"}}`
	)
	documents := map[string]string{
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"example.com","versions":[` +
			`{"groupVersion":"example.com/v1","version":"v1"}]}]}`,
		"/apis/example.com/v1": `{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[` +
			`{"name":"statuses","kind":"Status","namespaced":true,"verbs":["create","delete","list"]}]}`,
	}
	fleettest.HostileCluster(t, nil, func(t *testing.T, h *fleettest.API, cc *clustercache.ClusterCache) {
		live, err := cc.Cluster(fleettest.Key("a")).LiveClient()
		require.NoError(t, err)
		fresh := func() client.Object {
			o := &unstructured.Unstructured{}
			o.SetAPIVersion("example.com/v1")
			o.SetKind("Status")
			o.SetNamespace("default")
			o.SetName("one")
			return o
		}
		verbs := map[string]func(client.Object) error{
			"create": func(o client.Object) error { return live.Create(t.Context(), o) },
			"update": func(o client.Object) error { return live.Update(t.Context(), o) },
			"delete": func(o client.Object) error { return live.Delete(t.Context(), o) },
			"delete all of": func(o client.Object) error {
				return live.DeleteAllOf(t.Context(), o, client.InNamespace("default"))
			},
			"get": func(o client.Object) error { return live.Get(t.Context(), client.ObjectKeyFromObject(o), o) },
		}
		for _, c := range []struct {
			body  string
			wrong map[string]error
		}{
			{one, map[string]error{"delete all of": clustercache.ErrKind}},
			{two, map[string]error{
				"create":        clustercache.ErrAnswer,
				"update":        clustercache.ErrAnswer,
				"delete":        clustercache.ErrAnswer,
				"delete all of": clustercache.ErrKind,
				"get":           clustercache.ErrAnswer,
			}},
			{about, map[string]error{
				"create": clustercache.ErrKind,
				"update": clustercache.ErrKind,
				"get":    clustercache.ErrKind,
			}},
			{podOne, map[string]error{
				"create":        clustercache.ErrKind,
				"update":        clustercache.ErrKind,
				"delete":        clustercache.ErrKind,
				"delete all of": clustercache.ErrKind,
				"get":           clustercache.ErrKind,
			}},
		} {
			h.Set(func(r *http.Request) http.HandlerFunc {
				switch document := documents[r.URL.Path]; {
				case document != "":
					return says(document)
				case strings.HasPrefix(r.URL.Path, "/apis/example.com/v1/"):
					return says(c.body)
				}
				return nil
			})
			for verb, call := range verbs {
				require.ErrorIs(t, call(fresh()), c.wrong[verb], "%s: %s", verb, c.body)
			}
		}
	})
}

// says answers with a JSON document.
func says(document string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, document)
	}
}
