// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"crypto/sha512"
	"fmt"
	"net/http"
	"slices"
	"strings"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
)

// document is a discovery document with its ETag.
type document struct {
	list discoveryv2.APIGroupDiscoveryList
	body []byte
	etag string
}

// catalog is the kinds that a server serves, with all that it stores of them. Its
// methods run under the server's lock.
type catalog struct {
	store

	away        map[string]*table // of aggregated kinds that are not served any more
	definitions int               // of kinds that were registered
	documents   [2]*document      // discovery documents; nil after a change
}

// Version is the version that the server reports.
const Version = "v1.36.3"

// servePath serves paths that are not resources.
func (x *exchange) servePath() error {
	path := strings.TrimSuffix(x.r.URL.Path, "/")
	switch path {
	case "/readyz", "/livez", "/healthz":
		x.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = x.w.Write([]byte("ok"))
		return nil
	case "/version":
		writeJSON(x.w, http.StatusOK, apiversion.Info{
			Major:      "1",
			Minor:      "36",
			GitVersion: Version,
			Platform:   "linux/amd64",
		})
		return nil
	case "/api", "/apis":
		if strings.Contains(x.r.Header.Get("Accept"), "as=APIGroupDiscoveryList") {
			x.serveDocument(path)
			return nil
		}
	}

	answer := x.legacy(path)
	if answer == nil {
		return errNoPath
	}
	writeJSON(x.w, http.StatusOK, answer)
	return nil
}

func (x *exchange) serveDocument(path string) {
	doc, header := x.document(path), x.w.Header()
	header.Set("ETag", doc.etag)
	header.Set("Vary", "Accept")
	if x.r.Header.Get("If-None-Match") == doc.etag {
		x.w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	_, _ = x.w.Write(doc.body)
}

// document returns the aggregated discovery document of a path.
func (x *exchange) document(path string) *document {
	x.mu.Lock()
	defer x.mu.Unlock()

	i := 0
	if path == "/apis" {
		i = 1
	}
	if x.documents[i] != nil {
		return x.documents[i]
	}
	doc := &document{list: discoveryv2.APIGroupDiscoveryList{Items: slices.Clone(discovered()[i].Items)}}
	if i == 1 {
		doc.list.Items = append(doc.list.Items, x.customGroups()...)
	}
	// As in kube-apiserver, the ETag is the hash of the document without its
	// type.
	doc.etag = fmt.Sprintf(`"%X"`, sha512.Sum512(marshal(doc.list)))
	doc.list.TypeMeta = metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}
	doc.body = append(marshal(doc.list), '\n')
	x.documents[i] = doc

	return doc
}

// customGroups returns the groups of kinds that are not built in.
func (c *catalog) customGroups() []discoveryv2.APIGroupDiscovery {
	groups := map[string]map[string][]discoveryv2.APIResourceDiscovery{}
	for _, t := range c.tables {
		k := t.kind
		if k.native || slices.ContainsFunc(discovered()[1].Items,
			func(g discoveryv2.APIGroupDiscovery) bool { return g.Name == k.Group }) {
			continue
		}
		if groups[k.Group] == nil {
			groups[k.Group] = map[string][]discoveryv2.APIResourceDiscovery{}
		}
		for _, v := range k.Versions {
			r := k.discovery()
			r.ResponseKind.Group, r.ResponseKind.Version = k.Group, v
			groups[k.Group][v] = append(groups[k.Group][v], r)
		}
	}

	var out []discoveryv2.APIGroupDiscovery
	for name, versions := range groups {
		g := discoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for v, resources := range versions {
			slices.SortFunc(resources,
				func(a, b discoveryv2.APIResourceDiscovery) int { return strings.Compare(a.Resource, b.Resource) })
			g.Versions = append(g.Versions, discoveryv2.APIVersionDiscovery{
				Version: v, Resources: resources, Freshness: discoveryv2.DiscoveryFreshnessCurrent,
			})
		}

		slices.SortFunc(g.Versions, func(a, b discoveryv2.APIVersionDiscovery) int {
			return apiversion.CompareKubeAwareVersionStrings(b.Version, a.Version)
		})
		out = append(out, g)
	}

	slices.SortFunc(out, func(a, b discoveryv2.APIGroupDiscovery) int { return strings.Compare(a.Name, b.Name) })

	return out
}

// legacy returns the older form of a discovery document, or nil if the path has
// none.
func (x *exchange) legacy(path string) any {
	switch path {
	case "/api":
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case "/apis":
		out := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for _, g := range x.document(path).list.Items {
			out.Groups = append(out.Groups, legacyGroup(g))
		}
		return out
	}

	root, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if root != "api" && root != "apis" {
		return nil
	}

	for _, g := range x.document("/" + root).list.Items {
		if root == "apis" && rest == g.Name {
			return legacyGroup(g)
		}
		for _, v := range g.Versions {
			if gv := (schema.GroupVersion{Group: g.Name, Version: v.Version}); rest == gv.String() {
				return legacyResources(gv, v)
			}
		}
	}

	return nil
}

func legacyGroup(g discoveryv2.APIGroupDiscovery) metav1.APIGroup {
	out := metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: g.Name}
	for _, v := range g.Versions {
		out.Versions = append(out.Versions,
			metav1.GroupVersionForDiscovery{GroupVersion: g.Name + "/" + v.Version, Version: v.Version})
	}
	out.PreferredVersion = out.Versions[0]
	return out
}

func legacyResources(gv schema.GroupVersion, v discoveryv2.APIVersionDiscovery) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: gv.String()}
	for _, r := range v.Resources {
		namespaced := r.Scope == discoveryv2.ScopeNamespace
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name:         r.Resource,
			SingularName: r.SingularResource,
			Kind:         r.ResponseKind.Kind,
			Namespaced:   namespaced,
			Verbs:        r.Verbs,
			ShortNames:   r.ShortNames,
		})
		for _, sub := range r.Subresources {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name:       r.Resource + "/" + sub.Subresource,
				Kind:       sub.ResponseKind.Kind,
				Namespaced: namespaced,
				Verbs:      sub.Verbs,
			})
		}
	}

	return list
}

// define serves the kind that a CustomResourceDefinition defines, and reports
// that in its status.
func (c *catalog) define(crd *unstructured.Unstructured) {
	get := func(fields ...string) string {
		v, _, _ := unstructured.NestedString(crd.Object, fields...)
		return v
	}
	k := Kind{
		Group:         get("spec", "group"),
		Kind:          get("spec", "names", "kind"),
		Resource:      get("spec", "names", "plural"),
		Singular:      get("spec", "names", "singular"),
		ClusterScoped: get("spec", "scope") == "Cluster",
	}
	var stored []any
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		v, ok := v.(map[string]any)
		if !ok {
			continue
		}
		name, _, _ := unstructured.NestedString(v, "name")
		if served, _, _ := unstructured.NestedBool(v, "served"); served {
			k.Versions = append(k.Versions, name)
		}
		if storage, _, _ := unstructured.NestedBool(v, "storage"); storage {
			stored = append(stored, name)
		}
		_, status, _ := unstructured.NestedFieldNoCopy(v, "subresources", "status")
		k.Status = k.Status || status
		selectable, _, _ := unstructured.NestedSlice(v, "selectableFields")
		for _, f := range selectable {
			if f, ok := f.(map[string]any); ok {
				path, _, _ := unstructured.NestedString(f, "jsonPath")
				k.fields = append(k.fields, strings.TrimPrefix(path, "."))
			}
		}
	}

	slices.SortFunc(k.Versions, func(a, b string) int { return apiversion.CompareKubeAwareVersionStrings(b, a) })
	c.register(k.complete())
	names, _, _ := unstructured.NestedMap(crd.Object, "spec", "names")
	condition := func(kind, reason string) any {
		return map[string]any{
			"type":               kind,
			"status":             "True",
			"reason":             reason,
			"message":            "",
			"lastTransitionTime": now(),
		}
	}
	crd.Object["status"] = map[string]any{
		"acceptedNames": names, "storedVersions": stored,
		"conditions": []any{condition("NamesAccepted", "NoConflicts"),
			condition("Established", "InitialNamesAccepted")},
	}
}

// undefine removes a kind with its definition: its objects are deleted, and its
// watches end.
func (c *catalog) undefine(crd *unstructured.Unstructured) {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	name := schema.GroupResource{Group: group, Resource: plural}
	t := c.tables[name.String()]
	if t == nil || t.kind.native {
		return
	}
	c.endKind(t)
}

func (c *catalog) endKind(t *table) {
	for key, v := range t.objects {
		c.remove(t, key, v.copy().Object)
	}
	c.hide(t)
}

// hide ends the watches of a kind, which is no longer served.
func (c *catalog) hide(t *table) {
	t.gone = true
	t.wake()
	delete(c.tables, t.kind.GroupResource().String())
	c.documents = [2]*document{}
}
