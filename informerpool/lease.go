// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Lease is one user's hold on an informer. While any lease on it is held the informer runs; it survives disconnects of
// its cluster. All methods may be called from many goroutines. Those that read never wait for the network.
type Lease struct {
	key      Key
	owner    string
	entry    *entry
	filter   filter // narrows a wider informer down to key
	released chan struct{}
	once     sync.Once

	mu   sync.Mutex // protects taps; never held while another lock is taken
	taps []*tap
}

// Key returns the canonical key the lease was acquired with.
func (l *Lease) Key() Key { return l.key }

// Owner returns the name the lease was acquired for, or nothing.
func (l *Lease) Owner() string { return l.owner }

// Release gives the lease up. It is idempotent and does not wait: a call of a handler that has begun goes on.
// Reads through the lease fail with [ErrReleased] from then on. After the last release the informer lingers.
func (l *Lease) Release() { l.release(l.entry.pool.options.Linger) }

// ReleaseNow is Release without the linger: if no other lease is held, the informer stops at once. It is for those who
// kept the informer long enough themselves.
func (l *Lease) ReleaseNow() { l.release(0) }

func (l *Lease) release(linger time.Duration) {
	l.once.Do(func() {
		close(l.released)
		for _, t := range l.attached() {
			t.sub.Remove(l)
		}
		l.entry.pool.release(l, linger)
	})
}

// Close releases the lease and waits until no handler is being called with its events, or for ctx. Called by such a handler
// it does not wait for itself.
func (l *Lease) Close(ctx context.Context) error {
	taps := l.attached()
	l.Release()
	for _, t := range taps {
		if err := t.sub.drain(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lease) attached() []*tap {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.taps)
}

// attach connects a tap to the informer, replaying what is there; it fails where the lease is released.
func (l *Lease) attach(t *tap) bool {
	l.mu.Lock()
	l.taps = append(l.taps, t)
	l.mu.Unlock()
	e := l.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	// A Release that found the tap may already have detached it: it closed released before that, so it is seen here. One
	// that comes later detaches what is attached now.
	if l.gone() != nil || e.state == StateDying || e.state == StateGone {
		return false
	}
	e.taps = append(e.taps, t)
	if e.synced {
		t.replayLocked(e.store)
	}
	return true
}

func (l *Lease) detach(t *tap) {
	l.mu.Lock()
	l.taps = slices.DeleteFunc(l.taps, func(x *tap) bool { return x == t })
	l.mu.Unlock()
	l.entry.mu.Lock()
	defer l.entry.mu.Unlock()
	l.entry.taps = slices.DeleteFunc(l.entry.taps, func(x *tap) bool { return x == t })
}

// gone returns ErrReleased after the release, ErrClosed after the pool's end, and nil before.
func (l *Lease) gone() error {
	select {
	case <-l.released: // first, since the release may be what ended the informer
		return ErrReleased
	default:
	}
	if l.entry.ctx.Err() != nil {
		return ErrClosed
	}
	return nil
}

// readable returns why the store cannot be read, or nil. The entry's lock is held.
func (l *Lease) readableLocked() error {
	if err := l.gone(); err != nil {
		return fmt.Errorf("%s: %w", l.key, err)
	}
	if !l.entry.synced {
		return fmt.Errorf("%s: %w", l.key, ErrNotSynced)
	}
	return nil
}

// Get returns a cached object. The error is [ErrReleased], [ErrNotSynced], or one that apierrors.IsNotFound tells. The
// object is shared and read-only.
func (l *Lease) Get(namespace, name string) (*Object, error) {
	e := l.entry
	e.mu.RLock()
	err := l.readableLocked()
	o := e.store.get(namespace, name)
	e.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	if !l.filter.empty() && !l.filter.match(o) {
		o = nil
	}
	if o == nil {
		return nil, apierrors.NewNotFound(l.key.Resource.GroupResource(), name)
	}
	return o, nil
}

// GetInto decodes a cached object into dst: an *unstructured.Unstructured, a *metav1.PartialObjectMetadata or a typed
// object, which is the caller's own. The errors are those of Get, and of decoding.
func (l *Lease) GetInto(namespace, name string, dst runtime.Object) error {
	o, err := l.Get(namespace, name)
	if err != nil {
		return err
	}
	return l.entry.pool.Decode(o, dst)
}

// Query narrows a list. The zero query selects everything.
type Query struct {
	// Namespace selects one namespace; empty means all.
	Namespace string
	// Labels selects by labels; nil means all. Objects that do not match are not decoded.
	Labels labels.Selector
	// Owner selects the objects with an owner reference to this uid.
	Owner types.UID
	// Index and Value select by an index added with AddIndex.
	Index, Value string
	// Limit is the most objects returned; zero means no limit. Which ones is not defined.
	Limit int
}

// List returns the cached objects a query selects, in no order, and the resourceVersion the cache is at. All of them are of
// one epoch. The error is [ErrReleased], [ErrNotSynced] or [ErrNoIndex]. The objects are shared and read-only.
func (l *Lease) List(q Query) ([]*Object, string, error) {
	candidates, rv, err := l.candidates(l.byOwner(&q))
	if err != nil {
		return nil, "", err
	}
	out := candidates[:0]
	for _, o := range candidates {
		if q.Limit > 0 && len(out) == q.Limit {
			break
		}
		if l.selects(q, o) {
			out = append(out, o)
		}
	}
	return slices.Clip(out), rv, nil
}

// All returns the objects that List returns, as a sequence over a snapshot: it filters while it is iterated, without a
// lock, and sees no later changes. It can be iterated more than once.
func (l *Lease) All(q Query) (iter.Seq[*Object], error) {
	candidates, _, err := l.candidates(l.byOwner(&q))
	if err != nil {
		return nil, err
	}
	return func(yield func(*Object) bool) {
		left := q.Limit
		for _, o := range candidates {
			if !l.selects(q, o) {
				continue
			}
			if !yield(o) || left == 1 {
				return
			}
			left--
		}
	}, nil
}

// byOwner makes a query for an owner one of the built-in index, which the first such query builds.
func (l *Lease) byOwner(q *Query) Query {
	if q.Owner != "" && q.Index == "" && l.entry.addIndex(ownerIndex, ownerUIDs) == nil {
		q.Index, q.Value, q.Owner = ownerIndex, string(q.Owner), ""
	}
	return *q
}

// candidates copies out what the indexes narrow a query down to; the rest is checked without the lock.
func (l *Lease) candidates(q Query) ([]*Object, string, error) {
	e := l.entry
	e.mu.RLock()
	defer e.mu.RUnlock()
	if err := l.readableLocked(); err != nil {
		return nil, "", err
	}
	if q.Index != "" {
		x := e.store.index(q.Index)
		if x == nil || !x.ready {
			return nil, "", fmt.Errorf("%s: index %q: %w", l.key, q.Index, ErrNoIndex)
		}
		return x.lookup(q.Value, nil), e.rv, nil
	}
	namespace := q.Namespace
	if namespace == "" {
		namespace = l.filter.namespace
	}
	size := e.store.count
	if namespace != "" {
		size = len(e.store.objects[namespace])
	}
	objects := make([]*Object, 0, size)
	for o := range e.store.in(namespace) {
		objects = append(objects, o)
	}
	return objects, e.rv, nil
}

func (l *Lease) selects(q Query, o *Object) bool {
	if q.Namespace != "" && o.GetNamespace() != q.Namespace {
		return false
	}
	if q.Labels != nil && !o.MatchesLabels(q.Labels) {
		return false
	}
	if q.Owner != "" && !slices.Contains(slices.Collect(o.OwnerUIDs()), q.Owner) {
		return false
	}
	return l.filter.empty() || l.filter.match(o)
}

// AddIndex adds an index to the informer, for all its leases, and fills it before it returns. The index lives as long
// as the informer. A name that is taken is [ErrIndexExists].
func (l *Lease) AddIndex(name string, values IndexFunc) error {
	if err := l.gone(); err != nil {
		return fmt.Errorf("%s: %w", l.key, err)
	}
	if name == "" || name == ownerIndex {
		return fmt.Errorf("%s: index %q: %w", l.key, name, ErrIndexExists)
	}
	return l.entry.addIndex(name, values)
}

// HasSynced tells whether the informer's first list is complete, so that reads are answered.
func (l *Lease) HasSynced() bool {
	l.entry.mu.RLock()
	defer l.entry.mu.RUnlock()
	return l.readableLocked() == nil
}

// WaitForSync waits for the informer's first list. It returns nil once that is complete, and otherwise as soon as it is
// known that waiting does not help: the server's refusal (apierrors.IsForbidden, IsNotFound and so on tell them), [ErrReleased],
// [ErrClosed], or the cause of ctx's end. The informer goes on trying after a refusal, and so can the caller.
func (l *Lease) WaitForSync(ctx context.Context) error {
	return l.entry.await(ctx, l, func() error {
		switch {
		case l.entry.synced:
			return nil
		case l.entry.cause != nil:
			return l.entry.cause
		}
		return errWait
	})
}

// WaitForVersion waits until the cache shows the given resourceVersion or a later one, such as the one a write was answered
// with. An idle server tells where it is once a minute.
func (l *Lease) WaitForVersion(ctx context.Context, rv string) error {
	if _, err := resourceversion.CompareResourceVersion(rv, rv); err != nil {
		return fmt.Errorf("%s: resourceVersion: %w", l.key, err)
	}
	return l.entry.await(ctx, l, func() error {
		if !l.entry.synced {
			return errWait
		}
		if order, err := resourceversion.CompareResourceVersion(l.entry.rv, rv); err != nil || order < 0 {
			return errWait
		}
		return nil
	})
}

// ResourceVersion returns the version the cache has reached, by events and bookmarks; empty before the first list.
func (l *Lease) ResourceVersion() string {
	l.entry.mu.RLock()
	defer l.entry.mu.RUnlock()
	return l.entry.rv
}

// Epoch returns the epoch of the objects that reads return now.
func (l *Lease) Epoch() Epoch {
	l.entry.mu.RLock()
	defer l.entry.mu.RUnlock()
	return l.entry.epoch
}
