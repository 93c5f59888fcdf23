// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache/internal/debounce"
	"github.com/fleetcache/fleetcache/informerpool"
)

// ObjectMapFunc returns the requests to reconcile because of an object of a
// cluster. The object is in the source's Representation: typed where the kind
// was named by a typed object. It is called with the old and the new state of
// an update, and with every delivered state of a deleted object. It is called
// by one goroutine at a time for each controller. A panic is counted by
// Failures and loses only the event.
type ObjectMapFunc[request comparable] func(ctx context.Context, cluster client.ObjectKey, obj client.Object) []request

// ObjectSourceOptions configure how an object source delivers.
type ObjectSourceOptions struct {
	// Representation is the representation of the objects passed to the mapping
	// function and the predicates; for predicates
	// ObjectSelection.Representation takes precedence. Defaults to [AsGiven].
	// Functions that read only metadata cost least with [Packed].
	Representation Representation
	// Debounce delays a request until no further event has led to it for that
	// long. Zero means that it is queued at once. Only keys are delayed; the
	// reconciler always reads the current state.
	Debounce time.Duration
	// MaxDelay is the longest that a request is delayed, however steady the
	// events are. Defaults to ten times Debounce.
	MaxDelay time.Duration
}

// TypedObjectSource is a source of a controller, and the handle on it. Stop and
// Close remove it from a running controller; the controller's Watch can add
// another one at any time. All methods may be called from many goroutines.
type TypedObjectSource[request comparable] struct {
	cc       *ClusterCache
	spec     ObjectSelection
	options  ObjectSourceOptions
	mapping  atomic.Pointer[ObjectMapFunc[request]]
	failures atomic.Int64

	mu      sync.Mutex // protects what follows; taken before a subscription's lock and the debounce queue's
	runs    []*objectRun[request]
	paused  bool
	stopped bool
}

// objectRun is one run of a source, for one controller.
type objectRun[request comparable] struct {
	ctx          context.Context //nolint:containedctx // the controller's life
	subscription *subscription
	debounced    *debounce.Queue[request]
	unlinked     func() bool // undoes what the end of ctx would do
}

var _ source.TypedSource[string] = (*TypedObjectSource[string])(nil)

// ObjectSource returns a source of a controller, for its WatchesRawSource: one
// source for any number of clusters and kinds, including those that are watched
// later. Starting it does not block and does not fail because of a cluster.
// Objects that already exist, or that are delivered once more, are queued with
// low priority where the queue has priorities. The source ends with the
// controller, and another controller can start it again. If several options are
// given, the last non-zero value of each field counts.
func ObjectSource[request comparable](
	cc *ClusterCache, spec ObjectSelection, mapping ObjectMapFunc[request], opts ...ObjectSourceOptions,
) *TypedObjectSource[request] {
	s := &TypedObjectSource[request]{cc: cc, spec: spec}
	for _, o := range opts {
		s.options.Representation = cmp.Or(o.Representation, s.options.Representation)
		s.options.Debounce = cmp.Or(o.Debounce, s.options.Debounce)
		s.options.MaxDelay = cmp.Or(o.MaxDelay, s.options.MaxDelay)
	}
	s.SetMapping(mapping)
	return s
}

// Start implements source.TypedSource. It does not block. After Stop it does
// nothing. The error is that of an invalid [ObjectSelection], an
// [*OptionError], or [ErrClosed].
func (s *TypedObjectSource[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	if s.options.Representation > Metadata {
		return &OptionError{Field: "Representation", Err: ErrUnsupported}
	}
	s.cc.used()
	debounced, err := newDebounce(s.cc, queue, s.options.Debounce, s.options.MaxDelay)
	if err != nil {
		return err
	}
	r := &objectRun[request]{ctx: ctx, debounced: debounced}
	spec := s.spec
	spec.Representation = cmp.Or(spec.Representation, s.options.Representation)
	r.subscription, err = s.cc.newSubscription(spec, func(e ObjectEvent, v *views) { s.handle(r, e, v) })
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()

		r.subscription.stop()
		return nil
	}
	s.runs = append(s.stillRunningLocked(), r)
	if s.paused { // before there is anything to deliver
		r.pause()
	}
	r.unlinked = context.AfterFunc(ctx, r.end)
	s.mu.Unlock()

	r.subscription.start() // does nothing if it was stopped meanwhile

	return nil
}

// stillRunningLocked returns the runs that Close has to wait for, and forgets
// the others.
func (s *TypedObjectSource[request]) stillRunningLocked() []*objectRun[request] {
	expired, cancel := context.WithCancel(context.Background())
	cancel()
	var running []*objectRun[request]
	for _, r := range s.runs {
		if r.ctx.Err() == nil || r.subscription.pool.Close(expired) != nil {
			running = append(running, r)
		} else {
			s.failures.Add(r.subscription.pool.Panics() + r.subscription.misfit.Load())
		}
	}

	return running
}

// handle is called by the subscription, which recovers from its panics.
func (s *TypedObjectSource[request]) handle(r *objectRun[request], e ObjectEvent, v *views) {
	if r.ctx.Err() != nil {
		return
	}
	if s.options.Representation != AsGiven && s.options.Representation != v.representation {
		v = &views{cc: s.cc, representation: s.options.Representation}
	}
	requests := map[request]struct{}{}
	mapping := *s.mapping.Load()
	states := []*informerpool.Object{e.LastDelivered, e.Old, e.New}
	if e.Resync {
		states = states[2:] // Old is the same
	}

	for _, o := range states {
		if o == nil {
			continue
		}
		obj, err := v.of(o)
		if err != nil {
			s.failures.Add(1)
			s.cc.log.Error(err, "Object cannot be given to the mapping function", "cluster", clusterName(e.Cluster))
			continue
		}
		for _, q := range mapping(r.ctx, e.Cluster, obj) {
			requests[q] = struct{}{}
		}
	}

	for q := range requests {
		r.debounced.Add(q, e.Initial || e.Resync)
	}
}

// SetMapping replaces the mapping function. A call of the old one that has
// begun continues; TriggerAll passes every object to the new one.
func (s *TypedObjectSource[request]) SetMapping(mapping ObjectMapFunc[request]) {
	s.mapping.Store(&mapping)
}

// Trigger delivers an object once more, marked as Resync, if it is cached and
// the subscription selects it. It does not wait.
func (s *TypedObjectSource[request]) Trigger(object Request) {
	for _, r := range s.all() {
		r.subscription.trigger(object)
	}
}

// TriggerAll delivers every object once more, marked as Resync. It does not
// wait.
func (s *TypedObjectSource[request]) TriggerAll() {
	for _, r := range s.all() {
		r.subscription.triggerAll()
	}
}

// Pause stops the delivery after the event that the mapping function is
// processing. Caches stay up to date, and events are merged. It can be called
// before Start. It does not wait.
func (s *TypedObjectSource[request]) Pause() { s.setPaused(true) }

// Continue ends a pause: it delivers the last state of each object that has
// changed.
func (s *TypedObjectSource[request]) Continue() { s.setPaused(false) }

func (s *TypedObjectSource[request]) setPaused(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = paused
	for _, r := range s.runs {
		if paused {
			r.pause()
		} else {
			r.subscription.pool.Continue()
			r.debounced.Proceed()
		}
	}
}

func (r *objectRun[request]) pause() {
	r.subscription.pool.Pause()
	r.debounced.Pause()
}

// Failures returns how many events could not be mapped: a mapping function or a
// predicate panicked, or an object did not fit its Representation. Each is
// logged.
func (s *TypedObjectSource[request]) Failures() int64 {
	n := s.failures.Load()
	for _, r := range s.all() {
		n += r.subscription.pool.Panics() + r.subscription.misfit.Load()
	}
	return n
}

func (s *TypedObjectSource[request]) all() []*objectRun[request] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.runs)
}

// Stop removes the source from its controllers and releases its watches.
// Delayed requests (Debounce) are queued at once. It is idempotent and does not
// wait: a call of the mapping function that has begun continues.
func (s *TypedObjectSource[request]) Stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()

	for _, r := range s.all() {
		if r.unlinked() {
			r.end()
		}
	}
}

// end ends the run. It is called once.
func (r *objectRun[request]) end() {
	r.subscription.stop()
	r.debounced.Close()
}

// Close is Stop, and then waits until no mapping function or predicate is being
// called, or until ctx ends. A Close called by one of them does not wait for
// that call.
func (s *TypedObjectSource[request]) Close(ctx context.Context) error {
	s.Stop()
	for _, r := range s.all() {
		if err := r.subscription.pool.Close(ctx); err != nil {
			return err
		}
	}
	return nil
}

// String names the source and its kinds in the controller's log.
func (s *TypedObjectSource[request]) String() string {
	text := "fleetcache object source"
	wanted, err := s.cc.selected(s.spec)
	if err != nil {
		return text // Start returns the error
	}
	kinds := map[string]bool{}
	for _, w := range wanted {
		if !w.GVK.Empty() {
			kinds[kindName(w.GVK)] = true
		}
	}
	if len(kinds) > 0 {
		text += ": " + strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")
	}

	return text
}
