// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
)

// View is what one cache shows.
type View interface {
	// Position returns how far the cache has come.
	Position() informerpool.Position
	// Find returns an object. The error is one of apierrors.IsNotFound if the
	// cache does not have it.
	Find(namespace, name string) (*informerpool.Object, error)
	// In returns the namespace in which an object of a namespace is found.
	In(namespace string) string
	// MaySelect reports whether the cache has an object of this name and these
	// labels, if it exists and the cache is up to date.
	MaySelect(key client.ObjectKey, labels map[string]string) bool
}

// Pending are the writes that a read has to show.
type Pending struct {
	log     *Log
	kind    schema.GroupKind
	entries []entry // copies
}

// Any reports whether anything is remembered.
func (l *Log) Any() bool { return l != nil && l.some.Load() }

// Of returns the writes that have ended and that a read of a kind has to show:
// of one object, or, if the name is empty, of a namespace, or of all. It
// returns nil if there are none.
func (l *Log) Of(gvk schema.GroupVersionKind, key client.ObjectKey) *Pending {
	if !l.Any() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()

	l.turnLocked()
	p := &Pending{log: l, kind: stored(gvk)}
	for name, e := range l.entries[p.kind] {
		switch {
		case e.old():
			l.dropLocked(p.kind, name)
		case e.concerns(key):
			p.entries = append(p.entries, *e)
		}
	}

	if len(p.entries) == 0 {
		return nil
	}
	return p
}

// concerns reports whether the entry may be about an object, or, if the name is
// empty, about any object of the namespace. The namespaces of cluster-scoped
// objects are ignored, by the API server as well.
func (e *entry) concerns(key client.ObjectKey) bool {
	apart := e.key.Namespace != "" && key.Namespace != "" && e.key.Namespace != key.Namespace
	return !apart && (e.key.Name == "" || key.Name == "" || e.key.Name == key.Name)
}

// Unknown reports whether a cache may show some of the writes and there is no
// way to find out: waiting does not help.
func (p *Pending) Unknown() bool {
	return slices.ContainsFunc(p.entries, func(e entry) bool { return !e.opaque && time.Now().Before(e.unknown) })
}

// Last returns when the last of the writes ended.
func (p *Pending) Last() time.Time {
	var last time.Time
	for i := range p.entries {
		if p.entries[i].at.After(last) {
			last = p.entries[i].at
		}
	}

	return last
}

// Behind reports whether a cache does not show all of the writes yet.
func (p *Pending) Behind(v View) bool {
	at := v.Position()
	for i := range p.entries {
		if p.entries[i].missingIn(v, at) {
			return true
		}
	}

	return false
}

// missingIn reports whether a cache does not show an entry yet.
func (e *entry) missingIn(v View, at informerpool.Position) bool {
	unknown := time.Now().Before(e.unknown)
	passed := e.version != "" && !e.opaque && reached(e.version, at.ResourceVersion)
	if e.key.Name == "" {
		return unknown || e.version != "" && !passed
	}

	o, err := v.Find(v.In(e.key.Namespace), e.key.Name)
	switch {
	case o != nil && slices.Contains(e.gone, o.GetUID()):
		return true
	case e.opaque && o != nil && o.GetResourceVersion() == e.version:
		return false
	case unknown:
		return true
	case e.version == "" || e.opaque:
		return false
	case o != nil:
		// A cache that has come further may lack the event: a gateway dropped it.
		if !reached(e.version, o.GetResourceVersion()) {
			return true
		}
		e.show()
		return false
	case passed && (!e.labeled || e.shown.Load()):
		return false // the object was deleted since
	}

	return !e.labeled || !apierrors.IsNotFound(err) || v.MaySelect(e.key, e.labels)
}

// Absent records that the API server does not have any of the objects, asked
// after the writes: a cache that has come as far and lacks them is right.
func (p *Pending) Absent() {
	for i := range p.entries {
		p.entries[i].show()
	}
}

// show records that the version was shown, if there is one.
func (e *entry) show() {
	if e.shown != nil {
		e.shown.Store(true)
	}
}

// Listed records the resourceVersion of a list of the API server that began
// after the writes: what was unknown of those that were executed is not later.
// lacks reports whether the list would have an object with these labels, and
// does not: it was deleted since.
func (p *Pending) Listed(version string, lacks func(key client.ObjectKey, labels map[string]string) bool) {
	for i := range p.entries {
		if e := &p.entries[i]; e.labeled && lacks(e.key, e.labels) {
			e.show()
		}
	}
	l := p.log
	l.mu.Lock()
	defer l.mu.Unlock()

	for i := range p.entries {
		before := &p.entries[i]
		e := l.entries[p.kind][before.key]
		if e == nil || e.at != before.at || e.opaque || !e.executed || !time.Now().Before(e.unknown) ||
			!reached(version, version) { // a version without an order
			continue
		}
		e.unknown = time.Time{}
		e.reaches(version, nil, false)
	}
}
