// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"encoding/json"
	"io"
	"log"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// ServeHTTP implements http.Handler.
func (f *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	verb := "get"
	q := r.URL.Query()
	switch {
	case strings.HasPrefix(q.Get("fieldSelector"), "metadata.name=fleetcache"):
		verb = "version"
	case q.Get("sendInitialEvents") == "true":
		verb = "stream"
	case q.Get("watch") == "true":
		verb = "watch"
	}
	status, uid, gitVersion := f.admit(verb, r)
	switch {
	case status == -1:
		<-r.Context().Done()
		return
	case status != 0:
		w.WriteHeader(status)
		return
	}
	switch path := r.URL.Path; {
	case path == "/readyz":
		_, _ = w.Write([]byte("ok"))
	case path == "/version":
		Answer(w, map[string]any{"gitVersion": gitVersion})
	case path == "/api":
		Answer(w, map[string]any{"kind": "APIVersions", "versions": []string{"v1"}})
	case path == "/apis":
		Answer(w, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{}})
	case path == "/api/v1":
		Answer(w, map[string]any{
			"kind":         "APIResourceList",
			"apiVersion":   "v1",
			"groupVersion": "v1",
			"resources":    fakeResources(),
		})
	case path == "/api/v1/namespaces/kube-system":
		Answer(w, map[string]any{"kind": "Namespace", "apiVersion": "v1",
			"metadata": map[string]any{"name": "kube-system", "uid": uid}})
	case path == "/api/v1/namespaces" && verb == "watch":
		Answer(w, map[string]any{"type": "ADDED", "object": map[string]any{"kind": "Namespace", "apiVersion": "v1",
			"metadata": map[string]any{"name": "kube-system", "uid": uid}}})
	case fakeKind(path) != "" && verb != "get":
		f.watch(w, r, verb)
	case fakeKind(path) != "":
		f.list(w, path)
	case strings.HasPrefix(path, "/api/v1/namespaces/default/configmaps/"):
		f.get(w, strings.TrimPrefix(path, "/api/v1/namespaces/default/configmaps/"))
	default:
		notFound(w)
	}
}

// admit counts a request. It returns the status to answer it with, if that is
// not the usual one.
func (f *API) admit(verb string, r *http.Request) (status int, uid, gitVersion string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.requests[verb+" "+r.URL.Path]++
	if f.fail != nil {
		status = f.fail(r)
	}
	return status, f.uid, f.gitVersion
}

// Answer writes a JSON response.
func Answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func notFound(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind":       "Status",
		"apiVersion": "v1",
		"status":     "Failure",
		"reason":     "NotFound",
		"code":       404,
	})
}

func (f *API) get(w http.ResponseWriter, name string) {
	f.mu.Lock()
	object := f.objects[name]
	f.mu.Unlock()
	if object == nil {
		notFound(w)
		return
	}
	Answer(w, object)
}

// fakeKinds are the served kinds, by their plural. Only ConfigMaps have
// objects.
var fakeKinds = map[string]string{
	"configmaps":      "ConfigMap",
	"secrets":         "Secret",
	"services":        "Service",
	"endpoints":       "Endpoints",
	"serviceaccounts": "ServiceAccount",
}

func fakeResources() []any {
	var out []any
	for _, plural := range slices.Sorted(maps.Keys(fakeKinds)) {
		out = append(out, map[string]any{
			"name":         plural,
			"singularName": strings.ToLower(fakeKinds[plural]),
			"namespaced":   true,
			"kind":         fakeKinds[plural],
			"verbs":        []string{"get", "list", "watch"},
		})
	}
	return out
}

// fakeKind returns the kind whose collection has the path, or "".
func fakeKind(path string) string { return fakeKinds[path[strings.LastIndex(path, "/")+1:]] }

// selects reports whether an object belongs to the collection at the path.
func selects(path string, object map[string]any) bool {
	_, in, namespaced := strings.Cut(path, "/namespaces/")
	namespace, _, _ := strings.Cut(in, "/")
	meta, _ := object["metadata"].(map[string]any)
	return object["kind"] == fakeKind(path) && (!namespaced || meta["namespace"] == namespace)
}

// collectionLocked returns the objects of the collection at the path.
func (f *API) collectionLocked(path string) []any {
	items := []any{}
	for _, o := range f.objects {
		if selects(path, o) {
			items = append(items, o)
		}
	}
	return items
}

func (f *API) list(w http.ResponseWriter, path string) {
	f.mu.Lock()
	items := f.collectionLocked(path)
	rv := strconv.Itoa(f.rv)
	f.mu.Unlock()
	Answer(w, map[string]any{
		"kind":       fakeKind(path) + "List",
		"apiVersion": "v1",
		"metadata":   map[string]any{"resourceVersion": rv},
		"items":      items,
	})
}

func (f *API) watch(w http.ResponseWriter, r *http.Request, verb string) {
	w.Header().Set("Content-Type", "application/json")
	out, kind := json.NewEncoder(w), fakeKind(r.URL.Path)
	f.mu.Lock()
	f.counts.streams[r.URL.Path]++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.counts.streams[r.URL.Path]--
	}()
	send := func(kind string, object any) { _ = out.Encode(map[string]any{"type": kind, "object": object}) }
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if verb != "watch" {
		f.mu.Lock()
		from = f.rv
		objects := f.collectionLocked(r.URL.Path)
		f.mu.Unlock()
		if verb == "stream" {
			for _, o := range objects {
				send("ADDED", o)
			}
		}
		send("BOOKMARK", map[string]any{"kind": kind, "apiVersion": "v1", "metadata": map[string]any{
			"resourceVersion": strconv.Itoa(from), "annotations": map[string]any{"k8s.io/initial-events-end": "true"},
		}})
	}
	for {
		w.(http.Flusher).Flush()
		f.mu.Lock()
		news := f.news
		for _, e := range f.log {
			if e.rv > from && f.lagging != r.URL.Path {
				if selects(r.URL.Path, e.object) {
					send(e.kind, e.object)
				}
				from = e.rv
			}
		}
		f.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-news:
		case <-r.Context().Done():
			return
		}
	}
}

// DiscardLog is for servers whose error logs are expected.
var DiscardLog = log.New(io.Discard, "", 0)
