// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/selector"
	"github.com/fleetcache/fleetcache/informerpool/internal/store"
)

// Lease is one user's hold on an informer. The informer runs as long as any
// lease on it is held; a lease survives disconnects of its cluster. All methods
// may be called from many goroutines. The methods that read never wait for the
// network.
type Lease struct {
	pool     *Pool
	owner    string
	at       seat
	released chan struct{}
	once     sync.Once
	attached attached
}

// place is the informer that serves a lease.
type place struct {
	key      Key
	informer *informer
	selector selector.Selector // narrows a wider informer down to key
}

// newPlace returns the place of a key at an informer that covers it.
func newPlace(key Key, by *informer) *place {
	return &place{key: key, informer: by, selector: newSelector(by.key, key)}
}

// selectedLocked returns the objects of the place's informer that pass its
// selector.
func (p *place) selectedLocked() []*Object {
	out := []*Object{}
	all := p.informer.mu.store
	if name, one := p.selector.Name(); one && (p.key.Namespace != "" || all.CountIn("") == all.Count) {
		if o := all.Get(p.key.Namespace, name); p.selector.Match(o) {
			out = append(out, o)
		}
		return out
	}
	for o := range all.In(p.selector.Namespace) {
		if p.selector.Match(o) {
			out = append(out, o)
		}
	}
	return out
}

// seat is where a lease has its place. That is replaced with the locks of both
// informers held.
type seat struct{ atomic.Pointer[place] }

func (s *seat) informer() *informer { return s.Load().informer }

// lock locks the informer that serves the lease. The same informer serves it
// for as long as the lock is held.
func (s *seat) lock() *place {
	for {
		at := s.Load()
		at.informer.mu.Lock()
		if s.Load() == at {
			return at
		}
		at.informer.mu.Unlock() // handed over meanwhile
	}
}

// rlock is lock for readers.
func (s *seat) rlock() *place {
	for {
		at := s.Load()
		at.informer.mu.RLock()
		if s.Load() == at {
			return at
		}
		at.informer.mu.RUnlock()
	}
}

// Key returns the canonical key the lease was acquired with, or retargeted to.
func (l *Lease) Key() Key { return l.at.Load().key }

// ServedBy returns the key of the informer that serves the lease, which may
// cover more than the lease's own.
func (l *Lease) ServedBy() Key { return l.at.informer().key }

// Retry makes the informer try at once if it waits between two attempts, as
// [Pool.Wake] does for all informers of a cluster.
func (l *Lease) Retry() { l.at.informer().wake.Kick() }

// Release gives up the lease. It is idempotent and does not wait: a running
// call of a handler continues. Afterwards reads through the lease fail with
// [ErrReleased]. After the last release the informer lingers.
func (l *Lease) Release() { l.release(l.pool.options.Linger, (*listener).remove) }

// ReleaseNow is Release without the linger: if no other lease is held, the
// informer stops at once. Use it where the caller has kept the informer long
// enough itself.
func (l *Lease) ReleaseNow() { l.release(0, (*listener).remove) }

// release gives up the lease, once. leave ends the delivery to a listener.
func (l *Lease) release(linger time.Duration, leave func(*listener)) {
	l.once.Do(func() {
		// Close it before looking at the listeners: a listener that is attached
		// later sees it.
		close(l.released)
		for _, ln := range l.attached.all() {
			leave(ln)
		}
		l.pool.release(l, linger)
	})
}

// Close releases the lease and waits until no handler is running with one of
// its events, or for ctx. If such a handler calls Close, Close does not wait
// for that handler.
func (l *Lease) Close(ctx context.Context) error {
	listeners := l.attached.all()
	l.Release()
	for _, ln := range listeners {
		if err := ln.sub.drain(ctx, ln); err != nil {
			return err
		}
	}
	return nil
}

// Retire releases the lease because its cluster is gone. Handlers receive the
// deletes of all its objects in order, marked as evicted, even after a pause.
// The informer stops at once, without lingering, unless another lease is held;
// only the objects of those deletes stay in memory. Like [Lease.Release],
// Retire is idempotent and does not wait.
func (l *Lease) Retire() { l.release(0, (*listener).part) }

// gone returns ErrReleased after the release, ErrClosed after the pool was
// closed, and nil before.
func (l *Lease) gone() error {
	select {
	case <-l.released: // first, since the release may have ended the informer
		return ErrReleased
	default:
	}
	if l.at.informer().ctx.Err() != nil {
		return ErrClosed
	}
	return nil
}

// readableLocked returns why the store cannot be read, or nil. The informer's
// lock is held.
func (l *Lease) readableLocked() error {
	if err := l.gone(); err != nil {
		return fmt.Errorf("%s: %w", l.Key(), err)
	}
	if !l.at.informer().mu.synced {
		return fmt.Errorf("%s: %w", l.Key(), ErrNotSynced)
	}
	return nil
}

// Get returns a cached object. The error is [ErrReleased], [ErrNotSynced],
// [ErrRefused] if every state received for the object was refused, or one that
// satisfies apierrors.IsNotFound. The object is shared and read-only.
func (l *Lease) Get(namespace, name string) (*Object, error) {
	at := l.at.rlock()
	err := l.readableLocked()
	i := at.informer
	i.mu.store.Sight.Look()
	o := i.mu.store.Get(namespace, name)
	if err == nil && o == nil && i.mu.refused.Has(types.NamespacedName{Namespace: namespace, Name: name}) {
		err = refusedError(at.key, i.mu.refused.Last())
	}
	i.mu.RUnlock()

	switch {
	case err != nil:
		return nil, err
	case !at.selector.Match(o):
		return nil, apierrors.NewNotFound(at.key.Resource.GroupResource(), name)
	}
	return o, nil
}

// Find is Get, [Lease.Trust] and [Lease.Unknown] in one step, for those who take
// the cache for the server's state. Without an error, a nil object means that the
// lease selects none of this name. The error is [ErrOutdated] if another informer
// of the resource, which may have ended, has shown a later state of the object: a
// read that is answered all the same goes back in time.
func (l *Lease) Find(namespace, name string, grace time.Duration) (*Object, error) {
	at := l.at.rlock()
	i := at.informer
	defer i.mu.RUnlock()
	if err := l.readableLocked(); err != nil {
		return nil, err
	}
	if err := i.distrustLocked(grace); err != nil {
		return nil, fmt.Errorf("%s: %w", at.key, err)
	}
	if i.mu.refused.Has(types.NamespacedName{Namespace: namespace, Name: name}) {
		return nil, refusedError(at.key, i.mu.refused.Last())
	}
	i.mu.store.Sight.Look()
	o := i.mu.store.Get(namespace, name)
	if !at.selector.Match(o) {
		o = nil
	}
	if shown, is := i.siblings.outdatedLocked(i, namespace, name, o); is {
		return nil, fmt.Errorf("%s: %w: at resourceVersion %s, and not %s", at.key, ErrOutdated, i.mu.rv, shown)
	}
	return o, nil
}

// GetInto decodes a cached object into dst: an *unstructured.Unstructured, a
// *metav1.PartialObjectMetadata or a typed object. The caller owns the result.
// The errors are those of Get, and of decoding.
func (l *Lease) GetInto(namespace, name string, dst runtime.Object) error {
	o, err := l.Get(namespace, name)
	if err != nil {
		return err
	}
	return l.pool.Decode(o, dst)
}

// Namespaced reports whether the cached objects live in namespaces. known is
// false if there are no objects, or some of both kinds. A definition can be
// re-created with another scope, and the cached objects show that before
// discovery is queried again.
func (l *Lease) Namespaced() (namespaced, known bool) {
	s := store.Scope(l.at.informer().published.scope.Load())
	return s == store.ScopeNamespace, s != store.ScopeUnknown
}

// AddIndex adds an index to the informer, for all its leases, and fills it
// before it returns. The index lives as long as the informer. If the name is
// taken, the error is [ErrIndexExists].
func (l *Lease) AddIndex(name string, values IndexFunc) error {
	return l.TryAddIndex(name, func(o *Object) ([]string, error) { return values(o), nil })
}

// TryAddIndex is AddIndex for a function that can fail.
func (l *Lease) TryAddIndex(name string, values TryIndexFunc) error {
	if err := l.gone(); err != nil {
		return fmt.Errorf("%s: %w", l.Key(), err)
	}
	if name == "" || name == store.OwnerIndex {
		return fmt.Errorf("%s: index %q: %w", l.Key(), name, ErrIndexExists)
	}
	i := l.at.informer()
	if err := i.indexes().add(name, values); err != nil {
		return err
	}
	if now := l.at.informer(); now != i { // handed over meanwhile
		_ = now.indexes().add(name, values) // it may have the index already
	}
	return nil
}

// HasSynced reports whether the informer's first list is complete, so that
// reads are served. It has client-go's meaning: an informer that is interrupted
// or refused afterwards has synced all the same, and serves its last state. Use
// [Lease.Trust] to know whether that may be taken for the server's.
func (l *Lease) HasSynced() bool {
	defer l.at.rlock().informer.mu.RUnlock()
	return l.readableLocked() == nil
}

// Polls reports whether the informer lists its resource periodically, because
// the server does not let it watch or gives no versions: the cache is as old as
// the last list.
func (l *Lease) Polls() bool {
	i := l.at.rlock().informer
	defer i.mu.RUnlock()
	return i.mu.polling
}

// ResourceVersion returns the version that the cache has reached, by events and
// bookmarks; empty before the first list.
func (l *Lease) ResourceVersion() string {
	i := l.at.rlock().informer
	defer i.mu.RUnlock()
	return i.mu.rv
}

// Epoch returns the epoch of the objects that reads return now.
func (l *Lease) Epoch() Epoch {
	i := l.at.rlock().informer
	defer i.mu.RUnlock()
	return i.mu.epoch
}

// ListedIn reports whether reads return objects of an epoch: the informer's
// last list was in it. Unlike the other methods it takes no lock.
func (l *Lease) ListedIn(epoch Epoch) bool {
	in := l.at.informer().published.listed.Load()
	return in != nil && *in == epoch
}
