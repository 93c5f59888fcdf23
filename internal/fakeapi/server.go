// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Options configures a Server. The zero value is valid.
type Options struct {
	// Identity makes the UIDs of the server's objects, including the cluster's
	// own, differ from those of other servers. The same identity results in the
	// same UIDs.
	Identity string
	// Kinds are served in addition to the built-in ones, as if
	// CustomResourceDefinitions had defined them.
	Kinds []Kind
	// Authenticate returns the user who owns a bearer token, and whether the
	// token is valid. Nil admits all requests.
	Authenticate func(token string) (user string, ok bool)
	// Intercept is called with each request before it is served, except those
	// of the administrator. If it returns nil, the request is served normally.
	// It is called without holding locks.
	Intercept func(*Request) *Fault
}

// Fault replaces the regular response to a request.
type Fault struct {
	// Answer writes the response, if it is set: for example that of a proxy in
	// front of the server, or nothing until the request's context ends.
	Answer http.HandlerFunc
	// Err is the response if it is an API status. Any other error breaks the
	// connection.
	Err error
	// Done has the request served first: it takes effect, but the client does
	// not receive the result.
	Done bool
}

// Server is an API server in memory. Its methods are safe for concurrent use.
type Server struct {
	options Options

	// mu protects the fields below. It is never held while writing to a client.
	mu sync.Mutex
	catalog
	requests  []Request
	held      func(*Request) bool // watches whose changes wait; nil without one
	noStreams int                 // the status code that refuses streamed lists; 0 if they are served
}

// New returns a server that contains the namespaces of every cluster.
func New(o Options) *Server {
	s := &Server{options: o}
	s.reset(o.Identity, o.Kinds)
	return s
}

// firstVersion is where histories begin. It is not 1, so that a version can be
// older than the whole history.
const firstVersion = 100

func (c *catalog) reset(identity string, kinds []Kind) {
	c.identity, c.serial, c.definitions, c.away = identity, 0, 0, map[string]*table{}
	c.rv, c.compacted, c.expired = firstVersion, firstVersion, firstVersion
	c.tables, c.documents = map[string]*table{}, [2]*document{}
	for _, k := range builtIns() {
		c.tables[k.GroupResource().String()] = newTable(k)
	}
	for _, k := range kinds {
		c.register(c.defined(k.complete()))
	}
	namespaces := c.tables["namespaces"]
	for _, name := range []string{"kube-system", "default", "kube-public", "kube-node-lease"} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
		u.SetName(name)
		c.newMetadata(namespaces.kind, u)
		prepare(u, nil)
		c.put(namespaces, objectKey{name: name}, u.Object)
	}
}

// Become turns the server into another cluster, with other UIDs, a new history
// and nothing stored. Every watch ends.
func (s *Server) Become(identity string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, t := range s.tables {
		t.wake()
	}
	s.reset(identity, s.options.Kinds)
	s.cut(func(*Request) bool { return true })
}

// Register starts serving a kind, as its definition does, or an APIService if it
// is Aggregated.
func (s *Server) Register(k Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.register(s.defined(k.complete()))
}

// register starts serving a custom kind. A kind that was already served keeps
// its objects. Watches cannot resume from before the registration, as with the
// watch cache of a definition that is new or has changed.
func (c *catalog) register(k *Kind) {
	k.generations = true
	c.documents = [2]*document{}
	name := k.GroupResource().String()
	if t := c.tables[name]; t != nil {
		if !t.kind.native {
			t.kind, t.expired = k, c.rv
			c.endUnserved(t)
		}
		return
	}

	if t := c.away[name]; t != nil && k.Aggregated {
		back := *t
		back.kind, back.gone, back.news = k, false, make(chan struct{})
		c.tables[name] = &back
		delete(c.away, name)
		return
	}
	t := newTable(k)
	t.expired = c.rv
	c.tables[name] = t
}

// ResourceVersion returns the current version of the history.
func (s *Server) ResourceVersion() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rv
}

// UID returns the cluster's identity, which is the UID of its namespace
// kube-system.
func (s *Server) UID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.tables["namespaces"].objects[objectKey{name: "kube-system"}].meta().GetUID())
}

// Requests returns the received requests that match, except those of the
// administrator.
func (s *Server) Requests(match func(*Request) bool) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()

	var out []Request
	for i := range s.requests {
		if match == nil || match(&s.requests[i]) {
			out = append(out, s.requests[i])
		}
	}
	return out
}

// adminKey marks the contexts of the administrator's requests.
type adminKey struct{}

// exchange is a request that is being served. A method that serves it returns
// the error to respond with, or nil if it has responded.
type exchange struct {
	*Server

	w     http.ResponseWriter
	r     *http.Request
	q     url.Values // of r
	req   *Request
	table *table // of the request's kind, once it is routed
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{Server: s, w: w, r: r, q: r.URL.Query(), req: parse(r)}
	x.req.Time = time.Now()
	serve := x.admit
	if r.Context().Value(adminKey{}) != nil {
		x.req.Admin, serve = true, x.route
	}
	if err := serve(); err != nil {
		writeError(w, err)
	}
}

// admit serves a request that is not the administrator's.
func (x *exchange) admit() error {
	if err := x.authenticate(); err != nil {
		return err
	}
	x.mu.Lock()
	x.requests = append(x.requests, *x.req)
	x.mu.Unlock()

	var f *Fault
	if x.options.Intercept != nil {
		f = x.options.Intercept(x.req)
	}
	if f == nil {
		return x.route()
	}
	if f.Done {
		unheard := *x
		unheard.w = discard{http.Header{}}
		_ = unheard.route()
	}
	if f.Answer != nil {
		f.Answer(x.w, x.r)
		return nil
	}
	if status := apierrors.APIStatus(nil); !errors.As(f.Err, &status) {
		panic(http.ErrAbortHandler)
	}
	return f.Err
}

// authenticate determines the user of a request. Public paths need no token.
func (x *exchange) authenticate() error {
	if x.options.Authenticate == nil {
		return nil
	}
	token, ok := strings.CutPrefix(x.r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		x.req.User = "system:anonymous"
		switch x.req.Path {
		case "/readyz", "/livez", "/healthz", "/version":
			return nil
		}
		return Forbidden(x.req)
	}

	if x.req.User, ok = x.options.Authenticate(token); !ok {
		return apierrors.NewUnauthorized("Unauthorized")
	}
	return nil
}

// Forbidden returns the error for a request that its user is not allowed to
// send.
func Forbidden(req *Request) error {
	// The text is kube-apiserver's.
	if req.Resource == "" {
		why := fmt.Sprintf("User %q cannot %s path %q", req.User, req.Verb, req.Path)
		return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(why))
	}
	where := "at the cluster scope"
	if req.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", req.Namespace)
	}
	why := fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", req.User, req.Verb, req.Resource, req.Group,
		where)
	return apierrors.NewForbidden(req.GroupResource(), req.Name, errors.New(why))
}

// discard is a ResponseWriter for responses that are not delivered.
type discard struct{ header http.Header }

func (d discard) Header() http.Header       { return d.header }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// route serves a request that was admitted.
func (x *exchange) route() error {
	if x.req.Resource == "" {
		return x.servePath()
	}
	if err := x.findTable(); err != nil {
		return err
	}

	switch x.req.Verb {
	case "get":
		return x.get()
	case "list":
		return x.list()
	case "watch":
		return x.watch()
	}
	return x.write()
}

// findTable sets the table of the request's kind.
func (x *exchange) findTable() error {
	x.mu.Lock()
	defer x.mu.Unlock()

	req, t := x.req, x.tables[x.req.GroupResource().String()]
	if t == nil || !t.kind.serves(req.Version) {
		return errNoPath
	}
	sub := req.Subresource == "" || (req.Subresource == "status" && t.kind.Status &&
		(req.Verb == "get" || req.Verb == "update" || req.Verb == "patch"))
	if !sub || (req.Namespace != "" && t.kind.ClusterScoped) {
		return errNoPath
	}
	if t.kind.Verbs != nil && !slices.Contains(t.kind.Verbs, req.Verb) {
		return apierrors.NewMethodNotSupported(req.GroupResource(), req.Verb)
	}
	if req.Namespace == "" && !t.kind.ClusterScoped && (req.Name != "" || req.Verb == "create") {
		return errNoPath
	}
	x.table = t
	return nil
}

// errNoPath indicates a path that is not served. The response is plain text,
// not a status.
var errNoPath = errors.New("404 page not found")

// Cut ends the watches that match. Changes that have not been sent yet are sent
// when the watches resume.
func (s *Server) Cut(match func(*Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut(match)
}

func (s *store) cut(match func(*Request) bool) {
	for _, st := range s.streams {
		if match(st.req) {
			st.cancel(errCut)
		}
	}
}

var errCut = errors.New("watch cut")

// Transport returns a round tripper that sends requests to the server as its
// administrator, without a network in between. It works whatever happens to the
// network and to credentials.
func (s *Server) Transport() http.RoundTripper { return direct{s} }

func asAdmin(ctx context.Context) context.Context { return context.WithValue(ctx, adminKey{}, true) }
