// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/changes"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/listopts"
)

// HubOptions are common to all resolvers that read objects of the hub.
type HubOptions struct {
	// Namespace limits the resolver to objects of one namespace. Default: all,
	// unless the convention has one.
	Namespace string
	// Selector limits the resolver further, in addition to the convention's own
	// labels, and is evaluated by the hub's API server. One that selects nothing,
	// which that server would take for everything, is refused. Default: no
	// further limit.
	Selector labels.Selector
	// Allow is what the objects may use. Default: nothing that needs a
	// permission.
	Allow Allow
	// MaxBytes is the largest value of a Secret that is read. Default:
	// [DefaultMaxBytes].
	MaxBytes int
	// Grace is how long an object that was deleted, or lost its label, is
	// treated as if it still existed, since rotation by delete and create is
	// common. A ClusterCache adds its own Options.Grace to it. Default: 10 s.
	// Negative: none. It needs Notify.
	Grace time.Duration
	// Ready, if set, is called before access to a cluster is given. False
	// results in [ErrNotReady]. Resolve calls it each time, and waits for it;
	// changes of its answer are not reported.
	Ready func(ctx context.Context, cluster Cluster) (bool, error)
	// ReadyObject, if set, names an object of the hub that decides whether the
	// cluster is ready. It is watched.
	ReadyObject *ReadyObject
	// Logger receives errors of requests to the hub. Default: none.
	Logger logr.Logger
}

const defaultGrace = 10 * time.Second

func (o *HubOptions) validate() error {
	if listopts.LabelsOfNothing(o.Selector) {
		return errors.New("resolver: Selector: selects nothing")
	}
	if o.MaxBytes < 0 {
		return errors.New("resolver: MaxBytes is negative")
	}
	if o.ReadyObject != nil && (o.ReadyObject.Kind.Kind == "" || o.ReadyObject.Ready == nil) {
		return errors.New("resolver: ReadyObject needs a Kind and Ready")
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	if o.Logger.GetSink() == nil {
		o.Logger = logr.Discard()
	}

	return nil
}

// HubResolver resolves clusters from objects of the hub, by one convention.
//
// While Notify runs, Resolve and Clusters answer from a watched copy: without a
// request, and also while the hub's API does not answer. The watch uses the
// convention's selector, so no other Secret is transferred. Several calls of
// Notify share one watch. Without Notify, and before the first list is
// complete, Resolve reads the hub each time; if the hub does not answer, it
// repeats its last answer for the cluster. All methods are safe for concurrent
// use.
type HubResolver struct {
	hub        client.WithWatch
	convention convention
	options    HubOptions
	changes    changes.Broadcaster
	loop       changes.Loop

	mu    sync.Mutex // protects the fields below
	cache *hubCache  // of the running loop
	last  map[Cluster]Access
}

var (
	_ Resolver = (*HubResolver)(nil)
	_ Notifier = (*HubResolver)(nil)
	_ Lister   = (*HubResolver)(nil)
)

// String names the objects that describe clusters, as they are selected.
func (h *HubResolver) String() string { return h.convention.primary.String() }

func newHubResolver(hub client.WithWatch, c convention, options HubOptions) (*HubResolver, error) {
	if hub == nil {
		return nil, errors.New("resolver: the hub's client is nil")
	}
	if err := options.validate(); err != nil {
		return nil, err
	}
	h := &HubResolver{
		hub:        hub,
		convention: c,
		options:    options,
		last:       map[Cluster]Access{},
	}
	h.loop.Run = h.watch
	return h, nil
}

// InHub makes a resolver for a convention, with its own client for the hub that
// config describes, such as a manager's:
//
//	clusters, err := resolver.InHub(mgr.GetConfig(), resolver.ClusterAPI, resolver.HubOptions{})
//
// It does no I/O. The errors are those of the client and of the convention.
func InHub[O any](
	config *rest.Config, convention func(client.WithWatch, O) (*HubResolver, error), options O,
) (*HubResolver, error) {
	if config == nil {
		return nil, errors.New("resolver: config is required")
	}
	if convention == nil {
		return nil, errors.New("resolver: convention is required: a function such as Secrets")
	}
	hub, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		return nil, err
	}
	return convention(hub, options)
}

// Resolve implements [Resolver].
func (h *HubResolver) Resolve(ctx context.Context, cluster Cluster) (Access, error) {
	access, err := h.lookUp(ctx, cluster)
	if err != nil || h.options.Ready == nil {
		return access, err
	}
	ready := false
	err = callback.ApartSecret("Ready", func() (err error) {
		ready, err = h.options.Ready(ctx, cluster)
		return err
	})
	if err != nil {
		return Access{}, fail(cluster, ObjectRef{}, err)
	}
	if !ready {
		return Access{}, fail(cluster, ObjectRef{}, ErrNotReady)
	}
	return access, nil
}

func (h *HubResolver) lookUp(ctx context.Context, cluster Cluster) (Access, error) {
	if c := h.watched(); c != nil {
		if found, ok := c.answer(cluster); ok {
			return found.access, h.absent(ctx, cluster, found.err)
		}
	}
	access, err := h.read(ctx, cluster)
	err = h.absent(ctx, cluster, err)
	h.mu.Lock()
	defer h.mu.Unlock()

	switch {
	case err == nil:
		h.last[cluster] = access
	case hubTrouble(ctx, err):
		if last, ok := h.last[cluster]; ok {
			return last, nil
		}
	case errors.Is(err, ErrNoAccess):
		delete(h.last, cluster)
	}

	return access, err
}

// hubTrouble reports whether err is about the hub's API and not about the
// cluster. A lost permission is a decision, not trouble.
func hubTrouble(ctx context.Context, err error) bool {
	if ctx.Err() != nil || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return false
	}
	_, about := errors.AsType[*hubError](err)
	return about
}

// hubError marks an error of a request to the hub.
type hubError struct{ error }

func (e *hubError) Unwrap() error { return e.error }

// Notify implements [Notifier].
func (h *HubResolver) Notify(ctx context.Context, changed func(Cluster)) error {
	reader := h.changes.Subscribe()
	defer h.changes.Unsubscribe(reader)
	defer h.loop.Hold(ctx)()
	if c := h.watched(); c != nil {
		reader.Add(c.clusters()...)
	}
	reader.Deliver(ctx, changed)

	return nil
}

// Clusters implements [Lister].
func (h *HubResolver) Clusters(ctx context.Context) ([]Cluster, error) {
	var out []Cluster
	if c := h.watched(); c != nil {
		out = c.clusters()
	} else {
		found, err := h.list(ctx)
		if err != nil {
			return nil, err
		}
		for _, object := range found {
			out = append(out, object.clusters...)
		}
	}

	slices.SortFunc(out, clustername.Compare)
	return slices.Compact(out), nil
}

// watched returns the cache that holds a complete copy, if there is one.
func (h *HubResolver) watched() *hubCache {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cache == nil || !h.cache.isSynced() {
		return nil
	}
	return h.cache
}

// watch is the loop behind Notify.
func (h *HubResolver) watch(ctx context.Context) {
	c := newHubCache(h)
	h.mu.Lock()
	h.cache = c
	h.mu.Unlock()

	c.run(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	// A Notify that began while this loop was ending may have put its own
	// cache here.
	if h.cache == c {
		h.cache = nil
	}
}

// answered returns the clusters that were answered without a watch.
func (h *HubResolver) answered() []Cluster {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.last))
}
