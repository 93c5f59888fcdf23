// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/fleetcache/fleetcache/informerpool"
)

// debt is what a hold may lack of what another one of its kind showed before it
// was given up. Until the hold has come as far it answers no read: each would
// be a step back for one who read what the other showed.
type debt struct {
	of, to *hold
	before *debt // an earlier one of the same hold

	once sync.Once
	at   informerpool.Position // of the one that was given up
	from string                // the version that settles it; none: nothing is lacking
}

// indebtLocked notes for each hold of the kind that it may lack something that
// h showed. The debts are to be settled before the lease of h is released.
func (s *holds) indebtLocked(h *hold) []*debt {
	if h.lease == nil {
		return nil
	}
	var debts []*debt
	for _, other := range s.all {
		if other.id.gvk != h.id.gvk || other.lease == nil || apart(h.id.namespace, other.id.namespace) {
			continue
		}
		d := &debt{of: other, to: h, before: other.debt.Load()}
		other.debt.Store(d)
		debts = append(debts, d)
	}
	return debts
}

// apart reports whether no object is in both of two selections by namespace.
func apart(a, b string) bool { return a != "" && b != "" && a != b }

// settle finds out what the debts are. Those of nothing are forgotten.
func settle(debts []*debt) {
	for _, d := range debts {
		d.settle()
		_ = d.of.owes()
	}
}

// settle compares the two informers. The first caller does; the others wait.
func (d *debt) settle() {
	d.once.Do(func() {
		d.at = d.to.lease.Position()
		now := d.of.lease.Position()
		switch {
		case !d.at.Synced:
		case !now.Synced:
			d.from = d.at.Shown // what it is going to list is not known yet
		case sameHistory(d.at, now) && later(d.at.Shown, now.ResourceVersion):
			d.lacks(now)
			d.misses()
		}
	})
}

// raise makes a later version the one that settles the debt.
func (d *debt) raise(version string) {
	if d.from == "" || later(version, d.from) {
		d.from = version
	}
}

// lacks looks for what was shown and is not known to the hold yet. Where
// another field than the name decides what it is to know of, it is taken to be
// all.
func (d *debt) lacks(now informerpool.Position) {
	objects, _, err := d.to.lease.List(informerpool.Query{Namespace: d.of.id.namespace, Labels: d.of.selector()})
	if err != nil {
		return
	}
	may := d.of.mayHave()
	for _, o := range objects {
		if !may(o) {
			continue
		}
		own, _ := d.of.lease.Get(o.GetNamespace(), o.GetName())
		if own == nil && later(o.GetResourceVersion(), now.ResourceVersion) || own != nil && precedes(own, o) {
			d.raise(o.GetResourceVersion())
		}
	}
}

// misses looks for what the hold has and was shown to have changed or to be
// gone.
func (d *debt) misses() {
	objects, _, err := d.of.lease.List(informerpool.Query{Namespace: d.to.id.namespace, Labels: d.to.selector()})
	if err != nil {
		return
	}
	for _, own := range objects {
		o, _ := d.to.lease.Get(own.GetNamespace(), own.GetName())
		gone := o == nil && d.to.id.fields == "" && !later(own.GetResourceVersion(), d.at.ResourceVersion)
		switch {
		case gone: // with which version is not known
			d.raise(d.at.ResourceVersion)
		case o != nil && precedes(own, o):
			d.raise(o.GetResourceVersion())
		}
	}
}

// selector returns the label selector of a hold, or nil.
func (h *hold) selector() labels.Selector {
	if h.id.labels == "" {
		return nil
	}
	selector, err := labels.Parse(h.id.labels)
	if err != nil {
		return nil // it would have got no lease
	}
	return selector
}

// mayHave returns a function that reports whether a hold may select an object
// by its fields. Of those only the name and the namespace are known of each
// object.
func (h *hold) mayHave() func(*informerpool.Object) bool {
	selector, err := fields.ParseSelector(h.id.fields)
	if err != nil {
		return func(*informerpool.Object) bool { return true } // it would have got no lease
	}
	terms := selector.Requirements()
	return func(o *informerpool.Object) bool {
		return !slices.ContainsFunc(terms, func(r fields.Requirement) bool {
			return r.Field == metadataName && !matches(r, o.GetName()) ||
				r.Field == metadataNamespace && !matches(r, o.GetNamespace())
		})
	}
}

// owes returns ErrStale while the hold lacks something that another one showed.
func (h *hold) owes() error {
	first := h.debt.Load()
	if first == nil {
		return nil
	}
	now := h.lease.Position()
	for d := first; d != nil; d = d.before {
		d.settle()
		if d.from != "" && sameHistory(d.at, now) && later(d.from, now.ResourceVersion) {
			return fmt.Errorf("%w: at resourceVersion %s; another watch showed %s", ErrStale, now.ResourceVersion, d.from)
		}
	}
	if now.Synced {
		h.debt.CompareAndSwap(first, nil)
	}
	return nil
}

// sameHistory reports whether two versions are of one history.
func sameHistory(a, b informerpool.Position) bool {
	return a.Epoch == b.Epoch && a.History == b.History
}

// later reports whether a is a later version than b. Versions that have no
// order are not.
func later(a, b string) bool {
	if a == b {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// precedes reports whether a is an earlier state than b.
func precedes(a, b *informerpool.Object) bool {
	return later(b.GetResourceVersion(), a.GetResourceVersion())
}
