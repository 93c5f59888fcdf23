// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleetserver

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/bench/internal/objects"
)

// ServeHTTP implements http.Handler.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+c.token {
		fail(w, r, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	if r.URL.Path == "/api/v1/namespaces/kube-system" {
		c.fleet.counts.kube.Add(1)
		c.serveKubeSystem(w, r)
		return
	}
	if serve, ok := documents[r.URL.Path]; ok {
		c.fleet.counts.other.Add(1)
		serve(w)
		return
	}
	t, which, err := c.route(r.URL)
	if t == nil && err == nil {
		c.fleet.counts.other.Add(1)
		c.fleet.paths.ServeHTTP(w, r)
		return
	}
	if err == nil && r.Method != http.MethodGet {
		err = apierrors.NewMethodNotSupported(schema.GroupResource{Resource: r.URL.Path}, r.Method)
	}
	if err == nil {
		err = t.serve(w, r, which)
	}
	if err != nil {
		fail(w, r, err)
	}
}

// documents are the paths that are no resources and that fakeapi lacks: the
// root, which some probe, and the OpenAPI document, which describes nothing
// here.
var documents = map[string]func(http.ResponseWriter){
	"/": func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", jsonType)
		_, _ = w.Write([]byte(`{"paths":["/api","/api/v1","/apis","/apis/apps/v1","/readyz","/version"]}`))
	},
	"/openapi/v2": func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
		_, _ = w.Write([]byte("\x0a\x032.0")) // swagger: "2.0"
	},
}

// serveKubeSystem serves the namespace whose UID identifies the cluster.
func (c *cluster) serveKubeSystem(w http.ResponseWriter, r *http.Request) {
	ns := kubeSystem(c.uid)
	ns.ResourceVersion = strconv.Itoa(firstVersion / 2)
	if err := representationOf(r, c.tables[0]).one(w, ns); err != nil {
		fail(w, r, err)
	}
}

// route returns the table and the selection of a path; no table means that the
// path is no resource.
func (c *cluster) route(u *url.URL) (*table, selection, error) {
	group, rest := "", ""
	switch parts := strings.SplitN(strings.TrimPrefix(u.Path, "/"), "/", 4); {
	case len(parts) > 2 && parts[0] == "api":
		rest = strings.Join(parts[2:], "/")
	case len(parts) > 3 && parts[0] == "apis":
		group, rest = parts[1], parts[3]
	default:
		return nil, selection{}, nil
	}
	var which selection
	path := strings.Split(rest, "/")
	if len(path) > 2 && path[0] == "namespaces" {
		which.namespace, path = path[1], path[2:]
	}
	if len(path) == 2 {
		which.object = path[1]
		which.name = path[1]
	}

	var err error
	if s := u.Query().Get("fieldSelector"); s != "" {
		which.name, err = nameOf(s)
	}
	if u.Query().Get("labelSelector") != "" {
		err = errors.Join(err, apierrors.NewBadRequest("label selectors are not served"))
	}
	which.none = which.name != "" && !objects.IsName(which.name)
	for _, t := range c.tables {
		if t.kind.GVK.Group == group && t.kind.Resource == path[0] && len(path) <= 2 {
			return t, which, err
		}
	}

	return nil, which, apierrors.NewGenericServerResponse(
		http.StatusNotFound, "get", schema.GroupResource{}, "", u.Path, 0, false)
}

func nameOf(selector string) (string, error) {
	s, err := fields.ParseSelector(selector)
	if err == nil {
		if name, ok := s.RequiresExactMatch("metadata.name"); ok && len(s.Requirements()) == 1 {
			return name, nil
		}
	}
	return "", apierrors.NewBadRequest("only metadata.name is served: " + selector)
}

// serve serves a GET, LIST or WATCH.
func (t *table) serve(w http.ResponseWriter, r *http.Request, which selection) error {
	q := r.URL.Query()
	n := &t.cluster.fleet.counts
	isWatch := q.Get("watch") == "true" || q.Get("watch") == "1"
	switch {
	case which.object != "":
		n.other.Add(1)
		return t.get(w, r, which)
	case which.none || !isWatch && q.Get("limit") == "1":
		n.history.Add(1)
	case isWatch && q.Get("sendInitialEvents") == "true":
		n.streams.Add(1)
	case isWatch:
		n.watches.Add(1)
	default:
		n.lists.Add(1)
	}
	if isWatch {
		return t.watch(w, r, which)
	}
	return t.list(w, r, which)
}

// get serves one object.
func (t *table) get(w http.ResponseWriter, r *http.Request, which selection) error {
	t.cluster.mu.Lock()
	all := t.all()
	t.cluster.mu.Unlock()
	found, err := t.selected(which, all)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return apierrors.NewNotFound(t.kind.GVR().GroupResource(), which.object)
	}
	return representationOf(r, t).one(w, found[0])
}

// versionOf returns the resourceVersion of a request, and whether it has one.
func versionOf(q url.Values) (rv int64, given bool, err error) {
	text := q.Get("resourceVersion")
	if text == "" {
		return 0, false, nil
	}
	rv, err = strconv.ParseInt(text, 10, 64)
	if err != nil || rv < 0 {
		return 0, true, apierrors.NewBadRequest(fmt.Sprintf("invalid resourceVersion %q", text))
	}
	return rv, true, nil
}

// fail responds with an error as an API server does.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	status, p := statusOf(err), representationOf(r, nil)
	text, err := p.encode(status)
	if err != nil {
		panic(err) // a Status can be encoded
	}
	w.Header().Set("Content-Type", p.contentType())
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(text)
}

func statusOf(err error) *metav1.Status {
	api := apierrors.APIStatus(apierrors.NewInternalError(err))
	_ = errors.As(err, &api)
	status := api.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}

	return &status
}
