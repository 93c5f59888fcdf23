// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// discovery follows the resolver: what it reports about known clusters and,
// with Options.Discover, its list.
type discovery struct {
	*shared

	clusters    *clusters
	listing     *listing
	firstListed func() // called once, when the clusters of the first list are known
}

// start begins, and spawns what goes on.
func (d *discovery) start() {
	d.noticeNone()
	if n, _ := resolver.AsNotifier(d.options.Resolver); n != nil {
		d.spawn(func() { d.notified(n) })
	}
	if d.options.Discover {
		d.spawn(d.discover)
	}
}

// notified passes on the resolver's reports of changes until it stops
// reporting.
func (d *discovery) notified(n resolver.Notifier) {
	for d.ctx.Err() == nil {
		err := d.calls.Call("Resolver.Notify", func() error { return n.Notify(d.ctx, d.changed) })
		if d.ctx.Err() != nil {
			return
		}
		d.log.Error(err, "Resolver reports no more changes; calling it again")
		timetable.Sleep(d.ctx, d.options.RetryInterval)
	}
}

// changed records that the resolver's answer for a cluster may have changed.
func (d *discovery) changed(key client.ObjectKey) {
	c := d.clusters.find(key)
	if c != nil && c.conn.Changed() {
		return
	}
	if !d.options.Discover {
		return
	}
	if d.listing.forgotten.since(key, time.Now().Add(-forgottenFor)) {
		d.listing.recheck() // it is the rest of its removal, unless the list has it again
		return
	}

	if !d.tenure.Serves(key) {
		if !d.listing.lists(key) {
			d.listing.relist()
		}
		return
	}
	if c, err := d.clusters.engage(key, false); err == nil { // it fails only after Stop
		c.discovered.Store(true)
	}
}

// discover makes every listed cluster known, and queries the resolver about
// those that are no longer listed. A list that fails changes nothing about any
// cluster.
func (d *discovery) discover() {
	lister, _ := resolver.AsLister(d.options.Resolver)
	_, notifies := resolver.AsNotifier(d.options.Resolver)
	var last []client.ObjectKey
	var asOf time.Time
	for d.ctx.Err() == nil {
		began := time.Now()
		keys, err := d.listClusters(lister)
		wait := d.options.RetryInterval
		switch {
		case err == nil:
			last, asOf = keys, began
			d.tenure.SetClusters(keys)
			d.listing.set(keys)
			d.listing.failure.Store(nil)
			d.compare(keys, began)
			if !d.listing.listed.Swap(true) {
				d.firstListed()
			}
			if notifies { // it reports the rest
				wait = d.options.ResolveInterval
			}
		case d.ctx.Err() == nil:
			failure := err.Error()
			if before := d.listing.failure.Swap(&failure); before == nil || *before != failure {
				d.log.Error(err, "Clusters cannot be listed")
			}
		}

		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		for !d.listAgain(due) {
			d.adopt(last, asOf)
		}
	}
}

// listAgain waits until the clusters have to be listed again. It returns false
// if only what this replica owns has changed.
func (d *discovery) listAgain(due <-chan time.Time) bool {
	select {
	case <-due:
	case <-d.listing.relisting:
		timetable.Sleep(d.ctx, relistPause)
	case <-d.listing.rechecking:
	case <-d.listing.reassigned:
		return false
	case <-d.ctx.Done():
	}

	return true
}

// listClusters returns the resolver's list.
func (d *discovery) listClusters(lister resolver.Lister) (keys []client.ObjectKey, err error) {
	err = d.calls.Call("Resolver.Clusters", func() (err error) {
		keys, err = lister.Clusters(d.ctx)
		return err
	})
	return keys, err
}

// compare adopts the listed clusters, and notes which of the discovered
// clusters are no longer listed. The resolver's answer for each of them
// decides, unless it is "not yet": see attempt.ask.
func (d *discovery) compare(keys []client.ObjectKey, began time.Time) {
	now := d.adopt(keys, began)
	for _, c := range d.clusters.all() {
		if c.discovered.Load() && c.unlisted.Swap(!now[c.key]) == now[c.key] {
			c.conn.Changed()
		}
	}
}

// adopt makes the listed clusters known that this replica owns or stands by
// for, and returns them. It gives up the discovered clusters for which that is
// over.
//
// A list that began before a cluster was forgotten may still contain it: the
// next list decides.
func (d *discovery) adopt(keys []client.ObjectKey, began time.Time) (now map[client.ObjectKey]bool) {
	now = make(map[client.ObjectKey]bool, len(keys))
	for _, key := range keys {
		if d.listing.forgotten.since(key, began) {
			d.listing.relist()
			continue
		}
		d.listing.forgotten.drop(key)
		if !d.tenure.Serves(key) {
			continue
		}
		now[key] = true
		c, err := d.clusters.engage(key, false)
		if err != nil {
			return now // only after the end
		}
		c.discovered.Store(true)
	}

	for _, c := range d.clusters.all() {
		if c.discovered.Load() && !d.tenure.Serves(c.key) {
			c.discovered.Store(false)
			c.letGo()
		}
	}

	return now
}

// relistPause is how long a list waits for further reasons to list: a fleet
// that is deleted is not listed once for each cluster.
const relistPause = 100 * time.Millisecond

// noticeNone logs that no cluster is known, and why: an operator that
// does not set Discover, or whose Secrets lack a label, would run and do
// nothing.
func (d *discovery) noticeNone() {
	d.timers.Set(timetable.NewTimer(func() {
		if len(d.clusters.all()) == 0 {
			why, keys := d.whyNone()
			d.log.Info("No cluster is known, "+why, keys...)
		}
	}), time.Now().Add(noticeAfter))
}

// whyNone returns the rest of the sentence, and keys and values.
func (d *discovery) whyNone() (string, []any) {
	const ask = "ask for some with Engage, Watch or Declare"
	_, lists := resolver.AsLister(d.options.Resolver)
	switch {
	case !lists:
		return "and the resolver cannot list any: " + ask, nil
	case !d.options.Discover:
		return "though the resolver lists clusters: set Options.Discover to have them all, or " + ask, nil
	case !d.listing.listed.Load():
		if failure := d.listing.failure.Load(); failure != nil {
			return "since the resolver cannot list them", []any{"error", *failure}
		}
		return "and the resolver has not listed any yet", nil
	case len(d.listing.clusters()) > 0:
		return "since this replica owns none of those that the resolver lists: is Options.Sharding started?", nil
	}

	const none = "and the resolver lists none: those that appear are taken up"
	if named, ok := d.options.Resolver.(fmt.Stringer); ok {
		return none, []any{"resolver", named.String()}
	}

	return none, nil
}

// listing is the resolver's last list of clusters, and what calls for another.
type listing struct {
	relisting  chan struct{} // one slot: the resolver's list must be read again
	rechecking chan struct{} // one slot: a forgotten cluster may be back
	reassigned chan struct{} // one slot: this replica owns other clusters
	forgotten  forgotten
	listed     atomic.Bool // the resolver has listed its clusters at least once
	last       atomic.Pointer[map[client.ObjectKey]struct{}]
	failure    atomic.Pointer[string] // of the last list, until one succeeds
}

func newListing() *listing {
	return &listing{
		relisting:  make(chan struct{}, 1),
		rechecking: make(chan struct{}, 1),
		reassigned: make(chan struct{}, 1),
	}
}

// relist has the resolver's list read again, if it has one.
func (l *listing) relist() { wake(l.relisting) }

// recheck has it read again, too, since a forgotten cluster may be back.
func (l *listing) recheck() { wake(l.rechecking) }

// reassign has the last list compared with what the replica owns.
func (l *listing) reassign() { wake(l.reassigned) }

// set records the last list of clusters.
func (l *listing) set(keys []client.ObjectKey) {
	last := make(map[client.ObjectKey]struct{}, len(keys))
	for _, key := range keys {
		last[key] = struct{}{}
	}
	l.last.Store(&last)
}

// clusters returns the last list, which must not be changed; nil means none yet.
func (l *listing) clusters() map[client.ObjectKey]struct{} {
	if last := l.last.Load(); last != nil {
		return *last
	}
	return nil
}

// lists reports whether the last list has a cluster.
func (l *listing) lists(key client.ObjectKey) bool {
	_, ok := l.clusters()[key]
	return ok
}

// current returns the clusters of the last list but for those that were
// forgotten since.
func (l *listing) current() (keys []client.ObjectKey) {
	for key := range l.clusters() {
		if !l.forgotten.since(key, time.Time{}) {
			keys = append(keys, key)
		}
	}
	return keys
}

// forgottenFor is how long a forgotten cluster is remembered as such. The
// objects that describe a cluster are deleted one after the other, and each
// delete is a change.
const forgottenFor = 10 * time.Minute

// forgotten remembers which discovered clusters were forgotten recently. A
// change of such a cluster is most likely part of its removal, so it does not
// make the cluster known again. A list that began after the cluster was
// forgotten does.
type forgotten struct {
	mu sync.Mutex
	at map[client.ObjectKey]time.Time
}

// add records that a cluster is forgotten now, and drops old records.
func (f *forgotten) add(key client.ObjectKey) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.at == nil {
		f.at = map[client.ObjectKey]time.Time{}
	}
	for k, t := range f.at {
		if now.Sub(t) > forgottenFor {
			delete(f.at, k)
		}
	}
	f.at[key] = now
}

// since reports whether a cluster was forgotten after t.
func (f *forgotten) since(key client.ObjectKey, t time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.at[key]
	return ok && at.After(t)
}

// drop removes the record of a cluster that is known again.
func (f *forgotten) drop(key client.ObjectKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.at, key)
}
