// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// discovery follows the resolver: what it reports about known clusters and,
// with Options.Discover, its list.
type discovery struct {
	fleet       *clusters
	firstListed func() // called once, when the clusters of the first list are known
}

// start begins, and spawns what goes on.
func (d *discovery) start() {
	d.noticeNone()
	if n, _ := resolver.AsNotifier(d.fleet.options.Resolver); n != nil {
		d.fleet.spawn(func() { d.notified(n) })
	}
	if d.fleet.options.Discover {
		d.fleet.spawn(d.discover)
	}
}

// notified passes on the resolver's reports of changes until it stops
// reporting.
func (d *discovery) notified(n resolver.Notifier) {
	for d.fleet.ctx.Err() == nil {
		err := d.fleet.calls.Call("Resolver.Notify", func() error { return n.Notify(d.fleet.ctx, d.changed) })
		if d.fleet.ctx.Err() != nil {
			return
		}
		d.fleet.log.Error(err, "Resolver reports no more changes; calling it again")
		timetable.Sleep(d.fleet.ctx, d.fleet.options.RetryInterval)
	}
}

// changed records that the resolver's answer for a cluster may have changed.
func (d *discovery) changed(key client.ObjectKey) {
	c := d.fleet.find(key)
	if c != nil && c.conn.Changed() {
		return
	}
	if !d.fleet.options.Discover {
		return
	}
	if d.fleet.listing.forgot(key, time.Time{}) {
		timetable.Wake(d.fleet.listing.rechecking) // it is the rest of its removal, unless the list has it again
		return
	}

	if !d.fleet.tenure.Serves(key) {
		if _, listed := d.fleet.listing.clusters()[key]; !listed {
			timetable.Wake(d.fleet.listing.relisting)
		}
		return
	}
	if c, err := d.fleet.engage(key, false); err == nil { // it fails only after Stop
		c.discovered.Store(true)
	}
}

// discover makes every listed cluster known, and queries the resolver about
// those that are no longer listed. A list that fails changes nothing about any
// cluster.
func (d *discovery) discover() {
	lister, _ := resolver.AsLister(d.fleet.options.Resolver)
	_, notifies := resolver.AsNotifier(d.fleet.options.Resolver)
	var last []client.ObjectKey
	var asOf time.Time
	for d.fleet.ctx.Err() == nil {
		began := time.Now()
		var keys []client.ObjectKey
		err := d.fleet.calls.Call("Resolver.Clusters", func() (err error) {
			keys, err = lister.Clusters(d.fleet.ctx)
			return err
		})
		wait := d.fleet.options.RetryInterval
		switch {
		case err == nil:
			last, asOf = keys, began
			d.fleet.tenure.SetClusters(keys)
			d.fleet.listing.set(keys)
			d.fleet.listing.failure.Store(nil)
			d.compare(keys, began)
			if !d.fleet.listing.listed.Swap(true) {
				d.firstListed()
			}
			if notifies { // it reports the rest
				wait = d.fleet.options.ResolveInterval
			}
		case d.fleet.ctx.Err() == nil:
			failure := err.Error()
			if before := d.fleet.listing.failure.Swap(&failure); before == nil || *before != failure {
				d.fleet.log.Error(err, "Clusters cannot be listed")
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
	case <-d.fleet.listing.relisting:
		timetable.Sleep(d.fleet.ctx, relistPause)
	case <-d.fleet.listing.rechecking:
	case <-d.fleet.listing.reassigned:
		return false
	case <-d.fleet.ctx.Done():
	}

	return true
}

// compare adopts the listed clusters, and notes which of the discovered
// clusters are no longer listed. The resolver's answer for each of them
// decides, unless it is "not yet": see attempt.ask.
func (d *discovery) compare(keys []client.ObjectKey, began time.Time) {
	now := d.adopt(keys, began)
	for _, c := range d.fleet.all() {
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
		if d.fleet.listing.forgot(key, began) {
			timetable.Wake(d.fleet.listing.relisting)
			continue
		}
		d.fleet.listing.forgotten.Delete(key)
		if !d.fleet.tenure.Serves(key) {
			continue
		}
		now[key] = true
		c, err := d.fleet.engage(key, false)
		if err != nil {
			return now // only after the end
		}
		c.discovered.Store(true)
	}

	for _, c := range d.fleet.all() {
		if c.discovered.Load() && !d.fleet.tenure.Serves(c.key) {
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
	d.fleet.timers.Set(timetable.NewTimer(func() {
		if len(d.fleet.all()) == 0 {
			why, keys := d.whyNone()
			d.fleet.log.Info("No cluster is known, "+why, keys...)
		}
	}), time.Now().Add(noticeAfter))
}

// whyNone returns the rest of the sentence, and keys and values.
func (d *discovery) whyNone() (string, []any) {
	const ask = "ask for some with Engage, Watch or Declare"
	_, lists := resolver.AsLister(d.fleet.options.Resolver)
	switch {
	case !lists:
		return "and the resolver cannot list any: " + ask, nil
	case !d.fleet.options.Discover:
		return "though the resolver lists clusters: set Options.Discover to have them all, or " + ask, nil
	case !d.fleet.listing.listed.Load():
		if failure := d.fleet.listing.failure.Load(); failure != nil {
			return "since the resolver cannot list them", []any{"error", *failure}
		}
		return "and the resolver has not listed any yet", nil
	case len(d.fleet.listing.clusters()) > 0:
		return "since this replica owns none of those that the resolver lists: is Options.Sharding started?", nil
	}

	const none = "and the resolver lists none: those that appear are taken up"
	if named, ok := d.fleet.options.Resolver.(fmt.Stringer); ok {
		return none, []any{"resolver", named.String()}
	}

	return none, nil
}

// listing is the resolver's last list of clusters, and what calls for another.
type listing struct {
	relisting  chan struct{}   // one slot: the resolver's list must be read again
	rechecking chan struct{}   // one slot: a forgotten cluster may be back
	reassigned chan struct{}   // one slot: this replica owns other clusters
	forgotten  *cache.Expiring // when clusters were forgotten, by their keys
	listed     atomic.Bool     // the resolver has listed its clusters at least once
	last       atomic.Pointer[map[client.ObjectKey]struct{}]
	failure    atomic.Pointer[string] // of the last list, until one succeeds
}

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

// forgottenFor is how long a forgotten cluster is remembered as such. The
// objects that describe a cluster are deleted one after the other, and each
// delete is a change.
const forgottenFor = 10 * time.Minute

// forget remembers that a discovered cluster was forgotten. A change of such a
// cluster is most likely part of its removal, so it does not make the cluster
// known again. A list that began after the cluster was forgotten does.
func (l *listing) forget(key client.ObjectKey) { l.forgotten.Set(key, time.Now(), forgottenFor) }

// forgot reports whether a cluster was forgotten lately, and after t.
func (l *listing) forgot(key client.ObjectKey, t time.Time) bool {
	v, _ := l.forgotten.Get(key)
	at, ok := v.(time.Time)
	return ok && at.After(t)
}
