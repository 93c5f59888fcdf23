// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package writes remembers what was written to a cluster until its caches show
// it, so that reads do not go back behind the writes of the same process.
//
//	write ends ──► entry ──► Pending of a read ──► Behind a cache?
//	                                                 no: the cache answers
//	                                                 yes: wait, then the API server
//
// What can be remembered depends on the answer:
//
//	version   the state that the answer shows: a cache that has this state of
//	          the object or a later one, or has come as far and does not have
//	          the object, is not behind; unless nothing ever showed the object
//	          since, although the cache would select it
//	gone      the uid of an object that was deleted, whose version is not known:
//	          a cache that does not have this object is not behind
//	unknown   a write that may be executed later, or whose effect the answer
//	          does not show: every cache counts as behind, for a minute
//
// # Tests
//
// The leading test is TestGuaranteeReadsShowWhatWasWritten (test/reading).
// TestHazardCacheHasComeFurtherWithoutTheEvent covers caches that missed an
// event.
package writes

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
)

const (
	// keep is how long a write is remembered. An informer that is further
	// behind is not trusted by then.
	keep = 5 * time.Minute
	// unknownFor is how long an API server may take to execute a write.
	unknownFor = time.Minute
	// maxEntries bounds the entries of a cluster. Beyond it, the objects of a
	// kind share one.
	maxEntries = 256
	// maxGone bounds the uids of one name.
	maxGone = 8
)

// Log holds the writes to one cluster. A nil Log remembers nothing.
type Log struct {
	epoch func() informerpool.Epoch
	some  atomic.Bool // whether there are entries

	mu sync.Mutex
	// The rest is protected by mu; nothing else is locked under it.
	of      informerpool.Epoch // the history that the entries belong to
	entries map[schema.GroupKind]map[client.ObjectKey]*entry
	count   int
}

// New returns a log; epoch returns which history of the cluster is served.
func New(epoch func() informerpool.Epoch) *Log { return &Log{epoch: epoch} }

// Write is a write that has ended. With neither a Version nor Gone it was
// executed, and the answer does not show what it has changed.
type Write struct {
	GVK schema.GroupVersionKind
	// Key names the object. With an empty name, any object of the namespace,
	// or, if that is empty, of the kind, may have been written.
	Key client.ObjectKey
	// Version is the resourceVersion that the object has had since.
	Version string
	// Labels are those that the object has had since, if Labeled.
	Labels  map[string]string
	Labeled bool
	// Gone is the uid of the object, if it does not exist any more.
	Gone types.UID
	// Unknown means that the write may be executed later, or not at all.
	Unknown bool
}

// entry is what was written to one object, or to all of a namespace or kind.
type entry struct {
	key     client.ObjectKey
	version string
	labels  map[string]string // of that version, if labeled
	labeled bool
	gone    []types.UID
	at      time.Time // the last write
	unknown time.Time // until then every cache counts as behind; zero: not at all
	// executed means that nothing of what is unknown is executed later: a list
	// that begins now shows it.
	executed bool
	// opaque means that version has no order: only this very state shows it.
	opaque bool
	// shown is whether a cache has shown that version or a later one, or the
	// API server that the object is gone. Copies share it; nil without a version.
	shown *atomic.Bool
}

// Begin is called before a write. The function that it returns is called with
// what is known once the write has ended.
func (l *Log) Begin() (ended func(Write)) {
	if l == nil {
		return func(Write) {}
	}
	before := l.epoch()
	return func(w Write) {
		if l.epoch() != before {
			// It may have been executed in either history.
			w.Version, w.Gone, w.Unknown = "", "", true
		}
		l.add(w)
	}
}

func (l *Log) add(w Write) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.turnLocked()
	kind := stored(w.GVK)
	if l.count >= maxEntries && l.entries[kind][w.Key] == nil {
		l.makeRoomLocked(kind)
	}
	l.entryLocked(kind, w.Key).add(w)
}

// stored returns the kind that stands for all kinds of the same objects: in
// whatever version and by whichever of the kinds they are written, reads by the
// others show it. Kubernetes has one such pair.
func stored(gvk schema.GroupVersionKind) schema.GroupKind {
	if gvk.Group == "events.k8s.io" && gvk.Kind == "Event" {
		return schema.GroupKind{Kind: "Event"}
	}
	return gvk.GroupKind()
}

// turnLocked forgets the writes to another history.
func (l *Log) turnLocked() {
	if now := l.epoch(); l.of != now || l.entries == nil {
		l.of, l.count = now, 0
		l.entries = map[schema.GroupKind]map[client.ObjectKey]*entry{}
		l.some.Store(false)
	}
}

// entryLocked returns the entry of a key. It makes one if there is none.
func (l *Log) entryLocked(kind schema.GroupKind, key client.ObjectKey) *entry {
	if l.entries[kind] == nil {
		l.entries[kind] = map[client.ObjectKey]*entry{}
	}
	e := l.entries[kind][key]
	if e == nil {
		e = &entry{key: key}
		l.entries[kind][key] = e
		l.count++
		l.some.Store(true)
	}

	return e
}

func (l *Log) dropLocked(kind schema.GroupKind, key client.ObjectKey) {
	delete(l.entries[kind], key)
	if len(l.entries[kind]) == 0 {
		delete(l.entries, kind)
	}
	l.count--
	l.some.Store(l.count > 0)
}

// makeRoomLocked forgets what is old. If that is not enough, one entry replaces
// all those of a kind.
func (l *Log) makeRoomLocked(kind schema.GroupKind) {
	for k, entries := range l.entries {
		for key, e := range entries {
			if e.old() {
				l.dropLocked(k, key)
			}
		}
	}
	if l.count < maxEntries {
		return
	}

	if len(l.entries[kind]) < 2 { // the others have filled the log
		for k, entries := range l.entries {
			if len(entries) > len(l.entries[kind]) {
				kind = k
			}
		}
	}
	all := &entry{}
	for key, e := range l.entries[kind] {
		all.absorb(e)
		l.dropLocked(kind, key)
	}
	*l.entryLocked(kind, client.ObjectKey{}) = *all
}

// old reports whether an entry has served its time.
func (e *entry) old() bool { return time.Since(e.at) > keep }

func (e *entry) add(w Write) {
	e.at = time.Now()
	switch {
	case w.Unknown:
		e.unknownUntil(e.at.Add(unknownFor), false)
	case w.Version == "" && w.Gone == "", w.Gone != "" && len(e.gone) == maxGone:
		e.unknownUntil(e.at.Add(unknownFor), true)
	}

	if w.Gone != "" && len(e.gone) < maxGone && !slices.Contains(e.gone, w.Gone) {
		e.gone = append(slices.Clip(e.gone), w.Gone) // readers have the old slice
	}
	if w.Version != "" {
		e.reaches(w.Version, w.Labels, w.Labeled)
	}
	if w.Gone != "" {
		e.show()
	}
}

// reaches records a version, unless a later one is known.
func (e *entry) reaches(version string, labels map[string]string, labeled bool) {
	_, err := resourceversion.CompareResourceVersion(version, version)
	switch {
	case err != nil: // the newest answer stands for the newest state
		e.opaque = true
		e.unknownUntil(e.at.Add(unknownFor), true)
	case e.version != "" && !e.opaque && !later(version, e.version):
		return
	default:
		e.opaque = false
	}

	e.version, e.labels, e.labeled = version, labels, labeled
	e.shown = new(atomic.Bool)
}

func (e *entry) unknownUntil(t time.Time, executed bool) {
	e.executed = executed && (e.executed || e.unknown.IsZero() || !time.Now().Before(e.unknown))
	e.unknown = t
}

// absorb makes e stand for another entry, too.
func (e *entry) absorb(other *entry) {
	if other.at.After(e.at) {
		e.at = other.at
	}
	if other.version != "" && !other.opaque {
		e.reaches(other.version, nil, false)
	}
	if len(other.gone) > 0 {
		e.unknownUntil(time.Now().Add(unknownFor), true)
	}
	if time.Now().Before(other.unknown) {
		e.unknownUntil(time.Now().Add(unknownFor), other.executed)
	}
}

// later reports whether a is a later version than b.
func later(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// reached reports whether a state of version at is that of version, or a later
// one. Without an order it is not known, and so not the case.
func reached(version, at string) bool {
	order, err := resourceversion.CompareResourceVersion(at, version)
	return err == nil && order >= 0
}
