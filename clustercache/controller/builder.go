// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// Builder builds a controller that reconciles objects of all clusters, by
// methods and options with the names of those of controller-runtime's builder.
// A reconciler that was written for one cluster needs no change:
//
//	err := controller.NewControllerManagedBy(mgr, cc).
//		For(&corev1.Namespace{}).
//		Owns(&networkingv1.NetworkPolicy{}).
//		Complete(func(c client.Client) reconcile.Reconciler { return &reconciler{client: c} })
//
// A log constructor is one of the options; a field index is one of the
// ClusterCache ([clustercache.Options].Indexes). docs/migrating.md has a table
// of all options of controller-runtime.
//
// It is made of [ObjectSource] and [ClusterSource]; use those where a Builder
// does not suffice.
type Builder struct {
	mgr      manager.Manager
	cc       *clustercache.ClusterCache
	name     string
	object   client.Object
	clusters func(client.ObjectKey) bool
	selector labels.Selector // of clusters
	forTwice bool
	inputs   []builderInput
	filters  []predicate.Predicate // of all inputs
	sources  []source.TypedSource[Request]
	options  runtimecontroller.TypedOptions[Request]
}

// builderInput is a watched kind, and what its objects lead to: the requests of
// a mapping or of a handler, or those of its owners if it has neither.
type builderInput struct {
	method     string // of the Builder
	object     client.Object
	mapping    ObjectMapFunc[Request]
	handler    handler.TypedEventHandler[client.Object, Request]
	predicates []predicate.Predicate
	selections [][]client.ListOption // empty: all objects

	onlyMetadata bool // for predicates and handlers
	everyOwner   bool // not only the controller
	nilOption    bool
}

// The methods that watch a kind.
const (
	methodFor            = "For"
	methodOwns           = "Owns"
	methodWatches        = "Watches"
	methodWatchesHandler = "WatchesHandler"
)

// NewControllerManagedBy returns a Builder for a controller that mgr runs over
// the clusters of cc.
func NewControllerManagedBy(mgr manager.Manager, cc *clustercache.ClusterCache) *Builder {
	return &Builder{mgr: mgr, cc: cc}
}

// Named sets the controller's name, as shown in metrics and logs. Defaults to
// the kind given to For, in lower case.
func (b *Builder) Named(name string) *Builder {
	b.name = name
	return b
}

// For sets the kind to reconcile, and watches it in every cluster. It can be
// called once.
func (b *Builder) For(object client.Object, options ...WatchOption) *Builder {
	b.forTwice = b.forTwice || b.object != nil // Build reports it
	b.object = object
	return b.watch(builderInput{method: methodFor, object: object, mapping: EnqueueObject}, options)
}

// Owns watches a kind whose objects the reconciler creates, and reconciles
// their controller when they change: the owner in the same cluster, of the kind
// given to For, that their owner references mark as the controller; with
// [MatchEveryOwner], every owner of that kind.
func (b *Builder) Owns(object client.Object, options ...WatchOption) *Builder {
	return b.watch(builderInput{method: methodOwns, object: object}, options)
}

// Watches watches another kind, and reconciles the requests that mapping
// returns; those without a kind are for the kind given to For. Mapping and
// predicates receive objects in the representation in which the kind is named:
// typed objects for a typed one, see [events.AsGiven].
func (b *Builder) Watches(object client.Object, mapping ObjectMapFunc[Request], options ...WatchOption) *Builder {
	return b.watch(builderInput{method: methodWatches, object: object, mapping: mapping}, options)
}

// WatchesHandler watches another kind, and has an event handler add requests to
// the queue; those without a kind are for the kind given to For. It takes a
// handler that was written for one cluster by [PerClusterHandler], and any of
// this package's requests, to which [ClusterFromContext] tells the cluster.
//
// The handler receives the events that one of controller-runtime receives, with
// objects in the representation in which the kind is named. While it is busy,
// the events of an object are merged: several updates are one, and an update
// that is followed by the deletion is delivered right before it. The objects of
// a cluster that this replica gains are delivered as in an initial list, as is
// an object whose change was undone, and those of a cluster that is removed as
// deleted in an unknown state. One goroutine at a time calls it. A panic is
// logged, and loses only the event.
func (b *Builder) WatchesHandler(
	object client.Object, h handler.TypedEventHandler[client.Object, Request], options ...WatchOption,
) *Builder {
	return b.watch(builderInput{method: methodWatchesHandler, object: object, handler: h}, options)
}

func (b *Builder) watch(in builderInput, options []WatchOption) *Builder {
	for _, o := range options {
		if o == nil {
			in.nilOption = true // Build reports it
			continue
		}
		o.applyTo(&in)
	}
	b.inputs = append(b.inputs, in)
	return b
}

// WithEventFilter adds a predicate to those of every kind given to For, Owns and
// Watches, whose types it must be able to deal with. Sources that
// WatchesRawSource adds have predicates of their own. It can be called several
// times: an event passes if all predicates let it.
func (b *Builder) WithEventFilter(p predicate.Predicate) *Builder {
	b.filters = append(b.filters, p)
	return b
}

// WatchesRawSource adds a source of requests, such as a ClusterSource.
func (b *Builder) WatchesRawSource(s source.TypedSource[Request]) *Builder {
	b.sources = append(b.sources, s)
	return b
}

// InClusters selects the clusters in which the kinds are watched. The function
// must be quick, and always return the same answer for a cluster. Defaults to
// all clusters.
func (b *Builder) InClusters(selected func(cluster client.ObjectKey) bool) *Builder {
	b.clusters = selected
	return b
}

// InClustersMatching selects the clusters by their labels, in addition to
// InClusters: those whose labels match, also later, until they no longer do. The
// objects of a cluster that enters are reconciled; those of one that leaves are
// not, and a ClusterSource with the same selector shows that it left. Defaults
// to all clusters.
func (b *Builder) InClustersMatching(selector labels.Selector) *Builder {
	b.selector = selector
	return b
}

// WithOptions sets the controller's options. Its concurrency is shared by all
// clusters; it defaults to the manager's for the kind given to For
// (GroupKindConcurrency), and then to the manager's for all. Without a
// LogConstructor, log lines name the controller, the cluster and the object.
// The workers start at once, so that a CacheSyncTimeout is refused, unless a
// source that WatchesRawSource adds makes them wait, such as a source.Kind.
// With the ClusterCache's Options.Sharding, NeedLeaderElection defaults to
// false: each replica reconciles its share.
func (b *Builder) WithOptions(options runtimecontroller.TypedOptions[Request]) *Builder {
	b.options = options
	return b
}

// Complete builds the controller. reconciler makes the reconciler of a cluster
// from the cluster's client, as described at [PerCluster]; [ClusterOf] returns
// the cluster. Complete does no I/O.
func (b *Builder) Complete(reconciler func(client.Client) reconcile.Reconciler) error {
	values := func(r Request) []any { return []any{"cluster", clustername.Of(r.Cluster)} }
	if b.options.LogConstructor == nil { // the constructor set by Build names the cluster already
		values = func(Request) []any { return nil }
	}
	if err := b.check(reconciler != nil); err != nil {
		return err
	}
	_, err := b.Build(perCluster(b.cc, reconciler, values))
	return err
}

// Build builds the controller with a reconciler whose requests name the
// cluster, for reconcilers that work across clusters. As with Complete, it is
// called as [WhileOwned] describes.
func (b *Builder) Build(
	reconciler reconcile.TypedReconciler[Request],
) (runtimecontroller.TypedController[Request], error) {
	if err := b.check(reconciler != nil); err != nil {
		return nil, err
	}
	gvk, err := b.checkInputs()
	if err != nil {
		return nil, fmt.Errorf("build controller: %w", err)
	}
	name := b.name
	if name == "" {
		name = strings.ToLower(gvk.Kind)
	}
	if name == "" {
		return nil, errors.New("build controller: call For or Named")
	}
	if slices.ContainsFunc(b.filters, isNil) {
		return nil, fmt.Errorf("build controller %s: %w", name,
			&clustercache.OptionError{Field: "filter", Err: errRequired})
	}
	if b.options.CacheSyncTimeout != 0 && !slices.ContainsFunc(b.sources, syncs) {
		return nil, fmt.Errorf("build controller %s: %w", name,
			&clustercache.OptionError{Field: "CacheSyncTimeout", Err: errNothingToSync})
	}
	stock := builder.TypedControllerManagedBy[Request](b.mgr).Named(name).WithOptions(b.withDefaults(name, gvk))
	for _, input := range b.inputs {
		s, err := b.sourceOf(input, gvk)
		if err != nil {
			return nil, fmt.Errorf("build controller %s: %w", name, err)
		}
		stock.WatchesRawSource(s)
	}

	for _, s := range b.sources {
		stock.WatchesRawSource(s)
	}

	return stock.Build(WhileOwned(b.cc, Request.cluster, reconciler))
}

func isNil(p predicate.Predicate) bool { return p == nil }

// syncs reports whether a source makes the controller wait for it.
func syncs(s source.TypedSource[Request]) bool {
	_, ok := s.(source.TypedSyncingSource[Request])
	return ok
}

// sourceOf returns the source of an input, or an error that names what is wrong
// with the input. gvk is the kind given to For.
func (b *Builder) sourceOf(in builderInput, gvk schema.GroupVersionKind) (source.TypedSource[Request], error) {
	if in.onlyMetadata {
		own, err := apiutil.GVKForObject(in.object, b.cc.Options().Scheme)
		if err != nil {
			return nil, &clustercache.OptionError{Field: in.method, Err: err}
		}
		in.object = clustercache.Kind(own)
	}
	if err := b.checkInput(in); err != nil {
		return nil, err
	}
	selection := events.Selection{
		Clusters:        b.clusters,
		ClusterSelector: b.selector,
		Watch:           true,
		Predicates:      slices.Concat(b.filters, in.predicates),
		Representation:  events.AsGiven,
	}
	for _, options := range in.selections {
		selection.Narrowed = append(selection.Narrowed,
			events.NarrowedKind{Kind: in.object, Options: options})
	}
	if len(in.selections) == 0 {
		selection.Kinds = []client.Object{in.object}
	}
	if _, err := b.cc.ObjectEvents(context.Background(), selection); err != nil { // it only checks the selection
		if invalid, ok := errors.AsType[*clustercache.OptionError](err); ok {
			err = invalid.Err // of a field that is not the user's
		}
		return nil, &clustercache.OptionError{Field: in.method, Err: err}
	}

	packed := ObjectSourceOptions{Representation: events.Packed} // which needs no decoding
	switch in.method {
	case methodFor:
		return ObjectSource(b.cc, selection, in.mapping, packed), nil
	case methodOwns:
		return ObjectSource(b.cc, selection, ownersOf(b.cc, gvk, !in.everyOwner), packed), nil
	case methodWatchesHandler:
		return &handlerSource{cc: b.cc, selection: selection, handler: in.handler, kind: gvk}, nil
	}
	if b.object != nil {
		in.mapping = requestsOfKind(gvk, in.mapping)
	}
	return ObjectSource(b.cc, selection, in.mapping), nil
}

// checkInput returns an error that names what is wrong with an input, whose
// kind is known.
func (b *Builder) checkInput(in builderInput) error {
	switch {
	case in.nilOption:
		return &clustercache.OptionError{Field: "option of " + in.method, Err: errRequired}
	case in.everyOwner && in.method != methodOwns:
		return &clustercache.OptionError{Field: in.method, Err: errNotOwns}
	case slices.ContainsFunc(in.predicates, isNil):
		return &clustercache.OptionError{Field: "predicate", Err: errRequired}
	case in.method == methodOwns && b.object == nil:
		return errors.New("Owns needs For")
	case in.method == methodWatches && in.mapping == nil:
		return &clustercache.OptionError{Field: "mapping", Err: errRequired}
	case in.method == methodWatchesHandler && in.handler == nil:
		return &clustercache.OptionError{Field: "handler", Err: errRequired}
	}
	for _, p := range in.predicates {
		if err := fits("predicate", in.method, in.object, p); err != nil {
			return err
		}
	}
	return fits("handler", in.method, in.object, in.handler)
}

// requestsOfKind is mapping, with a kind in the requests that have none.
func requestsOfKind(gvk schema.GroupVersionKind, mapping ObjectMapFunc[Request]) ObjectMapFunc[Request] {
	return func(ctx context.Context, cluster client.ObjectKey, obj client.Object) []Request {
		requests := slices.Clone(mapping(ctx, cluster, obj)) // it may keep its own
		for i, r := range requests {
			requests[i] = ofKind(gvk)(r)
		}
		return requests
	}
}

// checkInputs returns the kind given to For, if any, and an error that names
// the method that was given no kind.
func (b *Builder) checkInputs() (reconciled schema.GroupVersionKind, err error) {
	if b.forTwice {
		return schema.GroupVersionKind{}, errForTwice
	}
	for _, input := range b.inputs {
		if v := reflect.ValueOf(input.object); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			return reconciled, &clustercache.OptionError{Field: input.method, Err: errKindRequired}
		}
		gvk, err := apiutil.GVKForObject(input.object, b.cc.Options().Scheme)
		if err != nil {
			return reconciled, &clustercache.OptionError{Field: input.method, Err: err}
		}
		if input.object == b.object {
			reconciled = gvk
		}
	}

	return reconciled, nil
}

var (
	errForTwice      = errors.New("For can be called once")
	errKindRequired  = errors.New("an object that names the kind is required")
	errNotOwns       = errors.New("MatchEveryOwner is an option of Owns")
	errNothingToSync = errors.New("no source makes the controller wait: " +
		"clusters connect and sync one by one while it runs, and a read of one that has not says so")
)

// check returns an error that names what was not given.
func (b *Builder) check(reconciler bool) error {
	var errs []error
	for _, given := range []struct {
		name string
		ok   bool
	}{
		{"mgr", b.mgr != nil},
		{"cc", b.cc != nil},
		{"reconciler", reconciler},
	} {
		if !given.ok {
			errs = append(errs, &clustercache.OptionError{Field: given.name, Err: errRequired})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("build controller: %w", err)
	}
	return nil
}

// withDefaults returns the options of the controller, in which every replica
// runs if replicas share the clusters.
func (b *Builder) withDefaults(name string, gvk schema.GroupVersionKind) runtimecontroller.TypedOptions[Request] {
	options := b.options
	if options.LogConstructor == nil {
		options.LogConstructor = logRequests(b.mgr.GetLogger(), name, gvk)
	}
	if options.MaxConcurrentReconciles == 0 && !gvk.Empty() { // controller-runtime's builder sees no kind
		ofKinds := b.mgr.GetControllerOptions().GroupKindConcurrency
		options.MaxConcurrentReconciles = max(0, ofKinds[gvk.GroupKind().String()])
	}
	if b.cc.Options().Sharding != nil && options.NeedLeaderElection == nil {
		options.NeedLeaderElection = new(false)
	}

	return options
}

// logRequests returns a log constructor. It uses the keys of
// controller-runtime's default one, which knows only controller-runtime's own
// request type.
func logRequests(log logr.Logger, controller string, gvk schema.GroupVersionKind) func(*Request) logr.Logger {
	log = log.WithValues("controller", controller)
	if !gvk.Empty() {
		log = log.WithValues("controllerGroup", gvk.Group, "controllerKind", gvk.Kind)
	}
	return func(r *Request) logr.Logger {
		if r == nil {
			return log
		}
		out := log.WithValues("cluster", clustername.Of(r.Cluster))
		if !r.GVK.Empty() {
			out = out.WithValues("kind", wants.KindName(r.GVK))
		}
		return out.WithValues("namespace", r.Namespace, "name", r.Name)
	}
}
