// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import "sync"

// maxETags is how many ETags are remembered per document. A document has
// several, because they also cover fields that we do not keep, such as verbs.
const maxETags = 4

// Table holds the discovery documents of a fleet. It holds each distinct
// document once, for as long as a Mapper uses it. It is safe for concurrent
// use.
type Table struct {
	// mu protects everything below. It is never held over I/O or parsing.
	mu      sync.Mutex
	entries map[content]*entry
	etags   map[tag]*entry
}

// content identifies the content of a document and its path.
type content struct {
	path string
	fingerprint
}

// tag is a verified ETag of a path.
type tag struct{ path, etag string }

// entry is a document in use.
type entry struct {
	doc *document
	key content

	// Guarded by Table.mu:
	etags []string // verified ETags that stand for the document, newest last
	uses  int      // references from parts of mappers
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{entries: map[content]*entry{}, etags: map[tag]*entry{}}
}

// common returns the document that most mappers use for path, with a new
// reference to it and a verified ETag. It returns nil if there is none.
func (t *Table) common(path string) (*entry, string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	var most *entry
	for _, e := range t.entries {
		if e.key.path == path && len(e.etags) > 0 && (most == nil || e.uses > most.uses) {
			most = e
		}
	}
	if most == nil {
		return nil, ""
	}
	most.uses++

	return most, most.etags[len(most.etags)-1]
}

// known returns the document that a verified ETag stands for, with a new
// reference to it, or nil.
func (t *Table) known(path, etag string) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()

	e := t.etags[tag{path, etag}]
	if e != nil {
		e.uses++
	}
	return e
}

// add returns the entry with the same content as doc, with a new reference to
// it. verified is an ETag that was verified for the document, or empty.
func (t *Table) add(path string, doc *document, verified string) *entry {
	return t.use(content{path, doc.fingerprint()}, doc, verified)
}

// again is add for the document of an entry that is in use, or was.
func (t *Table) again(e *entry) *entry { return t.use(e.key, e.doc, "") }

func (t *Table) use(key content, doc *document, verified string) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()

	e := t.entries[key]
	if e == nil {
		e = &entry{doc: doc, key: key}
		t.entries[key] = e
	}
	e.uses++

	if verified != "" && t.etags[tag{key.path, verified}] == nil {
		if len(e.etags) == maxETags {
			delete(t.etags, tag{key.path, e.etags[0]})
			e.etags = e.etags[1:]
		}
		e.etags = append(e.etags, verified)
		t.etags[tag{key.path, verified}] = e
	}

	return e
}

// drop removes a reference. The last one removes the entry.
func (t *Table) drop(e *entry) {
	if e == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()

	if e.uses--; e.uses > 0 {
		return
	}
	delete(t.entries, e.key)
	for _, etag := range e.etags {
		delete(t.etags, tag{e.key.path, etag})
	}
}
