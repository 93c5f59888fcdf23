// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
)

// Scan validates one JSON object completely, in one pass and without building a
// map, and finds its metadata. The Item aliases object, see [Item]. Errors are
// [*SyntaxError], [*FieldError] and [*LimitError].
func Scan(object []byte) (Item, error) {
	var s scanner
	if err := s.scan(object); err != nil {
		return Item{}, err
	}
	return s.it, nil
}

// scan scans object into s.it.
func (s *scanner) scan(object []byte) error {
	if len(object) > math.MaxInt32 {
		return &LimitError{What: "object bytes", Limit: math.MaxInt32}
	}
	*s = scanner{parser: parser{b: object}}
	if !s.document() {
		return s.err
	}

	if s.twice {
		var err error
		if object, err = resolve(object); err != nil {
			return err
		}
		*s = scanner{parser: parser{b: object}}
		s.document()
	}

	s.finish(object)

	return nil
}

// scanFirst is scan for an object at the beginning of b. It returns where the
// object ends, or -1 if the object is incomplete, invalid or has repeated keys.
func (s *scanner) scanFirst(b []byte) int {
	if len(b) == 0 || b[0] != '{' || len(b) > math.MaxInt32 {
		return -1
	}
	*s = scanner{parser: parser{b: b}}
	end := s.object(0)
	if end < 0 || s.twice {
		return -1
	}
	s.finish(b[:end:end])

	return end
}

// resolve rewrites an object with repeated keys to the meaning that
// encoding/json gives it. Unchanged, it would mean one thing to a decoder that
// overwrites and another to one that merges.
func resolve(object []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	var content map[string]any
	if err := d.Decode(&content); err != nil {
		return nil, &SyntaxError{Reason: "repeated keys that cannot be resolved"}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(content); err != nil {
		return nil, &SyntaxError{Reason: "repeated keys that cannot be resolved"}
	}
	return out.Bytes(), nil
}

// scanner is the state of one Scan, and its result. It is large, so readers
// keep theirs with their buffers and the stacks of a fleet's reflectors stay
// small.
type scanner struct {
	parser
	it    Item
	twice bool // a key that matters appeared twice

	apiVersion, kind quoted
	texts            struct {
		name, namespace, uid, version, created, deleted quoted
	}

	labels, annotations, owners, finalizers span
}

// quoted is a string literal with its quotes; the zero value is absent or null.
type quoted = span

// document scans the whole document.
func (s *scanner) document() bool {
	i := s.space(0)
	switch {
	case i == len(s.b):
		return s.fail(i, "unexpected end") >= 0
	case s.b[i] != '{':
		if s.value(i) >= 0 {
			s.refuse("", "is not a JSON object")
		}
		return false
	}

	if i = s.object(i); i < 0 {
		return false
	}
	if i = s.space(i); i < len(s.b) {
		s.fail(i, "more after the end of the object")
		return false
	}
	return true
}

// object scans the top level.
func (s *scanner) object(i int) int {
	var seen uint8
	return s.each(i, func(key span, from int) (end int) {
		field := uint8(0)
		switch string(plainKey(key.of(s.b))) {
		case `"apiVersion"`:
			field, end = topAPIVersion, s.text(from, "apiVersion", &s.apiVersion)
		case `"kind"`:
			field, end = topKind, s.text(from, "kind", &s.kind)
		case `"metadata"`:
			field, end = topMetadata, s.metadata(from)
		default:
			if end = s.value(from); end >= 0 {
				s.it.top.add(spanOf(int(key.from), end), 0)
			}
		}
		s.twice = s.twice || seen&field != 0
		seen |= field
		return end
	})
}

const (
	topAPIVersion = 1 << iota
	topKind
	topMetadata
)

// plainKey returns a key without escapes, so that it can be compared.
func plainKey(key []byte) []byte {
	if plain(key) {
		return key
	}
	return []byte(`"` + unquote(key) + `"`)
}

// text reads a string or null.
func (s *scanner) text(i int, field string, into *quoted) int {
	*into = quoted{}
	if s.at(i) != '"' {
		return s.nullOr(i, field, "is not a string")
	}
	end := s.str(i)
	if end >= 0 {
		*into = spanOf(i, end)
	}
	return end
}

// nullOr reads null, which stands for an absent field, and refuses other values.
func (s *scanner) nullOr(i int, field, reason string) int {
	if s.at(i) == 'n' {
		return s.literal(i, "null")
	}
	return s.wrongType(i, field, reason)
}

// wrongType refuses a field or, if the value is not JSON at all, the document.
func (s *scanner) wrongType(i int, field, reason string) int {
	if s.value(i) < 0 {
		return -1
	}
	return s.refuse(field, reason)
}

// finish completes the item of the scanned object.
func (s *scanner) finish(object []byte) {
	s.it.object = object
	s.it.Labels, s.it.Annotations = s.labels.of(object), s.annotations.of(object)
	s.it.OwnerReferences, s.it.Finalizers = s.owners.of(object), s.finalizers.of(object)
	s.copyStrings()
}

// copyStrings gives the item its own copies of its strings, all in one
// allocation.
func (s *scanner) copyStrings() {
	all := [...]struct {
		from quoted
		to   *string
	}{
		{s.apiVersion, &s.it.APIVersion},
		{s.kind, &s.it.Kind},
		{s.texts.name, &s.it.Name},
		{s.texts.namespace, &s.it.Namespace},
		{s.texts.uid, &s.it.UID},
		{s.texts.version, &s.it.ResourceVersion},
		{s.texts.created, &s.it.CreationTimestamp},
		{s.texts.deleted, &s.it.DeletionTimestamp},
	}
	size := 0
	for _, t := range all {
		size += int(t.from.to - t.from.from)
	}
	var b strings.Builder
	b.Grow(size)

	for _, t := range all {
		if t.from.to == 0 {
			continue
		}
		literal := t.from.of(s.b)
		if !plain(literal) {
			*t.to = unquote(literal)
			continue
		}
		start := b.Len()
		b.Write(literal[1 : len(literal)-1])
		*t.to = b.String()[start:]
	}
}
