// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
)

// Any stands for every key or every array element in a path given to NewStrip.
const Any = "*"

// Strip is a set of fields that are dropped while objects are scanned. It is
// immutable and safe for concurrent use; a nil *Strip drops nothing.
type Strip struct {
	children map[string]*Strip
	drop     bool // the field itself, and so all below it
}

// errStrip indicates a path that cannot be stripped.
var errStrip = errors.New("cannot be stripped")

// NewStrip compiles paths such as {"spec", "template", "spec"}, {"data"},
// {"metadata", "annotations",
// "kubectl.kubernetes.io/last-applied-configuration"} or {"spec", "containers",
// Any, "env"}. Array elements themselves cannot be dropped, nor can metadata
// other than annotations and unknown fields. Where a named key and Any stand
// beside each other, the named one counts for its key.
func NewStrip(paths ...[]string) (*Strip, error) {
	root := &Strip{}
	for _, path := range paths {
		if err := checkPath(path); err != nil {
			return nil, err
		}
		at := root
		for _, name := range path {
			if at.children == nil {
				at.children = make(map[string]*Strip)
			}
			child := at.children[name]
			if child == nil {
				child = &Strip{}
				at.children[name] = child
			}
			at = child
		}
		at.drop = true
	}
	return root, nil
}

// checkPath refuses paths that reach what the cache itself needs.
func checkPath(path []string) error {
	if len(path) == 0 {
		return fmt.Errorf("empty path %w", errStrip)
	}
	switch path[0] {
	case "apiVersion", "kind", Any:
		return fmt.Errorf("%q: %q %w", path, path[0], errStrip)
	case "metadata":
	default:
		return nil
	}
	if len(path) == 1 || path[1] == Any || path[1] != "annotations" && fieldOf([]byte(`"`+path[1]+`"`)) != 0 {
		return fmt.Errorf("%q: identity and ownership %w", path, errStrip)
	}
	return nil
}

// Scan is the package's Scan, with the fields of the set dropped from what the
// methods of the Item append. Its Annotations span still holds all of them.
func (st *Strip) Scan(object []byte) (Item, error) { return scan(object, st) }

// drops reports whether the field is dropped as a whole.
func (st *Strip) drops() bool { return st != nil && st.drop }

// child returns what is stripped below a key literal, nil if nothing.
func (st *Strip) child(key []byte) *Strip {
	if st == nil || st.children == nil {
		return nil
	}
	c := st.children[string(key[1:len(key)-1])]
	if !plain(key) {
		c = st.children[unquote(key)]
	}
	if c == nil {
		c = st.children[Any]
	}
	return c
}

// stripped skips the value at i, which stays, and notes what to cut out of it.
func (s *scanner) stripped(i int, strip *Strip) int {
	if strip == nil || strip.children == nil {
		return s.value(i)
	}
	switch s.at(i) {
	case '{':
		return s.strippedObject(i, strip)
	case '[':
		return s.strippedArray(i, strip)
	}
	return s.value(i)
}

// strippedObject cuts a member together with the comma before it. Where all
// members so far are cut, the first one that stays loses its comma instead.
func (s *scanner) strippedObject(i int, strip *Strip) int {
	from, more := s.open(i)
	edge, kept := i+1, false
	for i = from; more; {
		key, value := s.name(i)
		if value < 0 {
			return -1
		}
		child := strip.child(key.of(s.b))
		if child.drops() {
			if i = s.value(value); i >= 0 {
				s.it.cuts = append(s.it.cuts, spanOf(edge, i))
			}
		} else {
			if !kept && edge < i && s.b[edge] == ',' {
				s.it.cuts = append(s.it.cuts, spanOf(edge, i))
			}
			kept = true
			i = s.stripped(value, child)
		}
		if i < 0 {
			return -1
		}
		edge = s.space(i)
		i, more = s.next(i)
	}
	return i
}

func (s *scanner) strippedArray(i int, strip *Strip) int {
	if i = s.space(i + 1); s.at(i) == ']' {
		return i + 1
	}
	for more := true; more; {
		if i = s.stripped(i, strip.children[Any]); i < 0 {
			return -1
		}
		i, more = s.nextElement(i)
	}
	return i
}
