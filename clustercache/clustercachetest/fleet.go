// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercachetest

import (
	"cmp"
	"context"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/directory"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// Options configure a Fleet. The zero value works.
type Options struct {
	// Scheme maps Go types to kinds. Every cluster serves the types in it that
	// Kubernetes itself does not have, in a namespace and with a status if the
	// type has one; see Kinds for others. Defaults to client-go's.
	Scheme *runtime.Scheme
	// Kinds are served by every cluster in addition to the built-in ones and
	// those of the Scheme. A kind can also be defined later, by creating its
	// CustomResourceDefinition, or by Cluster.Serve.
	Kinds []Kind
	// Cache configures the result of Fleet.ClusterCache. Its Resolver and
	// Discover are replaced by the fleet's. Outside bubbles of
	// testing/synctest, where waiting takes real time, zero values are replaced
	// by values with which nothing takes longer than about a second; inside
	// bubbles they are replaced by the defaults of clustercache.
	Cache clustercache.Options
}

// Kind is a kind of objects without a Go type, or whose type does not reveal
// enough.
type Kind struct {
	// GVK is the kind. Required.
	GVK schema.GroupVersionKind
	// Plural is the name of the resource. Defaults to the usual English plural
	// of the kind.
	Plural string
	// ClusterScoped objects have no namespace.
	ClusterScoped bool
	// NoStatus disables the status subresource.
	NoStatus bool
}

func (k Kind) served() fakeapi.Kind {
	return fakeapi.Kind{
		Group:         k.GVK.Group,
		Kind:          k.GVK.Kind,
		Versions:      []string{k.GVK.Version},
		Resource:      k.Plural,
		ClusterScoped: k.ClusterScoped,
		Status:        !k.NoStatus,
	}
}

// Fleet is a number of fake clusters. Its methods are safe for concurrent use.
type Fleet struct {
	t       testing.TB
	options Options
	scheme  *runtime.Scheme
	names   *directory.Directory
	writes  writeGate

	mu       sync.Mutex // protects the fields below
	clusters map[client.ObjectKey]*Cluster
	added    int
	cache    *clustercache.ClusterCache
}

// New returns a fleet without clusters, which ends with the test. It panics if t
// is nil.
func New(t testing.TB, o Options) *Fleet {
	if t == nil {
		panic("clustercachetest: New: t is required")
	}
	t.Helper()
	f := &Fleet{
		t:        t,
		options:  o,
		scheme:   o.Scheme,
		names:    directory.New(),
		clusters: map[client.ObjectKey]*Cluster{},
	}
	if f.scheme == nil {
		f.scheme = scheme.Scheme
	}
	return f
}

// kinds returns the kinds that clusters serve in addition to the built-in ones.
func (f *Fleet) kinds() []fakeapi.Kind {
	var out []fakeapi.Kind
	for gvk, goType := range f.scheme.AllKnownTypes() {
		_, isObject := reflect.TypeAssert[client.Object](reflect.Zero(reflect.PointerTo(goType)))
		if !isObject || gvk.Version == runtime.APIVersionInternal || scheme.Scheme.IsGroupRegistered(gvk.Group) {
			continue
		}
		_, status := goType.FieldByName("Status")
		k := Kind{GVK: gvk, NoStatus: !status}.served()
		out = append(out, k)
	}

	for _, k := range f.options.Kinds {
		out = append(out, k.served())
	}
	return out
}

// Add adds a reachable cluster that stores objs. The name is that of its key:
// name, namespace/name, or the empty string, which is the hub. It is an error
// to add a cluster that exists.
func (f *Fleet) Add(name string, objs ...client.Object) *Cluster {
	f.t.Helper()
	key := keyOf(name)
	f.mu.Lock()
	f.added++
	c := newCluster(f, key, f.added)
	taken := f.clusters[key] != nil
	if !taken {
		f.clusters[key] = c
	}
	f.mu.Unlock()

	if taken {
		f.t.Fatalf("clustercachetest: there is a cluster %q", name)
	}
	c.start()
	c.Store(objs...)
	f.names.Set(c.key, c.Config)

	return c
}

func keyOf(name string) client.ObjectKey {
	namespace, rest, found := strings.Cut(name, "/")
	if !found {
		return client.ObjectKey{Name: name}
	}
	return client.ObjectKey{Namespace: namespace, Name: rest}
}

// Cluster returns the cluster of a key, or nil.
func (f *Fleet) Cluster(key client.ObjectKey) *Cluster {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clusters[key]
}

func (f *Fleet) all() []*Cluster {
	f.mu.Lock()
	defer f.mu.Unlock()

	out := make([]*Cluster, 0, len(f.clusters))
	for _, c := range f.clusters {
		out = append(out, c)
	}
	return out
}

// Resolver resolves the fleet's clusters, for another ClusterCache. It lists
// them, and reports changes.
func (f *Fleet) Resolver() interface {
	resolver.Resolver
	resolver.Lister
	resolver.Notifier
} {
	return f.names
}

// ClusterCache returns a running ClusterCache that knows every cluster of the
// fleet. The first call starts it; it ends with the test.
func (f *Fleet) ClusterCache() *clustercache.ClusterCache {
	f.t.Helper()
	f.mu.Lock()
	cc := f.cache
	f.mu.Unlock()

	if cc != nil {
		return cc
	}
	cc, err := clustercache.New(f.cacheOptions())
	if err != nil {
		f.t.Fatalf("clustercachetest: %v", err)
	}
	f.mu.Lock()
	f.cache = cc
	f.mu.Unlock()

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cc.Start(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Errorf("clustercachetest: %v", err)
		}
	})

	return cc
}

// inBubble reports whether time is that of a bubble of testing/synctest, which
// begins in the year 2000.
func inBubble() bool { return time.Now().Year() < 2020 }

func (f *Fleet) cacheOptions() clustercache.Options {
	o := f.options.Cache
	o.Resolver, o.Discover = f.names, true
	o.Scheme = cmp.Or(o.Scheme, f.scheme)
	o.QPS = cmp.Or(o.QPS, -1)
	if o.Logger.GetSink() == nil {
		o.Logger = logr.FromSlogHandler(slog.NewTextHandler(f.t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	if o.MetricsRegisterer == nil {
		o.MetricsRegisterer = prometheus.NewRegistry()
	}

	if !inBubble() {
		o.ProbeInterval = cmp.Or(o.ProbeInterval, 250*time.Millisecond)
		o.FailureThreshold = cmp.Or(o.FailureThreshold, 1)
		o.SuccessThreshold = cmp.Or(o.SuccessThreshold, 1)
		o.RetryInterval = cmp.Or(o.RetryInterval, 250*time.Millisecond)
		o.MaxBackoff = cmp.Or(o.MaxBackoff, time.Second)
		o.Grace = cmp.Or(o.Grace, 100*time.Millisecond)
		o.Informers.MaxBackoff = cmp.Or(o.Informers.MaxBackoff, time.Second)
	}

	return o
}
