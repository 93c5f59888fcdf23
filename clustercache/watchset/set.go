// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
)

// Defaults of Options.
const (
	DefaultMinBackoff = 100 * time.Millisecond
	DefaultMaxBackoff = time.Minute
)

// Options configure a [Set].
type Options struct {
	// Handle is called with every event, one call at a time for each object of
	// an entry. After an error or a panic it is called again, with the state
	// that the object has by then. ctx ends when the entry is removed, and with
	// the set. Nil if the events go to a [Source] instead.
	Handle func(ctx context.Context, e Event) error
	// OnStatus is called when the state of an entry, or the cause of it, has
	// changed, by whatever an event of its cluster or of its watch reports: a
	// first list, a right that is revoked or granted, a kind that comes or
	// goes. A slow OnStatus may miss a state that did not last. Nil calls
	// nothing.
	OnStatus func(Status)
	// DeliverLeft delivers the objects that leave the set, and may still exist
	// in their cluster, as Deleted with the mark Left: those of an entry that
	// is removed, those that an entry no longer selects after it was changed,
	// and those of a cluster that is gone. Default: they are forgotten without
	// an event. An object whose labels no longer match the unchanged selector
	// of its entry is always delivered as Deleted, without the mark.
	DeliverLeft bool
	// Concurrency is how many calls of Handle and OnStatus may be under way.
	// Default 1: they are never called at the same time.
	Concurrency int
	// MinBackoff is how long an object waits after Handle has failed for it
	// once. The wait doubles with each further failure, up to MaxBackoff. A new
	// state of the object is delivered at once. Defaults: DefaultMinBackoff and
	// DefaultMaxBackoff.
	MinBackoff time.Duration
	MaxBackoff time.Duration
}

// Change is what a call of Replace has changed: the names of entries, sorted.
type Change struct {
	Added   []string
	Changed []string
	Removed []string
}

// Set is a set of watches whose content is replaced as a whole. Make one with
// [New]. All methods may be called from many goroutines, and from the handlers.
type Set struct {
	cc      *clustercache.ClusterCache
	log     logr.Logger
	options Options
	turn    chan struct{}   // one slot: held while the content changes
	ctx     context.Context //nolint:containedctx // ended by Stop
	cancel  context.CancelFunc
	handler *consumer // of Handle and OnStatus
	follow  sync.Once
	running sync.WaitGroup

	mu struct { // nothing else is locked under it
		sync.Mutex

		entries   map[string]*entry
		consumers map[*consumer]struct{} // also those that have ended, until their last call returns
		watches   events.Subscription
		stopped   bool
	}
}

// entry is an entry of a set, with its watch. It is immutable.
type entry struct {
	name   string
	target target
	watch  *clustercache.Watch
}

func (e *entry) streamKey() streamKey {
	return streamKey{entry: e.name, cluster: e.target.Cluster, gvk: e.target.GVK}
}

// New returns a set without entries. It does no I/O and starts nothing. The set
// ends with the ClusterCache, or earlier by Stop or Close. The error joins an
// [*clustercache.OptionError] for each invalid option.
func New(cc *clustercache.ClusterCache, o Options) (*Set, error) {
	var errs []error
	for _, f := range []struct {
		name     string
		negative bool
	}{
		{"Concurrency", o.Concurrency < 0},
		{"MinBackoff", o.MinBackoff < 0},
		{"MaxBackoff", o.MaxBackoff < 0},
	} {
		if f.negative {
			errs = append(errs, &clustercache.OptionError{Field: f.name, Err: errNegative})
		}
	}
	if cc == nil {
		errs = append(errs, &clustercache.OptionError{Field: "cc", Err: errRequired})
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	o.Concurrency = cmp.Or(o.Concurrency, 1)
	o.MinBackoff = cmp.Or(o.MinBackoff, DefaultMinBackoff)
	o.MaxBackoff = max(o.MinBackoff, cmp.Or(o.MaxBackoff, DefaultMaxBackoff))

	s := &Set{
		cc:      cc,
		log:     cc.Options().Logger,
		options: o,
		turn:    make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.mu.entries, s.mu.consumers = map[string]*entry{}, map[*consumer]struct{}{}
	s.handler = newConsumer(s, "Handle of a watchset", o.Concurrency)
	s.handler.handle, s.handler.status = o.Handle, o.OnStatus
	s.mu.consumers[s.handler] = struct{}{}

	return s, nil
}

var errNegative = errors.New("negative")

// Replace replaces the content of the set. Only differences start and stop: an
// entry that stays as it was costs no request, and new watches are acquired
// before old ones are released, so that an entry with another name, or with a
// narrower selection, finds the objects cached. Replace makes the clusters
// known, and gives those up that nothing needs any more. It never waits for a
// cluster.
//
// An entry that begins to select other objects of the same kind in the same
// cluster delivers only the difference, once its new selection has been listed.
//
// Concurrent calls take effect one after the other. After Replace returned, no
// call of the handlers for a removed entry is under way, and none begins;
// except, with Options.DeliverLeft, to deliver that its objects are deleted or
// have left. If ctx ends before such a call returns, the error is that of ctx,
// and the replacement is in effect. Replace does not wait for calls if a
// handler calls it.
//
// If an entry is invalid, nothing changes, and the error joins an [*EntryError]
// for each invalid one. Other errors are clustercache.ErrClosed, and that of
// ctx; nothing has changed either.
func (s *Set) Replace(ctx context.Context, entries map[string]Entry) (Change, error) {
	targets, err := validated(entries)
	if err != nil {
		return Change{}, err
	}
	change, calls, err := s.replace(ctx, targets)
	if err != nil || s.inHandler() {
		return change, err
	}

	for _, c := range calls {
		select {
		case <-c.returned:
		case <-ctx.Done():
			return change, context.Cause(ctx)
		}
	}
	return change, nil
}

// validated returns the targets of entries, by name.
func validated(entries map[string]Entry) (map[string]target, error) {
	targets := make(map[string]target, len(entries))
	var bad []error
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		t, err := entries[name].validate()
		if name == "" && err == nil {
			err = &EntryError{Err: errEntryName}
		}
		if invalid, ok := errors.AsType[*EntryError](err); ok {
			invalid.Entry = name
			bad = append(bad, invalid)
		}
		targets[name] = t
	}
	return targets, errors.Join(bad...)
}

// replace is Replace without the wait for calls, which it returns.
func (s *Set) replace(ctx context.Context, targets map[string]target) (Change, []*call, error) {
	if err := s.takeTurn(ctx); err != nil {
		return Change{}, nil, err
	}
	defer s.endTurn()

	change := s.diff(targets)
	var fresh []*entry
	for _, name := range slices.Concat(change.Added, change.Changed) {
		e, err := s.watch(ctx, name, targets[name])
		if err != nil {
			release(fresh)
			return Change{}, nil, err
		}
		fresh = append(fresh, e)
	}
	old, ok := s.swap(fresh, change)
	if !ok {
		release(fresh)
		return Change{}, nil, clustercache.ErrClosed
	}

	calls := s.handOver(fresh, old, change.Removed)
	release(old)
	for _, e := range fresh {
		s.handler.notify(e.name)
	}

	return change, calls, nil
}

// takeTurn waits until no other goroutine changes the content or the consumers.
func (s *Set) takeTurn(ctx context.Context) error {
	s.follow.Do(func() {
		s.followClusters()
		s.noticeUnhandled()
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-s.ctx.Done():
		return clustercache.ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// noticeAfter is how long after its first use a set without a handler logs that.
const noticeAfter = 4 * time.Second

// noticeUnhandled logs if nothing receives the events of the set by then.
func (s *Set) noticeUnhandled() {
	if s.options.Handle != nil || s.options.OnStatus != nil {
		return
	}
	timer := time.AfterFunc(noticeAfter, func() {
		if len(s.all()) == 1 { // that of Handle and OnStatus
			s.log.Info("Nothing receives the events of a watch set; set Options.Handle, or use a Source of it")
		}
	})
	context.AfterFunc(s.ctx, func() { timer.Stop() })
}

func (s *Set) endTurn() { <-s.turn }

// diff returns what the targets change.
func (s *Set) diff(targets map[string]target) Change {
	s.mu.Lock()
	defer s.mu.Unlock()

	var change Change
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		e := s.mu.entries[name]
		switch {
		case e == nil:
			change.Added = append(change.Added, name)
		case e.target.Entry != targets[name].Entry:
			change.Changed = append(change.Changed, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.mu.entries)) {
		if _, stays := targets[name]; !stays {
			change.Removed = append(change.Removed, name)
		}
	}

	return change
}

// watch returns an entry with a watch of its own.
func (s *Set) watch(ctx context.Context, name string, t target) (*entry, error) {
	w, err := s.cc.Cluster(t.Cluster).Watch(ctx, clustercache.Kind(t.GVK), t.options())
	if err != nil {
		return nil, fmt.Errorf("entry %q: %w", name, err)
	}
	return &entry{name: name, target: t, watch: w}, nil
}

// swap puts the fresh entries in the place of the old ones, which it returns,
// unless the set was stopped.
func (s *Set) swap(fresh []*entry, change Change) (old []*entry, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.mu.stopped {
		return nil, false
	}
	for _, name := range slices.Concat(change.Changed, change.Removed) {
		old = append(old, s.mu.entries[name])
		delete(s.mu.entries, name)
	}
	for _, e := range fresh {
		s.mu.entries[e.name] = e
	}

	return old, true
}

// handOver ends what the old entries deliver, unless a fresh one continues it,
// and begins what the fresh ones deliver. It returns the calls for the ended
// ones that are under way. gone are the names that no entry has any more.
func (s *Set) handOver(fresh, old []*entry, gone []string) (calls []*call) {
	continued := map[streamKey]bool{}
	for _, e := range fresh {
		continued[e.streamKey()] = true
	}
	ended := slices.DeleteFunc(slices.Clone(old), func(e *entry) bool { return continued[e.streamKey()] })

	for _, c := range s.all() {
		calls = append(calls, c.end(ended, gone)...)
		c.connect(c.begin(fresh...))
	}
	return calls
}

func release(entries []*entry) {
	for _, e := range entries {
		e.watch.ReleaseCluster()
	}
}

// all returns the consumers.
func (s *Set) all() []*consumer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.mu.consumers))
}

// inHandler reports whether a handler calls.
func (s *Set) inHandler() bool { return slices.ContainsFunc(s.all(), (*consumer).calls) }

// followClusters follows the events of clusters and watches, until the set or
// the ClusterCache ends.
func (s *Set) followClusters() {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.mu.stopped {
		return
	}
	if s.options.OnStatus != nil {
		if sub, err := s.cc.SubscribeWatches(s.watchChanged); err == nil { // or the ClusterCache has ended
			sub.Start()
			s.mu.watches = sub
		}
	}
	s.running.Go(func() {
		for e := range s.cc.ClusterEvents(s.ctx) {
			s.clusterChanged(e)
		}
		s.Stop() // the ClusterCache may have ended
	})
}

// Stop ends the set, and gives up its watches and clusters. Nothing is
// delivered as left. A call of a handler that has begun continues, but its
// context ends. It is idempotent and does not wait.
func (s *Set) Stop() {
	s.mu.Lock()
	entries, watches := s.mu.entries, s.mu.watches
	s.mu.stopped, s.mu.entries, s.mu.watches = true, nil, nil
	s.mu.Unlock()

	s.cancel()
	if watches != nil {
		watches.Stop()
	}
	for _, c := range s.all() {
		c.stop()
	}
	release(slices.Collect(maps.Values(entries)))
}

// Close is Stop, and then waits until no handler, and no mapping of a [Source],
// is being called, or until ctx ends. It does not wait if one of them calls it.
func (s *Set) Close(ctx context.Context) error {
	s.Stop()
	if s.inHandler() {
		return nil
	}
	for _, c := range s.all() {
		if err := c.queue.wait(ctx); err != nil {
			return err
		}
	}
	s.running.Wait()

	return nil
}
