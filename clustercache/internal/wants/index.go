// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wants

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/few"
	"github.com/fleetcache/fleetcache/internal/traits"
)

// Index finds wants by what a read, an object or an informer names, so that
// nothing has to visit all wants of a kind, of which there may be thousands. It
// is changed under the lock of the set, and read without it.
type Index struct {
	kinds atomic.Pointer[map[schema.GroupVersionKind]*kind] // replaced, never changed

	mu   sync.Mutex                   // protects keys; nothing else is locked under it
	keys map[informerpool.Key][]*Want // those with a lease, by its key
}

// kind are the wants of one kind.
type kind struct {
	mu sync.RWMutex // protects what follows; only the lock of the index is taken under it

	waiting few.Sets[string, *Want] // those without a lease, by the one name of their objects, if they have one
	exact   few.Map[scope, *Want]   // those with a lease, as in what follows
	spaces  few.Sets[string, *Want] // by namespace
	partial few.Sets[string, *Want] // by namespace, those that do not know whether what they lack exists
	traits  few.Sets[trait, *Want]  // by what its objects have in common
	keys    few.Map[string, int]    // how many traits have a label
	scoped  *Want                   // any, if there is one with a namespace
}

// scope is what a want selects, apart from the kind.
type scope struct{ namespace, name, labels, fields string }

// trait is what all objects of a want have in common: a name, a label, or a
// namespace. The zero trait is none.
type trait struct{ name, key, value, namespace string }

func newIndex() *Index {
	x := &Index{keys: map[informerpool.Key][]*Want{}}
	x.kinds.Store(&map[schema.GroupVersionKind]*kind{})
	return x
}

// nothing is a kind without wants.
var nothing = &kind{}

// of returns the wants of a kind.
func (x *Index) of(gvk schema.GroupVersionKind) *kind {
	if k := (*x.kinds.Load())[gvk]; k != nil {
		return k
	}
	return nothing
}

// addLocked adds a want that has no lease.
func (x *Index) addLocked(w *Want) {
	kinds := *x.kinds.Load()
	k := kinds[w.GVK]
	if k == nil {
		k = &kind{}
		kinds = maps.Clone(kinds)
		kinds[w.GVK] = k
		x.kinds.Store(&kinds)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	w.kind = k
	few.Add(&k.waiting, w.scope.name, w)
}

// bindLocked records that a want has got its lease.
func (x *Index) bindLocked(w *Want) {
	k := x.of(w.GVK)
	k.mu.Lock()
	defer k.mu.Unlock()
	few.Remove(&k.waiting, w.scope.name, w)
	k.exact.Set(w.scope, w)
	few.Add(&k.spaces, w.Namespace, w)
	for _, t := range w.traits {
		few.Add(&k.traits, t, w)
		if t.key != "" {
			few.Count(&k.keys, t.key, 1)
		}
	}
	if !w.decides() {
		few.Add(&k.partial, w.Namespace, w)
	}
	if w.Namespace != "" {
		k.scoped = w
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.keyLocked(w)
}

// removeLocked removes a want.
func (x *Index) removeLocked(w *Want) {
	k := x.of(w.GVK)
	k.mu.Lock()
	few.Remove(&k.waiting, w.scope.name, w)
	if w.lease != nil {
		k.exact.Delete(w.scope)
		few.Remove(&k.spaces, w.Namespace, w)
		for _, t := range w.traits {
			few.Remove(&k.traits, t, w)
			if t.key != "" {
				few.Count(&k.keys, t.key, -1)
			}
		}
		few.Remove(&k.partial, w.Namespace, w)
		x.mu.Lock()
		x.unkeyLocked(w)
		x.mu.Unlock()
	}
	if k.scoped == w {
		k.scoped = k.anyScoped()
	}
	empty := k.exact.Len()+k.waiting.Len() == 0
	k.mu.Unlock()

	if empty {
		kinds := maps.Clone(*x.kinds.Load())
		delete(kinds, w.GVK)
		x.kinds.Store(&kinds)
	}
}

// anyScoped returns a want with a namespace, or nil.
func (k *kind) anyScoped() *Want {
	for namespace, of := range k.spaces.All() {
		if namespace == "" {
			continue
		}
		for w := range of.Keys() {
			return w
		}
	}
	return nil
}

// keyLocked records the key of a want's lease, and unkeyLocked forgets it.
func (x *Index) keyLocked(w *Want) {
	w.key = w.lease.Key()
	x.keys[w.key] = append(x.keys[w.key], w)
}

func (x *Index) unkeyLocked(w *Want) {
	left := slices.DeleteFunc(slices.Clone(x.keys[w.key]), func(other *Want) bool { return other == w })
	if len(left) > 0 {
		x.keys[w.key] = left
	} else {
		delete(x.keys, w.key)
	}
}

// rekeyLocked records that a want's lease has another key.
func (x *Index) rekeyLocked(w *Want) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unkeyLocked(w)
	x.keyLocked(w)
}

// any reports whether there is a want with a lease, and waits whether there is
// one without.
func (x *Index) any() bool { return x.anyKind(func(k *kind) bool { return k.exact.Len() > 0 }) }

func (x *Index) waits() bool { return x.anyKind(func(k *kind) bool { return k.waiting.Len() > 0 }) }

func (x *Index) anyKind(is func(*kind) bool) bool {
	for _, k := range *x.kinds.Load() {
		k.mu.RLock()
		found := is(k)
		k.mu.RUnlock()
		if found {
			return true
		}
	}
	return false
}

// readable returns the wants with a lease, in no order.
func (k *kind) readable() []*Want {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return slices.Collect(k.exact.Values())
}

// unmapped returns the kinds that wait to be looked up, each with its wants.
func (x *Index) unmapped() map[schema.GroupVersionKind][]*Want {
	out := map[schema.GroupVersionKind][]*Want{}
	for gvk, k := range *x.kinds.Load() {
		k.mu.RLock()
		if waiting := k.waits(""); len(waiting) > 0 {
			out[gvk] = waiting
		}
		k.mu.RUnlock()
	}
	return out
}

// waits returns the wants without a lease that may have objects of a name, or
// all of them if it is empty. The lock is held.
func (k *kind) waits(name string) (of []*Want) {
	if name == "" {
		for named := range k.waiting.Values() {
			of = slices.AppendSeq(of, named.Keys())
		}
		return of
	}
	for name := range both("", name) {
		named := k.waiting.Get(name)
		of = slices.AppendSeq(of, named.Keys())
	}
	return of
}

// decides reports whether the want knows that an object does not exist which it
// may select, if its informer lacks it: it selects by namespace and name alone.
func (w *Want) decides() bool {
	return w.LabelSelector == "" && (w.FieldSelector == "" || w.scope.name != "")
}

// Decides reports whether an object of a name does not exist if the want's
// informer lacks it.
func (w *Want) Decides(name string) bool {
	return w.decides() && (w.scope.name == "" || w.scope.name == name)
}

// scopeOf returns the scope of a selection, and the traits by which it is found,
// the sharpest first.
func scopeOf(s Selection) (at scope, of []trait) {
	at = scope{namespace: s.Namespace, labels: s.LabelSelector, fields: s.FieldSelector}
	if at.name = traits.Name(s.FieldSelector); at.name != "" {
		at.fields = ""
		of = append(of, trait{name: at.name})
	}
	if key, value := traits.Label(s.LabelSelector); key != "" {
		of = append(of, trait{key: key, value: value})
	}
	if len(of) == 0 {
		of = append(of, trait{namespace: s.Namespace})
	}
	return at, of
}

// Covering appends the readable wants that know whether an object exists, the
// widest first.
func (x *Index) Covering(to []*Want, gvk schema.GroupVersionKind, key client.ObjectKey) []*Want {
	k := x.of(gvk)
	k.mu.RLock()
	defer k.mu.RUnlock()
	names := [...]string{"", key.Name}
	for _, name := range names {
		to = k.append(to, scope{name: name})
		if !k.namespaced() {
			for namespace := range k.spaces.Keys() {
				if namespace != "" {
					to = k.append(to, scope{namespace: namespace, name: name})
				}
			}
		} else if key.Namespace != "" {
			to = k.append(to, scope{namespace: key.Namespace, name: name})
		}
	}
	return to
}

func (k *kind) append(to []*Want, at scope) []*Want {
	if w := k.exact.Get(at); w != nil {
		to = append(to, w)
	}
	return to
}

// Partial returns the readable wants that may have an object of a namespace, or
// one without, and do not know whether what they lack exists: they select by
// labels or fields. A kind may have hundreds of them, so a Get looks at them
// only if no other want answers it.
func (x *Index) Partial(gvk schema.GroupVersionKind, namespace string) (of []*Want) {
	k := x.of(gvk)
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.partial.Len() == 0 {
		return nil
	}
	for namespace := range k.wider(namespace) {
		partial := k.partial.Get(namespace)
		of = slices.AppendSeq(of, partial.Keys())
	}
	return of
}

// namespaced reports whether the namespace of a want means anything, as far as
// is known. The lock is held.
func (k *kind) namespaced() bool { return k.scoped == nil || k.scoped.Namespaced() }

// wider yields the namespaces of wants that have all objects of one, or of all
// if it is empty. The lock is held.
func (k *kind) wider(namespace string) iter.Seq[string] {
	if k.namespaced() {
		return both("", namespace)
	}
	return k.spaces.Keys()
}

// both yields two values, or the one that they are.
func both(a, b string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if yield(a) && a != b {
			yield(b)
		}
	}
}

// Listing returns the readable wants of a kind that have everything that a list
// selects, the widest first.
func (x *Index) Listing(gvk schema.GroupVersionKind, o *client.ListOptions) (of []*Want) {
	at, _ := scopeOf(asked(gvk, o))
	at.namespace = o.Namespace
	of = x.of(gvk).listing(at)
	slices.SortStableFunc(of, func(a, b *Want) int { return cmp.Compare(a.narrowness(), b.narrowness()) })

	return of
}

// listing returns the readable wants that have everything in a scope.
func (k *kind) listing(at scope) (of []*Want) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for fields := range both("", at.fields+at.name) {
		for labels := range both("", at.labels) {
			for namespace := range k.wider(at.namespace) {
				is := scope{namespace: namespace, labels: labels, fields: fields}
				if fields != "" {
					is.name, is.fields = at.name, at.fields
				}
				if w := k.exact.Get(is); w != nil {
					of = append(of, w)
				}
			}
		}
	}
	return of
}

// Of returns the readable wants of a kind, the widest first.
func (x *Index) Of(gvk schema.GroupVersionKind) []*Want {
	of := x.of(gvk).readable()
	slices.SortFunc(of, func(a, b *Want) int {
		return cmp.Or(cmp.Compare(a.narrowness(), b.narrowness()), a.Compare(b.Selection))
	})
	return of
}

// Selecting returns the readable wants of a kind that select an object with
// these labels, as far as that can be decided.
func (x *Index) Selecting(gvk schema.GroupVersionKind, key client.ObjectKey, has labels.Labels) []*Want {
	k := x.of(gvk)
	k.mu.RLock()
	var of []*Want
	named := k.traits.Get(trait{name: key.Name})
	for w := range named.Keys() {
		if len(w.traits) == 1 { // or the label finds it
			of = append(of, w)
		}
	}
	for namespace := range k.wider(key.Namespace) {
		apart := k.traits.Get(trait{namespace: namespace})
		of = slices.AppendSeq(of, apart.Keys())
	}
	for label := range k.keys.Keys() {
		if value, ok := has.Lookup(label); ok {
			labeled := k.traits.Get(trait{key: label, value: value})
			of = slices.AppendSeq(of, labeled.Keys())
		}
	}
	k.mu.RUnlock()

	return slices.DeleteFunc(of, func(w *Want) bool { return !w.maySelect(key, has) })
}

// LabelsOf are the labels of a packed object.
type LabelsOf struct{ *informerpool.Object }

var _ labels.Labels = LabelsOf{}

// Has implements labels.Labels.
func (o LabelsOf) Has(label string) bool { _, ok := o.Label(label); return ok }

// Get implements labels.Labels.
func (o LabelsOf) Get(label string) string { value, _ := o.Label(label); return value }

// Lookup implements labels.Labels.
func (o LabelsOf) Lookup(label string) (value string, ok bool) { return o.Label(label) }

// Covered returns the readable wants whose objects a selection selects, too.
func (x *Index) Covered(id Selection) (of []*Want) {
	at, traits := scopeOf(id)
	k := x.of(id.GVK)
	k.mu.RLock()
	defer k.mu.RUnlock()
	from := func(among few.Set[*Want]) {
		for w := range among.Keys() {
			if at.covers(w) {
				of = append(of, w)
			}
		}
	}
	switch {
	case traits[0].name+traits[0].key != "":
		from(k.traits.Get(traits[0]))
	case at.namespace != "" && k.namespaced():
		from(k.spaces.Get(at.namespace))
	default:
		for among := range k.spaces.Values() {
			from(among)
		}
	}
	return of
}

// apart reports whether two selections by namespace have no object in common.
func apart(a, b string) bool { return a != "" && b != "" && a != b }

// covers reports whether all that a want selects is in the scope.
func (s scope) covers(w *Want) bool {
	return (s.namespace == "" || s.namespace == w.Namespace || !w.Namespaced()) &&
		(s.name == "" || s.name == w.scope.name) && (s.fields == "" || s.fields == w.scope.fields) &&
		(s.labels == "" || s.labels == w.scope.labels)
}

// Readable returns every want with a lease.
func (x *Index) Readable() []*Want {
	var out []*Want
	for _, k := range *x.kinds.Load() {
		out = append(out, k.readable()...)
	}
	return out
}

// Keyed returns the wants whose lease has a key.
func (x *Index) Keyed(key informerpool.Key) []*Want {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.keys[key])
}
