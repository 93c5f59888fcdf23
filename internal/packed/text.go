// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"iter"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/internal/wire"
)

var _ labels.Labels = (*text)(nil)

// text is a piece of validated JSON: labels or owner references, as received.
// Strings that are read from it point into it.
type text struct{ json string }

// noText has no labels.
var noText = &text{"{}"}

// reader reads the JSON from its beginning.
func (t *text) reader() reader {
	return reader{b: unsafe.Slice(unsafe.StringData(t.json), len(t.json))} // never written to
}

// str reads a string or null.
func (t *text) str(r *reader) string {
	if r.b[r.i] != '"' {
		r.scalar()
		return ""
	}
	start := r.i + 1
	quoted, plain := r.literal()
	if !plain {
		return wire.String(quoted)
	}
	return t.json[start : r.i-1]
}

// key reads a key and advances to its value.
func (t *text) key(r *reader) string {
	key := t.str(r)
	r.peek()
	r.i++ // the colon
	r.peek()
	return key
}

// Has implements labels.Labels.
func (t *text) Has(label string) bool {
	_, ok := t.Lookup(label)
	return ok
}

// Get implements labels.Labels.
func (t *text) Get(label string) string {
	value, _ := t.Lookup(label)
	return value
}

// Lookup implements labels.Labels. Of equal keys the last one counts.
func (t *text) Lookup(label string) (value string, ok bool) {
	r := t.reader()
	for r.enter(); r.more(); {
		if t.key(&r) == label {
			value, ok = t.str(&r), true
		} else {
			r.raw()
		}
	}

	return value, ok
}

// stringMap returns the members as a new map.
func (t *text) stringMap() map[string]string {
	r := t.reader()
	m := make(map[string]string, 8)
	for r.enter(); r.more(); {
		key := t.key(&r)
		m[key] = t.str(&r)
	}
	return m
}

// owners yields the owner references.
func (t *text) owners() iter.Seq[metav1.OwnerReference] {
	return func(yield func(metav1.OwnerReference) bool) {
		r := t.reader()
		for r.enter(); r.more(); {
			if !yield(t.owner(&r)) {
				return
			}
		}
	}
}

func (t *text) owner(r *reader) (ref metav1.OwnerReference) {
	for r.enter(); r.more(); {
		switch t.key(r) {
		case "apiVersion":
			ref.APIVersion = t.str(r)
		case "kind":
			ref.Kind = t.str(r)
		case "name":
			ref.Name = t.str(r)
		case "uid":
			ref.UID = types.UID(t.str(r))
		case "controller":
			ref.Controller = flag(r.scalar())
		case "blockOwnerDeletion":
			ref.BlockOwnerDeletion = flag(r.scalar())
		default:
			r.raw()
		}
	}

	return ref
}

// flag returns a pointer to the value of true or false, or nil for null.
func flag(literal []byte) *bool {
	if literal[0] == 'n' {
		return nil
	}
	return new(literal[0] == 't')
}
