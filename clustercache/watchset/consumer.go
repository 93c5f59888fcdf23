// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"context"
	"sync"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// consumer delivers the events of all entries to one handler: that of the
// Options, or that of a Source.
//
//	Watch of an entry ──► feed ──► stream ──► queue ──► handler
//	                      of each entry       of all entries
type consumer struct {
	set    *Set
	name   string // of the handler, in errors
	handle func(context.Context, Event) error
	status func(Status) // nil if nothing is to be notified
	queue  *queue
	ctx    context.Context //nolint:containedctx // ended by stop
	cancel context.CancelFunc

	mu struct { // taken before the locks of the queue and of the set
		sync.Mutex

		streams map[streamKey]*stream
		// reported is the last delivered status of each entry; the zero value
		// if there is none.
		reported map[string]report
		calls    map[*call]struct{} // those under way
		stopped  bool
	}
}

// call is a call of the handler.
type call struct {
	streamKey

	goroutine atomic.Uint64 // on which the handler runs
	returned  chan struct{} // closed when the handler has returned
}

// item is an object of a stream or, without a name, the status of an entry.
type item struct {
	streamKey

	object client.ObjectKey
}

func newConsumer(s *Set, name string, workers int) *consumer {
	c := &consumer{set: s, name: name}
	c.queue = newQueue(workers, s.options.MinBackoff, s.options.MaxBackoff, c.work)
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	c.mu.streams = map[streamKey]*stream{}
	c.mu.reported = map[string]report{}
	c.mu.calls = map[*call]struct{}{}
	return c
}

// feed receives the events of one watch of one entry. It implements
// informerpool.ReplayHandler.
type feed struct {
	consumer *consumer
	stream   *stream
	target   target
	entry    *entry

	registration *clustercache.Registration // protected by the consumer's lock
}

// Handle implements informerpool.Handler.
func (f *feed) Handle(e informerpool.Event) {
	key := client.ObjectKeyFromObject(e.Object())
	c := f.consumer
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.handle != nil && f.stream.feed == f && f.stream.apply(key, e) {
		c.queue.add(item{f.stream.streamKey, key})
	}
}

// Replayed implements informerpool.ReplayHandler.
func (f *feed) Replayed(informerpool.Key) {
	c := f.consumer
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.stream.feed == f {
		c.changedLocked(f.stream, f.stream.sweep(f.target))
	}
}

// changedLocked queues objects of a stream that has changed, and forgets the
// stream if it is drained.
func (c *consumer) changedLocked(st *stream, objects []client.ObjectKey) {
	for _, o := range objects {
		c.queue.add(item{st.streamKey, o})
	}
	if st.drained() && c.mu.streams[st.streamKey] == st {
		delete(c.mu.streams, st.streamKey)
	}
}

// begin makes the streams of entries, and returns the feeds that are to be
// connected to the entries' watches.
func (c *consumer) begin(entries ...*entry) []*feed {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.mu.stopped {
		return nil
	}
	feeds := make([]*feed, 0, len(entries))
	for _, e := range entries {
		key := e.streamKey()
		st := c.mu.streams[key]
		if st == nil {
			st = newStream(key, c.set.options.DeliverLeft)
			c.mu.streams[key] = st
		}
		f := &feed{
			consumer: c,
			stream:   st,
			target:   e.target,
			entry:    e,
		}
		st.begin(c.ctx, f)
		c.mu.reported[e.name] = report{}
		feeds = append(feeds, f)
	}

	return feeds
}

// end ends the streams of entries. It returns the calls of the handler for them
// that are under way. gone are the names that no entry has any more.
func (c *consumer) end(entries []*entry, gone []string) []*call {
	c.mu.Lock()
	defer c.mu.Unlock()

	ended := map[streamKey]bool{}
	for _, e := range entries {
		ended[e.streamKey()] = true
		if st := c.mu.streams[e.streamKey()]; st != nil {
			c.changedLocked(st, st.end())
		}
	}
	for _, name := range gone {
		ended[streamKey{entry: name}] = true
		delete(c.mu.reported, name)
	}
	var calls []*call
	for under := range c.mu.calls {
		if ended[under.streamKey] {
			calls = append(calls, under)
		}
	}

	return calls
}

// evict is called when a cluster is gone. Feeds that have delivered their
// objects receive the deletes themselves.
func (c *consumer) evict(cluster client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, st := range c.mu.streams {
		if st.cluster == cluster && st.feed != nil {
			c.changedLocked(st, st.evict())
		}
	}
}

// notify has the status of an entry delivered if it has changed.
func (c *consumer) notify(name string) {
	if c.status != nil {
		c.queue.add(item{streamKey: streamKey{entry: name}})
	}
}

// work calls the handler with what is next of an item.
func (c *consumer) work(it item) error {
	if it.object.Name == "" {
		c.report(it.streamKey)
		return nil
	}
	c.mu.Lock()
	st := c.mu.streams[it.streamKey]
	if st == nil || c.mu.stopped {
		c.mu.Unlock()
		return nil
	}
	e, p := st.next(it.object)
	if p == nil {
		c.changedLocked(st, nil)
		c.mu.Unlock()
		return nil
	}
	ctx := st.ctx
	if st.feed == nil {
		ctx = c.ctx // that of the entry has ended
	}
	under := c.beginCallLocked(it.streamKey)
	c.mu.Unlock()

	err := c.call(under, func() error { return c.handle(ctx, e) }, "object", it.object.String())
	if err != nil && ctx.Err() == nil {
		c.set.log.Error(err, "Event was not handled; it is delivered again", "entry", it.entry,
			"cluster", clustername.Of(it.cluster), "kind", it.gvk.Kind, "object", it.object.String(),
			"attempt", e.Attempt+1)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	var more []client.ObjectKey
	if st.settle(it.object, e, p, err) && err == nil {
		more = append(more, it.object)
	}
	c.changedLocked(st, more)
	return err
}

// report notifies of the status of an entry, if that has changed.
func (c *consumer) report(key streamKey) {
	e := c.set.entry(key.entry)
	if e == nil {
		return
	}
	now := c.set.statusOf(e)
	c.mu.Lock()
	before, exists := c.mu.reported[key.entry]
	replaced := c.set.entry(key.entry) != e // then it is notified of
	if !exists || replaced || c.mu.stopped || before == now.report() {
		c.mu.Unlock()
		return
	}
	c.mu.reported[key.entry] = now.report()
	under := c.beginCallLocked(key)
	c.mu.Unlock()

	// A panic is logged, and loses only this status.
	_ = c.call(under, func() error { c.status(now); return nil }, "state", string(now.State))
}

func (c *consumer) beginCallLocked(key streamKey) *call {
	under := &call{streamKey: key, returned: make(chan struct{})}
	c.mu.calls[under] = struct{}{}
	return under
}

// call calls a function of the user, and recovers from its panic.
func (c *consumer) call(under *call, f func() error, keysAndValues ...any) error {
	err := c.set.cc.Protect(c.name, func() error {
		under.goroutine.Store(callback.Goroutine())
		return f()
	}, append(keysAndValues, "entry", under.entry, "cluster", clustername.Of(under.cluster))...)

	c.mu.Lock()
	delete(c.mu.calls, under)
	c.mu.Unlock()
	close(under.returned)

	return err
}

// calls reports whether the calling goroutine is in a call of the handler.
func (c *consumer) calls() bool {
	id := callback.Goroutine()
	c.mu.Lock()
	defer c.mu.Unlock()
	for under := range c.mu.calls {
		if under.goroutine.Load() == id {
			return true
		}
	}
	return false
}

// connect connects feeds to the watches of their entries.
func (c *consumer) connect(feeds []*feed) {
	for _, f := range feeds {
		r, err := f.entry.watch.AddEventHandler(f)
		if err != nil {
			continue // the set or the ClusterCache has ended
		}
		c.mu.Lock()
		stopped := c.mu.stopped
		f.registration = r
		c.mu.Unlock()

		if stopped {
			r.Release()
		}
	}
}

// stop ends the delivery. It is idempotent and does not wait. What is queued is
// dropped: work looks whether the consumer has stopped.
func (c *consumer) stop() {
	c.cancel()
	var registrations []*clustercache.Registration
	c.mu.Lock()
	c.mu.stopped = true
	for _, st := range c.mu.streams {
		if st.feed != nil && st.feed.registration != nil {
			registrations = append(registrations, st.feed.registration)
		}
	}
	clear(c.mu.streams)
	c.mu.Unlock()

	c.queue.stop()
	for _, r := range registrations {
		r.Release()
	}
}
