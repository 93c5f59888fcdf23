// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// version is one state of an object. It never changes.
type version struct {
	rv  int64
	obj map[string]any
	raw []byte
}

func newVersion(rv int64, obj map[string]any) *version {
	u := unstructured.Unstructured{Object: obj}
	u.SetResourceVersion(strconv.FormatInt(rv, 10))
	raw, err := json.Marshal(obj)
	if err != nil {
		panic("fakeapi: " + err.Error()) // it was JSON before
	}
	return &version{rv: rv, obj: obj, raw: raw}
}

// meta gives access to the metadata, for reading only.
func (v *version) meta() *unstructured.Unstructured { return &unstructured.Unstructured{Object: v.obj} }

// copy returns the object for somebody to change.
func (v *version) copy() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(v.obj)}
}

// in returns the object as JSON in a version of its kind.
func (v *version) in(apiVersion string) []byte {
	if v.obj["apiVersion"] == apiVersion {
		return v.raw
	}
	obj := maps.Clone(v.obj)
	obj["apiVersion"] = apiVersion
	raw, err := json.Marshal(obj)
	if err != nil {
		panic("fakeapi: " + err.Error())
	}
	return raw
}

// objectKey names an object of a kind.
type objectKey struct{ namespace, name string }

func compareKeys(a, b objectKey) int {
	if c := strings.Compare(a.namespace, b.namespace); c != 0 {
		return c
	}
	return strings.Compare(a.name, b.name)
}

// change is one entry of the history of a kind. Of a deletion, after is nil and
// last the state it ended in.
type change struct {
	rv                  int64
	key                 objectKey
	before, after, last *version
	unsaid              bool // watches do not hear of it
}

// table is the objects of one kind, and what happened to them since the history
// was last compacted.
type table struct {
	kind    *Kind
	objects map[objectKey]*version
	log     []change
	frozen  *view
	silent  bool
	deaf    bool          // changes are not told of
	news    chan struct{} // closed at the next change
	nudges  int           // counts bookmarks that were asked for
	gone    bool          // its definition was deleted
	expired int64         // watches of this kind from before are answered with 410
}

func newTable(k *Kind) *table {
	return &table{kind: k, objects: map[objectKey]*version{}, news: make(chan struct{})}
}

// view is a kind as it was.
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

// at returns the objects as they were, going back from now.
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

// wake tells the watches that there is something to see.
func (t *table) wake() {
	close(t.news)
	t.news = make(chan struct{})
}

// put makes obj the state of an object, which the caller gives away. It returns
// the new state.
func (s *Server) put(t *table, key objectKey, obj map[string]any) *version {
	s.nextVersion()
	v := newVersion(s.rv, obj)
	t.log = append(t.log, change{rv: s.rv, key: key, before: t.objects[key], after: v, unsaid: t.deaf})
	t.objects[key] = v
	t.wake()
	return v
}

// remove ends an object in the state obj, which the caller gives away.
func (s *Server) remove(t *table, key objectKey, obj map[string]any) *version {
	s.nextVersion()
	last := newVersion(s.rv, obj)
	t.log = append(t.log, change{rv: s.rv, key: key, before: t.objects[key], last: last, unsaid: t.deaf})
	delete(t.objects, key)
	t.wake()
	return last
}

// Snapshot is everything a server stored at one moment.
type Snapshot struct {
	rv     int64
	serial int
	tables map[string]*view
	kinds  map[string]*Kind
}

// Snapshot returns what the server stores.
func (s *Server) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &Snapshot{rv: s.rv, serial: s.serial, tables: map[string]*view{}, kinds: map[string]*Kind{}}
	for name, t := range s.tables {
		out.tables[name] = &view{objects: maps.Clone(t.objects)}
		out.kinds[name] = t.kind
	}
	return out
}

// Restore brings back what was stored, as a restored backup of etcd does:
// resourceVersions go back, and the history before the snapshot is gone. Every
// watch ends.
func (s *Server) Restore(from *Snapshot) { s.restore(from, 0) }

// RestoreBumped is Restore as Kubernetes' documentation wants it done, with
// etcdutl's --bump-revision and --mark-compacted: the history goes on by so
// many versions later, and all that came before counts as compacted. The
// objects have the versions that they had in the backup.
func (s *Server) RestoreBumped(from *Snapshot, by int64) { s.restore(from, by) }

func (s *Server) restore(from *Snapshot, bump int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv = from.rv + bump
	s.compacted, s.expired, s.moments = s.rv, s.rv, nil
	for _, t := range s.tables {
		t.wake()
	}
	s.tables = map[string]*table{}
	for name, v := range from.tables {
		t := newTable(from.kinds[name])
		t.objects = maps.Clone(v.objects)
		s.tables[name] = t
	}
	s.kindsChangedLocked()
	s.cutLocked(func(*Request) bool { return true })
}

// Compact forgets the history: a watch that resumes behind it is answered with
// 410, and so is the next page of a list. Watches that are open go on.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compactLocked()
}

func (s *Server) compactLocked() {
	s.compacted = s.rv
	for _, st := range s.streams {
		// What an open watch has not been sent yet must not get lost.
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
