// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// version is one state of an object. It is immutable.
type version struct {
	rv  int64
	obj map[string]any
	raw []byte
}

func newVersion(rv int64, obj map[string]any) *version {
	u := unstructured.Unstructured{Object: obj}
	u.SetResourceVersion(strconv.FormatInt(rv, 10))
	return &version{rv: rv, obj: obj, raw: marshal(obj)}
}

// meta returns the object for reading its metadata. The caller must not modify
// it.
func (v *version) meta() *unstructured.Unstructured { return &unstructured.Unstructured{Object: v.obj} }

// copy returns a copy of the object, which the caller may modify.
func (v *version) copy() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(v.obj)}
}

// in returns the object's JSON in a version of its kind.
func (v *version) in(apiVersion string) []byte {
	if v.obj["apiVersion"] == apiVersion {
		return v.raw
	}
	obj := maps.Clone(v.obj)
	obj["apiVersion"] = apiVersion
	return marshal(obj)
}

// objectKey identifies an object within its kind.
type objectKey struct{ namespace, name string }

func compareKeys(a, b objectKey) int {
	if c := strings.Compare(a.namespace, b.namespace); c != 0 {
		return c
	}
	return strings.Compare(a.name, b.name)
}

// change is one entry in the history of a kind. For a deletion, after is nil
// and last is the object's final state.
type change struct {
	rv                  int64
	key                 objectKey
	before, after, last *version
	unsaid              bool // not delivered to watches
}

// table holds the objects of one kind, and the changes since the history was
// last compacted.
type table struct {
	kind    *Kind
	objects map[objectKey]*version
	log     []change
	frozen  *view
	silent  bool
	deaf    bool          // changes are not delivered to watches
	news    chan struct{} // closed at the next change
	nudges  int           // counts requested bookmarks
	gone    bool          // its definition was deleted
	expired int64         // watches of this kind from earlier versions get 410
}

func newTable(k *Kind) *table {
	return &table{kind: k, objects: map[objectKey]*version{}, news: make(chan struct{})}
}

// view is the state of a kind at an earlier time.
type view struct {
	rv      int64
	objects map[objectKey]*version
}

// after returns the changes after rv, up to and including limit; 0 means no
// limit.
func (t *table) after(rv, limit int64) []change {
	from, _ := slices.BinarySearchFunc(t.log, rv+1, func(c change, rv int64) int { return int(c.rv - rv) })
	out := t.log[from:]
	if limit > 0 {
		to, _ := slices.BinarySearchFunc(out, limit+1, func(c change, rv int64) int { return int(c.rv - rv) })
		out = out[:to]
	}
	return out
}

// at returns the objects as they were at rv, by undoing later changes.
func (t *table) at(rv int64) map[objectKey]*version {
	out := maps.Clone(t.objects)
	for _, c := range slices.Backward(t.after(rv, 0)) {
		if c.before == nil {
			delete(out, c.key)
		} else {
			out[c.key] = c.before
		}
	}

	return out
}

// wake wakes the watches because there may be something to send.
func (t *table) wake() {
	close(t.news)
	t.news = make(chan struct{})
}

// store is the objects of a server with the history of their changes, and the
// watches that follow it. Its methods run under the server's lock.
type store struct {
	identity string
	serial   int // of uids and generated names
	rv       int64
	// compacted is the version up to which the history was removed; expired is
	// the version up to which new requests see it as removed.
	compacted, expired int64
	tables             map[string]*table // by group and resource
	streams            []*stream
	lag                time.Duration
	late               func(*Request) bool // requests that the lagging server gets; nil without one
	moments            []moment            // of versions, while there is a lagging server
}

// put stores obj as the new state of an object and returns it. The caller gives
// up obj.
func (s *store) put(t *table, key objectKey, obj map[string]any) *version {
	s.nextVersion()
	v := newVersion(s.rv, obj)
	t.log = append(t.log, change{
		rv:     s.rv,
		key:    key,
		before: t.objects[key],
		after:  v,
		unsaid: t.deaf,
	})
	t.objects[key] = v
	t.wake()

	return v
}

// remove removes an object, with obj as its final state. The caller gives up
// obj.
func (s *store) remove(t *table, key objectKey, obj map[string]any) *version {
	s.nextVersion()
	last := newVersion(s.rv, obj)
	t.log = append(t.log, change{
		rv:     s.rv,
		key:    key,
		before: t.objects[key],
		last:   last,
		unsaid: t.deaf,
	})
	delete(t.objects, key)
	t.wake()

	return last
}

// Snapshot is everything that a server stored at one moment.
type Snapshot struct {
	rv     int64
	serial int
	tables map[string]*view
	kinds  map[string]*Kind
}

// Snapshot returns a snapshot of the server's contents.
func (s *Server) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()

	out := &Snapshot{
		rv:     s.rv,
		serial: s.serial,
		tables: map[string]*view{},
		kinds:  map[string]*Kind{},
	}
	for name, t := range s.tables {
		out.tables[name] = &view{objects: maps.Clone(t.objects)}
		out.kinds[name] = t.kind
	}
	return out
}

// Restore restores a snapshot, as restoring a backup of etcd does:
// resourceVersions go back, and the history before the snapshot is lost. Every
// watch ends.
func (s *Server) Restore(from *Snapshot) { s.RestoreBumped(from, 0) }

// RestoreBumped is like Restore, but follows Kubernetes' documentation by using
// etcdutl's --bump-revision and --mark-compacted: the history continues by so
// many versions later, and everything before counts as compacted. The objects
// keep the versions that they had in the backup.
func (s *Server) RestoreBumped(from *Snapshot, by int64) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.rv = from.rv + by
	s.compacted, s.expired, s.moments = s.rv, s.rv, nil
	for _, t := range s.tables {
		t.wake()
	}
	s.tables, s.documents = map[string]*table{}, [2]*document{}
	for name, v := range from.tables {
		t := newTable(from.kinds[name])
		t.objects = maps.Clone(v.objects)
		s.tables[name] = t
	}
	s.cut(func(*Request) bool { return true })
}

// Recount begins a new history, as a server does that counts versions in memory
// and was restarted: the objects stay as they are, and get new versions from
// the first one on. Every watch ends.
func (s *Server) Recount() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.rv, s.moments = firstVersion, nil
	for _, name := range slices.Sorted(maps.Keys(s.tables)) {
		t := s.tables[name]
		for _, key := range slices.SortedFunc(maps.Keys(t.objects), compareKeys) {
			s.nextVersion()
			t.objects[key] = newVersion(s.rv, t.objects[key].copy().Object)
		}
		t.log, t.frozen, t.expired = nil, nil, 0
		t.wake()
	}
	s.compacted, s.expired = s.rv, s.rv
	s.cut(func(*Request) bool { return true })
}

// Compact removes the history: a watch that resumes from before, or the next
// page of a list, gets 410. Open watches continue.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.compacted = s.rv
	for _, st := range s.streams {
		// Changes that an open watch has not been sent yet must not be lost.
		s.compacted = min(s.compacted, st.reached)
	}
	for _, t := range s.tables {
		t.log = slices.Clone(t.after(s.compacted, 0))
	}
	s.expired = s.rv
}

func expiredMessage(from, oldest int64) string {
	return fmt.Sprintf("too old resource version: %d (%d)", from, oldest)
}
