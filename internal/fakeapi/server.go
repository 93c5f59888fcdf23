// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
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
	mu       sync.Mutex
	identity string
	serial   int // of uids and generated names
	rv       int64
	// compacted is the version up to which the history was removed; expired is
	// the version up to which new requests see it as removed.
	compacted, expired int64
	tables             map[string]*table // by group and resource
	away               map[string]*table // of aggregated kinds that are not served any more
	definitions        int               // of kinds that were registered
	streams            []*stream
	requests           []Request
	documents          [2]*document // discovery documents; nil after a change
	lag                time.Duration
	late               func(*Request) bool // requests that the lagging server gets; nil without one
	moments            []moment            // of versions, while there is a lagging server
	held               func(*Request) bool // watches whose changes wait; nil without one
	noStreams          int                 // the status code that refuses streamed lists; 0 if they are served
}

// New returns a server that contains the namespaces of every cluster.
func New(o Options) *Server {
	s := &Server{options: o}
	s.reset(o.Identity)
	return s
}

// firstVersion is where histories begin. It is not 1, so that a version can be
// older than the whole history.
const firstVersion = 100

func (s *Server) reset(identity string) {
	s.identity, s.serial, s.definitions, s.away = identity, 0, 0, map[string]*table{}
	s.rv, s.compacted, s.expired = firstVersion, firstVersion, firstVersion
	s.tables = map[string]*table{}
	for _, k := range builtIns() {
		s.tables[k.GroupResource().String()] = newTable(k)
	}
	for _, k := range s.options.Kinds {
		s.registerLocked(s.definedLocked(k.complete()))
	}
	s.kindsChangedLocked()
	namespaces := s.tables["namespaces"]
	for _, name := range []string{"kube-system", "default", "kube-public", "kube-node-lease"} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
		u.SetName(name)
		s.newMetadata(namespaces.kind, u)
		prepare(u, nil)
		s.put(namespaces, objectKey{name: name}, u.Object)
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
	s.reset(identity)
	s.cutLocked(func(*Request) bool { return true })
}

// Register starts serving a kind, as its definition does, or an APIService if it
// is Aggregated.
func (s *Server) Register(k Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registerLocked(s.definedLocked(k.complete()))
	s.kindsChangedLocked()
}

// registerLocked starts serving a custom kind. A kind that was already served
// keeps its objects. Watches cannot resume from before the registration, as
// with the watch cache of a definition that is new or has changed.
func (s *Server) registerLocked(k *Kind) {
	k.generations = true
	if t := s.tables[k.GroupResource().String()]; t != nil {
		if !t.kind.native {
			t.kind, t.expired = k, s.rv
			s.endUnservedLocked(t)
		}
		return
	}

	name := k.GroupResource().String()
	if t := s.away[name]; t != nil && k.Aggregated {
		back := *t
		back.kind, back.gone, back.news = k, false, make(chan struct{})
		s.tables[name] = &back
		delete(s.away, name)
		return
	}
	t := newTable(k)
	t.expired = s.rv
	s.tables[name] = t
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

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req := parse(r)
	req.Time = time.Now()
	req.Admin = r.Context().Value(adminKey{}) != nil
	if !req.Admin {
		if err := s.authenticate(req, r); err != nil {
			writeError(w, err)
			return
		}
		s.mu.Lock()
		s.requests = append(s.requests, *req)
		s.mu.Unlock()

		if f := s.intercept(req); f != nil {
			if f.Done {
				s.route(discard{http.Header{}}, r, req)
			}
			if f.Answer != nil {
				f.Answer(w, r)
				return
			}
			if status := apierrors.APIStatus(nil); !errors.As(f.Err, &status) {
				panic(http.ErrAbortHandler)
			}
			writeError(w, f.Err)
			return
		}
	}

	s.route(w, r, req)
}

func (s *Server) intercept(req *Request) *Fault {
	if s.options.Intercept == nil {
		return nil
	}
	return s.options.Intercept(req)
}

// authenticate determines the user of a request. Public paths need no token.
func (s *Server) authenticate(req *Request, r *http.Request) error {
	if s.options.Authenticate == nil {
		return nil
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		req.User = "system:anonymous"
		switch req.Path {
		case "/readyz", "/livez", "/healthz", "/version":
			return nil
		}
		return Forbidden(req)
	}

	if req.User, ok = s.options.Authenticate(token); !ok {
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
func (s *Server) route(w http.ResponseWriter, r *http.Request, req *Request) {
	if req.Resource == "" {
		s.servePath(w, r)
		return
	}
	t, err := s.table(req)
	if err != nil {
		writeError(w, err)
		return
	}

	switch req.Verb {
	case "get":
		s.get(w, r, req, t)
	case "list":
		s.list(w, r, req, t)
	case "watch":
		s.watch(w, r, req, t)
	default:
		s.write(w, r, req, t)
	}
}

// table returns the table of the request's kind.
func (s *Server) table(req *Request) (*table, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	t := s.tables[req.GroupResource().String()]
	if t == nil || !t.kind.serves(req.Version) {
		return nil, errNoPath
	}
	sub := req.Subresource == "" || (req.Subresource == "status" && t.kind.Status &&
		(req.Verb == "get" || req.Verb == "update" || req.Verb == "patch"))
	if !sub || (req.Namespace != "" && t.kind.ClusterScoped) {
		return nil, errNoPath
	}
	if t.kind.Verbs != nil && !slices.Contains(t.kind.Verbs, req.Verb) {
		return nil, apierrors.NewMethodNotSupported(req.GroupResource(), req.Verb)
	}
	if req.Namespace == "" && !t.kind.ClusterScoped && (req.Name != "" || req.Verb == "create") {
		return nil, errNoPath
	}
	return t, nil
}

// errNoPath indicates a path that is not served. The response is plain text,
// not a status.
var errNoPath = errors.New("404 page not found")

// newUID returns the next uid.
func (s *Server) newUID() string {
	s.serial++
	return uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%s/%d", s.identity, s.serial)).String()
}

// Cut ends the watches that match. Changes that have not been sent yet are sent
// when the watches resume.
func (s *Server) Cut(match func(*Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutLocked(match)
}

func (s *Server) cutLocked(match func(*Request) bool) {
	for _, st := range s.streams {
		if match(st.request) {
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
