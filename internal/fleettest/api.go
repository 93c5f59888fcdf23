// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// PathOf is the API server's path of all objects of a kind.
func PathOf(kind string) string {
	for plural, k := range fakeKinds {
		if k == kind {
			return "/api/v1/" + plural
		}
	}
	return ""
}

// API is an API server for ConfigMaps over in-memory connections, so that
// it runs inside a synctest bubble.
type API struct {
	t      *testing.T
	Server *http.Server
	conns  chan net.Conn
	closed chan struct{}

	mu      sync.Mutex // protects the fields below
	uid     string
	rv      int
	objects map[string]map[string]any
	log     []fakeEvent
	news    chan struct{}
	fail    func(r *http.Request) int // returns the status to answer with; 0: none, -1: hang
	refuse  bool                      // accept no connections
	open    map[net.Conn]struct{}
	counts  counts
	lagging string // the path whose watches receive no events for now

	gitVersion string
}

// counts is what a server counts.
type counts struct {
	requests map[string]int // by verb and path
	streams  map[string]int // open watches by path
	dials    int
}

type fakeEvent struct {
	rv     int
	kind   string
	object map[string]any
}

// NewAPI runs a server until the test ends.
func NewAPI(t *testing.T, uid string) *API {
	t.Helper()
	f := &API{
		t:          t,
		conns:      make(chan net.Conn),
		closed:     make(chan struct{}),
		uid:        uid,
		rv:         100,
		objects:    map[string]map[string]any{},
		news:       make(chan struct{}),
		counts:     counts{requests: map[string]int{}, streams: map[string]int{}},
		open:       map[net.Conn]struct{}{},
		gitVersion: "v1.36.0",
	}
	f.Server = &http.Server{Handler: f, ConnState: f.connState} //nolint:gosec // in memory
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f.Server.Serve(f)
	}()
	t.Cleanup(func() {
		close(f.closed)
		require.NoError(t, f.Server.Close())
		<-done
	})
	return f
}

// Accept implements net.Listener.
func (f *API) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (f *API) Close() error { return nil }

// Addr implements net.Listener.
func (f *API) Addr() net.Addr { return &net.TCPAddr{} }

// Config returns how to reach the server.
func (f *API) Config() *rest.Config {
	return &rest.Config{Host: "http://fake.test", Dial: f.Dial, BearerToken: "t"}
}

// Dial opens an in-memory connection.
func (f *API) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	f.mu.Lock()
	refuse := f.refuse
	f.counts.dials++
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

func (f *API) connState(c net.Conn, s http.ConnState) {
	if s == http.StateClosed {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.open, c)
	}
}

// Dialled returns the number of dials.
func (f *API) Dialled() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts.dials
}

// Connections returns the number of open connections.
func (f *API) Connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.open)
}

// Watching returns the number of open watches of a path, after synctest.Wait: a
// watch that ends is replaced at once.
func (f *API) Watching(path string) int {
	synctest.Wait()
	return f.WatchingNow(path)
}

// WatchingNow is watching without the wait, for tests with concurrent work.
func (f *API) WatchingNow(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts.streams[path]
}

// Die closes all connections and refuses new ones; live accepts them again.
func (f *API) Die() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = true
	f.cutLocked()
}

// Upgrade changes the version of the API server.
func (f *API) Upgrade(version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gitVersion = version
}

// Cut closes all connections.
func (f *API) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cutLocked()
}

func (f *API) cutLocked() {
	for c := range f.open {
		_ = c.Close()
	}
	clear(f.open)
}

// Live accepts connections again.
func (f *API) Live() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = false
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

// Respond answers a request with the status that f returns for it; 0 is the
// usual answer, and -1 lets it hang. A function that panics ends the connection
// of its request.
func (f *API) Respond(fail func(r *http.Request) int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// Lag withholds the events of the watches of a path; an empty path ends that.
func (f *API) Lag(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lagging = path
	close(f.news)
	f.news = make(chan struct{})
}

// Heal answers all requests as usual again.
func (f *API) Heal() { f.Respond(nil) }

// Become changes the cluster's identity and cuts all connections.
func (f *API) Become(uid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uid = uid
	f.cutLocked()
}

// Restart begins a history without objects.
func (f *API) Restart(uid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uid, f.rv, f.log = uid, 0, nil
	clear(f.objects)
}

// Identity returns the cluster's UID.
func (f *API) Identity() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.uid
}

// Stored returns the objects by name.
func (f *API) Stored() map[string]map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.objects)
}

// Requested returns how often each verb and path was requested.
func (f *API) Requested() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts.requests)
}

// Count returns the number of requests with the verb and path.
func (f *API) Count(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts.requests[what]
}

// Total returns the number of requests.
func (f *API) Total() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.counts.requests {
		n += c
	}
	return n
}

// Put creates or updates a ConfigMap of the namespace default and returns its
// resourceVersion.
func (f *API) Put(name, value string, labels map[string]any) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rv++
	kind, uid := "ADDED", fmt.Sprintf("%s-%s-%d", f.uid, name, f.rv)
	if old := f.objects[name]; old != nil {
		kind, uid = "MODIFIED", old["metadata"].(map[string]any)["uid"].(string)
	}
	object := map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"data":       map[string]any{"value": value, "in": f.uid},
		"metadata": map[string]any{
			"name":            name,
			"namespace":       "default",
			"uid":             uid,
			"resourceVersion": strconv.Itoa(f.rv),
			"labels":          labels,
		},
	}
	f.objects[name] = object
	f.tellLocked(kind, object)
	return strconv.Itoa(f.rv)
}

// Own adds an owner, a Deployment, to an object.
func (f *API) Own(name, owner string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rv++
	old := f.objects[name]
	meta := maps.Clone(old["metadata"].(map[string]any))
	meta["resourceVersion"] = strconv.Itoa(f.rv)
	meta["ownerReferences"] = []any{map[string]any{
		"apiVersion": "apps/v1beta2",
		"kind":       "Deployment",
		"name":       owner,
		"uid":        owner,
		"controller": true,
	}}
	object := maps.Clone(old)
	object["metadata"] = meta
	f.objects[name] = object
	f.tellLocked("MODIFIED", object)
}

// Version returns the newest resourceVersion.
func (f *API) Version() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rv
}

// Delete deletes an object.
func (f *API) Delete(name string) {
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

func (f *API) tellLocked(kind string, object map[string]any) {
	f.log = append(f.log, fakeEvent{rv: f.rv, kind: kind, object: object})
	close(f.news)
	f.news = make(chan struct{})
}
