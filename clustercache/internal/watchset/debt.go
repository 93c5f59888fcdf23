// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/fleetcache/fleetcache/informerpool"
)

// debt records that a want may lag behind another want of its kind that was
// released. Until the want has caught up, it answers no read: a reader that has
// seen the state of the other one would go back in time.
//
//	objects shown by "to"  ----v1----v2----v3   released
//	objects known to "of"  ----v1                  owes: ErrStale until v3
type debt struct {
	of, to *Want
	before *debt // an earlier debt of the same want

	once sync.Once
	at   informerpool.Position  // of the released want
	from string                 // the version that settles the debt; empty: none is owed
	gone []*informerpool.Object // deleted by then, though the want still had them
}

// indebtLocked records a debt for each want of the same kind: it may lack
// something that w has shown. The caller must settle the debts before it
// releases the lease of w.
func (s *Set) indebtLocked(w *Want) []*debt {
	if w.lease == nil {
		return nil
	}
	var debts []*debt
	k := s.index.of(w.GVK)
	k.endLocked(w)
	for _, other := range k.rivals(w) {
		d := &debt{of: other, to: w, before: other.debt.Load()}
		other.debt.Store(d)
		debts = append(debts, d)
	}

	return debts
}

// apart reports whether two selections by namespace have no object in common.
func apart(a, b string) bool { return a != "" && b != "" && a != b }

// settle settles the debts, forgets those that owe nothing, and follows the
// others.
func (s *Set) settle(debts []*debt) {
	for _, d := range debts {
		d.settle()
		s.followDebt(d.of)
	}
}

// settle compares the two informers, once. Concurrent callers wait for the
// first.
func (d *debt) settle() {
	d.once.Do(func() {
		d.at = d.to.lease.Position()
		now := d.of.lease.Position()
		switch {
		case !d.at.Synced:
		case !now.Synced:
			d.from = d.at.Shown // its coming list is not known yet
		case sameHistory(d.at, now) && later(d.at.Shown, now.ResourceVersion):
			d.lacks(now)
			d.misses()
		}
	})
}

// raise makes version the one that settles the debt, if it is later.
func (d *debt) raise(version string) {
	if d.from == "" || later(version, d.from) {
		d.from = version
	}
}

// lacks looks for objects that were shown and that the want does not have yet,
// or has in an earlier state, which another selector may have selected. If the
// want selects by fields other than name and namespace, it assumes that all
// objects match them.
func (d *debt) lacks(now informerpool.Position) {
	for _, o := range objectsOf(d.to, d.of, nil) {
		if !d.of.mayBeNamed(o.GetNamespace(), o.GetName()) {
			continue
		}
		own, _ := d.of.lease.Get(o.GetNamespace(), o.GetName())
		missing := own == nil && later(o.GetResourceVersion(), now.ResourceVersion) &&
			(d.of.labels == nil || o.MatchesLabels(d.of.labels))
		if missing || own != nil && precedes(own, o) {
			d.raise(o.GetResourceVersion())
		}
	}
}

// objectsOf returns the objects of a want with labels, in the namespace and of
// the name that another one selects.
func objectsOf(w, other *Want, with labels.Selector) []*informerpool.Object {
	if other.scope.name == "" || other.Namespace == "" && other.Namespaced() {
		objects, _, _ := w.lease.List(informerpool.Query{Namespace: other.Namespace, Labels: with})
		return objects
	}
	o, err := w.lease.Get(other.In(other.Namespace), other.scope.name)
	if err != nil || with != nil && !o.MatchesLabels(with) {
		return nil
	}
	return []*informerpool.Object{o}
}

// misses looks for objects of the want that the other informer selects by their
// labels and name, and has shown as deleted or changed.
func (d *debt) misses() {
	if d.to.scope.fields != "" {
		return
	}
	for _, own := range objectsOf(d.of, d.to, d.to.labels) {
		o, _ := d.to.lease.Get(own.GetNamespace(), own.GetName())
		if o == nil && !later(own.GetResourceVersion(), d.at.ResourceVersion) {
			d.gone = append(d.gone, own) // at a version that is not known
		}
	}
}

// Owes returns ErrStale while the want lacks something that a released want has
// shown.
func (w *Want) Owes() error {
	first := w.debt.Load()
	if first == nil {
		return nil
	}
	now := w.lease.Position()
	for d := first; d != nil; d = d.before {
		d.settle()
		if version := d.open(now); version != "" {
			return staleAt(now, version)
		}
	}

	if now.Synced {
		w.debt.CompareAndSwap(first, nil)
	}

	return nil
}

// followDebt reports to Config.OnChanged that a want answers no read since it
// owes something, and later that it owes nothing any more: its informer does
// not change with either. One goroutine follows all debts of a want.
func (s *Set) followDebt(w *Want) {
	if w.Owes() == nil {
		return
	}
	s.config.OnChanged(w.Selection, true)
	if w.pursued.Swap(true) {
		return
	}
	s.config.Spawn(func() {
		for {
			if w.lease.WaitFor(s.config.Context, func() bool { return w.Owes() == nil }) != nil {
				return // the want or the set has ended
			}
			w.pursued.Store(false)
			s.config.OnChanged(w.Selection, true)
			if w.Owes() == nil || w.pursued.Swap(true) {
				return // a later debt is another goroutine's
			}
		}
	})
}

// open returns the version at which the debt is settled at the latest, or "" if
// it is settled. A deletion that the want has delivered settles its part at
// once: in a namespace where nothing else happens, its watch may reach that
// version a minute later, with a bookmark.
func (d *debt) open(now informerpool.Position) string {
	switch {
	case !sameHistory(d.at, now):
		return ""
	case d.from != "" && later(d.from, now.ResourceVersion):
		return d.from
	case len(d.gone) > 0 && later(d.at.ResourceVersion, now.ResourceVersion) && slices.ContainsFunc(d.gone, d.of.has):
		return d.at.ResourceVersion
	}
	return ""
}

// has reports whether the want may still answer with an object, in any state.
func (w *Want) has(o *informerpool.Object) bool {
	own, err := w.lease.Get(o.GetNamespace(), o.GetName())
	return err != nil && !apierrors.IsNotFound(err) || own != nil && own.GetUID() == o.GetUID()
}

// staleAt returns the error of an informer at a position that another informer
// was ahead of.
func staleAt(p informerpool.Position, shown string) error {
	return fmt.Errorf("%w: at resourceVersion %s; another watch showed %s", ErrStale, p.ResourceVersion, shown)
}

// sameHistory reports whether two positions belong to the same history.
func sameHistory(a, b informerpool.Position) bool {
	return a.Epoch == b.Epoch && a.History == b.History
}

// later reports whether a is a later version than b. It returns false for
// versions without an order.
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
