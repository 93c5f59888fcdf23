// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/members"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/gc"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/listopts"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// Target is a kind, or a selection of it, that an owner needs in a cluster, or
// in all clusters with certain labels.
type Target struct {
	// Cluster is the cluster. The zero value is the hub, unless there is a
	// ClusterSelector.
	Cluster client.ObjectKey
	// ClusterSelector selects clusters by their labels
	// ([resolver.Access.Labels]) instead of naming one: a watch in each that is
	// known, now and later, while its labels match. It makes no cluster known.
	// With Options.Sharding it selects only clusters that this replica owns or
	// stands by for.
	ClusterSelector labels.Selector
	// Kind gives the kind, as a typed object, an unstructured one, or [Kind].
	// Required.
	Kind client.Object
	// Options narrow the kind, as those of [Cluster.Watch] do.
	Options []client.ListOption
}

// need returns what the i-th target of an owner needs. The error is a
// *TargetError.
func (t Target) need(scheme *runtime.Scheme, owner Owner, i int) (need, error) {
	id, err := newSelection(scheme, t.Kind, t.Options)
	if err == nil && t.ClusterSelector == nil {
		return need{WatchKey: keyOf(t.Cluster, id)}, nil
	}

	field := "Kind"
	if err == nil {
		field = "ClusterSelector"
		n := need{WatchKey: keyOf(client.ObjectKey{}, id), many: true}
		if n.clusters, err = t.clusterSelector(); err == nil {
			return n, nil
		}
	}
	if o, ok := errors.AsType[*OptionError](err); ok {
		field, err = o.Field, o.Err
	}

	return need{}, &TargetError{
		Owner:           owner,
		Cluster:         t.Cluster,
		ClusterSelector: t.ClusterSelector,
		GVK:             id.GVK,
		Field:           fmt.Sprintf("Targets[%d].%s", i, field),
		Err:             err,
	}
}

// clusterSelector returns the canonical form of the selector.
func (t Target) clusterSelector() (string, error) {
	if t.Cluster != (client.ObjectKey{}) {
		return "", errTwoSelectors
	}
	if listopts.LabelsOfNothing(t.ClusterSelector) {
		return "", errSelectsNone // the empty text would select everything
	}
	canonical, err := labels.Parse(t.ClusterSelector.String())
	if err != nil {
		return "", err
	}
	return canonical.String(), nil
}

// TargetError reports a target of an owner that is not in effect, or did not
// sync.
type TargetError struct {
	Owner   Owner
	Cluster client.ObjectKey
	// ClusterSelector is that of the target, if the error concerns no cluster.
	ClusterSelector labels.Selector
	// GVK is zero if the target's kind cannot be determined.
	GVK schema.GroupVersionKind
	// Field is the invalid field of the target, such as
	// Targets[2].LabelSelector, if the cause is the target.
	Field string
	// Err is the cause.
	Err error
}

// Error implements error.
func (e *TargetError) Error() string {
	kind, field := "unknown kind", ""
	if !e.GVK.Empty() {
		kind = kindName(e.GVK)
	}
	if e.Field != "" {
		field = e.Field + ": "
	}
	where := "cluster " + clusterName(e.Cluster)
	if e.ClusterSelector != nil {
		where = selectedClusters(e.ClusterSelector.String())
	}
	return fmt.Sprintf("%s in %s for %s: %s%v", kind, where, e.Owner, field, e.Err)
}

// Unwrap returns the cause.
func (e *TargetError) Unwrap() error { return e.Err }

// need is what an owner uses: a watch in one cluster or, with a selector, one in
// each cluster that it selects. Owners share it by its value, so what the
// labels of clusters change concerns no owner's declaration, and cannot get in
// its way.
type need struct {
	status.WatchKey // without a cluster if there is a selector

	many     bool   // there is a selector
	clusters string // the selector, in canonical form
}

// String returns a short readable form, for logs and errors.
func (n need) String() string {
	if !n.many {
		return n.WatchKey.String()
	}
	return kindName(n.GVK) + " in " + selectedClusters(n.clusters)
}

// MarshalLog returns the value for a logger.
func (n need) MarshalLog() any {
	if n.many {
		return n.String()
	}
	return n.WatchKey
}

// targetError returns the error of a need of an owner.
func (n need) targetError(owner Owner, cause error) *TargetError {
	out := &TargetError{
		Owner:   owner,
		Cluster: n.Cluster,
		GVK:     n.GVK,
		Err:     cause,
	}
	if n.many {
		out.ClusterSelector, _ = labels.Parse(n.clusters) // it was made from one
	}
	return out
}

// anySelector reports whether one of the needs has a selector.
func anySelector(needs []need) bool {
	return slices.ContainsFunc(needs, func(n need) bool { return n.many })
}

func selectedClusters(selector string) string {
	if selector == "" {
		return "all clusters"
	}
	return "clusters with " + selector
}

var (
	errUnsettled    = errors.New("not every cluster's labels are known yet")
	errTwoSelectors = errors.New("a target with a Cluster has no ClusterSelector")
	errSelectsNone  = errors.New("selects nothing")
)

// declared holds the watches that owners declared: one for each need that is in
// use, or was until less than the grace ago, and for each cluster of it.
type declared struct {
	fleet      *clusters
	collector  *gc.Collector[Owner, need]
	settlement *settlement
	leavers    *leavers

	mu struct { // nothing else is locked under it
		sync.Mutex

		watches   map[client.ObjectKey]map[status.WatchKey]map[need]*Watch // by cluster
		followed  map[need]*members.Set[*cluster, *Watch]                  // of needs with a selector
		listeners map[*informerpool.Subscription]struct{}                  // of all watches of the kinds
		kinds     map[kindOf]int                                           // how many watches of needs are of a kind
	}
}

// kindOf is a kind in a cluster.
type kindOf struct {
	cluster *cluster
	gvk     schema.GroupVersionKind
}

func (w *Watch) kind() kindOf { return kindOf{w.c, w.want.GVK} }

func newDeclared(fleet *clusters) (*declared, error) {
	o, d := fleet.options.GC, &declared{fleet: fleet, settlement: newSettlement(!fleet.options.Discover)}
	d.leavers = &leavers{
		timers:  fleet.timers,
		owners:  func(n need) []Owner { return d.collector.Owners(n) },
		heard:   fleet.owners.any,
		states:  map[need]*needState{},
		leaving: map[Owner][]*leaving{},
		of:      map[Owner]*leaver{},
	}
	d.leavers.forgetting = timetable.NewTimer(d.leavers.forget)
	d.mu.watches = map[client.ObjectKey]map[status.WatchKey]map[need]*Watch{}
	d.mu.followed = map[need]*members.Set[*cluster, *Watch]{}
	d.mu.listeners = map[*informerpool.Subscription]struct{}{}
	d.mu.kinds = map[kindOf]int{}
	var err error
	d.collector, err = gc.New(gc.Options[Owner, need]{
		Acquire:     d.acquire,
		Release:     d.release,
		InUse:       d.protected(o.InUse),
		Collected:   func(owner Owner) { d.fleet.owners.publish(owner) }, // it may exist, and then has to declare again
		Grace:       o.Grace,
		MinInterval: o.MinInterval,
		MaxInterval: o.MaxInterval,
		Timeout:     o.Timeout,
		Concurrency: o.Concurrency,
		Rate:        o.Rate,
		Logger:      fleet.log,
	})
	return d, err
}

// protected wraps GC.InUse, so that its panics are counted and become
// errors. It returns nil for nil.
func (d *declared) protected(
	inUse func(context.Context, Owner) (bool, error),
) func(context.Context, Owner) (bool, error) {
	if inUse == nil {
		return nil
	}
	return func(ctx context.Context, owner Owner) (used bool, err error) {
		err = d.fleet.calls.Call("GC.InUse", func() (err error) {
			used, err = inUse(ctx, owner)
			return err
		}, "owner", owner.String())
		return used, err
	}
}

// acquire takes the watches that all owners of a need share. For each need the
// collector calls acquire and release in turns.
func (d *declared) acquire(_ context.Context, n need) error {
	d.leavers.began(n)
	var w *Watch
	var err error
	if n.many {
		err = d.follow(n)
	} else if w, err = d.fleet.watch(n.Cluster, selectionOf(n.WatchKey)); err == nil {
		d.add(n, w)
	}
	if err != nil {
		d.leavers.ended(n)
	}
	return err
}

func (d *declared) release(n need) {
	defer d.leavers.ended(n)
	if n.many {
		d.unfollow(n)
	} else if w := d.watch(n.WatchKey, n); w != nil {
		d.remove(n, w)
		w.drop()
	}
}

// add makes a watch known as that of a need. The objects of all watches of its
// kind are delivered from then on: any of them may answer a read of the need.
func (d *declared) add(n need, w *Watch) {
	key := keyOf(w.c.key, w.want.Selection)
	d.mu.Lock()
	if d.mu.watches[key.Cluster] == nil {
		d.mu.watches[key.Cluster] = map[status.WatchKey]map[need]*Watch{}
	}
	if d.mu.watches[key.Cluster][key] == nil {
		d.mu.watches[key.Cluster][key] = map[need]*Watch{}
	}
	if old := d.mu.watches[key.Cluster][key][n]; old != nil {
		d.forgetKindLocked(old)
	}
	d.mu.watches[key.Cluster][key][n] = w
	d.mu.kinds[w.kind()]++
	first := d.mu.kinds[w.kind()] == 1
	listeners := slices.Collect(maps.Keys(d.mu.listeners))
	d.mu.Unlock()

	for _, l := range listeners {
		w.c.wants.Listen(w.want, l)
		if first {
			d.listenTo(w.kind(), l)
		}
	}
}

// remove undoes add.
func (d *declared) remove(n need, w *Watch) {
	key := keyOf(w.c.key, w.want.Selection)
	d.mu.Lock()
	last := false
	if of := d.mu.watches[key.Cluster][key]; of[n] == w {
		if delete(of, n); len(of) == 0 {
			delete(d.mu.watches[key.Cluster], key)
		}
		if len(d.mu.watches[key.Cluster]) == 0 {
			delete(d.mu.watches, key.Cluster)
		}
		last = d.forgetKindLocked(w)
	}
	listeners := slices.Collect(maps.Keys(d.mu.listeners))
	d.mu.Unlock()

	if !last {
		return
	}
	for _, l := range listeners {
		w.unlisten(l)
		for _, other := range w.c.wants.Index.Of(w.want.GVK) {
			l.Remove(other.Lease())
		}
	}
	if !d.concerns(w.kind()) {
		return
	}
	for _, l := range listeners { // another need was added meanwhile, and perhaps before that
		d.listenTo(w.kind(), l)
	}
}

// forgetKindLocked undoes what add records of a watch's kind. It reports whether
// no need has a watch of the kind any more.
func (d *declared) forgetKindLocked(w *Watch) (last bool) {
	if d.mu.kinds[w.kind()]--; d.mu.kinds[w.kind()] > 0 {
		return false
	}
	delete(d.mu.kinds, w.kind())
	return true
}

// concerns reports whether a kind is declared in a cluster.
func (d *declared) concerns(k kindOf) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.kinds[k] > 0
}

// listenTo makes a subscription receive the objects of all watches of a kind.
func (d *declared) listenTo(k kindOf, sub *informerpool.Subscription) {
	for _, want := range k.cluster.wants.Index.Of(k.gvk) {
		k.cluster.wants.Listen(want, sub) // twice does no harm
	}
}

// bound is called for every want that has got its lease.
func (d *declared) bound(c *cluster, want *wants.Want) {
	if !d.fleet.owners.any() || !d.concerns(kindOf{c, want.GVK}) {
		return
	}
	d.mu.Lock()
	listeners := slices.Collect(maps.Keys(d.mu.listeners))
	d.mu.Unlock()

	for _, l := range listeners {
		c.wants.Listen(want, l)
	}
}

// watch returns the watch of a key that one of the needs has, or nil. Without
// needs it is that of any.
func (d *declared) watch(key status.WatchKey, of ...need) *Watch {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n, w := range d.mu.watches[key.Cluster][key] {
		if len(of) == 0 || slices.Contains(of, n) {
			return w
		}
	}
	return nil
}

// needs returns the needs that have a watch of a key.
func (d *declared) needs(key status.WatchKey) []need {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.mu.watches[key.Cluster][key]))
}

// owners returns the owners of the needs that have a watch of a key.
func (d *declared) owners(key status.WatchKey) (owners []Owner) {
	for _, n := range d.needs(key) {
		owners = append(owners, d.collector.Owners(n)...)
	}
	return owners
}

// all returns the owners that declare something.
func (d *declared) all() (owners []Owner) {
	for _, o := range d.collector.Snapshot().Owners {
		owners = append(owners, o.Owner)
	}
	return owners
}

// changed is called with each change of a cluster. It does not block.
func (d *declared) changed(c *cluster, what change) {
	if what == answersChanged {
		d.clusterChanged(c.key)
	} else {
		d.consider(c)
	}
}

// watchChanged notifies the owners that a change of a watch concerns: those of
// all needs that it covers.
func (d *declared) watchChanged(c *cluster, id wants.Selection) {
	if !d.fleet.owners.any() {
		return
	}
	needs := d.needs(keyOf(c.key, id))
	for _, want := range c.wants.Index.Covered(id) {
		if want.Selection != id {
			needs = append(needs, d.needs(keyOf(c.key, want.Selection))...)
		}
	}
	d.call(needs...)
}

// touched returns the owners to call for an event of an object, whichever watch
// it came through: those of the needs that select the object, before or after,
// and those of the watch.
func (d *declared) touched(c *cluster, e informerpool.Event) []Owner {
	found := map[*wants.Want]struct{}{}
	for _, want := range c.wants.Index.Keyed(e.Key) {
		found[want] = struct{}{}
	}
	gvk := e.Key.Resource.GroupVersion().WithKind(e.Key.Kind)
	for _, o := range []*informerpool.Object{e.Old, e.New, e.LastDelivered} {
		if o == nil {
			continue
		}
		has := wants.LabelsOf{Object: o}
		for _, want := range c.wants.Index.Selecting(gvk, client.ObjectKeyFromObject(o), has) {
			found[want] = struct{}{}
		}
	}
	var needs []need
	for want := range found {
		needs = append(needs, d.needs(keyOf(c.key, want.Selection))...)
	}
	return d.leavers.concerned(needs...)
}

// keys returns the keys of needs in the given order, those of each selector
// sorted, without repetitions.
func (d *declared) keys(needs ...need) []status.WatchKey {
	keys := make([]status.WatchKey, 0, len(needs))
	for _, n := range needs {
		if !n.many {
			keys = append(keys, n.WatchKey)
			continue
		}
		d.mu.Lock()
		followed := d.mu.followed[n]
		d.mu.Unlock()

		if followed == nil {
			continue
		}
		var selected []status.WatchKey
		for c := range followed.All() {
			selected = append(selected, keyOf(c.key, selectionOf(n.WatchKey)))
		}
		sortKeys(selected)
		keys = append(keys, selected...)
	}

	return except(keys, nil)
}

// count returns the number of declared watches.
func (d *declared) count() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, of := range d.mu.watches {
		n += len(of)
	}
	return n
}

func (d *declared) allLocked() []*Watch {
	var all []*Watch
	for _, of := range d.mu.watches {
		for _, needs := range of {
			all = slices.AppendSeq(all, maps.Values(needs))
		}
	}
	return all
}

// listen makes a subscription receive the objects of all declared watches, now
// and later.
func (d *declared) listen(sub *informerpool.Subscription) {
	d.mu.Lock()
	d.mu.listeners[sub] = struct{}{}
	all := d.allLocked()
	d.mu.Unlock()

	kinds := map[kindOf]struct{}{}
	for _, w := range all {
		w.c.wants.Listen(w.want, sub) // twice, if acquire does so as well, does no harm
		kinds[w.kind()] = struct{}{}
	}
	for k := range kinds {
		d.listenTo(k, sub)
	}
	d.leavers.forgetAll()
}

// unlisten undoes listen for a subscription that has ended.
func (d *declared) unlisten(sub *informerpool.Subscription) {
	d.mu.Lock()
	delete(d.mu.listeners, sub)
	all := d.allLocked()
	d.mu.Unlock()

	for _, w := range all {
		w.unlisten(sub)
	}
}

// call calls the owners of needs whose reads may be answered differently.
func (d *declared) call(needs ...need) { d.fleet.owners.publish(d.leavers.concerned(needs...)...) }

// joined calls an owner that has begun to use needs, if one of them was in
// effect before, and reads of it may be answered differently than when the owner
// left it, if ever it did: the owner was not called for what had happened by
// then, and may have read before it declared. added are the keys that are new to
// it.
func (d *declared) joined(owner Owner, needs []need, added []status.WatchKey) {
	if !d.fleet.owners.any() {
		return
	}
	call := false
	for _, n := range needs {
		known, unchanged, named := d.leavers.back(owner, n)
		if named {
			d.fleet.log.Info("An owner leaves targets and comes back to them again and again: declare all that it "+
				"needs in one call, and let each controller that declares for it set Owner.Controller",
				"owner", owner, "target", n)
		}
		switch {
		case unchanged:
		case known && n.many:
			call = true // perhaps for a cluster that is selected no more
		default:
			call = call || slices.ContainsFunc(d.keys(n), func(key status.WatchKey) bool {
				w := d.watch(key)
				return w != nil && !w.waits() && slices.Contains(added, key)
			})
		}
	}
	if call {
		d.fleet.owners.publish(owner)
	}
}

// clusterChanged notifies the owners that use something in a cluster.
func (d *declared) clusterChanged(cluster client.ObjectKey) {
	if !d.fleet.owners.any() {
		return
	}
	d.mu.Lock()
	keys := slices.Collect(maps.Keys(d.mu.watches[cluster]))
	d.mu.Unlock()

	for _, key := range keys {
		d.call(d.needs(key)...)
	}
}

// synced reports whether all keys can be read from the cache.
func (d *declared) synced(keys []status.WatchKey) bool {
	for _, key := range keys {
		if w := d.watch(key); w == nil || !w.HasSynced() {
			return false
		}
	}
	return true
}

func sortOwners(owners []Owner) { slices.SortFunc(owners, compareOwners) }
