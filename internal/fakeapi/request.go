// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Request describes a request.
type Request struct {
	// Verb is get, list, watch, create, update, patch, delete or
	// deletecollection. For a path that names no resource it is the HTTP method
	// in lower case.
	Verb string
	// Stream reports that a watch begins with the existing objects: a streamed
	// list.
	Stream      bool
	Group       string
	Version     string
	Resource    string
	Subresource string
	Namespace   string
	Name        string
	// Selected is the single name to which a field selector restricts a list or
	// watch; permission for that name is sufficient.
	Selected string
	// Path is the URL's path, and Query its query.
	Path, Query string
	// User is the user who sent the request. Admin reports that the test itself
	// did.
	User      string
	Admin     bool
	UserAgent string
	// Accept is the requested form of the response.
	Accept string
	// Time is when the request arrived.
	Time time.Time
}

// GroupResource returns the resource.
func (r *Request) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Resource}
}

// Writes reports whether the request is a write.
func (r *Request) Writes() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return r.Resource != ""
	}
	return false
}

// parse parses a request's path as kube-apiserver does.
func parse(r *http.Request) *Request {
	out := &Request{
		Verb:      strings.ToLower(r.Method),
		Path:      r.URL.Path,
		Query:     r.URL.RawQuery,
		UserAgent: r.UserAgent(),
		Accept:    r.Header.Get("Accept"),
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		out.Version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		out.Group, out.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return out
	}

	if parts[0] == "namespaces" && len(parts) > 1 {
		if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
			out.Namespace, parts = parts[1], parts[2:]
		}
	}
	out.Resource = parts[0]
	if len(parts) > 1 {
		out.Name = parts[1]
	}
	if len(parts) > 2 {
		out.Subresource = parts[2]
	}
	out.Verb = verb(r, out.Name != "")
	if out.Verb == "list" || out.Verb == "watch" {
		if s, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector")); err == nil {
			out.Selected, _ = s.RequiresExactMatch("metadata.name")
		}
	}
	out.Stream = out.Verb == "watch" && r.URL.Query().Get("sendInitialEvents") == "true"

	return out
}

func verb(r *http.Request, named bool) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		watch := r.URL.Query().Get("watch")
		switch {
		case watch == "true" || watch == "1":
			return "watch"
		case named:
			return "get"
		}

		return "list"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodDelete:
		if !named {
			return "deletecollection"
		}
	}

	return strings.ToLower(r.Method)
}

func guessResource(gvk schema.GroupVersionKind) (plural, singular string) {
	p, s := meta.UnsafeGuessKindToResource(gvk)
	return p.Resource, s.Resource
}
