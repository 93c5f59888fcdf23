// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/memnet"
)

// PathOf is the API server's path of all objects of a kind of the core group.
func PathOf(kind string) string {
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	return "/api/v1/" + plural.Resource
}

// API is a fakeapi.Server on an in-memory network. It counts requests and fails
// on demand.
type API struct {
	Fake    *fakeapi.Server
	Net     *memnet.Listener
	Handler http.Handler // receives the requests; the API itself, unless a test replaces it

	t *testing.T

	mu         sync.Mutex // protects the fields below
	uid        string
	gitVersion string
	answer     AnswerFunc
	requests   map[string]int // by verb and path
}

// AnswerFunc returns how to answer a request, or nil to have the server answer
// it.
type AnswerFunc func(*http.Request) http.HandlerFunc

// NewAPI runs a server until the test ends. Its cluster has that UID.
func NewAPI(t *testing.T, uid string) *API {
	t.Helper()
	f := &API{
		Fake:       fakeapi.New(fakeapi.Options{Identity: uid}),
		Net:        memnet.Listen(),
		t:          t,
		gitVersion: "v1.36.0",
		requests:   map[string]int{},
	}
	f.identify(uid)
	f.Handler = f
	current := func(w http.ResponseWriter, r *http.Request) { f.Handler.ServeHTTP(w, r) }
	t.Cleanup(memnet.Serve(f.Net, &http.Server{Handler: http.HandlerFunc(current)})) //nolint:gosec // in memory

	return f
}

// identify sets the UID of the cluster.
func (f *API) identify(uid string) {
	f.t.Helper()
	f.mu.Lock()
	f.uid = uid
	f.mu.Unlock()

	require.NoError(f.t, f.Fake.Rewrite(schema.GroupKind{Kind: "Namespace"}, "", "kube-system", func(o map[string]any) {
		o["metadata"].(map[string]any)["uid"] = uid
	}))
}

// Config returns how to reach the server.
func (f *API) Config() *rest.Config {
	return &rest.Config{Host: "http://fake.test", Dial: f.Net.Dial, BearerToken: "t"}
}

// ServeHTTP implements http.Handler.
func (f *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	verb, q := "get", r.URL.Query()
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
	answer, gitVersion := f.answer, f.gitVersion
	f.mu.Unlock()

	if answer != nil {
		if handle := answer(r); handle != nil {
			handle(w, r)
			return
		}
	}
	if r.URL.Path == "/version" {
		Answer(w, map[string]any{"gitVersion": gitVersion})
		return
	}
	f.Fake.ServeHTTP(w, r)
}

// Answer writes a JSON response.
func Answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

// Dialled returns the number of dials.
func (f *API) Dialled() int { return f.Net.Dials() }

// Connections returns the number of open connections.
func (f *API) Connections() int { return f.Net.Open() }

// Watching returns the number of open watches of a path, after synctest.Wait: a
// watch that ends is replaced at once.
func (f *API) Watching(path string) int {
	synctest.Wait()
	return f.WatchingNow(path)
}

// WatchingNow is Watching without the wait, for tests with concurrent work.
func (f *API) WatchingNow(path string) int {
	n := 0
	for _, r := range f.Fake.Watched() {
		if r.Path == path {
			n++
		}
	}
	return n
}

// Die closes all connections and refuses new ones; Live accepts them again.
func (f *API) Die() { f.Net.Down() }

// Live accepts connections again.
func (f *API) Live() { f.Net.Up() }

// Cut closes all connections.
func (f *API) Cut() { f.Net.Reset() }

// Upgrade changes the version of the API server.
func (f *API) Upgrade(version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gitVersion = version
}

// FailWith answers requests whose path contains part with the status; -1 lets
// them hang. Running requests continue.
func (f *API) FailWith(status int, part string) {
	f.FailIf(status, func(r *http.Request) bool { return strings.Contains(r.URL.Path, part) })
}

// FailIf answers matching requests with the status.
func (f *API) FailIf(status int, matches func(r *http.Request) bool) {
	f.Respond(func(r *http.Request) int {
		if matches(r) {
			return status
		}
		return 0
	})
}

// Respond answers a request with the status that a function returns for it; 0
// is the usual answer, and -1 lets it hang. The function is called for one
// request at a time. If it panics, the request's connection ends.
func (f *API) Respond(status func(r *http.Request) int) {
	var mu sync.Mutex
	f.Set(func(r *http.Request) http.HandlerFunc {
		mu.Lock()
		defer mu.Unlock()
		switch code := status(r); code {
		case 0:
			return nil
		case -1:
			return fakeapi.Hang
		default:
			return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
		}
	})
}

// Set answers requests by a function; with nil the server answers all of them.
func (f *API) Set(answer AnswerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// Heal answers all requests as usual again.
func (f *API) Heal() { f.Set(nil) }

// Lag withholds the events of the watches of a path; an empty path ends that.
func (f *API) Lag(path string) {
	f.Fake.Hold(func(r *fakeapi.Request) bool { return r.Path == path })
}

// Become changes the cluster's identity and cuts all connections. The objects
// and the history remain.
func (f *API) Become(uid string) {
	f.t.Helper()
	f.identify(uid)
	f.Cut()
}

// Restart begins a history without objects, and ends all watches.
func (f *API) Restart(uid string) {
	f.t.Helper()
	f.Fake.Become(uid)
	f.identify(uid)
}

// Identity returns the cluster's UID.
func (f *API) Identity() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.uid
}

// Stored returns the ConfigMaps by name.
func (f *API) Stored() map[string]*unstructured.Unstructured {
	objects, _ := f.Fake.Objects(ConfigMap)
	out := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		out[o.GetName()] = o
	}
	return out
}

// Requested returns how often each verb and path was requested.
func (f *API) Requested() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.requests)
}

// Count returns the number of requests with the verb and path.
func (f *API) Count(what string) int { return f.Requested()[what] }

// Total returns the number of requests.
func (f *API) Total() int {
	n := 0
	for _, c := range f.Requested() {
		n += c
	}
	return n
}

// Put creates or updates a ConfigMap of the namespace default and returns its
// resourceVersion.
func (f *API) Put(name, value string, labels map[string]any) string {
	f.t.Helper()
	return f.seed(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"data":       map[string]any{"value": value, "in": f.Identity()},
		"metadata":   map[string]any{"name": name, "namespace": "default", "labels": labels},
	}})
}

func (f *API) seed(o *unstructured.Unstructured) string {
	f.t.Helper()
	require.NoError(f.t, f.Fake.Seed(o))
	return strconv.Itoa(f.Version())
}

// Own adds an owner, a Deployment, to an object.
func (f *API) Own(name, owner string) {
	f.t.Helper()
	o := f.Stored()[name].DeepCopy()
	require.NoError(f.t, unstructured.SetNestedSlice(o.Object, []any{map[string]any{
		"apiVersion": "apps/v1beta2",
		"kind":       "Deployment",
		"name":       owner,
		"uid":        owner,
		"controller": true,
	}}, "metadata", "ownerReferences"))
	f.seed(o)
}

// Version returns the newest resourceVersion.
func (f *API) Version() int { return int(f.Fake.ResourceVersion()) }

// Delete deletes an object.
func (f *API) Delete(name string) {
	f.t.Helper()
	require.NoError(f.t, f.Fake.Delete(ConfigMap.GroupKind(), "default", name))
}
