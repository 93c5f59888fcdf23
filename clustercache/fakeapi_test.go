// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// fakeAPI is an API server for ConfigMaps over in-memory connections, so that
// it runs inside a synctest bubble.
type fakeAPI struct {
	t      *testing.T
	server *http.Server
	conns  chan net.Conn
	closed chan struct{}

	mu       sync.Mutex // protects the fields below
	uid      string
	rv       int
	objects  map[string]map[string]any
	log      []fakeEvent
	news     chan struct{}
	fail     func(r *http.Request) int // returns the status to answer with; 0: none, -1: hang
	refuse   bool                      // accept no connections
	open     map[net.Conn]struct{}
	requests map[string]int // by verb and path
	streams  map[string]int // open watches by path
	dials    int
	lagging  string // the path whose watches receive no events for now

	gitVersion string
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
		news: make(chan struct{}), requests: map[string]int{}, streams: map[string]int{}, open: map[net.Conn]struct{}{}, gitVersion: "v1.36.0",
	}
	f.server = &http.Server{Handler: f, ConnState: f.connState} //nolint:gosec // in memory
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
	return &rest.Config{Host: "http://fake.test", Dial: f.dial, BearerToken: "t"}
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

func (f *fakeAPI) connState(c net.Conn, s http.ConnState) {
	if s == http.StateClosed {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.open, c)
	}
}

// dialled returns the number of dials.
func (f *fakeAPI) dialled() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dials
}

// connections returns the number of open connections.
func (f *fakeAPI) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.open)
}

// watching returns the number of open watches of a path, after synctest.Wait: a
// watch that ends is replaced at once.
func (f *fakeAPI) watching(path string) int {
	synctest.Wait()
	return f.watchingNow(path)
}

// watchingNow is watching without the wait, for tests with concurrent work.
func (f *fakeAPI) watchingNow(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.streams[path]
}

// die closes all connections and refuses new ones; live accepts them again.
func (f *fakeAPI) die() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = true
	f.cutLocked()
}

// upgrade changes the version of the API server.
func (f *fakeAPI) upgrade(version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gitVersion = version
}

// cut closes all connections.
func (f *fakeAPI) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
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

// failWith answers requests whose path contains part with the status; -1 lets
// them hang. Running requests continue.
func (f *fakeAPI) failWith(status int, part string) {
	f.failIf(status, func(r *http.Request) bool { return strings.Contains(r.URL.Path, part) })
}

// failIf answers matching requests with the status.
func (f *fakeAPI) failIf(status int, matches func(r *http.Request) bool) {
	f.respond(func(r *http.Request) int {
		if matches(r) {
			return status
		}
		return 0
	})
}

// respond answers a request with the status that f returns for it; 0 is the
// usual answer, and -1 lets it hang. A function that panics ends the connection
// of its request.
func (f *fakeAPI) respond(fail func(r *http.Request) int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// lag withholds the events of the watches of a path; an empty path ends that.
func (f *fakeAPI) lag(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lagging = path
	close(f.news)
	f.news = make(chan struct{})
}

func (f *fakeAPI) heal() { f.respond(nil) }

// become changes the cluster's identity and cuts all connections.
func (f *fakeAPI) become(uid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uid = uid
	f.cutLocked()
}

// restart begins a history without objects.
func (f *fakeAPI) restart(uid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uid, f.rv, f.log = uid, 0, nil
	clear(f.objects)
}

// identity returns the cluster's UID.
func (f *fakeAPI) identity() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.uid
}

// stored returns the objects by name.
func (f *fakeAPI) stored() map[string]map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.objects)
}

// requested returns how often each verb and path was requested.
func (f *fakeAPI) requested() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.requests)
}

func (f *fakeAPI) count(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests[what]
}

func (f *fakeAPI) total() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.requests {
		n += c
	}
	return n
}

// put creates or updates a ConfigMap of the namespace default and returns its
// resourceVersion.
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

// own adds an owner, a Deployment, to an object.
func (f *fakeAPI) own(name, owner string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rv++
	old := f.objects[name]
	meta := maps.Clone(old["metadata"].(map[string]any))
	meta["resourceVersion"] = strconv.Itoa(f.rv)
	meta["ownerReferences"] = []any{map[string]any{"apiVersion": "apps/v1beta2", "kind": "Deployment", "name": owner, "uid": owner, "controller": true}}
	object := maps.Clone(old)
	object["metadata"] = meta
	f.objects[name] = object
	f.tellLocked("MODIFIED", object)
}

// version returns the newest resourceVersion.
func (f *fakeAPI) version() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rv
}

// delete deletes an object.
func (f *fakeAPI) delete(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rv++
	object := maps.Clone(f.objects[name])
	meta := maps.Clone(object["metadata"].(map[string]any))
	meta["resourceVersion"] = strconv.Itoa(f.rv)
	object["metadata"] = meta
	delete(f.objects, name)
	f.tellLocked("DELETED", object)
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
		answer(w, map[string]any{"gitVersion": gitVersion})
	case path == "/api":
		answer(w, map[string]any{"kind": "APIVersions", "versions": []string{"v1"}})
	case path == "/apis":
		answer(w, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{}})
	case path == "/api/v1":
		answer(w, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": fakeResources()})
	case path == "/api/v1/namespaces/kube-system":
		answer(w, map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": "kube-system", "uid": uid}})
	case path == "/api/v1/namespaces" && verb == "watch":
		answer(w, map[string]any{"type": "ADDED", "object": map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": "kube-system", "uid": uid}}})
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
func (f *fakeAPI) admit(verb string, r *http.Request) (status int, uid, gitVersion string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests[verb+" "+r.URL.Path]++
	if f.fail != nil {
		status = f.fail(r)
	}
	return status, f.uid, f.gitVersion
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

// fakeKinds are the served kinds, by their plural. Only ConfigMaps have
// objects.
var fakeKinds = map[string]string{
	"configmaps": "ConfigMap", "secrets": "Secret", "services": "Service", "endpoints": "Endpoints", "serviceaccounts": "ServiceAccount",
}

func fakeResources() []any {
	var out []any
	for _, plural := range slices.Sorted(maps.Keys(fakeKinds)) {
		out = append(out, map[string]any{
			"name": plural, "singularName": strings.ToLower(fakeKinds[plural]), "namespaced": true, "kind": fakeKinds[plural],
			"verbs": []string{"get", "list", "watch"},
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
func (f *fakeAPI) collectionLocked(path string) []any {
	items := []any{}
	for _, o := range f.objects {
		if selects(path, o) {
			items = append(items, o)
		}
	}
	return items
}

func (f *fakeAPI) list(w http.ResponseWriter, path string) {
	f.mu.Lock()
	items := f.collectionLocked(path)
	rv := strconv.Itoa(f.rv)
	f.mu.Unlock()
	answer(w, map[string]any{"kind": fakeKind(path) + "List", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": rv}, "items": items})
}

func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request, verb string) {
	w.Header().Set("Content-Type", "application/json")
	out, kind := json.NewEncoder(w), fakeKind(r.URL.Path)
	f.mu.Lock()
	f.streams[r.URL.Path]++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.streams[r.URL.Path]--
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
