// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	_ "embed" // the discovery documents
	"encoding/json"
	"slices"
	"strings"
	"sync"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// Kind describes a kind that a server serves.
type Kind struct {
	Group string
	Kind  string
	// Versions are the versions in which it is served, the preferred one first.
	// They differ only in name.
	Versions []string
	// Resource is the plural name, and Singular the singular name.
	Resource, Singular string
	// ClusterScoped reports that objects have no namespace.
	ClusterScoped bool
	// Status reports that there is a status subresource, so that other writes
	// leave the status unchanged.
	Status bool

	// Verbs are the supported verbs; nil means all. Kinds of aggregated APIs
	// often cannot be watched.
	Verbs []string
	// NoUID and NoVersions omit uid and resourceVersion from its objects, as
	// aggregated APIs do that compute their objects.
	NoUID, NoVersions bool
	// NoListVersions omits the resourceVersion from lists, and from the end of
	// streamed ones, but not from objects.
	NoListVersions bool
	// VersionBytes is the length of the resourceVersions of lists and
	// bookmarks, and ObjectVersionBytes of those of objects, as of proxies whose
	// versions encode those of several servers. Zero means plain numbers.
	VersionBytes, ObjectVersionBytes int
	// Repeats reports that a watch begins with the existing objects, whatever
	// the version at which it is to resume.
	Repeats bool
	// Overlooks reports that a streamed list is served as a plain watch.
	Overlooks bool
	// StaleDeletes reports that a watch shows a deleted object as it was last
	// stored, at the version of that state.
	StaleDeletes bool
	// Aggregated reports that another server serves it, which an APIService
	// names. It has no CustomResourceDefinition, and if it is no longer
	// registered, its objects still exist.
	Aggregated bool
	// NoBookmarks omits the bookmark that a watch gets once a minute, as on a
	// server without a watch cache.
	NoBookmarks bool

	// fields are the fields that field selectors may use besides metadata.name
	// and metadata.namespace.
	fields []string
	// native reports that the kind belongs to Kubernetes itself.
	native bool
	// builtIn reports that the kind has a Go type, to which written objects
	// must conform.
	builtIn bool
	// definition is the uid of the CustomResourceDefinition that a kind which is
	// registered seems to have.
	definition types.UID
	// generations reports that metadata.generation counts changes of the spec.
	generations bool
}

var allVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// GroupResource returns the kind's resource.
func (k *Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

func (k *Kind) gvk(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.Group, Version: version, Kind: k.Kind}
}

// createsOnUpdate reports whether an update of an object that does not exist
// creates it, whatever resourceVersion it has.
func (k *Kind) createsOnUpdate() bool {
	return k.builtIn && k.Group == "coordination.k8s.io" && k.Resource == "leases"
}

func (k *Kind) serves(version string) bool { return slices.Contains(k.Versions, version) }

// complete fills in the fields that follow from others.
func (k Kind) complete() *Kind {
	if k.Singular == "" {
		k.Singular = strings.ToLower(k.Kind)
	}
	if k.Resource == "" {
		plural, _ := guessResource(k.gvk("v1"))
		k.Resource = plural
	}
	if len(k.Versions) == 0 {
		k.Versions = []string{"v1"}
	}
	return &k
}

// The discovery documents of kube-apiserver 1.36.
var (
	//go:embed discovery/core.json
	coreJSON []byte
	//go:embed discovery/groups.json
	groupsJSON []byte
)

// discovered returns the built-in groups as a real server lists them.
var discovered = sync.OnceValue(func() [2]discoveryv2.APIGroupDiscoveryList {
	var out [2]discoveryv2.APIGroupDiscoveryList
	for i, text := range [][]byte{coreJSON, groupsJSON} {
		if err := json.Unmarshal(text, &out[i]); err != nil {
			panic("fakeapi: " + err.Error())
		}
	}
	return out
})

// selectable are the fields of built-in kinds that field selectors may use.
var selectable = map[schema.GroupResource][]string{
	{Resource: "pods"}: {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
		"spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"},
	{Resource: "secrets"}: {"type"},
	{Resource: "nodes"}:   {"spec.unschedulable"},
	{Resource: "events"}: {"involvedObject.kind", "involvedObject.namespace", "involvedObject.name",
		"involvedObject.uid",
		"involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
		"reportingComponent", "source", "type"},
	{Resource: "namespaces"}:                                               {"status.phase"},
	{Resource: "replicationcontrollers"}:                                   {"status.replicas"},
	{Group: "apps", Resource: "replicasets"}:                               {"status.replicas"},
	{Group: "batch", Resource: "jobs"}:                                     {"status.successful"},
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}: {"spec.signerName"},
}

// builtIns returns the kinds that every server serves.
func builtIns() []*Kind {
	var out []*Kind
	for _, list := range discovered() {
		for _, group := range list.Items {
			out = append(out, groupKinds(group)...)
		}
	}
	return out
}

func groupKinds(group discoveryv2.APIGroupDiscovery) []*Kind {
	var out []*Kind
	for _, v := range group.Versions {
		for _, r := range v.Resources {
			i := slices.IndexFunc(out, func(k *Kind) bool { return k.Resource == r.Resource })
			if i >= 0 {
				out[i].Versions = append(out[i].Versions, v.Version)
				continue
			}
			k := &Kind{
				Group:         group.Name,
				Kind:          r.ResponseKind.Kind,
				Versions:      []string{v.Version},
				Resource:      r.Resource,
				Singular:      r.SingularResource,
				ClusterScoped: r.Scope == discoveryv2.ScopeCluster,
				Verbs:         r.Verbs,
				native:        true,
			}
			k.Status = slices.ContainsFunc(r.Subresources,
				func(s discoveryv2.APISubresourceDiscovery) bool { return s.Subresource == "status" })
			k.builtIn = scheme.Scheme.Recognizes(k.gvk(v.Version))
			k.generations = counts(k.GroupResource())
			k.fields = selectable[k.GroupResource()]
			out = append(out, k)
		}
	}

	return out
}

// counts reports whether a built-in kind counts generations. Most kinds of the
// core group, which are older than generations, do not.
func counts(gr schema.GroupResource) bool {
	switch gr.Group {
	case "":
		return gr.Resource == "pods" || gr.Resource == "replicationcontrollers"
	case "apps":
		return gr.Resource != "controllerrevisions"
	case "networking.k8s.io":
		return gr.Resource != "ipaddresses" && gr.Resource != "servicecidrs"
	case "batch", "policy", "admissionregistration.k8s.io", "apiextensions.k8s.io", "flowcontrol.apiserver.k8s.io",
		"resource.k8s.io":
		return true
	}

	return false
}

// discovery returns a kind's entry in a discovery document.
func (k *Kind) discovery() discoveryv2.APIResourceDiscovery {
	r := discoveryv2.APIResourceDiscovery{
		Resource:         k.Resource,
		ResponseKind:     &metav1.GroupVersionKind{Kind: k.Kind},
		Scope:            discoveryv2.ScopeNamespace,
		SingularResource: k.Singular,
		Verbs:            allVerbs,
	}
	if k.Verbs != nil {
		r.Verbs = k.Verbs
	}
	if k.ClusterScoped {
		r.Scope = discoveryv2.ScopeCluster
	}
	if k.Status {
		r.Subresources = []discoveryv2.APISubresourceDiscovery{{
			Subresource: "status", ResponseKind: &metav1.GroupVersionKind{Kind: k.Kind},
			Verbs: []string{"get", "patch", "update"},
		}}
	}
	return r
}
