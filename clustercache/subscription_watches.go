// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// OwnerEvent names an owner of declarations whose reads may be answered
// differently than before.
type OwnerEvent struct {
	Owner Owner
	// Initial marks an event that was caused by no change: by the beginning of
	// the subscription, by Trigger, or by objects that existed when the
	// watch began.
	Initial bool
}

func newWatchSubscription(cc *ClusterCache, handler func(events.Watch)) delivery {
	return newLevelSubscription(cc, levelConfig[status.WatchKey]{
		callback: "handler of watch events",
		hub:      &cc.subscribed.watches,
		deliver:  func(key status.WatchKey, initial bool) { handler(newWatchEvent(cc, key, initial)) },
		named: func(key client.ObjectKey, gvk schema.GroupVersionKind, _ client.ObjectKey) []status.WatchKey {
			keys := watchKeys(cc.find(key))
			return slices.DeleteFunc(keys, func(k status.WatchKey) bool { return !gvk.Empty() && k.GVK != gvk })
		},
		all: func() []status.WatchKey { return watchKeys(cc.all()...) },
	})
}

// watchKeys returns the keys of all watches of clusters; nil is none.
func watchKeys(of ...*cluster) (keys []status.WatchKey) {
	for _, c := range of {
		if c == nil {
			continue
		}
		for _, w := range c.wants.All() {
			keys = append(keys, keyOf(c.key, w.Selection))
		}
	}
	return keys
}

// newWatchEvent returns the state of a watch.
func newWatchEvent(cc *ClusterCache, key status.WatchKey, initial bool) events.Watch {
	e := events.Watch{Key: key, Initial: initial, Time: time.Now()}
	c := cc.find(key.Cluster)
	var w *wants.Want
	if c != nil {
		w = c.wants.Find(selectionOf(key))
	}
	if w == nil {
		e.Ended = true
		return e
	}
	e.Synced, e.Err = c.standing(w)
	e.Reason = ReasonOf(e.Err)

	return e
}

// unanswered returns why the cache does not answer reads of a want, or nil if
// it does. It is what "synced" means everywhere in this package, and the same
// that a read in mode CacheOnly checks.
func (c *cluster) unanswered(w *wants.Want) error {
	lease, _, err := c.wants.Look(w)
	switch {
	case c.cc.ctx.Err() != nil:
		return ErrClosed
	case !c.conn.View().Connected:
		return c.WhyNot()
	case lease == nil && err == nil:
		return ErrNotSynced
	case lease == nil:
		return err
	}

	err = cmp.Or(c.usable(&readOptions{mode: CacheOnly}, w), c.wants.Lag.Behind(w))
	if errors.Is(err, ErrNotSynced) {
		return translate(cmp.Or(w.Explain(lease.Status().LastError), ErrNotSynced))
	}
	return err
}

// standing returns why the cache does not answer reads of a want, or else what
// has interrupted its informer.
func (c *cluster) standing(w *wants.Want) (synced bool, err error) {
	if why := c.unanswered(w); why != nil {
		return false, why
	}
	if lease, _, _ := c.wants.Look(w); lease != nil {
		err = w.Explain(lease.Status().LastError)
	}
	return true, err
}

// waits reports whether nothing is known of the watch yet.
func (w *Watch) waits() bool {
	synced, err := w.c.standing(w.want)
	return !synced && (errors.Is(err, ErrNotSynced) || errors.Is(err, ErrConnecting))
}

// unlisten ends the delivery of the watch's objects to a subscription.
func (w *Watch) unlisten(sub *informerpool.Subscription) {
	w.c.wants.Unlisten(w.want, sub)
	if lease, _, _ := w.c.wants.Look(w.want); lease != nil {
		sub.Remove(lease)
	}
}

// ownerObjects passes the changes of objects on to the owners that declared
// them. It implements informerpool.BriefHandler: an object that came and went
// may have been read meanwhile.
type ownerObjects struct {
	cc   *ClusterCache
	call func(owner Owner, initial bool)

	mu   sync.Mutex // protects held; taken before the lock of the timers
	held map[Owner]*held
}

func (h *ownerObjects) Brief() bool { return true }

// Handle calls the owners of an object.
func (h *ownerObjects) Handle(e informerpool.Event) {
	c := h.cc.find(e.Key.Cluster)
	if c == nil {
		return
	}
	for _, owner := range h.cc.declared.touched(c, e) {
		h.call(owner, e.Initial)
	}
}

// held is an owner that is slowed down, for a while after it was called.
type held struct {
	due     bool // it is to be called at the end
	initial bool // for no change
}

// hold reports whether an owner has to wait, and calls it afterwards.
func (h *ownerObjects) hold(owner Owner, initial bool) bool {
	slow := h.cc.declared.isSlow(owner)
	h.mu.Lock()
	defer h.mu.Unlock()

	if x := h.held[owner]; x != nil {
		x.due, x.initial = true, initial && (x.initial || !x.due)
		return true
	}
	if slow {
		h.held[owner] = &held{}
		h.cc.timers.Set(timetable.NewTimer(func() { h.letGo(owner) }), time.Now().Add(slowCalls))
	}

	return false
}

func (h *ownerObjects) letGo(owner Owner) {
	h.mu.Lock()
	x := h.held[owner]
	delete(h.held, owner)
	h.mu.Unlock()

	if x.due {
		h.call(owner, x.initial)
	}
}

func newOwnerSubscription(cc *ClusterCache, handler func(OwnerEvent)) delivery {
	objects := &ownerObjects{cc: cc, held: map[Owner]*held{}}
	sub := cc.pool.Subscribe(objects)
	s := newLevelSubscription(cc, levelConfig[Owner]{
		callback: "handler of owner events",
		hub:      &cc.declared.events,
		deliver: func(owner Owner, initial bool) {
			if !objects.hold(owner, initial) {
				handler(OwnerEvent{owner, initial})
			}
		},
		named: func(_ client.ObjectKey, gvk schema.GroupVersionKind, object client.ObjectKey) []Owner {
			owners := cc.declared.all()
			named := Owner{GVK: gvk, ObjectKey: object} // also if it declares nothing
			owners = slices.DeleteFunc(owners, func(o Owner) bool {
				return o.GVK != gvk || o.ObjectKey != object || o == named
			})
			return append(owners, named)
		},
		all:    cc.declared.all,
		listen: func() { cc.declared.listen(sub) },
		unlisten: func() {
			sub.Stop()
			cc.declared.unlisten(sub)
		},
	})
	objects.call = s.queue.put

	return s
}
