// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/delta"
	"github.com/fleetcache/fleetcache/internal/wire"
)

const (
	// maxUnknown is how many refused objects are known by name. Beyond it every
	// object is unknown: a server that sends so many is not reliable in
	// anything.
	maxUnknown = 1024
	// maxUnknownBytes bounds the names together.
	maxUnknownBytes = 128 << 10
	// maxRefused is how many objects of one list may be refused while fewer are
	// accepted, so that an endless list of nonsense ends soon.
	maxRefused = 10_000
)

// refusals are the objects that an informer refused and that may exist all the
// same. They are unknown, not absent: the store cannot answer for them.
type refusals struct {
	names map[types.NamespacedName]struct{}
	bytes int
	all   error // why any object may be unknown; nil while names is complete
	last  error // why the last one was refused
}

// add records a refused object. It reports whether the object was not yet known
// to be refused.
func (r *refusals) add(name types.NamespacedName, why error) bool {
	r.last = why
	if _, known := r.names[name]; known || r.all != nil {
		return false
	}
	size := len(name.Namespace) + len(name.Name)
	if name.Name == "" || len(r.names) == maxUnknown || r.bytes+size > maxUnknownBytes {
		r.addAll(why)
		return true
	}
	if r.names == nil {
		r.names = map[types.NamespacedName]struct{}{}
	}
	r.names[name] = struct{}{}
	r.bytes += size

	return true
}

// addAll records that any object may be unknown.
func (r *refusals) addAll(why error) { r.names, r.bytes, r.all, r.last = nil, 0, why, why }

// forget records that the state of an object is known again.
func (r *refusals) forget(name types.NamespacedName) {
	if _, known := r.names[name]; known {
		delete(r.names, name)
		r.bytes -= len(name.Namespace) + len(name.Name)
	}
}

func (r *refusals) has(name types.NamespacedName) bool {
	_, known := r.names[name]
	return known || r.all != nil
}

// in reports whether an object of the namespace is unknown, or of any namespace
// if it is empty.
func (r *refusals) in(namespace string) bool {
	if r.all != nil || namespace == "" {
		return r.all != nil || len(r.names) > 0
	}
	for name := range r.names {
		if name.Namespace == namespace {
			return true
		}
	}
	return false
}

// Unknown returns why the cache cannot answer for an object, or nil if it can.
// With an empty name it does so for a list of the namespace, and with both
// empty for a list of all namespaces.
//
// A server may send objects that the informer refuses: objects larger than
// Options.MaxObjectBytes, without a uid or a resourceVersion, with an invalid
// name, over budget, or refused by a transform. Such an object exists, or has
// changed, but the cache lacks it or holds an earlier state: reads of it, and
// lists that would include it, have to go to the server. The last accepted
// state stays in the cache, since a refused change does not prove a delete.
//
// Unknown concerns single objects and complements [Lease.Trust], which fails if
// any object may be unknown. The error satisfies errors.Is(err, ErrRefused).
func (l *Lease) Unknown(namespace, name string) error {
	at := l.rlock()
	i := at.informer
	defer i.mu.RUnlock()

	if at.selector.namespace != "" {
		namespace = at.selector.namespace
	}
	switch {
	case name == "" && i.mu.refused.in(namespace):
	case name != "" && i.mu.refused.has(types.NamespacedName{Namespace: namespace, Name: name}):
	default:
		return nil
	}

	return refusedError(at.key, i.mu.refused.last)
}

func refusedError(key Key, why error) error {
	if errors.Is(why, ErrRefused) {
		return fmt.Errorf("%s: %w", key, why)
	}
	return fmt.Errorf("%s: %w: %w", key, ErrRefused, why)
}

// isRefusal reports whether an error concerns one object alone, so that the
// others of the response are still processed.
func isRefusal(err error) bool {
	_, field := errors.AsType[*wire.FieldError](err)
	_, limit := errors.AsType[*wire.LimitError](err)
	return field || limit
}

// refuse records that an object was refused: its state is unknown from now on.
// A frame that deletes the object needs no more than its identity, and is
// applied.
func (r *reflector) refuse(frame string, id wire.Identity, why error) {
	r.informer.count(countRejected)
	name := types.NamespacedName{Namespace: id.Namespace, Name: id.Name}
	if frame == wire.Deleted && id.Name != "" && !errors.Is(why, ErrKind) {
		if r.listing != nil {
			r.listing.dropNamed(id)
		} else {
			r.informer.removeNamed(id)
		}
		return
	}

	first := false
	switch {
	case r.listing != nil:
		first = r.listing.refuse(name, why) && !r.informer.mu.refused.has(name)
	case errors.Is(why, ErrKind):
		first = r.informer.mu.refused.all == nil
		r.informer.unknown(func(r *refusals) { r.addAll(why) })
	default:
		r.informer.unknown(func(r *refusals) { first = r.add(name, why) })
	}

	if r.listing == nil && r.informer.mu.refused.all != nil {
		r.at.distrust = r.informer.mu.refused.all // only the reflector writes it, so the reflector reads it without a lock
	}
	log := r.options.Logger.V(1)
	if first {
		log = r.options.Logger
	}
	log.Info("Object refused: its state is unknown",
		"informer", r.informer.key.String(), "object", wire.Excerpt(name.String()), "error", why.Error())
}

// unknown changes the set of unknown objects.
func (i *informer) unknown(change func(*refusals)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change(&i.mu.refused)
}

// refuse records a refused object of the list. It reports whether the object
// was not yet known to be refused.
func (l *listing) refuse(name types.NamespacedName, why error) bool {
	_, limit := errors.AsType[*wire.LimitError](why)
	l.senseless = l.senseless || !limit
	l.rejected++
	return l.refused.add(name, why)
}

// verdict returns why a complete list cannot be committed, or nil. A list of
// which everything is refused is no answer at all: the server's notion of the
// kind is not the cache's. Objects that are merely too large do not count.
func (l *listing) verdict() error {
	if l.rejected > 0 && l.accepted == 0 && l.senseless {
		return l.refusal()
	}
	return nil
}

// nonsense returns why a list under way is not worth reading to its end, or
// nil.
func (l *listing) nonsense() error {
	if l.rejected > maxRefused && l.rejected > l.accepted {
		return l.refusal()
	}
	return nil
}

func (l *listing) refusal() error {
	return refusedError(l.reflector.informer.key,
		fmt.Errorf("%d objects of a list, the last one since %w", l.rejected, l.refused.last))
}

// dropNamed is drop for an object of which only the identity is known.
func (l *listing) dropNamed(id wire.Identity) {
	r := l.reflector
	l.refused.forget(types.NamespacedName{Namespace: id.Namespace, Name: id.Name})
	if o := r.informer.mu.staged.Get(id.Namespace, id.Name); o != nil && ends(id, o) {
		r.informer.unstage(o)
	}
	if old := r.informer.mu.store.Get(id.Namespace, id.Name); old != nil && ends(id, old) {
		delete(l.seen, old)
	}
}

// removeNamed is remove for an object of which only the identity is known, or
// only the identity is usable: the last known state stands in for it. The
// unknown object may have been another object of the same name, whose creation
// was missed: then the last known one was deleted earlier.
func (i *informer) removeNamed(id wire.Identity) {
	i.mu.Lock()
	defer i.mu.Unlock()

	name := types.NamespacedName{Namespace: id.Namespace, Name: id.Name}
	unknown := i.mu.refused.has(name)
	over := func(o *Object) bool { return ends(id, o) || unknown && succeeds(id, o) }
	i.mu.refused.forget(name)
	old := i.mu.store.Get(id.Namespace, id.Name)
	if s := i.mu.seen.objects[name]; s != nil && over(s.Object) {
		i.passedLocked(name, old, nil)
		defer i.foundLocked(name)
	}
	if old == nil || !over(old) {
		return
	}
	i.mu.store.Remove(old)
	i.chargeLocked()
	i.emitLocked(delta.Vanished(old))
}

// ends reports whether a delete with this identity ends the cached object,
// rather than an earlier state of it or another object of its name.
func ends(id wire.Identity, o *Object) bool {
	if id.UID != "" && string(o.GetUID()) != id.UID {
		return false
	}
	n, err := strconv.ParseUint(id.ResourceVersion, 10, 64)
	version, ok := o.Version()
	return err != nil || !ok || n >= version
}

// succeeds reports whether an identity has a later version than a cached
// object.
func succeeds(id wire.Identity, o *Object) bool {
	n, err := strconv.ParseUint(id.ResourceVersion, 10, 64)
	version, ok := o.Version()
	return err == nil && ok && n > version
}
