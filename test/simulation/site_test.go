// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/certs"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/memnet"
)

// certificate is that of all servers.
var certificate = sync.OnceValue(func() certs.Pair { return certs.Server("simulation", "*.sim.test") })

// backend is an API server with its store.
type backend struct {
	name   string
	api    *fakeapi.Server
	aside  *fakeapi.Server // of the aggregated API; nil without one
	plural string          // of the widgets: a kind has one definition at a time
	left   time.Time       // when another cluster took its place at the address; zero if none has
	since  time.Time       // when the definition of the widgets was made
}

// define serves the widgets from now on, in these versions, or in all.
func (b *backend) define(versions ...string) {
	k := widgetKind()
	k.Resource = b.plural
	if len(versions) > 0 {
		k.Versions = versions
	}
	b.api.Register(k)
	b.since = time.Now()
}

// front stands between the address and the servers, and receives each request
// first. If it returns nil, the request passes.
type front struct {
	name string
	ask  func(*fakeapi.Request) *fakeapi.Fault
}

// site is the address of a cluster, and the servers that can be behind it.
type site struct {
	w    *world
	name string // in stories
	key  client.ObjectKey
	host string
	base string // the path of the URL
	net  *memnet.Listener
	stop func()

	mu       sync.Mutex // protects the fields below
	now      *backend
	backends []*backend
	fronts   []front
	prefix   func(*http.Request) []byte // written before the body of a response
	token    int
	removed  bool
	switched time.Time // only the test's own goroutine uses it

	counts   bool // lists and watches are counted in accepted
	accepted atomic.Int64

	serial atomic.Int64 // of changes that only advance the history
}

func newSite(w *world, name string, key client.ObjectKey) *site {
	s := &site{w: w, name: name, key: key, host: fmt.Sprintf("c%d.sim.test", len(w.sites)), base: w.base(),
		net: memnet.Listen()}
	s.now = s.addBackend()
	s.stop = memnet.Serve(s.net, &http.Server{ //nolint:gosec // in memory
		Handler:   s,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate().TLS()}, MinVersion: tls.VersionTLS13},
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: 100},
	})

	return s
}

// addBackend adds another cluster that can be behind the address.
func (s *site) addBackend() *backend {
	b := &backend{name: fmt.Sprintf("%s.%d", s.name, len(s.backends)), plural: widgetKind().Resource}
	b.api = fakeapi.New(fakeapi.Options{
		Identity: b.name, Kinds: s.w.served(), Authenticate: s.authenticate, Intercept: s.intercept,
	})
	b.aside = s.aside(b.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backends = append(s.backends, b)
	return b
}

func (s *site) current() *backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *site) api() *fakeapi.Server { return s.current().api }

// former returns the clusters whose place at the address another one took, so
// lately that it may not have been noticed.
func (s *site) former() []*backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.backends), func(b *backend) bool {
		return b == s.now || time.Since(b.left) > proofAge
	})
}

// become puts another server behind the address.
func (s *site) become(b *backend) {
	s.mu.Lock()
	s.now.left = time.Now()
	s.now = b
	s.mu.Unlock()
	s.w.observe()
}

func (s *site) bearerLocked() string {
	return fmt.Sprintf("%s-%d-of-%s", canary("token"), s.token, s.host)
}

func (s *site) authenticate(token string) (string, bool) {
	s.owned(token)
	s.mu.Lock()
	defer s.mu.Unlock()
	return "simulation", token == s.bearerLocked()
}

func (s *site) config() *rest.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &rest.Config{
		Host: "https://" + s.host + s.base, BearerToken: s.bearerLocked(), Dial: s.dial,
		TLSClientConfig: rest.TLSClientConfig{CAData: certificate().Cert},
	}
}

// rotate issues a new token.
func (s *site) rotate() {
	s.mu.Lock()
	s.token++
	s.mu.Unlock()
	s.w.names.Changed(s.key)
}

// put lets ask answer every request, until lift.
func (s *site) put(name string, ask func(*fakeapi.Request) *fakeapi.Fault) {
	s.w.trace("%s: front %s", s.name, name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fronts = append(s.fronts, front{name, ask})
}

func (s *site) lift(name string) {
	s.w.trace("%s: front %s is lifted", s.name, name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fronts = slices.DeleteFunc(s.fronts, func(f front) bool { return f.name == name })
}

func (s *site) intercept(r *fakeapi.Request) *fakeapi.Fault {
	s.mu.Lock()
	fronts := slices.Clone(s.fronts)
	s.mu.Unlock()
	for _, f := range fronts {
		if fault := f.ask(r); fault != nil {
			return fault
		}
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = s.mark(w, r)
	w = s.accepts(w, r)
	s.mu.Lock()
	b, prefix := s.now, s.prefix
	s.mu.Unlock()
	if prefix != nil {
		if p := prefix(r); p != nil {
			w = &prefixed{ResponseWriter: w, prefix: p}
		}
	}
	b.serverFor(r.URL.Path).ServeHTTP(w, r)
}

// prefixed writes a prefix before a server's response.
type prefixed struct {
	http.ResponseWriter

	prefix []byte
}

func (p *prefixed) Write(b []byte) (int, error) {
	if first := p.prefix; first != nil {
		p.prefix = nil
		if _, err := p.ResponseWriter.Write(first); err != nil {
			return 0, err
		}
	}
	return p.ResponseWriter.Write(b)
}

// Flush implements http.Flusher.
func (p *prefixed) Flush() {
	if f, ok := p.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// store writes an object to a server, as a user would: it creates or updates
// the object.
func (b *backend) store(u *unstructured.Unstructured) error {
	return b.of(u.GroupVersionKind().Group).Seed(u)
}
