// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package liveclient makes the client.Client that reads and writes at one
// cluster's API server. It bounds what client-go does not bound, and refuses
// what client-go would accept:
//
//	named      names the cluster and the kind in errors, and records writes
//	bounded    one deadline, one budget and no logs for all tries of a call;
//	           each try with a client that is up to date with discovery
//	client-go
//	answers    bounds and checks each answer before client-go decodes it; sends
//	           lists to Config.Stream, everything else to Config.Unary
//
// # Tests
//
// The leading test is TestHazardAnswerIsAnotherObject.
// TestHazardAnswerTakesAllMemory covers the bounds, of which test/reading has
// more.
package liveclient

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/restmap"
)

// ErrAnswer indicates that a successful response does not answer the request:
// it holds a different object, or cannot be decoded.
var ErrAnswer = errors.New("answer cannot be used")

// Config describes the cluster of a [Factory], and the bounds of its clients.
type Config struct {
	// URL is the base URL of requests.
	URL string
	// Unary sends requests, and bounds the bodies of answers. Stream does not
	// bound them; it sends lists, which are measured while they are read.
	Unary, Stream http.RoundTripper
	// CheckRedirect is that of http.Client.
	CheckRedirect func(*http.Request, []*http.Request) error
	Scheme        *runtime.Scheme
	Mapper        *restmap.Mapper
	// Timeout bounds a call with all its tries.
	Timeout time.Duration
	// RefreshInterval is the shortest time between two refreshes of discovery
	// that calls cause.
	RefreshInterval time.Duration
	// MaxBytes bounds the memory of the answers to one call; negative: none.
	MaxBytes int64
	// MaxObjectBytes is the largest object that informers accept, in JSON.
	MaxObjectBytes int
	// Rediscovered is called when a refresh has changed discovery.
	Rediscovered func()
}

// Factory makes a cluster's client on first use. The client of
// controller-runtime remembers forever how a kind is served, so a new inner one
// is made when discovery has changed. Users have a bounded, which uses the
// current one.
type Factory struct {
	config Config

	mu     sync.Mutex // protects the fields below; making clients does no I/O
	inner  client.Client
	asOf   int64 // the mapper's Changes that inner was made at
	asked  time.Time
	asking bool
}

// NewFactory returns a factory. It does no I/O.
func NewFactory(c Config) *Factory { return &Factory{config: c} }

// Client returns a client of the cluster, which can be kept for good. It does no
// I/O. Its errors are made by a hook: often the error of a write that reaches a
// log is all that is known about the write. An answer that there is no object is
// returned unchanged.
func (f *Factory) Client(hooks Hooks) (client.Client, error) {
	if _, err := f.current(); err != nil {
		return nil, err
	}
	return &named{bounded: &bounded{from: f}, hooks: hooks}, nil
}

// Reader is Client for reads without hooks.
func (f *Factory) Reader() (client.Reader, error) {
	if _, err := f.current(); err != nil {
		return nil, err
	}
	return &bounded{from: f}, nil
}

// current returns a client that is up to date with discovery.
func (f *Factory) current() (client.Client, error) {
	changes := f.config.Mapper.Changes()
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.inner != nil && f.asOf == changes {
		return f.inner, nil
	}
	inner, err := f.with(nil)
	if err != nil {
		return nil, err
	}
	f.inner, f.asOf = inner, changes

	return inner, nil
}

// with returns a client that knows, besides the kinds that discovery has, how
// some others are served.
func (f *Factory) with(given map[schema.GroupVersionKind]restmap.Mapping) (client.Client, error) {
	// The transport has the cluster's one rate limit; client-go's limiter,
	// which is one for each kind, would not limit the cluster. Warnings are
	// unbounded text from the server.
	config := &rest.Config{
		Host:                      f.config.URL,
		QPS:                       -1,
		ContentConfig:             rest.ContentConfig{ContentType: mediaJSON},
		WarningHandlerWithContext: rest.NoWarnings{},
	}
	return client.New(config, client.Options{
		HTTPClient: &http.Client{
			Transport:     &answers{unary: f.config.Unary, stream: f.config.Stream},
			CheckRedirect: f.config.CheckRedirect,
		},
		Scheme: f.config.Scheme,
		Mapper: f.config.Mapper.CachedRESTMapper(given),
	})
}

// askAgain refreshes discovery after an answer that suggests that the kind is
// served elsewhere now, and reports whether anything has changed since known.
// It refreshes at most once every Config.RefreshInterval.
func (f *Factory) askAgain(ctx context.Context, known int64) bool {
	if f.config.Mapper.Changes() != known {
		return true // another call has refreshed it
	}
	f.mu.Lock()
	if f.asking || !f.asked.IsZero() && time.Since(f.asked) < f.config.RefreshInterval {
		f.mu.Unlock()
		return false
	}
	f.asking = true
	f.mu.Unlock()

	_ = f.config.Mapper.Refresh(ctx) // without an answer nothing has changed
	f.mu.Lock()
	f.asking, f.asked = false, time.Now()
	f.mu.Unlock()

	if f.config.Mapper.Changes() == known {
		return false
	}
	f.config.Rediscovered()

	return true
}
