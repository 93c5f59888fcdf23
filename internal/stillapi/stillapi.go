// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package stillapi is an API server in which nothing happens, for measuring
// what many clusters cost on our side. It is a round tripper, without
// connections, goroutines or TLS.
package stillapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// Resources are the resources that it serves, all in the core group. Kinds are
// their kinds, in the same order.
var (
	Resources = []string{"configmaps", "endpoints", "pods", "secrets", "services"}
	Kinds     = []string{"ConfigMap", "Endpoints", "Pod", "Secret", "Service"}
)

// Server is one cluster. The zero value has no objects.
type Server struct {
	// Name determines the cluster's UID.
	Name string
	// Objects is the number of objects per resource.
	Objects int
	// Labels returns the labels of an object. Nil means none.
	Labels func(i int) map[string]string
}

// Config returns a configuration for reaching the server.
func (s *Server) Config() *rest.Config {
	return &rest.Config{
		Host:          "https://" + s.Name + ".invalid",
		BearerToken:   "token",
		WrapTransport: func(http.RoundTripper) http.RoundTripper { return s },
	}
}

// RoundTrip implements http.RoundTripper.
func (s *Server) RoundTrip(req *http.Request) (*http.Response, error) {
	path := req.URL.Path
	switch path {
	case "/readyz":
		return respond(req, http.StatusOK, "ok"), nil
	case "/version":
		return respond(req, http.StatusOK, map[string]any{"gitVersion": "v1.36.0"}), nil
	case "/api":
		return respond(req, http.StatusOK, map[string]any{"kind": "APIVersions", "versions": []string{"v1"}}), nil
	case "/apis":
		return respond(req, http.StatusOK,
			map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{}}), nil
	case "/api/v1":
		return respond(req, http.StatusOK, discovery()), nil
	case "/api/v1/namespaces/kube-system":
		return respond(req, http.StatusOK,
			map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"uid": s.Name}}), nil
	}

	namespace, name := "", strings.TrimPrefix(path, "/api/v1/")
	if within, ok := strings.CutPrefix(name, "namespaces/"); ok {
		namespace, name, _ = strings.Cut(within, "/")
	}
	for i, resource := range Resources {
		if name == resource && req.URL.Query().Get("watch") != "" {
			return s.watch(req, Kinds[i], namespace), nil
		}
	}
	return respond(req, http.StatusNotFound, map[string]any{
		"kind":       "Status",
		"apiVersion": "v1",
		"status":     "Failure",
		"reason":     "NotFound",
		"code":       404,
	}), nil
}

func discovery() map[string]any {
	var resources []any
	for i, name := range Resources {
		resources = append(resources, map[string]any{
			"name":         name,
			"singularName": strings.ToLower(Kinds[i]),
			"namespaced":   true,
			"kind":         Kinds[i],
			"verbs":        []string{"get", "list", "watch"},
		})
	}

	return map[string]any{
		"kind":         "APIResourceList",
		"apiVersion":   "v1",
		"groupVersion": "v1",
		"resources":    resources,
	}
}

// watch sends the existing objects if requested, and nothing else. All are in
// one namespace, and no selector selects any.
func (s *Server) watch(req *http.Request, kind, namespace string) *http.Response {
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	q := req.URL.Query()
	selected := (namespace == "" || namespace == "default") && q.Get("labelSelector")+q.Get("fieldSelector") == ""
	if q.Get("sendInitialEvents") == "true" && selected {
		for i := range s.Objects {
			_ = out.Encode(map[string]any{"type": "ADDED",
				"object": map[string]any{"kind": kind, "apiVersion": "v1", "metadata": s.metadata(kind, i)}})
		}
	}

	_ = out.Encode(map[string]any{"type": "BOOKMARK",
		"object": map[string]any{"kind": kind, "apiVersion": "v1", "metadata": map[string]any{
			"resourceVersion": "10", "annotations": map[string]any{"k8s.io/initial-events-end": "true"},
		}}})
	resp := respond(req, http.StatusOK, nil)
	resp.Body = &silence{Reader: bytes.NewReader(text.Bytes()), ctx: req.Context(), closed: make(chan struct{})}

	return resp
}

func (s *Server) metadata(kind string, i int) map[string]any {
	m := map[string]any{
		"namespace":       "default",
		"name":            fmt.Sprintf("object-%d", i),
		"uid":             fmt.Sprintf("%s-%s-%d", s.Name, kind, i),
		"resourceVersion": "10",
	}
	if s.Labels != nil {
		m["labels"] = s.Labels(i)
	}
	return m
}

func respond(req *http.Request, status int, body any) *http.Response {
	resp := &http.Response{
		StatusCode:    status,
		Proto:         "HTTP/2.0",
		ProtoMajor:    2,
		Header:        http.Header{"Content-Type": {"application/json"}},
		Request:       req,
		ContentLength: -1,
	}
	text, isText := body.(string)
	if isText {
		resp.Header.Set("Content-Type", "text/plain")
	} else {
		encoded, _ := json.Marshal(body) // maps of strings and numbers cannot fail
		text = string(encoded)
	}

	resp.Body = io.NopCloser(strings.NewReader(text))
	return resp
}

// silence is a body whose Read blocks at the end of the data until it is closed
// or its request ends.
type silence struct {
	*bytes.Reader

	ctx    context.Context //nolint:containedctx // the request's
	once   sync.Once
	closed chan struct{}
}

func (s *silence) Read(p []byte) (int, error) {
	if s.Len() > 0 {
		return s.Reader.Read(p)
	}
	select {
	case <-s.closed:
		return 0, http.ErrBodyReadAfterClose
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
}

// Close implements io.Closer.
func (s *silence) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}
