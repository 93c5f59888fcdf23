// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/debounce"
)

// Source is a source of a controller, and the handle on it. Stop and Close
// remove it from a running controller; the controller's Watch can add another
// one at any time. All methods may be called from many goroutines.
// [ObjectSource], [ClusterSource] and [DeclarerSource] make one.
type Source[request comparable, mapFunc mapping[request]] struct {
	cc        *clustercache.ClusterCache
	name      func() string // in the controller's log
	config    debounce.Config
	subscribe func(*run[request]) (events.Subscription, error)
	mapping   atomic.Pointer[mapFunc]
	failures  atomic.Int64 // of runs that have ended, and objects that did not fit

	mu struct { // taken before a subscription's lock and the debounce queue's
		sync.Mutex

		runs    []*run[request]
		paused  bool
		stopped bool
		started bool
		early   map[Request]struct{} // triggered before the first run
	}
}

// mapping are the types of mapping functions.
type mapping[request comparable] interface {
	ObjectMapFunc[request] | ClusterMapFunc[request] | DeclarerMapFunc[request]
}

// run is one run of a source, for one controller.
type run[request comparable] struct {
	ctx          context.Context //nolint:containedctx // the controller's life, cut short by Stop
	cancel       context.CancelFunc
	subscription events.Subscription
	debounced    *debounce.Queue[request]
	unlinked     func() bool // undoes what the end of ctx would do
}

var _ source.TypedSource[string] = (*Source[string, ObjectMapFunc[string]])(nil)

// Start implements source.TypedSource. It does not block. After Stop it does
// nothing. The error is that of an invalid kind or selector, an
// [*clustercache.OptionError], as for a nil mapping function, or
// [clustercache.ErrClosed].
func (s *Source[request, mapFunc]) Start(
	ctx context.Context, queue workqueue.TypedRateLimitingInterface[request],
) error {
	if s.cc == nil {
		return &clustercache.OptionError{Field: "cc", Err: errRequired}
	}
	if s.config.Window < 0 {
		return &clustercache.OptionError{Field: "Debounce", Err: errNegative}
	}
	if s.config.MaxDelay < 0 {
		return &clustercache.OptionError{Field: "MaxDelay", Err: errNegative}
	}
	if *s.mapping.Load() == nil {
		return &clustercache.OptionError{Field: "mapping", Err: errRequired}
	}
	r := &run[request]{debounced: debounce.New(queue, s.config)}
	var err error
	if r.subscription, err = s.subscribe(r); err != nil {
		return err
	}
	r.ctx, r.cancel = context.WithCancel(ctx)
	s.forgetEnded()

	s.mu.Lock()
	if s.mu.stopped {
		s.mu.Unlock()

		r.end()
		return nil
	}
	s.mu.runs = append(s.mu.runs, r)
	early := s.mu.early
	s.mu.started, s.mu.early = true, nil
	if s.mu.paused { // before there is anything to deliver
		r.pause()
	}
	r.unlinked = context.AfterFunc(ctx, r.end)
	s.mu.Unlock()

	r.subscription.Start() // does nothing if it was stopped meanwhile
	for object := range early {
		r.trigger(object)
	}

	return nil
}

var (
	errNegative = errors.New("negative")
	errRequired = errors.New("required")
)

// forgetEnded forgets the runs that Close need not wait for. Only their
// failures are kept.
func (s *Source[request, mapFunc]) forgetEnded() {
	expired, cancel := context.WithCancel(context.Background())
	cancel()
	for _, r := range s.all() {
		if r.ctx.Err() == nil || r.close(expired) != nil {
			continue
		}
		s.mu.Lock()
		if i := slices.Index(s.mu.runs, r); i >= 0 {
			s.mu.runs = slices.Delete(s.mu.runs, i, i+1)
			s.failures.Add(r.subscription.Failures())
		}
		s.mu.Unlock()
	}
}

// SetMapping replaces the mapping function. A call of the old one that has
// begun continues; TriggerAll passes every object to the new one. A nil
// function replaces none, which is logged.
func (s *Source[request, mapFunc]) SetMapping(mapping mapFunc) {
	if mapping == nil && s.cc != nil {
		log := s.cc.Options().Logger
		log.Error(errRequired, "Mapping function is nil; the source keeps the one it has", "source", s.String())
		return
	}
	s.mapping.Store(&mapping)
}

// Trigger delivers an object once more, marked as Resync, if it is cached and
// the source selects it. A source of clusters delivers the state of the
// object's cluster, and one of declarations the owner that has the object's kind
// and name. Before the source is started for the first time, what is triggered
// is kept until then. It does not wait.
func (s *Source[request, mapFunc]) Trigger(object Request) {
	if s.keep(object) {
		return
	}
	for _, r := range s.all() {
		r.trigger(object)
	}
}

// keep keeps an object that is triggered before the first start, and reports
// whether it did.
func (s *Source[request, mapFunc]) keep(object Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.mu.started || s.mu.stopped {
		return false
	}
	if s.mu.early == nil {
		s.mu.early = map[Request]struct{}{}
	}
	s.mu.early[object] = struct{}{}

	return true
}

func (r *run[request]) trigger(object Request) {
	r.subscription.Trigger(object.Cluster, object.GVK, object.ObjectKey)
}

// TriggerAll delivers every object, the state of every cluster, or every owner,
// once more. A start does so in any case. It does not wait.
func (s *Source[request, mapFunc]) TriggerAll() {
	for _, r := range s.all() {
		r.subscription.TriggerAll()
	}
}

// Pause stops the delivery after the event that the mapping function is
// processing. Caches stay up to date, and events are merged. It can be called
// before Start. It does not wait.
func (s *Source[request, mapFunc]) Pause() { s.setPaused(true) }

// Continue ends a pause: it delivers the last state of what has changed.
func (s *Source[request, mapFunc]) Continue() { s.setPaused(false) }

func (s *Source[request, mapFunc]) setPaused(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.paused = paused
	for _, r := range s.mu.runs {
		if paused {
			r.pause()
		} else {
			r.subscription.Continue()
			r.debounced.Proceed()
		}
	}
}

func (r *run[request]) pause() {
	r.subscription.Pause()
	r.debounced.Pause()
}

// Failures returns how many events could not be mapped: the mapping function, a
// filter or a predicate panicked, or an object did not fit its Representation.
// Each is logged.
func (s *Source[request, mapFunc]) Failures() int64 {
	s.mu.Lock() // so that no run is counted as ended and as running, or as neither
	defer s.mu.Unlock()
	n := s.failures.Load()
	for _, r := range s.mu.runs {
		n += r.subscription.Failures()
	}
	return n
}

func (s *Source[request, mapFunc]) all() []*run[request] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.runs)
}

// Stop removes the source from its controllers and releases its watches.
// Delayed requests (Debounce) are queued at once. It is idempotent and does not
// wait: a call of the mapping function that has begun continues, but its
// context ends.
func (s *Source[request, mapFunc]) Stop() {
	s.mu.Lock()
	s.mu.stopped = true
	s.mu.Unlock()

	for _, r := range s.all() {
		r.unlinked()
		r.end()
	}
}

// end ends the run. It is idempotent and does not wait.
func (r *run[request]) end() {
	r.cancel()
	r.subscription.Stop()
	r.debounced.Close()
}

// close is end, and then waits for the mapping function and for the requests
// that are being queued.
func (r *run[request]) close(ctx context.Context) error {
	r.end()
	if err := r.subscription.Close(ctx); err != nil {
		return err
	}
	return r.debounced.Wait(ctx)
}

// Close is Stop, and then waits until no mapping function or predicate is being
// called and no request is being queued, or until ctx ends. A Close called by
// one of these functions does not wait for that call.
func (s *Source[request, mapFunc]) Close(ctx context.Context) error {
	s.Stop()
	for _, r := range s.all() {
		if err := r.close(ctx); err != nil {
			return err
		}
	}
	return nil
}

// String names the source and its kinds in the controller's log.
func (s *Source[request, mapFunc]) String() string { return s.name() }
