// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// fakeAPI is an API server of ConfigMaps over connections in memory, so that it runs inside a synctest bubble.
type fakeAPI struct {
	t      *testing.T
	server *http.Server
	conns  chan net.Conn
	closed chan struct{}

	mu       sync.Mutex // protects what follows
	uid      string
	rv       int
	objects  map[string]map[string]any
	log      []fakeEvent
	news     chan struct{}
	fail     func(r *http.Request) int // status to answer with; 0: none, -1: hang
	refuse   bool                      // no connections
	open     map[net.Conn]struct{}
	requests map[string]int // by verb and path
	dials    int
}

type fakeEvent struct {
	rv     int
	kind   string
	object map[string]any
}

func newFakeAPI(t *testing.T, uid string) *fakeAPI {
	t.Helper()
	f := &fakeAPI{
		t: t, conns: make(chan net.Conn), closed: make(chan struct{}), uid: uid, rv: 100, objects: map[string]map[string]any{},
		news: make(chan struct{}), requests: map[string]int{}, open: map[net.Conn]struct{}{},
	}
	f.server = &http.Server{Handler: f} //nolint:gosec // in memory
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f.server.Serve(f)
	}()
	t.Cleanup(func() {
		close(f.closed)
		require.NoError(t, f.server.Close())
		<-done
	})
	return f
}

// Accept implements net.Listener.
func (f *fakeAPI) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (f *fakeAPI) Close() error { return nil }

// Addr implements net.Listener.
func (f *fakeAPI) Addr() net.Addr { return &net.TCPAddr{} }

func (f *fakeAPI) config() *rest.Config {
	return &rest.Config{Host: "http://" + f.uid + ".test", Dial: f.dial, BearerToken: "t"}
}

func (f *fakeAPI) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	f.mu.Lock()
	refuse := f.refuse
	f.dials++
	f.mu.Unlock()
	if refuse {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	ours, theirs := net.Pipe()
	select {
	case f.conns <- theirs:
		f.mu.Lock()
		f.open[theirs] = struct{}{}
		f.mu.Unlock()
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

// die closes all connections and takes no more; live takes them again.
func (f *fakeAPI) die() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = true
	f.cutLocked()
}

func (f *fakeAPI) cutLocked() {
	for c := range f.open {
		_ = c.Close()
	}
	clear(f.open)
}

func (f *fakeAPI) live() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = false
}

// failWith makes requests whose path contains part be answered with the status; -1 lets them hang. Running ones go on.
func (f *fakeAPI) failWith(status int, part string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = func(r *http.Request) int {
		if strings.Contains(r.URL.Path, part) {
			return status
		}
		return 0
	}
}

func (f *fakeAPI) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = nil
}

func (f *fakeAPI) count(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests[what]
}

// put creates or updates a ConfigMap of the namespace default and returns its resourceVersion.
func (f *fakeAPI) put(name, value string, labels map[string]any) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rv++
	kind, uid := "ADDED", fmt.Sprintf("%s-%s-%d", f.uid, name, f.rv)
	if old := f.objects[name]; old != nil {
		kind, uid = "MODIFIED", old["metadata"].(map[string]any)["uid"].(string)
	}
	object := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"value": value, "in": f.uid},
		"metadata": map[string]any{"name": name, "namespace": "default", "uid": uid, "resourceVersion": strconv.Itoa(f.rv), "labels": labels},
	}
	f.objects[name] = object
	f.tellLocked(kind, object)
	return strconv.Itoa(f.rv)
}

// remove deletes a ConfigMap.
func (f *fakeAPI) remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rv++
	last := maps.Clone(f.objects[name])
	metadata := maps.Clone(last["metadata"].(map[string]any))
	metadata["resourceVersion"] = strconv.Itoa(f.rv)
	last["metadata"] = metadata
	delete(f.objects, name)
	f.tellLocked("DELETED", last)
}

func (f *fakeAPI) tellLocked(kind string, object map[string]any) {
	f.log = append(f.log, fakeEvent{rv: f.rv, kind: kind, object: object})
	close(f.news)
	f.news = make(chan struct{})
}

// ServeHTTP implements http.Handler.
func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	f.mu.Lock()
	f.requests[verb+" "+r.URL.Path]++
	status := 0
	if f.fail != nil {
		status = f.fail(r)
	}
	uid := f.uid
	f.mu.Unlock()
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
		answer(w, map[string]any{"gitVersion": "v1.36.0"})
	case path == "/api":
		answer(w, map[string]any{"kind": "APIVersions", "versions": []string{"v1"}})
	case path == "/apis":
		answer(w, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{}})
	case path == "/api/v1":
		answer(w, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": []any{
			map[string]any{"name": "configmaps", "singularName": "configmap", "namespaced": true, "kind": "ConfigMap", "verbs": []string{"get", "list", "watch"}},
		}})
	case path == "/api/v1/namespaces/kube-system":
		answer(w, map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": "kube-system", "uid": uid}})
	case strings.HasSuffix(path, "/configmaps") && verb != "get":
		f.watch(w, r, verb)
	case strings.HasSuffix(path, "/configmaps"):
		f.list(w)
	case strings.HasPrefix(path, "/api/v1/namespaces/default/configmaps/"):
		f.get(w, strings.TrimPrefix(path, "/api/v1/namespaces/default/configmaps/"))
	default:
		notFound(w)
	}
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func notFound(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})
}

func (f *fakeAPI) get(w http.ResponseWriter, name string) {
	f.mu.Lock()
	object := f.objects[name]
	f.mu.Unlock()
	if object == nil {
		notFound(w)
		return
	}
	answer(w, object)
}

func (f *fakeAPI) list(w http.ResponseWriter) {
	f.mu.Lock()
	items := make([]any, 0, len(f.objects))
	for _, o := range f.objects {
		items = append(items, o)
	}
	rv := strconv.Itoa(f.rv)
	f.mu.Unlock()
	answer(w, map[string]any{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": rv}, "items": items})
}

func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request, verb string) {
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	send := func(kind string, object any) { _ = out.Encode(map[string]any{"type": kind, "object": object}) }
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if verb != "watch" {
		f.mu.Lock()
		from = f.rv
		objects := make([]any, 0, len(f.objects))
		for _, o := range f.objects {
			objects = append(objects, o)
		}
		f.mu.Unlock()
		if verb == "stream" {
			for _, o := range objects {
				send("ADDED", o)
			}
		}
		send("BOOKMARK", map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "metadata": map[string]any{
			"resourceVersion": strconv.Itoa(from), "annotations": map[string]any{"k8s.io/initial-events-end": "true"},
		}})
	}
	for {
		w.(http.Flusher).Flush()
		f.mu.Lock()
		news := f.news
		for _, e := range f.log {
			if e.rv > from {
				send(e.kind, e.object)
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
