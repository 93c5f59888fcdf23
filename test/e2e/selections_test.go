// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

// selection is what a watch or a list selects.
type selection struct {
	kind, group, version, resource string
	namespace, labels, fields      string
}

// selections returns selections of several kinds and scopes, wide and narrow,
// of two versions of one definition, and with names that have to be escaped in
// the path of a URL.
func selections() []selection {
	return []selection{
		{kind: "ConfigMap", version: "v1", resource: "configmaps"},
		{kind: "ConfigMap", version: "v1", resource: "configmaps", namespace: "other", labels: "app=a"},
		{kind: "Secret", version: "v1", resource: "secrets", namespace: namespace, fields: "type=Opaque"},
		{kind: "Secret", version: "v1", resource: "secrets", namespace: namespace, fields: "metadata.name=n-1"},
		{kind: "Part", group: toolV1.Group, version: "v1", resource: "parts"},
		{kind: "Part", group: toolV1.Group, version: "v2", resource: "parts", namespace: namespace,
			labels: "app in (a, b)"},
		{kind: "Site", group: toolV1.Group, version: "v1", resource: "sites"},
		{kind: "ClusterRole", group: "rbac.authorization.k8s.io", version: "v1", resource: "clusterroles"},
		{kind: "Role", group: "rbac.authorization.k8s.io", version: "v1", resource: "roles", namespace: namespace},
	}
}

func (s selection) String() string {
	return fmt.Sprintf("%s.%s/%s in %q with %q and %q", s.resource, s.group, s.version, s.namespace, s.labels, s.fields)
}

func (s selection) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: s.group, Version: s.version, Kind: s.kind}
}

func (s selection) gvr() schema.GroupVersionResource {
	return s.gvk().GroupVersion().WithResource(s.resource)
}

// options returns the selection's options for a reader or a watch.
func (s selection) options(t testing.TB) []client.ListOption {
	t.Helper()
	byLabel, err := labels.Parse(s.labels)
	require.NoError(t, err)
	byField, err := fields.ParseSelector(s.fields)
	require.NoError(t, err)
	o := &client.ListOptions{Namespace: s.namespace}
	if s.labels != "" {
		o.LabelSelector = byLabel
	}
	if s.fields != "" {
		o.FieldSelector = byField
	}
	return []client.ListOption{o}
}

// list returns an empty list of the kind.
func (s selection) list() *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	gvk := s.gvk()
	gvk.Kind += "List"
	l.SetGroupVersionKind(gvk)
	return l
}

// digest returns a version of an object with a hash of all its content except
// managedFields, which the cache does not keep.
func digest(u *unstructured.Unstructured) string {
	content := u.DeepCopy()
	content.SetManagedFields(nil)
	text, err := json.Marshal(content.Object)
	if err != nil {
		return err.Error()
	}
	h := fnv.New64a()
	_, _ = h.Write(text)
	return fmt.Sprintf("%s@%s#%x", u.GetUID(), u.GetResourceVersion(), h.Sum64())
}

// place returns the namespace and name of an object.
func place(o client.Object) string { return fmt.Sprintf("%s/%q", o.GetNamespace(), o.GetName()) }

func digests(items []unstructured.Unstructured) state {
	s := state{}
	for i := range items {
		s[place(&items[i])] = digest(&items[i])
	}
	return s
}

// remote accesses a cluster with client-go's dynamic client, bypassing
// everything that is tested.
type remote struct {
	dynamic.Interface

	from string // marks the objects that it writes
}

func newRemote(t testing.TB, config *rest.Config, from string) remote {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Timeout, config.UserAgent, config.QPS = 10*time.Second, "oracle", -1
	httpClient, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	t.Cleanup(httpClient.CloseIdleConnections)
	d, err := dynamic.NewForConfigAndClient(config, httpClient)
	require.NoError(t, err)
	return remote{Interface: d, from: from}
}

// quorum lists the objects of a selection that etcd holds.
func (r remote) quorum(ctx context.Context, s selection) (state, error) {
	o := metav1.ListOptions{LabelSelector: s.labels, FieldSelector: s.fields}
	list, err := r.Resource(s.gvr()).Namespace(s.namespace).List(ctx, o)
	if err != nil {
		return nil, err
	}
	return digests(list.Items), nil
}

// partsAndSites returns the definitions of the kinds above. Parts are served in
// two versions.
func partsAndSites() []*apiextensionsv1.CustomResourceDefinition {
	parts := testenv.SimpleCRD(toolV1.Group, "Part")
	v2 := *parts.Spec.Versions[0].DeepCopy()
	v2.Name, v2.Storage = "v2", false
	parts.Spec.Versions = append(parts.Spec.Versions, v2)
	return []*apiextensionsv1.CustomResourceDefinition{
		parts, testenv.SimpleCRD(toolV1.Group, "Site", apiextensionsv1.ClusterScoped),
	}
}
