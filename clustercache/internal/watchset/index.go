// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
)

// index finds wants by what a read, an object or an informer names, so that
// nothing has to visit all wants of a kind, of which there may be thousands
// that select one object each. It is changed under the lock of the set. The
// kinds are read without it: a want that is found may have parted.
type index struct {
	kinds atomic.Pointer[map[schema.GroupVersionKind]*kind] // replaced, never changed
	keys  map[informerpool.Key][]*Want                      // those with a lease, by its key; under the lock
}

// kind are the wants of one kind. The slices are replaced, never changed.
type kind struct {
	wide    atomic.Pointer[[]*Want] // readable, with objects of more than one name; widest first
	named   sync.Map                // readable, with objects of one name: []*Want by the name
	waiting atomic.Pointer[[]*Want] // without a lease
	names   atomic.Int64            // how many wants named has
}

func newIndex() *index {
	x := &index{keys: map[informerpool.Key][]*Want{}}
	x.kinds.Store(&map[schema.GroupVersionKind]*kind{})
	return x
}

// nothing is a kind without wants.
var nothing = &kind{}

// of returns the wants of a kind.
func (x *index) of(gvk schema.GroupVersionKind) *kind {
	if k := (*x.kinds.Load())[gvk]; k != nil {
		return k
	}
	return nothing
}

// addLocked adds a want that has no lease.
func (x *index) addLocked(w *Want) {
	kinds := *x.kinds.Load()
	k := kinds[w.GVK]
	if k == nil {
		k = &kind{}
		kinds = maps.Clone(kinds)
		kinds[w.GVK] = k
		x.kinds.Store(&kinds)
	}
	insert(&k.waiting, w)
}

// bindLocked records that a want has got its lease.
func (x *index) bindLocked(w *Want) {
	k := x.of(w.GVK)
	remove(&k.waiting, w)
	if w.only == "" {
		insert(&k.wide, w)
	} else {
		k.named.Store(w.only, append(slices.Clone(k.namedAs(w.only)), w))
		k.names.Add(1)
	}
	x.keyLocked(w)
}

// removeLocked removes a want.
func (x *index) removeLocked(w *Want) {
	k := x.of(w.GVK)
	switch {
	case w.lease == nil:
		remove(&k.waiting, w)
	case w.only == "":
		remove(&k.wide, w)
	default:
		k.names.Add(-1)
		if left := without(k.namedAs(w.only), w); len(left) > 0 {
			k.named.Store(w.only, left)
		} else {
			k.named.Delete(w.only)
		}
	}
	x.unkeyLocked(w)
	if k.empty() {
		kinds := maps.Clone(*x.kinds.Load())
		delete(kinds, w.GVK)
		x.kinds.Store(&kinds)
	}
}

// keyLocked records the key of a want's lease, and unkeyLocked forgets it.
func (x *index) keyLocked(w *Want) {
	w.key = w.lease.Key()
	x.keys[w.key] = append(x.keys[w.key], w)
}

func (x *index) unkeyLocked(w *Want) {
	if w.lease == nil {
		return
	}
	if left := without(x.keys[w.key], w); len(left) > 0 {
		x.keys[w.key] = left
	} else {
		delete(x.keys, w.key)
	}
}

// any reports whether there is a want with a lease, and waits whether there is
// one without.
func (x *index) any() bool {
	for _, k := range *x.kinds.Load() {
		if len(load(&k.wide)) > 0 || k.names.Load() > 0 {
			return true
		}
	}
	return false
}

func (x *index) waits() bool {
	for _, k := range *x.kinds.Load() {
		if len(load(&k.waiting)) > 0 {
			return true
		}
	}
	return false
}

func (k *kind) empty() bool {
	return len(load(&k.wide))+len(load(&k.waiting)) == 0 && k.names.Load() == 0
}

// namedAs returns the wants that select objects of one name alone.
func (k *kind) namedAs(name string) []*Want {
	if k.names.Load() == 0 {
		return nil
	}
	found, _ := k.named.Load(name)
	of, _ := found.([]*Want)
	return of
}

// readable returns the wants with a lease: those that may have objects of a
// name, or all of them if it is empty; widest first, and those that select one
// name last, in no order.
func (k *kind) readable(name string) []*Want {
	wide := load(&k.wide)
	if k.names.Load() == 0 {
		return wide
	}
	if name != "" {
		if named := k.namedAs(name); len(named) > 0 {
			return slices.Concat(wide, named)
		}
		return wide
	}
	all := slices.Clone(wide)
	k.named.Range(func(_, of any) bool {
		all = append(all, of.([]*Want)...)
		return true
	})

	return all
}

// waits returns the wants without a lease that may have objects of a name, or
// all of them if it is empty.
func (k *kind) waits(name string) (of []*Want) {
	for _, w := range load(&k.waiting) {
		if w.mayNamed(name) {
			of = append(of, w)
		}
	}
	return of
}

// mayNamed reports whether the want may have objects of a name; the empty one
// is any.
func (w *Want) mayNamed(name string) bool { return name == "" || w.only == "" || w.only == name }

// Decides reports whether an object of a name does not exist if the want's
// informer lacks it.
func (w *Want) Decides(name string) bool {
	return w.LabelSelector == "" && (w.FieldSelector == "" || w.only == name)
}

// onlyName returns the one name that a field selector selects, if it selects by
// nothing else.
func onlyName(fieldSelector string) string {
	selector, err := fields.ParseSelector(fieldSelector)
	if err != nil {
		return ""
	}
	terms := selector.Requirements()
	if len(terms) != 1 || terms[0].Field != FieldName || terms[0].Operator == selection.NotEquals {
		return ""
	}
	return terms[0].Value
}

// Covering appends the readable wants that may have an object.
func (s *Set) Covering(to Candidates, gvk schema.GroupVersionKind, key client.ObjectKey) Candidates {
	k := s.index.of(gvk)
	for _, w := range load(&k.wide) {
		to = w.covering(to, key)
	}
	for _, w := range k.namedAs(key.Name) {
		to = w.covering(to, key)
	}
	return to
}

func (w *Want) covering(to Candidates, key client.ObjectKey) Candidates {
	if w.Namespace == "" || w.Namespace == key.Namespace || !w.Namespaced() {
		to = append(to, Candidate{Want: w})
	}
	return to
}

// Listing returns the readable wants of a kind that may have everything that a
// list selects, widest first.
func (s *Set) Listing(gvk schema.GroupVersionKind, o *client.ListOptions) []*Want {
	if o.FieldSelector == nil || o.FieldSelector.Empty() {
		return load(&s.index.of(gvk).wide)
	}
	return s.Of(gvk)
}

// Of returns the readable wants of a kind, widest first.
func (s *Set) Of(gvk schema.GroupVersionKind) []*Want { return s.index.of(gvk).readable("") }

// Naming returns the readable wants of a kind that may have objects of a name.
func (s *Set) Naming(gvk schema.GroupVersionKind, name string) []*Want {
	return s.index.of(gvk).readable(name)
}

// Readable returns every want with a lease.
func (s *Set) Readable() []*Want {
	var out []*Want
	for _, k := range *s.index.kinds.Load() {
		out = append(out, k.readable("")...)
	}
	return out
}

// keyed returns the wants whose leases have one of the keys.
func (s *Set) keyed(keys map[informerpool.Key]bool) (of []*Want) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range keys {
		of = append(of, s.index.keys[key]...)
	}
	return of
}

func load(of *atomic.Pointer[[]*Want]) []*Want {
	if p := of.Load(); p != nil {
		return *p
	}
	return nil
}

// insert adds a want behind those that are as wide.
func insert(to *atomic.Pointer[[]*Want], w *Want) {
	before := load(to)
	at, _ := slices.BinarySearchFunc(before, w, func(a, b *Want) int {
		return cmp.Or(cmp.Compare(a.narrowness(), b.narrowness()), -1)
	})
	after := make([]*Want, 0, len(before)+1)
	after = append(append(append(after, before[:at]...), w), before[at:]...)
	to.Store(&after)
}

func remove(from *atomic.Pointer[[]*Want], w *Want) {
	after := without(load(from), w)
	from.Store(&after)
}

// without returns the wants but one.
func without(of []*Want, w *Want) []*Want {
	left := make([]*Want, 0, max(len(of)-1, 0))
	for _, other := range of {
		if other != w {
			left = append(left, other)
		}
	}
	return left
}
