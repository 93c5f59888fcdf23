// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package discovery finds a resource in the discovery documents of a server.
//
// # Tests
//
// The leading test is TestFormsOfDiscoveryAgree.
// TestHazardOtherAnswersProveNothing covers what is no answer.
package discovery

import (
	"encoding/json"
	"errors"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/internal/meter"
	"github.com/fleetcache/fleetcache/internal/sanitize"
)

const (
	// MaxBytes bounds the size of a discovery document.
	MaxBytes = 8 << 20
	// maxMemory bounds the memory of a discovery document once decoded.
	maxMemory = 32 << 20
	// Types are the supported forms of discovery: all groups in one document
	// and, for older servers, one document for each version.
	Types = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
		"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)

// ErrNone indicates a response that is no discovery document, which nothing but
// an API server writes.
var ErrNone = errors.New("discovery was answered by something else")

var errStale = errors.New("the server does not know at the moment what a version of the group serves")

// Search is what to look for.
type Search struct {
	// Resource is the resource.
	Resource schema.GroupVersionResource
	// Namespaced reports whether only a resource in namespaces counts: a
	// definition that was re-created without namespaces has none of the objects
	// that were in a namespace.
	Namespaced bool
}

// Result is what was found.
type Result struct {
	// Served reports whether the resource is served in the requested version.
	Served bool
	// Versions are the other versions of its group that serve it, fit to show.
	Versions []string
}

// Document is any discovery document, reduced to the fields in use.
type Document struct {
	Kind      string          `json:"kind"`
	Items     []group         `json:"items"`
	Groups    []group         `json:"groups"`
	Versions  json.RawMessage `json:"versions"`
	Resources []struct {
		Name       string `json:"name"`
		Kind       string `json:"kind"`
		Namespaced bool   `json:"namespaced"`
	} `json:"resources"`
}

type group struct {
	Name     string `json:"name"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Versions []struct {
		Version   string `json:"version"`
		Freshness string `json:"freshness"`
		Resources []struct {
			Resource string `json:"resource"`
			Scope    string `json:"scope"`
		} `json:"resources"`
	} `json:"versions"`
}

func (g group) versions() []string {
	var out []string
	for _, v := range g.Versions {
		out = append(out, v.Version)
	}
	return out
}

// Decode decodes a document. The error is [ErrNone].
func Decode(body []byte) (*Document, error) {
	var doc Document
	if fits, err := meter.Decode(body, &doc, maxMemory); len(body) > MaxBytes || !fits || err != nil {
		return nil, ErrNone
	}
	return &doc, nil
}

// KindOf returns the kind of a resource, if the document is the list of the
// resources of a version, and has it.
func (d *Document) KindOf(resource string) string {
	if d.Kind != "APIResourceList" {
		return ""
	}
	for _, r := range d.Resources {
		if r.Name == resource {
			return r.Kind
		}
	}
	return ""
}

// Find follows the document of all groups, or of all versions of the core
// group, to the resource. read returns the document at a path of the server.
// The error is [ErrNone], that of read, or that a version is stale.
func (s Search) Find(read func(path string) (*Document, error)) (Result, error) {
	root := "/apis"
	if s.Resource.Group == "" {
		root = "/api"
	}
	all, err := read(root)
	if err != nil {
		return Result{}, err
	}

	switch all.Kind {
	case "APIGroupDiscoveryList":
		return s.inGroups(all.Items)
	case "APIGroupList":
		for _, g := range all.Groups {
			if g.Name == s.Resource.Group {
				return s.inVersions(read, root+"/"+url.PathEscape(g.Name), g.versions())
			}
		}
		return Result{}, nil // the group is not served
	case "APIVersions":
		var names []string
		if json.Unmarshal(all.Versions, &names) == nil {
			return s.inVersions(read, root, names)
		}
	}

	return Result{}, ErrNone
}

// inGroups looks up the resource in a document of all groups.
func (s Search) inGroups(groups []group) (found Result, _ error) {
	for _, g := range groups {
		if g.Metadata.Name != s.Resource.Group {
			continue
		}
		for _, v := range g.Versions {
			has := false
			for _, res := range v.Resources {
				has = has || s.matches(res.Resource, res.Scope != "Cluster")
			}
			if !has && v.Freshness == "Stale" {
				return Result{}, errStale
			}
			found.note(s, v.Version, has)
		}
	}

	return found, nil
}

// inVersions reads the document of each version of a group.
func (s Search) inVersions(
	read func(string) (*Document, error), path string, versions []string,
) (found Result, _ error) {
	for _, version := range versions {
		doc, err := read(path + "/" + url.PathEscape(version))
		if err != nil {
			return Result{}, err
		}
		if doc.Kind != "APIResourceList" {
			return Result{}, ErrNone
		}
		has := false
		for _, res := range doc.Resources {
			has = has || s.matches(res.Name, res.Namespaced)
		}
		found.note(s, version, has)
	}

	return found, nil
}

// matches reports whether a discovered resource is the one to look for.
func (s Search) matches(name string, namespaced bool) bool {
	return name == s.Resource.Resource && (namespaced || !s.Namespaced)
}

func (r *Result) note(s Search, version string, has bool) {
	switch {
	case has && version == s.Resource.Version:
		r.Served = true
	case has:
		r.Versions = append(r.Versions, sanitize.Text(version))
	}
}
