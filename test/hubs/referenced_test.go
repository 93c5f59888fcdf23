// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package hubs_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

var memberKind = schema.GroupVersionKind{Group: "fleet.test", Version: "v1", Kind: "Member"}

// member returns an object of the namespace team with a reference, or without
// one if it is nil.
func member(name string, ref any) *unstructured.Unstructured {
	spec := map[string]any{}
	if ref != nil {
		spec["secret"] = ref
	}
	return resolvertest.UnstructuredObject("fleet.test/v1", "Member", "team", name, map[string]any{"spec": spec})
}

func memberOptions() resolver.ReferenceOptions {
	return resolver.ReferenceOptions{
		Kind:            memberKind,
		SecretName:      "spec.secret.name",
		SecretNamespace: "spec.secret.namespace",
		SecretKey:       "spec.secret.key",
	}
}

func referencedCase() conventionCase {
	ref := func(pairs ...string) map[string]any {
		out := map[string]any{}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = pairs[i+1]
		}
		return out
	}
	return conventionCase{
		objects: []client.Object{
			resolvertest.Secret("team", "s", nil, map[string]string{
				"value": string(resolvertest.TokenConfig("value")),
				"k":     string(resolvertest.TokenConfig("k")),
			}),
			resolvertest.Secret("team", "bad", nil, map[string]string{"value": resolvertest.CanaryToken}),
			resolvertest.Secret("shared", "s", nil, resolvertest.TokenData("value", "shared")),
			resolvertest.Secret("other", "s", nil, resolvertest.TokenData("value", resolvertest.CanaryToken)),
			resolvertest.Secret("team", "unrelated", nil, resolvertest.TokenData("value", "unrelated")),
			member("default", ref("name", "s")),
			member("key", ref("name", "s", "key", "k")),
			member("nokey", ref("name", "s", "key", "absent")),
			member("own", ref("name", "s", "namespace", "team")),
			member("shared", ref("name", "s", "namespace", "shared")),
			member("foreign", ref("name", "s", "namespace", "other")),
			member("absent", ref("name", "absent")),
			member("bad", ref("name", "bad")),
			member("none", nil),
			member("text", "s"),
			member("number", map[string]any{"name": int64(7)}),
			member("path", ref("name", "../secrets/s")),
			member("upper", ref("name", "s", "namespace", "Team/x")),
			member("badkey", ref("name", "s", "key", "a\nb")),
		},
		make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
			o := memberOptions()
			o.SecretNamespaces = []string{"shared"}
			return resolver.Referenced(hub, o)
		},
		clusters: map[resolver.Cluster]string{
			resolvertest.In("team", "default"): "https://c.example value",
			resolvertest.In("team", "key"):     "https://c.example k",
			resolvertest.In("team", "own"):     "https://c.example value",
			resolvertest.In("team", "shared"):  "https://c.example shared",
			resolvertest.In("team", "nokey"):   "Secret team/s: key is missing: absent",
			resolvertest.In("team", "foreign"): "Member team/foreign: refused: spec.secret.namespace has a namespace " +
				"whose Secrets the object may not name",
			resolvertest.In("team", "absent"): "Secret team/absent: secret not found",
			resolvertest.In("team", "bad"):    "Secret team/bad: invalid kubeconfig: is not a kubeconfig",
			resolvertest.In("team", "none"): "Member team/none: cluster is not ready: spec.secret.name has no name " +
				"of a Secret",
			resolvertest.In("team", "text"):   "Member team/text: invalid kubeconfig: spec.secret.name is no text",
			resolvertest.In("team", "number"): "Member team/number: invalid kubeconfig: spec.secret.name is no text",
			resolvertest.In("team", "path"): "Member team/path: invalid kubeconfig: spec.secret.name has no valid " +
				"name of a Secret",
			resolvertest.In("team", "upper"): "Member team/upper: invalid kubeconfig: spec.secret.namespace has no " +
				"valid namespace",
			resolvertest.In("team", "badkey"): "Member team/badkey: invalid kubeconfig: spec.secret.key has no valid " +
				"key of a Secret",
		},
		absent: []resolver.Cluster{{}, resolvertest.In("team", "absent"), resolvertest.In("team", "none"),
			resolvertest.In("team", "unknown")},
		selections: []string{"ns=shared labels= fields=metadata.name=s"},
	}
}

// TestHazardReferenceIsFollowed: a reference that moves, a Secret that is
// written later, and one that is exchanged are reported as changes of the
// clusters that name it, and a Secret that nothing names any more is watched no
// longer. Secrets that no object names, and those in namespaces that are not
// permitted, are never read.
func TestHazardReferenceIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := resolvertest.In("team", "a"), resolvertest.In("team", "b")
		first := member("a", nil)
		hub := resolvertest.NewHub(first, member("b", map[string]any{"name": "shared"}),
			member("thief", map[string]any{"name": "s", "namespace": "other"}),
			resolvertest.Secret("other", "s", nil, resolvertest.TokenData("value", "stolen")))
		o := memberOptions()
		o.Grace = -1
		r, err := resolver.Referenced(hub, o)
		require.NoError(t, err)
		changed := resolvertest.Notify(t, r)
		changed.Take()
		idle := hub.Open()
		reported := func() []resolver.Cluster { // a new watch is a change, and so is what it reads
			all := changed.Take()
			slices.SortFunc(all, clustername.Compare)
			return slices.Compact(all)
		}

		name := func(secret string) {
			object := member("a", nil)
			require.NoError(t, hub.Get(t.Context(), a, object))
			require.NoError(t, unstructured.SetNestedField(object.Object, secret, "spec", "secret", "name"))
			object.SetLabels(map[string]string{"env": "prod"})
			require.NoError(t, hub.Update(t.Context(), object))
		}
		name("one")
		require.Equal(t, []resolver.Cluster{a}, reported())
		_, err = r.Resolve(t.Context(), a)
		require.ErrorIs(t, err, resolver.ErrSecretNotFound)
		secret := resolvertest.Secret("team", "one", nil, resolvertest.TokenData("value", "t1"))
		require.NoError(t, hub.Create(t.Context(), secret))
		require.Equal(t, []resolver.Cluster{a}, reported(), "written later")
		require.Equal(t, "t1", resolvertest.Token(t, r, a))
		require.Equal(t, map[string]string{"env": "prod"}, labelsOf(t, r, a))
		require.Equal(t, idle+1, hub.Open())

		require.NoError(t, hub.Create(t.Context(),
			resolvertest.Secret("team", "shared", nil, resolvertest.TokenData("value", "t2"))))
		require.Equal(t, []resolver.Cluster{b}, reported())
		name("shared")
		require.Equal(t, []resolver.Cluster{a}, reported(), "the reference moved")
		require.Equal(t, "t2", resolvertest.Token(t, r, a))
		require.Equal(t, idle, hub.Open(), "the other Secret is watched no longer, and this one once")
		require.NoError(t, hub.Update(t.Context(),
			resolvertest.Secret("team", "shared", nil, resolvertest.TokenData("value", "t3"))))
		require.Equal(t, []resolver.Cluster{a, b}, reported(), "both name it")

		require.NoError(t, hub.Delete(t.Context(), first))
		require.Equal(t, []resolver.Cluster{a}, reported())
		_, err = r.Resolve(t.Context(), a)
		require.ErrorIs(t, err, resolver.ErrClusterNotFound)
		for _, selection := range hub.Selections() {
			require.NotContains(t, selection, "ns=other")
		}
	})
}

// TestReferenceByFunction: the operator's code names the Secret and the cluster,
// and makes the access. Its objects are copies.
func TestReferenceByFunction(t *testing.T) {
	object := member("a", nil)
	object.Object["url"] = "https://c.example"
	object.SetNamespace("")
	hub := resolvertest.NewHub(object, member("ignored", nil),
		resolvertest.Secret("keys", "a-token", nil, map[string]string{"token": "t"}))
	o := resolver.ReferenceOptions{
		Kind: memberKind,
		Reference: func(object *unstructured.Unstructured) (resolver.SecretReference, error) {
			return resolver.SecretReference{Name: object.GetName() + "-token"}, nil
		},
		ID: func(object *unstructured.Unstructured) (resolver.Cluster, bool) {
			return resolver.Cluster{Name: "member-" + object.GetName()}, object.GetNamespace() == ""
		},
		SecretNamespaces: []string{"keys"},
		Decode: func(object *unstructured.Unstructured, secret *corev1.Secret) (resolver.Access, error) {
			url, _, _ := unstructured.NestedString(object.Object, "url")
			object.Object["url"] = "changed"
			token := string(secret.Data["token"])
			clear(secret.Data)
			return resolver.FromToken(resolver.Endpoint{Server: url}, token, resolver.Allow{})
		},
	}
	r, err := resolver.Referenced(hub, o)
	require.NoError(t, err)
	cluster := resolver.Cluster{Name: "member-a"}
	require.Equal(t, "t", resolvertest.Token(t, r, cluster))
	synctest.Test(t, func(t *testing.T) {
		changed := resolvertest.Notify(t, r)
		changed.Take()
		require.Equal(t, "t", resolvertest.Token(t, r, cluster), "by the watch")
		require.NoError(t, hub.Get(t.Context(), client.ObjectKeyFromObject(object), object))
		object.SetLabels(map[string]string{"env": "prod"})
		require.NoError(t, hub.Update(t.Context(), object))
		changed.Take()
		require.Equal(t, "t", resolvertest.Token(t, r, cluster), "the Secret is as it was")
		require.NoError(t, hub.Update(t.Context(),
			resolvertest.Secret("keys", "a-token", nil, map[string]string{"token": "another"})))
		changed.Take()
		require.Equal(t, "another", resolvertest.Token(t, r, cluster), "the object is as it was")
	})
	listed, err := r.Clusters(t.Context())
	require.NoError(t, err)
	require.Equal(t, []resolver.Cluster{cluster}, listed)

	paused := errors.New("paused")
	o.Reference = func(*unstructured.Unstructured) (resolver.SecretReference, error) {
		return resolver.SecretReference{}, paused
	}
	r, err = resolver.Referenced(hub, o)
	require.NoError(t, err)
	_, err = r.Resolve(t.Context(), cluster)
	require.ErrorIs(t, err, paused)

	o.Reference = func(*unstructured.Unstructured) (resolver.SecretReference, error) {
		panic(resolvertest.CanaryToken)
	}
	r, err = resolver.Referenced(hub, o)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = r.Resolve(ctx, cluster)
	require.ErrorContains(t, err, "ID or Reference")
	require.NotErrorIs(t, err, resolver.ErrNoAccess)
	resolvertest.RequireNoCanary(t, err.Error())
}

func TestReferenceOptionsAreChecked(t *testing.T) {
	for name, edit := range map[string]func(*resolver.ReferenceOptions){
		"Kind":       func(o *resolver.ReferenceOptions) { o.Kind = schema.GroupVersionKind{} },
		"neither":    func(o *resolver.ReferenceOptions) { o.Kind = corev1.SchemeGroupVersion.WithKind("Secret") },
		"SecretName": func(o *resolver.ReferenceOptions) { o.SecretName = "" },
		"Reference": func(o *resolver.ReferenceOptions) {
			o.Reference = func(*unstructured.Unstructured) (resolver.SecretReference, error) {
				return resolver.SecretReference{}, nil
			}
		},
		"empty part": func(o *resolver.ReferenceOptions) { o.SecretKey = "spec..key" },
		"MaxBytes":   func(o *resolver.ReferenceOptions) { o.MaxBytes = -1 },
	} {
		o := memberOptions()
		edit(&o)
		_, err := resolver.Referenced(resolvertest.NewHub(), o)
		require.ErrorContains(t, err, name)
	}
}
