// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// cluster serves discovery as kube-apiserver does, in memory.
type cluster struct {
	t *testing.T

	mu       sync.Mutex // protects the fields below
	core     []discoveryv2.APIGroupDiscovery
	groups   []discoveryv2.APIGroupDiscovery
	legacy   bool
	status   map[string]int    // by path: the status to return instead
	etags    map[string]string // by path: the ETag to claim instead
	requests []string          // path and status
	hold     chan struct{}     // if set, requests wait until it is closed
}

func newCluster(t *testing.T) *cluster {
	return &cluster{
		t: t, status: map[string]int{}, etags: map[string]string{},
		core: []discoveryv2.APIGroupDiscovery{served("", versioned("v1",
			resourceOf("pods", "Pod", true, "log", "exec"), resourceOf("nodes", "Node", false),
			resourceOf("endpoints", "Endpoints", true)))},
		groups: []discoveryv2.APIGroupDiscovery{
			served("apps", versioned("v1", resourceOf("deployments", "Deployment", true, "scale", "status"))),
			served("autoscaling", versioned("v2",
				resourceOf("horizontalpodautoscalers", "HorizontalPodAutoscaler", true)),
				versioned("v1", resourceOf("horizontalpodautoscalers", "HorizontalPodAutoscaler", true))),
		},
	}
}

func served(name string, versions ...discoveryv2.APIVersionDiscovery) discoveryv2.APIGroupDiscovery {
	return discoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}, Versions: versions}
}

func versioned(name string, resources ...discoveryv2.APIResourceDiscovery) discoveryv2.APIVersionDiscovery {
	return discoveryv2.APIVersionDiscovery{Version: name, Resources: resources,
		Freshness: discoveryv2.DiscoveryFreshnessCurrent}
}

func stale(name string) discoveryv2.APIVersionDiscovery {
	return discoveryv2.APIVersionDiscovery{Version: name, Freshness: discoveryv2.DiscoveryFreshnessStale}
}

func resourceOf(name, kind string, namespaced bool, subresources ...string) discoveryv2.APIResourceDiscovery {
	r := discoveryv2.APIResourceDiscovery{
		Resource: name, SingularResource: strings.ToLower(kind), Scope: discoveryv2.ScopeCluster,
		ResponseKind: &metav1.GroupVersionKind{Kind: kind}, Verbs: []string{"get", "list", "watch"},
	}
	if namespaced {
		r.Scope = discoveryv2.ScopeNamespace
	}
	for _, sub := range subresources {
		r.Subresources = append(r.Subresources, discoveryv2.APISubresourceDiscovery{
			Subresource: sub, ResponseKind: &metav1.GroupVersionKind{Kind: "Sub" + kind}, Verbs: []string{"get"},
		})
	}
	return r
}

// serve replaces the groups of the cluster.
func (c *cluster) serve(groups ...discoveryv2.APIGroupDiscovery) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.groups = groups
}

// asked returns the requests since the last call.
func (c *cluster) asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()

	requests := c.requests
	c.requests = nil
	return requests
}

// do sends a request of a mapper.
func (c *cluster) do(req *http.Request) (*http.Response, error) {
	c.mu.Lock()
	hold := c.hold
	c.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()

	rec := httptest.NewRecorder()
	c.answer(rec, req)
	resp := rec.Result()
	c.requests = append(c.requests, fmt.Sprintf("%s %d", req.URL.Path, resp.StatusCode))
	return resp, nil
}

func (c *cluster) answer(w http.ResponseWriter, req *http.Request) {
	path := req.URL.Path
	require.Equal(c.t, "cluster.invalid", req.URL.Host)
	if status := c.status[path]; status != 0 {
		w.WriteHeader(status)
		_, _ = w.Write([]byte("canary of the remote"))
		return
	}
	if c.legacy || !strings.Contains(req.Header.Get("Accept"), "APIGroupDiscoveryList") {
		c.answerLegacy(w, path)
		return
	}
	list := discoveryv2.APIGroupDiscoveryList{Items: c.groups}
	if path == corePath {
		list.Items = c.core
	}
	hashed, err := json.Marshal(list)
	require.NoError(c.t, err)
	etag := fmt.Sprintf(`"%X"`, sha512.Sum512(hashed))
	if claim := c.etags[path]; claim != "" {
		etag = claim
	}
	w.Header().Set("ETag", etag)
	if req.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	list.TypeMeta = metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}
	w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	require.NoError(c.t, json.NewEncoder(w).Encode(list))
}

func (c *cluster) answerLegacy(w http.ResponseWriter, path string) {
	w.Header().Set("Content-Type", "application/json")
	encode := json.NewEncoder(w).Encode
	switch path {
	case corePath:
		require.NoError(c.t,
			encode(metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}))
		return
	case apisPath:
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList"}}
		for _, g := range c.groups {
			out := metav1.APIGroup{Name: g.Name}
			for i := range g.Versions { // old servers list the preferred version in any position
				name := g.Versions[len(g.Versions)-1-i].Version
				out.Versions = append(out.Versions,
					metav1.GroupVersionForDiscovery{GroupVersion: g.Name + "/" + name, Version: name})
			}
			out.PreferredVersion.Version = g.Versions[0].Version
			list.Groups = append(list.Groups, out)
		}
		require.NoError(c.t, encode(list))
		return
	}
	for _, g := range append(c.core[:1:1], c.groups...) {
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
			if path == corePath+"/"+gv.String() || path == apisPath+"/"+gv.String() {
				require.NoError(c.t, encode(legacyList(gv, v)))
				return
			}
		}
	}
	w.WriteHeader(http.StatusNotFound)
}

func legacyList(gv schema.GroupVersion, v discoveryv2.APIVersionDiscovery) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: gv.String()}
	for _, r := range v.Resources {
		namespaced := r.Scope == discoveryv2.ScopeNamespace
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: r.Resource, SingularName: r.SingularResource, Kind: r.ResponseKind.Kind, Namespaced: namespaced,
			Verbs: r.Verbs})
		for _, sub := range r.Subresources {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: r.Resource + "/" + sub.Subresource, Kind: sub.ResponseKind.Kind, Namespaced: namespaced})
		}
	}
	return list
}

// mapper returns a mapper for the cluster.
func (c *cluster) mapper(table *Table) *Mapper {
	return table.NewMapper(c.do, "https://cluster.invalid", Options{})
}

func gvkOf(group, version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
}
